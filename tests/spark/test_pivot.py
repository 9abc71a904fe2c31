"""Pivots: which strata have one, and that their bootstrap in one job is the resident one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.circuit.compile import compile_circuit
from engine.circuit.pivot import pivot_of
from engine.data.arrow import to_arrow
from engine.data.codes import Codes
from engine.errors import EvaluationError
from engine.language.parser import parse_rules
from engine.language.schema import Column, ColumnType, Schema
from engine.maintenance.placement import Budget
from engine.maintenance.policy import Policy
from engine.resident.bound import bind_rule
from engine.spark.placement import SparkPlacement
from engine.spark.work import choice, fixpoint
from engine.spark.work.fixpoint import PartFixpoint, to_stream
from tests.full import FULL
from tests.spark.compare import assert_same_epoch, assert_same_state
from zedlog import Reasoner

Make = Callable[..., Reasoner]
NUMBER = ColumnType.NUMBER
ascend = PartFixpoint._ascend
BASE = "tc(x, y) :- e(x, y)."
LINEAR = [BASE, "tc(x, z) :- tc(x, y), e(y, z)."]


@pytest.fixture(params=["executors", "driver"])
def manner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the supports come from: through an exchange, or with the tasks."""
    if request.param == "executors":
        return "large"
    monkeypatch.setattr(choice, "PIVOT_ROWS", 2)
    return "small"


def pivots(*rules: str) -> dict[str, int] | None:
    parsed = [rule for text in rules for rule in parse_rules(text)]
    schemas: dict[str, Schema] = {}
    for rule in parsed:
        for atom in (rule.head, *rule.body):
            columns = tuple(Column(f"c{i}", ColumnType.NUMBER) for i in range(len(atom.terms)))
            schemas[atom.relation] = Schema(atom.relation, columns)
    circuit = compile_circuit(parsed, schemas)
    found = [pivot_of(stratum) for stratum in circuit.strata if stratum.recursive]
    return None if found[0] is None else dict(found[0])


@pytest.mark.parametrize(
    ("rules", "pivot"),
    [
        (LINEAR, {"tc": 0}),
        ([BASE, "tc(x, z) :- e(x, y), tc(y, z)."], {"tc": 1}),
        ([BASE, "tc(x, z) :- tc(x, y), tc(y, z)."], None),
        # Forwards and backwards together hand on no argument.
        ([*LINEAR, "tc(x, z) :- e(x, y), tc(y, z)."], None),
        # The column moves, but goes round with the relation.
        (["a(x, y) :- e(x, y).", "b(y, x) :- a(x, y).", "a(x, z) :- b(y, x), e(y, z)."], {"a": 0, "b": 1}),
        (["s(x, y) :- e(x, y).", "s(y, x) :- s(x, y)."], None),
        (["p(x, y, z) :- e(x, y), e(y, z).", "p(x, w, z) :- p(x, y, z), e(y, w)."], {"p": 0}),
        # A folded column is in no group: of all pairs the source, of one source nothing.
        (["d(x, y, min(c)) :- w(x, y, c).", "d(x, z, min(c)) :- d(x, y, c), e(y, z)."], {"d": 0}),
        (["d(y, min(c)) :- w(y, c).", "d(z, min(c)) :- d(y, c), e(y, z)."], None),
    ],
)
def test_pivot_of_known_programs(rules: list[str], pivot: dict[str, int] | None) -> None:
    assert pivots(*rules) == pivot


def fixpoint_of(edges: Codes, budget: Budget) -> list[dict[str, Any]]:
    """What the task makes of the linear closure of some edges, whose other half comes from outside the recursion."""
    circuit = compile_circuit(
        [rule for text in LINEAR for rule in parse_rules(text)],
        {name: Schema(name, (Column("x", NUMBER), Column("y", NUMBER))) for name in ("e", "tc")},
    )
    stratum = next(stratum for stratum in circuit.strata if stratum.recursive)
    stratum = replace(stratum, rules=tuple(rule for rule in stratum.rules if "tc" in rule.body))
    (rule,) = stratum.rules
    arities = {"e": 2, "tc": 2}
    task = PartFixpoint(
        stratum,
        {"tc": 0},
        ("tc",),
        arities,
        {rule.id: bind_rule(rule, arities, lambda value: None)},
        {d.relation: (d.columns,) for plan in rule.plans for d in plan.demands if d.relation == "e"},
        {"e": to_stream(to_arrow(edges))},
        budget,
    )
    given = to_arrow(
        edges, rel=np.zeros(1, np.int64), height=np.ones(1, np.int64), weight=np.ones(1, np.int64)
    )
    return [row for batch in task(iter(given.to_batches())) for row in batch.to_pylist()]


