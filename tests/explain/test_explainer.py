"""Parts of explanations that a person can check: text, alternatives, what is withheld, heights that are unknown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.errors import (
    ArityError,
    BudgetExceededError,
    InvalidRequestError,
    TypeMismatchError,
    UnknownRelationError,
)
from engine.explain.change import changed
from engine.explain.explainer import Explainer
from engine.explain.memory import ReasonerSource
from engine.explain.rendering import as_mermaid, as_text
from tests.explain.test_proofs import Flat
from zedlog import Reasoner, explain

Json = dict[str, Any]


@pytest.fixture(scope="module")
def graph() -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(
        facts={
            "edge": [(("a", "b"), 1), (("b", "c"), 1), (("c", "a"), 1), (("c", "d"), 2), (("a", "d"), 1)],
            "arc": [(("a", "b", 3), 1), (("b", "c", 1), 1), (("a", "c", 9), 1), (("c", "a", 0), 1)],
            "start": [(("a",), 1)],
        },
        rules=[
            ("tc(x, y) :- edge(x, y).", 1),
            ("tc(x, z) :- tc(x, y), edge(y, z).", 1),
            ("sp(x, min(0)) :- start(x).", 1),
            ("sp(y, min(d + c)) :- sp(x, d), arc(x, y, c).", 1),
            ("out(x, n) :- edge(x, _), n = count : { edge(x, y) }.", 1),
            ("alone(x) :- start(x), !edge(x, x).", 1),
            ("next(x + 1) :- arc(_, _, x), x < 3.", 1),
        ],
    )
    return reasoner


def test_a_proof_as_text_is_of_least_height_and_names_its_rules(graph: Reasoner) -> None:
    ids = {info.text: info.id for info in graph.rules()}
    base, step = ids["tc(x, y) :- edge(x, y)."], ids["tc(x, z) :- tc(x, y), edge(y, z)."]
    assert as_text(explain(graph, 'tc("b", "d")')) == (
        f'tc("b","d")  by {step}: tc(x, z) :- tc(x, y), edge(y, z).\n'
        f'  tc("b","c")  by {base}: tc(x, y) :- edge(x, y).\n'
        '    edge("b","c")  (fact)\n'
        '  edge("c","d")  (fact, weight 2)\n'
    )


def test_aggregates_negation_and_conditions_as_text(graph: Reasoner) -> None:
    text = as_text(explain(graph, 'out("c", 2)'))
    assert "n = count : { edge(x, y) }  (2 = 2)" in text
    assert "count : { edge(x, y) } = 2 of 2 contributions" in text
    assert '!edge("a","a")  (nothing found)' in as_text(explain(graph, 'alone("a")'))
    assert "x < 3  (1 < 3)" in as_text(explain(graph, "next(2)"))


def test_a_diagram_has_each_tuple_once(graph: Reasoner) -> None:
    drawn = as_mermaid(explain(graph, 'tc("a", "a")'))
    assert drawn.startswith("flowchart TD\n")
    assert drawn.count("edge(#quot;a#quot;,#quot;b#quot;)") == 1
    assert drawn.count(" --> ") == 5


def test_a_cycle_without_heights_still_has_a_proof_that_ends(graph: Reasoner) -> None:
    flat = Explainer(Flat(graph))
    for relation in ("tc", "sp"):
        for row in graph.facts(relation):
            key = asyncio.run(flat.key(relation, row))
            proof = asyncio.run(flat.why(key))
            assert {node["kind"] for node in proof["nodes"].values()} <= {"fact", "rule", "fold"}
            with_heights = explain(graph, (relation, row))
            assert len(proof["nodes"]) == len(with_heights["nodes"])


def test_values_that_only_hold_each_other_get_no_proof() -> None:
    # sp(1, 7) came by start at height 1; then the first value of sp(0) went, and 1 and 2 hold each other.
    reasoner = Reasoner()
    reasoner.apply(
        facts={
            "start": [((0, 7), 1)],
            "late": [((5,), 1)],
            "arc": [((0, 1), 1), ((1, 2), 1), ((2, 1), 1)],
            "chain": [((5, 6), 1), ((6, 0), 1)],
        },
        rules=[
            ("sp(x, min(v)) :- start(x, v).", 1),
            ("sp(x, min(0)) :- late(x).", 1),
            ("sp(y, min(v)) :- sp(x, v), chain(x, y).", 1),
            ("sp(y, min(v)) :- sp(x, v), arc(x, y), v > 3.", 1),
        ],
    )
    assert (1, 7) in reasoner.facts("sp")
    assert (0, 0) in reasoner.facts("sp")
    node = explain(reasoner, "sp(1, 7)")["nodes"]["sp(1,7)"]
    assert node["kind"] == "iterated"
    assert "there is no proof from lower heights" in as_text(explain(reasoner, "sp(1, 7)"))


def test_all_ways_are_counted_and_paged(graph: Reasoner) -> None:
    explainer = Explainer(ReasonerSource(graph))
    key = asyncio.run(explainer.key("tc", ("a", "d")))
    whole, following = asyncio.run(explainer.alternatives(key, 0, 100))
    assert following is None
    # By the edge itself, and over each node before d that a reaches; in the order of rules, then of values.
    said = [one["substitution"] for one in whole["derivations"]]
    assert sorted(said, key=str) == [
        {"x": "a", "y": "d"},
        {"x": "a", "z": "d", "y": "a"},
        {"x": "a", "z": "d", "y": "c"},
    ]
    assert [one["y"] for one in said if "z" in one] == ["a", "c"]
    paged = []
    start: int | None = 0
    while start is not None:
        page, start = asyncio.run(explainer.alternatives(key, start, 1))
        paged += page["derivations"]
    assert paged == whole["derivations"]
    assert len(paged) == whole["count"] == 3


def test_a_large_proof_stays_open_and_goes_on_from_a_node() -> None:
    reasoner = Reasoner()
    reasoner.apply(
        facts={"arc": [((i, i + 1), 1) for i in range(50)]},
        rules=[("r(x, y) :- arc(x, y).", 1), ("r(x, z) :- r(x, y), arc(y, z).", 1)],
    )
    first = explain(reasoner, "r(0, 50)", size=10)
    assert not first["complete"]
    kinds = [node["kind"] for node in first["nodes"].values()]
    assert kinds.count("open") == len(kinds) - 10
    (open_,) = [
        id_ for id_, node in first["nodes"].items() if node["kind"] == "open" and id_.startswith("r(")
    ]
    assert explain(reasoner, open_)["complete"]
    assert explain(reasoner, "r(0, 50)")["complete"]


def test_what_may_not_be_read_is_withheld(graph: Reasoner) -> None:
    explainer = Explainer(ReasonerSource(graph), readable={"tc", "start"})
    key = asyncio.run(explainer.key("tc", ("b", "d")))
    proof = asyncio.run(explainer.why(key))
    assert proof["nodes"] == {
        'tc("b","d")': {"kind": "withheld", "relation": "tc", "tuple": ["b", "d"], "height": 2}
    }
    assert "edge" not in str(proof)
    ways, _ = asyncio.run(explainer.alternatives(key, 0, 10))
    assert (ways["derivations"], ways["withheld"]) == ([], True)
    absent = asyncio.run(explainer.key("tc", ("d", "a")))

    async def never(_: Any) -> bool:
        raise AssertionError("there is nothing to try")

    why_not = asyncio.run(explainer.why_not(absent, never))
    assert (why_not["rules"], why_not["withheld"], why_not["repairs"]) == ([], True, [])
    assert "edge" not in str(why_not)


def test_a_change_names_the_fact_the_rule_and_the_negated_atom() -> None:
    steps: list[dict[str, Any]] = [
        {"facts": {"e": [(("a",), 1)], "no": [(("a",), 1)]}, "rules": [("p(x) :- e(x), !no(x).", 1)]},
        {"facts": {"no": [(("a",), -1)]}},
        {"facts": {"e": [(("a",), -1)], "f": [(("a",), 1)]}, "rules": [("p(x) :- f(x).", 1)]},
    ]
    states = []
    for count in (1, 2, 3):
        reasoner = Reasoner()
        for step in steps[:count]:
            reasoner.apply(**step)
        states.append(Explainer(ReasonerSource(reasoner)))
    first = asyncio.run(changed(states[0], states[1], "p", ["a"], 100))
    assert first["change"] == "appeared"
    assert first["before"]["rules"][0]["fails"]["found"] == ['no("a")']
    assert first["after"]["holds"]
    assert first["causes"] == [
        {"kind": "negation", "change": "removed", "pattern": '!no("a")', "found": ['no("a")']}
    ]
    second = asyncio.run(changed(states[1], states[2], "p", ["a"], 100))
    assert second["change"] == "held before and after"
    said = {
        (cause["kind"], cause["change"], cause.get("fact", cause.get("text"))) for cause in second["causes"]
    }
    assert said == {
        ("fact", "removed", 'e("a")'),
        ("fact", "added", 'f("a")'),
        ("rule", "added", "p(x) :- f(x)."),
    }


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (("nothing", ["a"]), UnknownRelationError),
        (("tc", ["a"]), ArityError),
        (("tc", ["a", 1]), TypeMismatchError),
        ('tc("a", x)', InvalidRequestError),
    ],
)
def test_what_does_not_fit_is_refused(graph: Reasoner, asked: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        explain(graph, asked)


def test_an_explanation_that_reads_too_much_is_refused(graph: Reasoner) -> None:
    explainer = Explainer(ReasonerSource(graph), allowance=5)
    key = asyncio.run(explainer.key("tc", ("b", "d")))
    with pytest.raises(BudgetExceededError):
        asyncio.run(explainer.why(key))


def test_it_works_inside_an_event_loop(graph: Reasoner) -> None:
    async def inside() -> Json:
        return explain(graph, 'tc("a", "b")')

    assert asyncio.run(inside())["holds"]


def test_the_same_state_gives_the_same_proof_whatever_the_order_of_changes() -> None:
    edges = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e")]
    rules = [("tc(x, y) :- edge(x, y).", 1), ("tc(x, z) :- tc(x, y), edge(y, z).", 1)]
    found = []
    for order in (edges, edges[::-1]):
        # Symbols get their codes in the order in which they come.
        reasoner = Reasoner()
        reasoner.apply(rules=rules)
        for edge in order:
            reasoner.apply(facts={"edge": [(edge, 1)]})
        found.append({row: explain(reasoner, ("tc", row)) for row in sorted(reasoner.facts("tc"))})
    assert found[0] == found[1]
    assert found[0]["a", "d"]["nodes"]['tc("a","d")']["derivation"]["substitution"]["y"] == "b"


def test_a_tuple_of_relations_in_which_nothing_has_ever_been() -> None:
    """Their columns have no types yet: they are those of the tuple that is asked about, as if it were there."""
    reasoner = Reasoner()
    reasoner.apply(rules=[("tc(x, y) :- edge(x, y).", 1), ("tc(x, z) :- tc(x, y), edge(y, z).", 1)])
    for text, repair in (('tc("a", "b")', ["a", "b"]), ("tc(1, 2)", [1, 2])):
        found = explain(reasoner, text, repairs=1)
        assert found["holds"] is False
        ((change,),) = found["repairs"]
        assert (change["change"], change["relation"], change["tuple"]) == ("add", "edge", repair)
