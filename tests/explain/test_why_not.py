"""Why a tuple is absent: what holds of each rule's body, what fails, and the smallest repairs, against brute force."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from engine.errors import BudgetExceededError
from engine.explain.explainer import Explainer
from engine.explain.local import ReasonerSource
from engine.explain.repair import TIME, Limits
from engine.language.parser import parse_goal
from tests.full import FULL
from zedlog import Reasoner, explain

Json = dict[str, Any]
VALUES = ("a", "b", "c")
BASE = {"e": 2, "f": 2, "u": 1}
ARITIES = {**BASE, "p": 2, "q": 1, "r": 2, "s": 1}
DECLARED = "\n".join(
    f".decl {name}({', '.join(f'c{i}: symbol' for i in range(arity))})" for name, arity in ARITIES.items()
)
RULES = (
    "p(x, y) :- e(x, y).",
    "p(x, z) :- p(x, y), e(y, z).",
    "p(x, y) :- f(x, y), u(y).",
    "q(x) :- p(x, x).",
    "q(x) :- u(x), f(x, _).",
    "r(x, y) :- p(x, y), !q(y).",
    "r(x, y) :- f(x, y), !u(x).",
    "s(x) :- u(x), !p(x, x), !f(x, _).",
    "s(x) :- r(x, y), f(y, y).",
)
FACTS = st.lists(
    st.sampled_from(sorted(BASE)).flatmap(
        lambda name: st.tuples(st.just(name), st.tuples(*[st.sampled_from(VALUES)] * BASE[name]))
    ),
    max_size=6,
    unique=True,
)


def built(facts: list[tuple[str, tuple[str, ...]]], rules: list[str]) -> Reasoner:
    reasoner = Reasoner(threads=1)
    reasoner.apply(declarations=DECLARED)
    weights: dict[str, list[tuple[Any, int]]] = {}
    for name, row in facts:
        weights.setdefault(name, []).append((row, 1))
    reasoner.apply(facts=weights, rules=[(text, 1) for text in rules])
    return reasoner


def works(
    reasoner: Reasoner, relation: str, row: tuple[str, ...], changes: list[tuple[str, Any, int]]
) -> bool:
    facts: dict[str, list[tuple[Any, int]]] = {}
    for name, values, weight in changes:
        facts.setdefault(name, []).append((values, weight))
    return (row, 1) in reasoner.dry_run(facts=facts).changes.get(relation, [])


def smallest(reasoner: Reasoner, relation: str, row: tuple[str, ...], most: int) -> int | None:
    """How many changes of facts it takes, by trying all sets of up to `most`."""
    possible = []
    derived = {text.partition("(")[0] for text in (info.text for info in reasoner.rules())}
    for name in sorted(ARITIES.keys() - derived):
        arity, there = ARITIES[name], set(reasoner.facts(name, "asserted"))
        for values in itertools.product(VALUES, repeat=arity):
            possible.append((name, values, -1 if values in there else 1))
    for size in range(1, most + 1):
        for changes in itertools.combinations(possible, size):
            if works(reasoner, relation, row, list(changes)):
                return size
    return None


@settings(max_examples=60 if FULL else 12, suppress_health_check=[HealthCheck.too_slow])
@given(
    FACTS,
    st.lists(st.sampled_from(RULES), min_size=3, max_size=7, unique=True),
    st.sampled_from(["p", "q", "r", "s"]),
    st.tuples(st.sampled_from(VALUES), st.sampled_from(VALUES)),
)
def test_repairs_work_and_none_is_smaller(
    facts: list[tuple[str, tuple[str, ...]]], rules: list[str], relation: str, values: tuple[str, str]
) -> None:
    reasoner = built(facts, rules)
    row = values[: reasoner.relations()[relation].arity]
    if row in reasoner.facts(relation) or not any(text.startswith(relation) for text in rules):
        event("holds, or has no rule")
        return
    found = explain(reasoner, (relation, row), repairs=2)
    assert not found["holds"]
    satisfied_holds(reasoner, found)
    best = smallest(reasoner, relation, row, 2)
    event(f"smallest {best}")
    sizes = [len(repair) for repair in found["repairs"]]
    assert sizes == sorted(sizes)
    for repair in found["repairs"]:
        changes = [(one["relation"], tuple(one["tuple"]), one["weight"]) for one in repair]
        assert works(reasoner, relation, row, changes), repair
    if best is not None:
        assert sizes, found
        assert sizes[0] == best, found
    elif sizes:
        assert sizes[0] > 2, found
    # Applied for good, it holds.
    if sizes:
        weights: dict[str, list[tuple[Any, int]]] = {}
        for one in found["repairs"][0]:
            weights.setdefault(one["relation"], []).append((tuple(one["tuple"]), one["weight"]))
        reasoner.apply(facts=weights)
        assert row in reasoner.facts(relation)


def satisfied_holds(reasoner: Reasoner, found: Json) -> None:
    """What is said to hold is there, and what is said to be missing is not."""
    for attempt in found["rules"]:
        for step in attempt.get("satisfied", ()):
            if step["kind"] == "tuple":
                assert holds(reasoner, step["node"])
            elif step["kind"] == "absent":
                assert not holds(reasoner, step["pattern"].removeprefix("!"))
        fails = attempt.get("fails", {})
        if fails.get("kind") == "tuple":
            assert not holds(reasoner, fails["pattern"])
        if fails.get("kind") == "absent":
            assert fails["found"]
        assert all(holds(reasoner, one) for one in fails.get("found", ()))


def holds(reasoner: Reasoner, pattern: str) -> bool:
    return bool(reasoner.query(f"q(1) :- {pattern}.").tuples) if parse_goal(pattern) else False


@pytest.fixture(scope="module")
def graph() -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(
        facts={
            "edge": [(("a", "b"), 1), (("b", "c"), 1), (("c", "d"), 2)],
            "closed": [(("c",), 1)],
            "arc": [(("a", "b", 3), 1), (("b", "c", 1), 1), (("a", "c", 9), 1)],
            "start": [(("a",), 1)],
            "far": [(("c", 50), 1)],
        },
        rules=[
            ("tc(x, y) :- edge(x, y).", 1),
            ("tc(x, z) :- tc(x, y), edge(y, z), !closed(z).", 1),
            ("sp(x, min(0)) :- start(x).", 1),
            ("sp(y, min(d + c)) :- sp(x, d), arc(x, y, c).", 1),
            ("far(x, min(d)) :- sp(x, d).", 1),
            ("big(x) :- edge(x, _), n = count : { tc(x, y) }, n > 2.", 1),
            ("loop(x) :- edge(x, x).", 1),
            ('named(x, "n") :- edge(x, _).', 1),
        ],
    )
    return reasoner


def test_a_negated_atom_that_finds_something_fails_and_is_retracted(graph: Reasoner) -> None:
    found = explain(graph, 'tc("a", "c")', repairs=5)
    recursive = next(one for one in found["rules"] if "!closed" in one["text"])
    assert recursive["fails"]["pattern"] == '!closed("c")'
    assert recursive["fails"]["found"] == ['closed("c")']
    assert recursive["substitution"] == {"x": "a", "z": "c", "y": "b"}
    repairs = [[(one["change"], one["fact"]) for one in repair] for repair in found["repairs"]]
    assert [("retract", 'closed("c")')] in repairs
    assert [("add", 'edge("a","c")')] in repairs


def test_a_fact_of_some_weight_is_retracted_whole(graph: Reasoner) -> None:
    graph_ = Reasoner()
    graph_.apply(facts={"e": [(("a",), 1)], "no": [(("a",), 3)]}, rules=[("p(x) :- e(x), !no(x).", 1)])
    (repair,) = explain(graph_, 'p("a")', repairs=1)["repairs"]
    assert [(one["fact"], one["weight"]) for one in repair] == [('no("a")', -3)]


def test_a_fold_that_has_another_value_says_which(graph: Reasoner) -> None:
    found = explain(graph, 'sp("c", 9)')
    assert found["instead"] == 'sp("c",4)'
    assert "fails" not in found["rules"][0]
    assert found["repairs"] == []
    assert "folds" in found["search"]["limit"]


def test_a_value_that_a_condition_needs_is_taken_from_the_state(graph: Reasoner) -> None:
    found = explain(graph, 'sp("z", 1)', repairs=1)
    assert [[one["fact"] for one in repair] for repair in found["repairs"]] == [['arc("a","z",1)']]
    assert found["search"]["dry_runs"] >= 1


def test_a_fact_that_only_contributes_to_a_fold_is_named(graph: Reasoner) -> None:
    found = explain(graph, 'far("c", 50)')
    assert (found["instead"], found["contributes"]) == ('far("c",4)', 1)
    listed = explain(graph, 'far("c", 4)')["nodes"]['far("c",4)']["folds"][0]
    assert listed["count"] == 2
    assert {one.get("weight") for one in listed["contributions"]} == {None, 1}


def test_a_condition_shows_its_values(graph: Reasoner) -> None:
    (attempt,) = explain(graph, 'big("b")')["rules"]
    assert attempt["fails"] == {"literal": "n > 2", "kind": "condition", "holds": False, "with": "2 > 2"}


def test_a_head_that_does_not_fit(graph: Reasoner) -> None:
    (attempt,) = explain(graph, 'named("a", "m")')["rules"]
    assert attempt["fits"] is False


def test_what_nothing_derives_is_added(graph: Reasoner) -> None:
    found = explain(graph, 'edge("x", "y")')
    assert found["rules"] == []
    assert [[one["fact"] for one in repair] for repair in found["repairs"]] == [['edge("x","y")']]
    assert found["search"] == {"complete": True, "dry_runs": 1}


def test_the_search_says_when_it_hits_a_limit() -> None:
    reasoner = Reasoner()
    reasoner.apply(
        declarations="\n".join(f".decl b{i}(x: symbol)" for i in range(8)),
        rules=[(f"p(x) :- {', '.join(f'b{i}(x)' for i in range(8))}.", 1)],
    )
    found = explain(reasoner, 'p("a")')
    assert found["repairs"] == []
    assert not found["search"]["complete"]
    assert found["search"]["limit"] == "3 literals of a rule that fail together"


def test_recursion_through_many_values_does_not_hide_the_smallest_repair() -> None:
    """Each level of the recursion offers several values before anything has to change; those ways are without end."""
    reasoner = Reasoner(threads=1)
    pairs = [("ada", "eng"), ("ben", "eng"), ("cyd", "visitors"), ("dan", "guards"), ("eng", "staff")]
    rules = ["belongs(m, g) :- member(m, g).", "belongs(m, h) :- belongs(m, g), member(g, h)."]
    rules.append("enters(m, p) :- belongs(m, g), opens(g, p).")
    opens = [("staff", "house"), ("visitors", "lobby"), ("guards", "vault"), ("guards", "house")]
    reasoner.apply(
        facts={"member": [(row, 1) for row in pairs], "opens": [(row, 1) for row in opens]},
        rules=[(text, 1) for text in rules],
    )
    found = explain(reasoner, 'belongs("cyd", "staff")', repairs=2)
    repairs = [[(one["change"], one["fact"]) for one in repair] for repair in found["repairs"]]
    assert all(len(repair) == 1 for repair in repairs)
    assert [("add", 'member("cyd","staff")')] in repairs
    assert len(explain(reasoner, 'enters("cyd", "vault")', repairs=2)["repairs"]) == 2


def test_a_recursion_that_offers_many_goals_does_not_hide_a_single_fact() -> None:
    """Every team could be part of every other one; single facts that would do are found all the same."""
    reasoner = Reasoner(threads=1)
    teams = [f"team {number}" for number in range(8)]
    reasoner.apply(
        declarations=".decl member(p: symbol, t: symbol) .decl part_of(t: symbol, w: symbol)",
        facts={
            "member": [(("dee", teams[0]), 1), (("eli", teams[7]), 1)],
            "part_of": [((one, other), 1) for one, other in itertools.pairwise(teams[1:7])],
        },
        rules=[
            ("belongs(p, t) :- member(p, t).", 1),
            ("belongs(p, w) :- belongs(p, t), part_of(t, w).", 1),
        ],
    )
    found = explain(reasoner, f'belongs("dee", "{teams[7]}")', repairs=2)
    repairs = {tuple(one["fact"] for one in repair) for repair in found["repairs"]}
    assert repairs == {(f'member("dee","{teams[7]}")',), (f'part_of("{teams[0]}","{teams[7]}")',)}


def searched(
    attempt: Callable[[int], Awaitable[bool]], allowance: int = 100_000, until: float | None = None
) -> Json:
    """Why not p(a), where p has three bodies of one fact; attempt: what becomes of each dry run, by its number."""
    reasoner = Reasoner(threads=1)
    rules = [(f"p(x) :- b{i}(x).", 1) for i in range(3)]
    reasoner.apply(
        declarations="\n".join(f".decl b{i}(x: symbol)" for i in range(3)),
        facts={"other": [(("a",), 1)]},
        rules=rules,
    )
    numbers = itertools.count()

    async def tried(_: Sequence[Any]) -> bool:
        return await attempt(next(numbers))

    async def found() -> Json:
        explainer = Explainer(ReasonerSource(reasoner), allowance=allowance)
        key = await explainer.key("p", ["a"])
        return await explainer.why_not(key, tried, Limits(until=until))

    return asyncio.run(found())


async def works_always(_: int) -> bool:
    return True


def test_the_time_ends_a_dry_run_and_what_was_found_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[asyncio.Timeout] = []

    class Timeout(asyncio.Timeout):
        def __init__(self, _: float | None) -> None:
            super().__init__(None)
            made.append(self)

    monkeypatch.setattr("engine.explain.repair.asyncio.timeout", Timeout)

    async def attempt(number: int) -> bool:
        if number == 1:
            made[0].reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()
        return True

    found = searched(attempt, until=math.inf)
    assert found["repairs"] == searched(works_always)["repairs"][:1]
    assert found["search"] == {"complete": False, "dry_runs": 2, "limit": TIME}
    assert len(found["rules"]) == 3


def test_the_time_ends_a_search_that_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("engine.explain.repair.time", SimpleNamespace(monotonic=lambda: now))

    async def attempt(_: int) -> bool:
        nonlocal now
        now += 1_000.0
        return True

    found = searched(attempt, until=999.0)
    assert found["repairs"] == searched(works_always)["repairs"][:1]
    assert found["search"] == {"complete": False, "dry_runs": 1, "limit": TIME}
    assert searched(attempt, until=math.inf)["search"] == {"complete": True, "dry_runs": 3}


def test_what_was_found_within_the_allowance_of_tuples_is_kept() -> None:
    whole = searched(works_always)["repairs"]
    assert len(whole) == 3
    counts: list[int | None] = []
    for allowance in range(60):
        try:
            found = searched(works_always, allowance)
        except BudgetExceededError:
            # Already the reasons need more.
            counts.append(None)
            continue
        number = len(found["repairs"])
        assert found["repairs"] == whole[:number]
        assert len(found["rules"]) == 3
        assert found["search"]["complete"] is (number == 3)
        assert ("number of tuples" in found["search"].get("limit", "")) is (number < 3)
        counts.append(number)
    assert [key for key, _ in itertools.groupby(counts)] == [None, 0, 1, 2, 3]
