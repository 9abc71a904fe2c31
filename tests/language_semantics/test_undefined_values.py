"""What is refused depends on the facts and rules alone, not on the way to them: brute force says what it is."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import EvaluationError
from tests.oracle.subject import everything
from zedlog import Reasoner

Env = dict[str, int | None]
Truth = bool | None
Model = dict[str, set[tuple[int, ...]]]


def div(a: int | None, b: int | None) -> int | None:
    """Truncating division, None where it has no value."""
    if a is None or b is None or b == 0:
        return None
    return abs(a) // abs(b) * (1 if a * b >= 0 else -1)


def known(test: Callable[..., bool], *values: int | None) -> Truth:
    return None if None in values else test(*values)


# Each rule as its positive atoms, variables that equations bind, and its other literals: true, false, or None.
Case = tuple[
    list[tuple[str, str]], dict[str, Callable[[Env], int | None]], list[Callable[[Env, Model], Truth]]
]
RULES: dict[str, Case] = {
    "p(z) :- q(x, y), z = x / y, ok(y).": (
        [("q", "xy"), ("ok", "y")],
        {"z": lambda e: div(e["x"], e["y"])},
        [],
    ),
    "p(z) :- ok(x), q(x, y), z = y / x, z < 2.": (
        [("ok", "x"), ("q", "xy")],
        {"z": lambda e: div(e["y"], e["x"])},
        [lambda e, m: known(lambda z: z < 2, e["z"])],
    ),
    "p(x) :- q(x, y), 6 / y > 1, 6 / x > y, !ok(x).": (
        [("q", "xy")],
        {},
        [
            lambda e, m: known(lambda v: v > 1, div(6, e["y"])),
            lambda e, m: known(lambda v, y: v > y, div(6, e["x"]), e["y"]),
            lambda e, m: (e["x"],) not in m["ok"],
        ],
    ),
    "p(z) :- q(x, y), z = x / y, ok(z), r(x).": (
        [("q", "xy"), ("ok", "z"), ("r", "x")],
        {},
        [lambda e, m: known(lambda v, z: v == z, div(e["x"], e["y"]), e["z"])],
    ),
    "p(w) :- q(x, y), z = x / y, w = z + y, !ok(w), r(y).": (
        [("q", "xy"), ("r", "y")],
        {
            "z": lambda e: div(e["x"], e["y"]),
            "w": lambda e: None if e["z"] is None else e["z"] + (e["y"] or 0),
        },
        [lambda e, m: None if e["w"] is None else (e["w"],) not in m["ok"]],
    ),
    "p(1) :- r(x), ok(y), x != y, 1 / x = 1 / y.": (
        [("r", "x"), ("ok", "y")],
        {},
        [
            lambda e, m: e["x"] != e["y"],
            lambda e, m: known(lambda a, b: a == b, div(1, e["x"]), div(1, e["y"])),
        ],
    ),
}


def undefined(case: Case, model: Model) -> bool:
    """Whether some binding has a literal without a value and none that is false."""
    atoms, equations, literals = case
    for rows in product(*(model[relation] for relation, _ in atoms)):
        env: Env = {}
        pairs = [
            pair for (_, names), row in zip(atoms, rows, strict=True) for pair in zip(names, row, strict=True)
        ]
        if any(env.setdefault(name, value) != value for name, value in pairs):
            continue
        for name, value in equations.items():
            env[name] = value(env)
        truths = [literal(env, model) for literal in literals]
        if False not in truths and None in [*truths, *(env[name] for name in equations)]:
            return True
    return False


Change = tuple[str, tuple[int, ...] | str]
SMALL = st.integers(-1, 3)
CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.tuples(st.just("q"), st.tuples(SMALL, SMALL)),
    st.tuples(st.sampled_from(["ok", "r"]), st.tuples(SMALL)),
    st.tuples(st.just("rule"), st.sampled_from(list(RULES))),
)


def fresh(facts: set[tuple[str, tuple[int, ...]]], rules: set[str]) -> Reasoner:
    reasoner = Reasoner()
    reasoner.apply(declarations=DECLARATIONS)
    by_relation: dict[str, list[tuple[tuple[int, ...], int]]] = {}
    for relation, row in sorted(facts):
        by_relation.setdefault(relation, []).append((row, 1))
    reasoner.apply(facts=by_relation, rules=[(rule, 1) for rule in sorted(rules)])
    return reasoner


DECLARATIONS = ".decl q(x: number, y: number) .decl ok(x: number) .decl r(x: number) .decl p(x: number)"


@settings(max_examples=150)
@given(st.lists(st.lists(CHANGES, min_size=1, max_size=5), min_size=2, max_size=7))
def test_oracle_what_is_refused_depends_on_the_result_alone(history: list[list[Change]]) -> None:
    """Each change turns a fact or a rule round. A refused epoch leaves everything as it was."""
    reasoner = Reasoner()
    reasoner.apply(declarations=DECLARATIONS)
    facts: set[tuple[str, tuple[int, ...]]] = set()
    rules: set[str] = set()
    for step in history:
        new_facts, new_rules = set(facts), set(rules)
        for kind, what in step:
            if isinstance(what, str):
                new_rules ^= {what}
            else:
                new_facts ^= {(kind, what)}
        changed: dict[str, list[tuple[tuple[int, ...], int]]] = {}
        for relation, row in sorted(new_facts ^ facts):
            changed.setdefault(relation, []).append((row, 1 if (relation, row) in new_facts else -1))
        rule_changes = [(rule, 1 if rule in new_rules else -1) for rule in sorted(new_rules ^ rules)]
        model: Model = {
            name: {row for relation, row in new_facts if relation == name} for name in ("q", "ok", "r")
        }
        expected = any(undefined(RULES[rule], model) for rule in new_rules)
        before = everything(reasoner)
        if expected:
            with pytest.raises(EvaluationError) as refused:
                reasoner.apply(facts=changed, rules=rule_changes)
            assert refused.value.detail["rule"] in new_rules
            assert everything(reasoner) == before
            with pytest.raises(EvaluationError):
                fresh(new_facts, new_rules)
        else:
            reasoner.apply(facts=changed, rules=rule_changes)
            facts, rules = new_facts, new_rules
            assert everything(reasoner)["state"] == everything(fresh(facts, rules))["state"]
    reasoner.check_invariants()


def test_a_binding_that_recursion_takes_back_decides_nothing() -> None:
    """The longer way to b costs 9, over which the arc's cost would divide by zero; the shorter one takes it back."""
    program = [
        ("d(y, min(c)) :- start(y, c).", 1),
        ("d(y, min(e)) :- d(x, c), arc(x, y, w), e = c + w.", 1),
        ("d(y, min(e)) :- d(x, c), via(x, y), e = 12 / (c - 9).", 1),
    ]
    reasoner = Reasoner()
    facts = {
        "start": [(("a", 0), 1)],
        "arc": [(("a", "b", 9), 1), (("a", "m", 1), 1), (("m", "b", 1), 1)],
        "via": [(("b", "c"), 1)],
    }
    reasoner.apply(facts=facts, rules=program)  # type: ignore[arg-type]
    assert set(reasoner.facts("d")) == {("a", 0), ("b", 2), ("m", 1), ("c", -1)}
    # Without the shorter way it is a fault, and a refused one changes nothing.
    before = everything(reasoner)
    with pytest.raises(EvaluationError, match="divides by zero"):
        reasoner.apply(facts={"arc": [(("m", "b", 1), -1)]})
    assert everything(reasoner) == before
    reasoner.apply(facts={"arc": [(("m", "b", 1), -1), (("a", "b", 8), 1)]})
    assert set(reasoner.facts("d")) == {("a", 0), ("b", 8), ("m", 1), ("c", -12)}


