"""One step of a plan against nested loops, in every shape: dense and hashed sums, heights, signs, chunks, threads."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from engine.circuit.normal import normalise
from engine.circuit.plan import compile_rule
from engine.database.reasoner import Reasoner
from engine.errors import EvaluationCancelledError, WeightOverflowError
from engine.language.inference import infer_schemas
from engine.language.parser import parse_rules
from engine.maintenance.placement import Budget
from engine.resident import steps
from engine.resident.bound import bind_rule
from engine.resident.relation import Relation
from engine.resident.steps import Batch, BatchIndex, Runner, Target


def relation_of(
    name: str, tuples: dict[tuple[int, ...], dict[int, int]], arity: int, columns: tuple[int, ...]
) -> Relation:
    """A relation with given entries (height -> weight) and one index."""
    relation = Relation(name, arity)
    relation.add_index(columns)
    for values, entries in tuples.items():
        for height, weight in entries.items():
            codes = np.array([values], np.int64).reshape(1, arity)
            row = relation.push(codes, np.array([height], np.int32), np.ones(1, np.int64))
            relation.change_entries(row, np.array([weight], np.int64), height, 0)
    return relation


def run(
    text: str,
    batch: dict[tuple[tuple[int, ...], int], int],
    relation: Relation,
    use_heights: bool,
    threads: int = 1,
):
    """The head's changes of the plan that starts at the first atom of a rule with two."""
    rule = parse_rules(text)[0]
    compiled = compile_rule(normalise(rule, infer_schemas([], {}, [rule], {})).rules[0])
    arities = {atom.relation: atom.arity for atom in compiled.atoms}
    plan = bind_rule(compiled, arities, lambda constant: int(constant.value))[0]
    rows = list(batch)
    start = Batch(
        np.array([values for values, _ in rows], np.int64).reshape(len(rows), arities[plan.start.relation]),
        np.array([height for _, height in rows], np.int32),
        np.array(list(batch.values()), np.int64),
    )
    found: Counter[tuple[tuple[int, ...], int]] = Counter()

    def emit(_plan, codes, heights, weights):
        heights, weights = np.broadcast_to(heights, len(codes)), np.broadcast_to(weights, len(codes))
        for values, height, weight in zip(codes.tolist(), heights.tolist(), weights.tolist(), strict=True):
            found[tuple(values), height] += weight

    charged: list[int] = []
    Runner(threads).run(
        plan, start, lambda step: [Target.main(relation, step.columns, use_heights)], charged.append, emit
    )
    return {key: weight for key, weight in found.items() if weight}, sum(charged)


def random_input(seed: int, signed: bool, wide: bool):
    rng = np.random.default_rng(seed)

    def values() -> tuple[int, ...]:
        return tuple(int(v) * (10**12 if wide else 1) for v in rng.integers(0, 6, 2))

    weights = [1, -1] if signed else [1]
    entries = {
        values(): {int(h): int(rng.choice(weights)) for h in rng.integers(0, 5, 2 if signed else 1)}
        for _ in range(25)
    }
    batch = {
        (values(), int(rng.integers(0, 4))): int(rng.choice([1, 2, -1] if signed else [1])) for _ in range(20)
    }
    return entries, batch


@pytest.mark.parametrize("use_heights", [False, True])
@pytest.mark.parametrize("wide", [False, True], ids=["dense", "hashed"])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(
    ("head", "columns"),
    [("x, z", (0,)), ("x, y, z", (0,)), ("x", (0,)), ("z", (0,)), ("y, x", (0,)), ("5, z, z", (0,))],
)
def test_a_join_equals_nested_loops(
    head: str, columns: tuple[int, ...], signed: bool, wide: bool, use_heights: bool
):
    for seed in range(8):
        entries, batch = random_input(seed, signed, wide)
        relation = relation_of("s", entries, 2, columns)
        expected: Counter[tuple[tuple[int, ...], int]] = Counter()
        for ((x, y), height), weight in batch.items():
            for (key, z), by_height in entries.items():
                for other, sign in by_height.items():
                    if key == y:
                        names = {"x": x, "y": y, "z": z}
                        out = tuple(names[n] if n in names else int(n) for n in head.split(", "))
                        expected[out, max(height, other) if use_heights else height] += weight * sign
        found, _ = run(f"h({head}) :- r(x, y), s(y, z).", batch, relation, use_heights)
        assert found == {key: weight for key, weight in expected.items() if weight}, seed


