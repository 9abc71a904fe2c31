"""Updates as rows that go and come, held against rdflib's Graph, which is another implementation."""

from __future__ import annotations

import random

import pytest
import rdflib

from engine.errors import BudgetExceededError, EvaluationError, SparqlSyntaxError
from service.sparql.store import TripleStore, row_of
from service.sparql.terms import Row, stored_row
from service.sparql.updates import net_effect

XSD = "http://www.w3.org/2001/XMLSchema#"
PREFIX = "PREFIX : <urn:x:>\n"
MOST = 10_000


def loaded(rows: set[Row]) -> TripleStore:
    store = TripleStore()
    store.apply([(1, row) for row in rows])
    return store


def effect(rows: set[Row], text: str, most: int = MOST) -> tuple[set[Row], set[Row]]:
    gone, come = net_effect(loaded(rows), PREFIX + text, most)
    assert len(set(gone)) == len(gone)
    assert len(set(come)) == len(come)
    assert not set(gone) & set(come)
    return set(gone), set(come)


def after(rows: set[Row], text: str) -> set[Row]:
    """What the relation holds after the transaction, in the mode `set`."""
    gone, come = effect(rows, text)
    return (rows - gone) | come


def row(text: str) -> Row:
    s, p, o = (word if word[0] in '<_"' else f"<urn:x:{word}>" for word in text.split())
    return s, p, o


A, B, C = row("a p b"), row("b p c"), row("a q b")


@pytest.mark.parametrize(
    ("text", "gone", "come"),
    [
        ("INSERT DATA { :a :p :b }", set(), {A}),
        ("INSERT DATA { :a :p :c, :d ; :q :e . }", set(), {row("a p c"), row("a p d"), row("a q e")}),
        ("DELETE DATA { :a :p :b . :x :y :z }", {A}, set()),
        ("DELETE WHERE { ?s :p ?o }", {A, B}, set()),
        ("DELETE { ?s :p ?o } INSERT { ?o :p ?s } WHERE { ?s :p ?o }", {A, B}, {row("b p a"), row("c p b")}),
        ("INSERT { ?s :r ?o } WHERE { ?s :p/:p ?o }", set(), {row("a r c")}),
        # Deleted and inserted again: nothing goes.
        ("DELETE { ?s ?p ?o } INSERT { ?s ?p ?o } WHERE { ?s ?p ?o }", set(), {A, B, C}),
        # A template with an unbound variable is left out.
        ("INSERT { ?s :r ?x . ?s :t :u } WHERE { :a :q ?s OPTIONAL { ?s :no ?x } }", set(), {row("b t u")}),
        # The second sees what the first did; in the end the triple is not there, whoever inserts it meanwhile.
        ("INSERT DATA { :n :p :m } ; DELETE { ?s :p ?o } WHERE { ?s :p ?o }", {A, B, row("n p m")}, set()),
        ("DELETE WHERE { :a :p ?o } ; INSERT { ?s :r :gone } WHERE { ?s :q ?o FILTER NOT EXISTS { ?s :p ?o } }",
         {A}, {row("a r gone")}),
        ("DELETE DATA { :a :p :b } ; INSERT DATA { :a :p :b }", set(), {A}),
        ("CLEAR DEFAULT", {A, B, C}, set()),
        ("DROP ALL ; INSERT DATA { :a :p :b }", {B, C}, {A}),
        ("INSERT { ?s :r ?o } WHERE { GRAPH ?g { ?s ?p ?o } }", set(), set()),
        ("", set(), set()),
    ],
)  # fmt: skip
def test_effects(text: str, gone: set[Row], come: set[Row]) -> None:
    assert effect({A, B, C}, text) == (gone, come)


def test_the_pattern_is_evaluated_once_for_both_templates() -> None:
    rows = {(f"<urn:x:{i}>", "<urn:x:p>", "<urn:x:o>") for i in range(200)}
    text = "DELETE { ?s :p ?o } INSERT { ?s :q ?o } WHERE { ?s :p ?o FILTER(RAND() < 0.5) }"
    gone, come = effect(rows, text)
    assert 0 < len(gone) < 200
    assert {s for s, _, _ in gone} == {s for s, _, _ in come}


def test_blank_nodes_of_an_insertion_are_new_and_the_same_within_one_solution() -> None:
    gone, come = effect({row("_:a p b")}, "INSERT DATA { _:a :p [ :q _:a ] }")
    ((_, first), (_, second)) = sorted((p, (s, o)) for s, p, o in come)
    assert gone == set()
    assert first == second[::-1]
    assert "_:a" not in first
    _, come = effect({A, B}, "INSERT { _:n :of ?s ; :is ?o } WHERE { ?s :p ?o }")
    assert len({s for s, _, _ in come}) == 2