def unpacked(rows: list[dict[str, Any]]) -> list[tuple[int, ...]]:
    names = ("c0", "c1", "height", "support")
    return sorted(
        (*values, row["entry"])
        for row in rows
        if row["rel"] == 0
        for values in zip(*(row[name] for name in names), strict=True)
    )


@pytest.mark.parametrize(("first", "tuples", "batch"), [(1, 1, 1), (3, 60, 1), (2, 1 << 15, 1 << 12)])
def test_a_part_in_blocks_is_the_part_in_one(
    monkeypatch: pytest.MonkeyPatch, first: int, tuples: int, batch: int
) -> None:
    """One pivot after another; some at a time, by what they come to; a small block, and then all others."""
    edges = np.array([(i, (i * i + 3) % 23) for i in range(23)] + [(i, i + 1) for i in range(23)], np.int64)
    monkeypatch.setattr(fixpoint, "_FIRST", 1000)
    one = fixpoint_of(edges, Budget())
    monkeypatch.setattr(fixpoint, "_FIRST", first)
    monkeypatch.setattr(fixpoint, "_TUPLES", tuples)
    monkeypatch.setattr(fixpoint, "_BATCH", batch)
    sizes = []

    def counted(task: PartFixpoint, supports: pa.Table, *more: Any) -> None:
        sizes.append(supports.num_rows)
        ascend(task, supports, *more)

    monkeypatch.setattr(PartFixpoint, "_ascend", counted)
    blocks = fixpoint_of(edges, Budget())
    assert len(sizes) > 1
    assert sum(sizes) == len(edges)
    assert unpacked(blocks) == unpacked(one)
    assert len(unpacked(one)) > 200
    assert [row["size"] for row in blocks if row["rel"] == fixpoint.COST] == [
        row["size"] for row in one if row["rel"] == fixpoint.COST
    ]


def test_the_tuples_of_all_blocks_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixpoint, "_FIRST", 1)
    edges = np.array([(i, i + 1) for i in range(40)], np.int64)
    # 40 edges and 820 tuples of the closure, 40 in the largest block.
    assert [row["rel"] for row in fixpoint_of(edges, Budget(tuples=860))][-1] == fixpoint.COST
    (*_, last) = fixpoint_of(edges, Budget(tuples=859))
    assert last["rel"] == fixpoint.PROBLEM
    assert "860 tuples, of 859 allowed while tc grew to 820 tuples" in last["problem"]