def test_chunks_and_threads_give_the_same(monkeypatch: pytest.MonkeyPatch):
    rng = np.random.default_rng(3)
    entries = {(int(a), int(b)): {0: 1} for a, b in rng.integers(0, 40, (900, 2))}
    batch = {((int(a), int(b)), 0): 1 for a, b in rng.integers(0, 40, (700, 2))}
    relation = relation_of("s", entries, 2, (0,))
    text = "h(x, z) :- r(x, y), s(y, z)."
    whole = run(text, batch, relation, True)
    monkeypatch.setattr(steps, "CHUNK", 10)
    assert run(text, batch, relation, True) == whole
    monkeypatch.setattr(steps, "PARALLEL", 1)
    assert run(text, batch, relation, True, threads=2) == whole
    assert run(text, batch, relation, True, threads=3) == whole
    expand = "h(x, y, z) :- r(x, y), s(y, z)."
    small = run(expand, batch, relation, True)
    monkeypatch.setattr(steps, "CHUNK", 1 << 20)
    assert run(expand, batch, relation, True) == small


def test_repeated_variables_and_constants_filter():
    relation = relation_of("s", {(1, 2, 2): {0: 1}, (1, 2, 3): {0: 1}, (4, 5, 5): {1: 1}}, 3, (0,))
    batch = {((9, 1), 0): 1, ((9, 4), 0): 1, ((8, 4), 0): 1}
    assert run("h(x, z) :- r(x, y), s(y, z, z).", batch, relation, True)[0] == {
        ((9, 2), 0): 1,
        ((9, 5), 1): 1,
        ((8, 5), 1): 1,
    }
    assert run("h(z) :- r(8, y), s(y, z, _).", batch, relation, True)[0] == {((5,), 1): 1}


def test_a_batch_can_be_joined_added_or_taken_away():
    batch = Batch(np.array([[1, 2], [1, 3]]), np.array([4], np.int32), np.array([1, -2]))
    index = BatchIndex(batch, (0,))
    assert Target.batch(index, True, -1).sign == -1
    assert len(index.entries) == 3, "a weight of -2 stands as two postings"
    assert index.index.arrays.key_count[0] == 3


def test_a_sum_that_could_leave_64_bits_is_refused():
    relation = relation_of("s", {(1, i): {0: 1} for i in range(4)}, 2, (0,))
    with pytest.raises(WeightOverflowError):
        run("h(x) :- r(x, y), s(y, _).", {((9, 1), 0): 2**61}, relation, False)


@pytest.mark.parametrize("step", [1, 1_000_003])
@pytest.mark.parametrize("columns", ["y", "y, w"])
def test_groups_of_very_many_postings_are_written_in_parts(
    monkeypatch: pytest.MonkeyPatch, step: int, columns: str
) -> None:
    """One group of 100 * 100 postings, over codes that lie close together and far apart; then some go again."""
    rule = f"p({columns}) :- a(z, x), b(z, y, w)."
    facts = {
        "a": [((0, x), 1) for x in range(100)],
        "b": [((0, y * step, y % 7), 1) for y in range(100)],
    }
    gone = {"a": [((0, x), -1) for x in range(40)], "b": [((0, y * step, y % 7), -1) for y in range(30)]}
    states = []
    for chunk in (steps.CHUNK, 1, 3):
        monkeypatch.setattr(steps, "CHUNK", chunk)
        reasoner = Reasoner("resident", threads=2)
        reasoner.apply(facts=facts, rules=[(rule, 1)])
        assert reasoner.count("p") == 100
        first = reasoner.state()
        # Each of them follows from each of a's 100 tuples.
        assert {n for by_height in first["supports"]["p"].values() for n in by_height.values()} == {100}
        reasoner.apply(facts=gone)
        reasoner.check_invariants()
        assert reasoner.count("p") == 70
        states.append((first, reasoner.state()))
    assert states[0] == states[1] == states[2]


@pytest.mark.parametrize(
    "rule",
    [
        "p(x) :- a(z, x), b(z, y, y).",
        "p(z) :- a(z, x), b(z, y, _).",
        "p(x, y) :- a(_, x), b(_, y, _), x * y < 0.",
    ],
)
def test_an_evaluation_is_cancelled_also_where_nothing_comes_out(
    monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    monkeypatch.setattr(steps, "CHUNK", 1)
    monkeypatch.setattr(steps, "PIECE", 64)
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 20

    reasoner = Reasoner("resident", Budget(cancelled=cancelled), threads=1)
    reasoner.apply(
        facts={
            "a": [((0, x), 1) for x in range(100)],
            "b": [((0, y, y + 1), 1) for y in range(100)],
        }
    )
    asked = 0
    before = reasoner.state()
    with pytest.raises(EvaluationCancelledError):
        reasoner.apply(rules=[(rule, 1)])
    assert asked == 21
    assert reasoner.state() == before
