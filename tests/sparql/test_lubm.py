"""LUBM's fourteen queries over LUBM-1 with the rules of its ontology (OWL 2 RL).

The counts are those that the benchmark publishes for LUBM(1, 0). OWL 2 RL covers what all fourteen need: sub-classes
and sub-properties (1, 3, 4, 5, 6, 7, 9, 10, 14), the transitive subOrganizationOf (11), the inverse of degreeFrom (13),
and the definitions of Student and Chair by restrictions on the left-hand side (6 to 10, 12). What it leaves out, the
restrictions as conclusions, none of them asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
import redis

from engine.ontology.program import compile_ontology
from engine.ontology.triples import read_triples
from engine.storage.embedded import EmbeddedServer
from service.sparql.follower import Follower
from tests.feeds.world import World
from tests.sparql.test_follower import LIMITS, ask

UB = "http://www.lehigh.edu/~zhp2/2004/0401/univ-bench.owl#"
PREFIXES = f"PREFIX ub: <{UB}> PREFIX d: <http://www.Department0.University0.edu/>"
UNIVERSITY = "<http://www.University0.edu>"
OTHER_COPY = "http://swat.cse.lehigh.edu/"

QUERIES = [
    ("?x a ub:GraduateStudent ; ub:takesCourse d:GraduateCourse0", 4),
    ("?x a ub:GraduateStudent ; ub:memberOf ?z ; ub:undergraduateDegreeFrom ?y . ?y a ub:University . "
     "?z a ub:Department ; ub:subOrganizationOf ?y", 0),
    ("?x a ub:Publication ; ub:publicationAuthor d:AssistantProfessor0", 6),
    ("?x a ub:Professor ; ub:worksFor <http://www.Department0.University0.edu> ; ub:name ?y1 ; "
     "ub:emailAddress ?y2 ; ub:telephone ?y3", 34),
    ("?x a ub:Person ; ub:memberOf <http://www.Department0.University0.edu>", 719),
    ("?x a ub:Student", 7_790),
    ("?x a ub:Student ; ub:takesCourse ?y . ?y a ub:Course . d:AssociateProfessor0 ub:teacherOf ?y", 67),
    (f"?x a ub:Student ; ub:memberOf ?y ; ub:emailAddress ?z . ?y a ub:Department ; ub:subOrganizationOf {UNIVERSITY}",
     7_790),
    ("?x a ub:Student ; ub:advisor ?y ; ub:takesCourse ?z . ?y a ub:Faculty ; ub:teacherOf ?z . ?z a ub:Course", 208),
    ("?x a ub:Student ; ub:takesCourse d:GraduateCourse0", 4),
    (f"?x a ub:ResearchGroup ; ub:subOrganizationOf {UNIVERSITY}", 224),
    (f"?x a ub:Chair ; ub:worksFor ?y . ?y a ub:Department ; ub:subOrganizationOf {UNIVERSITY}", 15),
    (f"?x a ub:Person . {UNIVERSITY} ub:hasAlumnus ?x", 1),
    ("?x a ub:UndergraduateStudent", 5_916),
]  # fmt: skip


@pytest.fixture(scope="module")
def lubm(data: Path, client: redis.Redis, server: EmbeddedServer) -> Iterator[tuple[World, Follower]]:
    # As tests/ontology/test_lubm.py: without the second copy of the ontology, whose blank nodes have the same names.
    everything = dict.fromkeys(read_triples(data / "lubm1.nt.gz"))
    triples = [t for t in everything if not any(OTHER_COPY in term or term == "<>" for term in t)]
    _, compiled = compile_ontology(triples, "lubm1.nt.gz")
    rules = [{"rule": clause, "weight": 1} for _, clauses in compiled.clauses for clause in clauses]
    with World(client, server.url, "lubm") as world:
        world.apply(facts=[{"relation": "triple", "tuples": list(map(list, triples))}], rules=rules)
        follower = Follower(world.client, replace(LIMITS, wait=300.0))
        yield world, follower
        world.run(follower.close())


def test_all_that_is_derived_is_in_the_store(lubm: tuple[World, Follower]) -> None:
    world, follower = lubm
    world.run(ask(world, follower, "ASK { }"))
    counts = world.run(world.client.snapshot()).counts("triple")
    assert counts.all == follower.stats.triples + follower.stats.skipped == 138_246
    assert follower.stats.skipped == 0


@pytest.mark.parametrize(("number", "pattern", "count"), [(i, *query) for i, query in enumerate(QUERIES, 1)])
def test_query(number: int, pattern: str, count: int, lubm: tuple[World, Follower]) -> None:
    world, follower = lubm
    query = f"{PREFIXES} SELECT (COUNT(*) AS ?n) {{ SELECT DISTINCT * {{ {pattern} }} }}"
    _, data = world.run(ask(world, follower, query))
    (found,) = orjson.loads(data)["results"]["bindings"]
    assert int(found["n"]["value"]) == count, number


def test_a_student_more_is_one_answer_more_and_goes_again(lubm: tuple[World, Follower]) -> None:
    world, follower = lubm
    query = f"{PREFIXES} SELECT (COUNT(*) AS ?n) {{ ?x a ub:Student }}"
    kind = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
    for weight, count in ((1, 7_791), (-1, 7_790)):
        row = ["<urn:new>", kind, f"<{UB}UndergraduateStudent>"]
        world.edges(row, weight=weight, relation="triple")
        _, data = world.run(ask(world, follower, query))
        assert orjson.loads(data)["results"]["bindings"][0]["n"]["value"] == str(count)
    assert follower.stats.filled == 1