def test_chunks_hold_every_row_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of three kinds at two heights; each chunk is of one kind, and no longer than it may be."""
    monkeypatch.setattr(fixpoint, "CHUNK", 3)
    n = np.arange(40)
    entries, heights = n % 3 - 1, (n % 4 > 0).astype(np.int32)
    codes = np.stack([n, n * n], axis=1)
    rows = to_arrow(codes, height=heights, support=n + 7, entry=entries, derived=n * 2)
    chunks = [batch.to_pylist()[0] for batch in fixpoint._chunks(5, rows, 3)]
    found = []
    for chunk in chunks:
        assert 1 <= chunk["size"] <= 3
        assert (chunk["rel"], chunk["c2"], len(set(chunk["height"]))) == (5, None, 1)
        first = chunk["entry"] == 1 and chunk["height"][0] == 0
        assert chunk["derived"] == ([x * 2 for x in chunk["c0"]] if first else None)
        lists = [chunk[name] for name in ("c0", "c1", "height", "support")]
        found += list(zip(*lists, [chunk["entry"]] * chunk["size"], strict=True))
    assert sorted(found) == [tuple(row.values())[:5] for row in rows.to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 2, 5] if FULL else [5])
def test_a_pivoted_bootstrap_is_the_resident_one(on_spark: Make, manner: str, partitions: int) -> None:
    edges = [((i, (i * i + 3) % 12), 1) for i in range(12)] + [((i, (i * 7 + 1) % 12), 2) for i in range(12)]
    spark, resident = on_spark(manner, partitions), Reasoner()
    facts = {"e": edges, "tc": [((100, 5), 1), ((5, 100), 1)]}
    rules = [(rule, 1) for rule in LINEAR]
    ours, theirs = spark.apply(facts=facts, rules=rules), resident.apply(facts=facts, rules=rules)
    assert_same_epoch(ours, theirs)
    assert ours.cost == theirs.cost
    # One fixpoint in one job: no height of the recursive stratum was gone through from here.
    placement = spark.database.placement
    assert isinstance(placement, SparkPlacement)
    assert placement.heights == 1
    assert_same_state(spark, resident)
    step = {"facts": {"e": [((0, 3), -1), ((3, 50), 1)]}}
    assert_same_epoch(spark.apply(**step), resident.apply(**step))
    assert_same_state(spark, resident)
    spark.check_invariants()


@pytest.mark.slow
def test_a_pivot_over_two_relations(on_spark: Make, manner: str) -> None:
    rules = [("a(x, y) :- e(x, y).", 1), ("b(y, x) :- a(x, y).", 1), ("a(x, z) :- b(y, x), e(y, z).", 1)]
    facts = {"e": [((i, i + 1), 1) for i in range(8)] + [((8, 0), 1)]}
    spark, resident = on_spark(manner), Reasoner()
    assert_same_epoch(spark.apply(facts=facts, rules=rules), resident.apply(facts=facts, rules=rules))
    assert spark.count("a") == 81
    assert_same_state(spark, resident)


PATHS = [("sp(x, y, min(c)) :- w(x, y, c).", 1), ("sp(x, z, min(d + c)) :- sp(x, y, d), w(y, z, c).", 1)]


@pytest.mark.slow
def test_a_pivot_with_a_fold_in_place(on_spark: Make, manner: str) -> None:
    """All pairs of a ring with chords: longer ways come first, so entries are taken back in the parts."""
    ring = [((i, (i + 1) % 6, 1), 1) for i in range(6)] + [((i, (i + 3) % 6, 7), 1) for i in range(0, 6, 2)]
    spark, resident = on_spark(manner, 2), Reasoner()
    ours = spark.apply(facts={"w": ring}, rules=PATHS)
    assert_same_epoch(ours, resident.apply(facts={"w": ring}, rules=PATHS))
    placement = spark.database.placement
    assert isinstance(placement, SparkPlacement)
    assert placement.heights == 1
    assert set(spark.facts("sp", x=0)) == {(0, i % 6, i) for i in range(1, 7)}
    assert_same_state(spark, resident)
    step = {"facts": {"w": [((0, 1, 1), -1)]}}
    assert_same_epoch(spark.apply(**step), resident.apply(**step))
    assert_same_state(spark, resident)
    spark.check_invariants()


@pytest.mark.slow
def test_a_part_that_meets_a_value_that_does_not_exist_goes_the_general_way(
    on_spark: Make, manner: str
) -> None:
    """The sum of two long arcs leaves 64 bits; over a shorter way it is never a shortest path."""
    spark, resident = on_spark(manner), Reasoner()
    arcs = [((0, 1, 2**62), 1), ((1, 2, 2**62), 1), ((0, 3, 1), 1)]
    for reasoner in (spark, resident):
        with pytest.raises(EvaluationError, match="64-bit") as refused:
            reasoner.apply(facts={"w": arcs}, rules=PATHS)
        assert refused.value.detail["rule"] == PATHS[1][0]
        assert reasoner.relations() == {}
    step = {"facts": {"w": [*arcs, ((3, 1, 1), 1)]}, "rules": PATHS}
    assert_same_epoch(spark.apply(**step), resident.apply(**step))
    assert set(spark.facts("sp", x=0)) == {(0, 1, 2), (0, 2, 2**62 + 2), (0, 3, 1)}
    assert_same_state(spark, resident)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Policy("bootstrap"), Policy(switch=1e-9, floor=-(10**9))])
def test_a_stratum_that_is_switched_takes_one_job_and_publishes_the_difference(
    on_spark: Make, policy: Policy
) -> None:
    """A ring with chords loses an edge and gets another: most of the closure stays, with other supports."""
    facts = {
        "e": [((i, (i + 1) % 6), 1) for i in range(6)] + [((i, (i + 3) % 6), 1) for i in range(3)],
        "tc": [((0, 1), 1), ((100, 5), 2), ((7, 100), 1)],
    }
    spark, resident = on_spark("large", switch=policy), Reasoner()
    rules = [(rule, 1) for rule in LINEAR]
    assert_same_epoch(spark.apply(facts=facts, rules=rules), resident.apply(facts=facts, rules=rules))
    placement = spark.database.placement
    assert isinstance(placement, SparkPlacement)
    step = {"e": [((0, 1), -1), ((3, 50), 1)], "tc": [((0, 1), -1), ((100, 5), -1), ((60, 0), 1)]}
    ours = spark.apply(facts=step)
    assert_same_epoch(ours, resident.apply(facts=step, strategy="update"))
    assert ours.strategy == "bootstrap"
    if policy.always:
        assert placement.heights == 1
    assert_same_state(spark, resident)
    spark.check_invariants()
    # With nothing left, too few supports come from outside; what was there goes all the same.
    gone = {"e": [(edge, -weight) for edge, weight in resident.weighted("e")]}
    assert_same_epoch(spark.apply(facts=gone), resident.apply(facts=gone, strategy="update"))
    assert_same_state(spark, resident)


@pytest.mark.slow
def test_a_stratum_whose_members_change_is_rebuilt_in_one_job(on_spark: Make) -> None:
    """`b` joins `a`, which has tuples, and leaves it again; then the least distance takes the place of all."""
    spark, resident = on_spark("large"), Reasoner()
    both = [("b(y, x) :- a(x, y).", 1), ("a(x, z) :- b(y, x), e(y, z).", 1)]
    facts = {"e": [((i, i + 1), 1) for i in range(6)] + [((6, 0), 1)], "a": [((0, 1), 1), ((9, 3), 1)]}
    steps: list[dict[str, Any]] = [
        {"facts": facts, "rules": [("a(x, y) :- e(x, y).", 1)]},
        {"rules": both, "facts": {"e": [((6, 0), -1), ((6, 1), 1)]}},
        {"rules": [(rule, -1) for rule, _ in both]},
    ]
    placement = spark.database.placement
    assert isinstance(placement, SparkPlacement)
    heights = []
    for step in steps:
        assert_same_epoch(spark.apply(**step), resident.apply(**step))
        heights.append(placement.heights)
        assert_same_state(spark, resident)
        spark.check_invariants()
    # The facts' own; the two that are rebuilt in one job are not gone through by height.
    assert heights[1] == 1


@pytest.mark.slow
def test_a_fold_in_place_is_switched_in_one_job(on_spark: Make) -> None:
    ring = [((i, (i + 1) % 6, 1), 1) for i in range(6)] + [((i, (i + 3) % 6, 7), 1) for i in range(0, 6, 2)]
    spark, resident = on_spark("large", 2), Reasoner()
    for reasoner in (spark, resident):
        reasoner.apply(facts={"w": ring}, rules=PATHS)
    placement = spark.database.placement
    assert isinstance(placement, SparkPlacement)
    for step in ({"w": [((0, 1, 1), -1)]}, {"w": [((0, 1, 2), 1), ((5, 0, 1), -1)]}):
        ours = spark.apply(facts=step, strategy="bootstrap")
        assert_same_epoch(ours, resident.apply(facts=step, strategy="update"))
        assert placement.heights == 1
        assert_same_state(spark, resident)
        spark.check_invariants()