def test_a_written_literal_keeps_its_form() -> None:
    one = f'"01"^^<{XSD}int>'
    _, come = effect(set(), f"INSERT DATA {{ :a :p {one}, 1.50, 'x'@EN, true, 'a\\nb' }}")
    assert {o for _, _, o in come} == {
        one,
        f'"1.50"^^<{XSD}decimal>',
        '"x"@en',
        f'"true"^^<{XSD}boolean>',
        '"a\\nb"',
    }


def test_a_triple_that_is_deleted_takes_all_that_is_seen_as_it() -> None:
    seen = f'"1"^^<{XSD}integer>'
    other = {
        ("<urn:x:a>", "<urn:x:p>", f'"{text}"^^<{XSD}{kind}>')
        for text, kind in (("01", "integer"), ("1", "int"))
    }
    for text in (
        "DELETE DATA { :a :p 1 }",
        "DELETE DATA { :a :p 001 }",
        "DELETE WHERE { ?s :p ?o }",
        "CLEAR ALL",
    ):
        gone, come = effect(other, text)
        assert gone == other | {("<urn:x:a>", "<urn:x:p>", seen)}
        assert come == set()
    gone, come = effect(other, "DELETE WHERE { ?s :p ?o } ; INSERT { ?s :q :none } WHERE { :a :q ?s }")
    assert other <= gone


def test_errors() -> None:
    for text in (
        "DELETE DATA { _:a :p :b }",
        "INSERT DATA { :a :p ?x }",
        "INSERT DATA { :a :p }",
        "SELECT * { }",
        "x",
    ):
        with pytest.raises(SparqlSyntaxError):
            effect({A}, text)
    with pytest.raises(EvaluationError, match="is not supported"):
        effect({A}, "INSERT { ?s :p ?x } WHERE { ?s :p ?o BIND(<urn:f>(?o) AS ?x) }")
    with pytest.raises(BudgetExceededError, match="more than 2 triples"):
        effect({A, B, C}, "CLEAR ALL", most=2)


NAMES = [":a", ":b", ":c", ":d"]
PREDICATES = [":p", ":q"]
VALUES = [*NAMES, "1", "2", '"x"', '"x"@en']


def random_operation(rng: random.Random) -> str:
    def triple() -> str:
        return f"{rng.choice(NAMES)} {rng.choice(PREDICATES)} {rng.choice(VALUES)}"

    data = " . ".join(triple() for _ in range(rng.randint(1, 4)))
    p, q = rng.choice(PREDICATES), rng.choice(PREDICATES)
    patterns = [
        f"?s {p} ?o",
        f"?s {p} ?m . ?m {q} ?o",
        f"?s {p} ?o FILTER(isLiteral(?o))",
        f"?s {p} ?o FILTER NOT EXISTS {{ ?o {q} ?s }}",
        f"{{ ?s {p} ?o }} UNION {{ ?o {q} ?s }} FILTER(isIRI(?s))",
        f"?s {p}+ ?o",
        f"?s ?any ?o OPTIONAL {{ ?o {q} ?x }} FILTER(!BOUND(?x))",
        f"VALUES ?s {{ :a :b }} ?s {p} ?o",
        f"{{ SELECT ?s (COUNT(?v) AS ?n) {{ ?s {p} ?v }} GROUP BY ?s }} ?s {q} ?o FILTER(?n > 1)",
        f"?s {p} ?o MINUS {{ ?s {q} 1 }}",
    ]
    pattern, template = rng.choice(patterns), f"?s {rng.choice(PREDICATES)} ?o"
    return rng.choice(
        [
            f"INSERT DATA {{ {data} }}",
            f"INSERT DATA {{ {data} . }}",
            f"DELETE DATA {{ {data} }}",
            f"DELETE WHERE {{ ?s {p} {rng.choice(VALUES)} }}",
            f"INSERT {{ {template} }} WHERE {{ {pattern} }}",
            f"DELETE {{ {template} }} WHERE {{ {pattern} }}",
            f"DELETE {{ ?s {p} ?o }} INSERT {{ {template} . ?s :q :d }} WHERE {{ {pattern} }}",
        ]
    )


@pytest.mark.parametrize("seed", range(40))
def test_oracle_rdflib_agrees_on_random_updates(seed: int) -> None:
    rng = random.Random(seed)
    rows: set[Row] = set()
    graph = rdflib.Graph()
    for _ in range(12):
        text = " ;\n".join(random_operation(rng) for _ in range(rng.choice([1, 1, 2, 3])))
        rows = after(rows, text)
        graph.update(PREFIX + text)
        known = {stored_row((s.n3(), p.n3(), o.n3())) for s, p, o in graph}
        assert rows == known, (seed, text)
    assert {row_of(quad) for quad in loaded(rows).store} == rows
