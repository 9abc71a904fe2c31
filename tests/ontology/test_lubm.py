"""LUBM-1 with the rules of its own ontology, against an independent OWL 2 RL reasoner.

The published file holds a second, older copy of the ontology whose blank nodes have the same names as the first's. The
comparison leaves it out: the reasoners read such lists differently.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.ontology.program import compile_ontology
from engine.ontology.triples import Triple, read_triples
from tests.ontology.graphs import assertions, closure, reasonable_closure
from zedlog import Reasoner

UNIV_BENCH = "http://www.lehigh.edu/~zhp2/2004/0401/univ-bench.owl#"
OTHER_COPY = "http://swat.cse.lehigh.edu/"


@pytest.fixture(scope="module")
def everything(data: Path) -> list[Triple]:
    triples = read_triples(data / "lubm1.nt.gz")
    assert len(triples) == 103_706
    assert len(set(triples)) == 101_150
    return triples


@pytest.fixture(scope="module")
def triples(everything: list[Triple]) -> list[Triple]:
    kept = [t for t in everything if not any(OTHER_COPY in term for term in t)]
    # The one relative IRI, which belongs to the other copy.
    return [t for t in dict.fromkeys(kept) if "<>" not in t]


def test_oracle_reasonable_agrees(triples: list[Triple], tmp_path: Path) -> None:
    """On every class and property of the ontology: 137,931 assertions, of which 100,543 are given."""
    found = closure(triples)
    said = assertions(found, UNIV_BENCH)
    assert said == assertions(reasonable_closure(triples, tmp_path), UNIV_BENCH)
    assert (len(assertions(triples, UNIV_BENCH)), len(said), len(found)) == (100_543, 137_931, 138_246)
    people = {s for s, p, o in found if p.endswith("#type>") and o == f"<{UNIV_BENCH}Person>"}
    assert len(people) == 8_330


def test_the_ontology_gives_a_rule_for_each_axiom(triples: list[Triple]) -> None:
    text, compiled = compile_ontology(triples, "lubm1.nt.gz")
    assert compiled.ambiguous == []
    # Only restrictions as conclusions, to which OWL 2 RL has no rule.
    assert len(compiled.not_covered) == 8
    assert all("some" in axiom and axiom.endswith("as a conclusion") for axiom in compiled.not_covered)
    assert "// subOrganizationOf is transitive\n" in text
    assert "// degreeFrom InverseOf hasAlumnus\n" in text or "// hasAlumnus InverseOf degreeFrom\n" in text


def test_the_file_as_it_is_published(everything: list[Triple], triples: list[Triple]) -> None:
    """Both copies: every reading of the merged lists gives rules, and nothing is lost by that."""
    _, compiled = compile_ontology(everything, "lubm1.nt.gz")
    assert "_:genid1" in compiled.ambiguous
    assert closure(triples) <= closure(everything)


def test_retraction_of_a_random_hundredth_and_its_return(triples: list[Triple]) -> None:
    _, compiled = compile_ontology(triples, "lubm1.nt.gz")
    rules = [(clause, 1) for _, clauses in compiled.clauses for clause in clauses]

    def loaded(rows: list[Triple]) -> Reasoner:
        reasoner = Reasoner()
        reasoner.apply(facts={"triple": [(row, 1) for row in rows]}, rules=rules)
        return reasoner

    chosen = np.random.default_rng(4).choice(len(triples), len(triples) // 100, replace=False)
    some = {triples[i] for i in chosen}
    reasoner = loaded(triples)
    before = set(reasoner.facts("triple"))
    gone = reasoner.apply(facts={"triple": [(row, -1) for row in some]})
    assert set(reasoner.facts("triple")) == set(loaded([t for t in triples if t not in some]).facts("triple"))
    back = reasoner.apply(facts={"triple": [(row, 1) for row in some]})
    assert set(reasoner.facts("triple")) == before
    assert {row for row, _ in gone.changes["triple"]} == {row for row, _ in back.changes["triple"]}
