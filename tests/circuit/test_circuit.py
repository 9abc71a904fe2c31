"""Strata, demanded indexes, and the descriptions of a circuit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.circuit.compile import compile_circuit
from engine.circuit.describe import to_json, to_mermaid, to_text
from engine.circuit.strata import components
from engine.language.inference import infer_schemas
from engine.language.parser import parse_program
from engine.language.syntax import Fixpoint

PROGRAM = """
odd(x, y) :- e(x, y).
even(x, z) :- odd(x, y), e(y, z).
odd(x, z) :- even(x, y), e(y, z).
both(x, y) :- odd(x, y), even(x, y).
"""


def compiled(text: str):
    rules = parse_program(text).rules
    return compile_circuit(rules, infer_schemas([], {}, rules, {}))


def test_mutual_recursion_is_one_stratum_between_what_it_reads_and_what_reads_it():
    circuit = compiled(PROGRAM)
    assert [s.relations for s in circuit.strata] == [("e",), ("even", "odd"), ("both",)]
    assert [s.recursive for s in circuit.strata] == [False, True, False]
    assert circuit.stratum_of["odd"].reads == {"e"}
    assert {name for name in circuit.arities if circuit.is_read_above(name)} == {"e", "even", "odd"}


def test_a_relation_that_reads_itself_is_recursive():
    assert compiled("p(x, y) :- p(y, x).").strata[0].recursive


def test_each_index_is_demanded_once():
    circuit = compiled("p(x, z) :- e(x, y), e(y, z). q(x, z) :- e(x, y), e(y, z).")
    described = to_json(circuit)["indexes"]
    assert [(d["relation"], d["columns"], len(d["plans"])) for d in described] == [
        ("e", [0], 2),
        ("e", [1], 2),
    ]


def test_descriptions_name_every_rule_and_relation():
    circuit = compiled(PROGRAM)
    text, mermaid = to_text(circuit), to_mermaid(circuit)
    for rule in circuit.rules:
        assert rule in text
        assert rule in mermaid
    for relation in circuit.arities:
        assert f"{relation}/2" in mermaid
    assert "stratum 0: e (facts only)" in text
    assert "stratum 1: even, odd (recursive)" in text


def test_mermaid_escapes_what_would_end_a_label():
    mermaid = to_mermaid(compiled('p(x) :- e(x, "a<b>").'))
    assert "#quot;" in mermaid or "&quot;" in mermaid
    assert '"a<b>"' not in mermaid


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.sets(st.sampled_from("abcdefgh"))))
def test_components_are_the_mutually_reachable_and_come_in_order(graph: dict[str, set[str]]):
    full = {node: set(graph.get(node, ())) for node in "abcdefgh"}
    reach = {node: _reachable(full, node) for node in full}
    found = components(full)
    assert sorted(node for members in found for node in members) == sorted(full)
    place = {node: i for i, members in enumerate(found) for node in members}
    for a in full:
        for b in full:
            together = a == b or (b in reach[a] and a in reach[b])
            assert (place[a] == place[b]) == together
            if b in reach[a] and not together:
                assert place[b] < place[a]


def _reachable(graph: dict[str, set[str]], node: str) -> set[str]:
    seen: set[str] = set()
    todo = [node]
    while todo:
        for other in graph[todo.pop()] - seen:
            seen.add(other)
            todo.append(other)
    return seen


def test_a_recursive_count_shows_how_far_it_goes() -> None:
    rules = parse_program("n(y, count(x)) :- n(x, _), e(x, y). n(x, count(x)) :- s(x).").rules
    schemas = infer_schemas([], {}, rules, {})
    circuit = compile_circuit(rules, schemas, fixpoints={"n": Fixpoint(0.5, 9)})
    (stratum,) = (stratum for stratum in circuit.strata if "n" in stratum.relations)
    assert (stratum.signed, [fold.target for fold in stratum.clocked]) == (True, ["n"])
    assert "height by height, fixpoint(tolerance=0.5, max_height=9)" in to_text(circuit)
    (fold,) = (fold for stratum in to_json(circuit)["strata"] for fold in stratum["folds"])
    assert fold["by_height"] is True
    assert fold["fixpoint"] == {"tolerance": 0.5, "max_height": 9}