def test_a_rule_without_atoms_and_without_a_value() -> None:
    reasoner = Reasoner()
    with pytest.raises(EvaluationError) as refused:
        reasoner.apply(rules=[("p(z) :- z = 1 / 0.", 1)])
    assert refused.value.detail["rule"] == "p(z) :- z = 1 / 0."
    assert not reasoner.relations()
    # A condition that is false excludes it.
    reasoner.apply(rules=[("p(z) :- 1 > 2, z = 1 / 0.", 1)])
    assert reasoner.facts("p") == []


def test_a_text_that_is_no_number_behind_an_atom_to_come() -> None:
    reasoner = Reasoner()
    rule = "p(n) :- t(s), n = to_number(s), good(s)."
    reasoner.apply(facts={"t": [(("1",), 1), (("x",), 1)], "good": [(("1",), 1)]}, rules=[(rule, 1)])
    assert reasoner.facts("p") == [(1,)]
    with pytest.raises(EvaluationError, match="not a number"):
        reasoner.apply(facts={"good": [(("x",), 1)]})


def test_an_aggregate_over_values_that_do_not_exist() -> None:
    reasoner = Reasoner()
    rule = "p(x, n) :- g(x), n = sum 6 / y : { q(x, y), ok(y) }."
    reasoner.apply(
        facts={"g": [((1,), 1)], "q": [((1, 0), 1), ((1, 3), 1)], "ok": [((3,), 1)]}, rules=[(rule, 1)]
    )
    assert reasoner.facts("p") == [(1, 2)]
    with pytest.raises(EvaluationError, match="divides by zero"):
        reasoner.apply(facts={"ok": [((0,), 1)]})
    assert reasoner.facts("p") == [(1, 2)]
