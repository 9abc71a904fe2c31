"""Many delta plans as one DataFrame: the plans of one shape that start at the same moment.

A plan by itself is a scan, a join for each step and a projection (lowering.py), so the query of a height with twenty
plans has forty scans, and Spark takes longer to plan and to compile it than to run it. Plans that only look tuples up
differ in nothing but constants and columns. Here the plan's number travels with each row: a scan marks a row with all
plans whose conditions it fits, what differs is a CASE over the number, and the number is part of every join's key. So
a query grows with the steps of the longest plan, not with the number of plans.

    p(x, 1) :- q(x, 7).  p(x, y) :- q(y, x), r(y).       q's rows -> explode [0 if c1 = 7, 1]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.plan import Check, Extend, Plan, Source
from engine.data.arrow import HEIGHT, column
from engine.maintenance.placement import Encode
from engine.spark.frames import DERIVATIONS, REL, WEIGHT, united
from engine.spark.plans.lowering import See, fits

PLAN = "plan"


@dataclass(frozen=True, slots=True)
class Started:
    """A plan and what it starts from: (c0 .., height, weight), whose weights count `weight` times."""

    plan: Plan
    changes: DataFrame
    see: See
    weight: int


Places = Mapping[int, Mapping[str, str]]
"""By plan and variable, the column."""


def shape(plan: Plan) -> int | None:
    """Plans of the same shape can go together; None for one that goes by itself: it computes or negates, or looks
    something up under no variable, so that all its rows would meet in one place."""
    for step in plan.steps:
        if not isinstance(step, Extend | Check) or not any(isinstance(source, str) for _, source in step.key):
            return None
    return len(plan.steps)


class Together:
    """Plans of one shape on their way; their bindings are (plan, v0 .., height, weight). `names`: the stratum's
    relations, by number; `width`: of the widest; `broadcast` and `consolidate` are as in `lowering.derivations`."""

    def __init__(
        self, names: Sequence[str], width: int, encode: Encode, broadcast: bool, consolidate: bool
    ) -> None:
        self._names = names
        self._width = width
        self._encode = encode
        self._broadcast = broadcast
        self._consolidate = consolidate

    def heads(self, started: Sequence[Started]) -> DataFrame:
        """(rel, c0 .., height, weight, derivations), a row for each derivation. Each step of each plan sees
        something."""
        plans = dict(enumerate(started))
        flow, places = self._start(plans)
        steps = len(started[0].plan.steps)
        for number in range(steps):
            flow, places = self._joined(flow, places, plans, number)
            further = number < steps - 1
            if self._consolidate and further and any(_consolidates(s.plan, number) for s in started):
                key = [name for name in flow.columns if name != WEIGHT]
                flow = flow.groupBy(*key).agg(F.sum(WEIGHT).alias(WEIGHT))
        rel = {p: str(self._names.index(s.plan.head)) for p, s in plans.items()}
        values = {p: [self._value(source, places[p]) for source in s.plan.columns] for p, s in plans.items()}
        return flow.selectExpr(
            f"{_chosen(rel)} AS {REL}",
            *_aligned(values, self._width, "c"),
            f"{HEIGHT} + 1 AS {HEIGHT}",
            WEIGHT,
            f"1L AS {DERIVATIONS}",
        )

    def _start(self, plans: Mapping[int, Started]) -> tuple[DataFrame, Places]:
        """The bindings of all starting atoms, and where the variables are."""
        values = {p: _needed(s.plan) for p, s in plans.items()}
        wide = _widest(values)
        parts = []
        for frame, mine in _by_frame({p: [s.changes] for p, s in plans.items()}):
            starts = {p: plans[p].plan.start for p in mine}
            weights = {
                p: f"{WEIGHT} * {-plans[p].weight if start.negated else plans[p].weight}L"
                for p, start in starts.items()
            }
            marked = _marked(frame, {p: fits(s, self._encode) for p, s in starts.items()})
            own = {p: [column(c) for _, c in values[p]] for p in mine}
            parts.append(
                marked.selectExpr(PLAN, *_aligned(own, wide, "v"), HEIGHT, f"{_chosen(weights)} AS {WEIGHT}")
            )
        return united(parts), {p: {name: f"v{i}" for i, (name, _) in enumerate(v)} for p, v in values.items()}

    def _joined(
        self, flow: DataFrame, places: Places, plans: Mapping[int, Started], number: int
    ) -> tuple[DataFrame, Places]:
        """The bindings after the step of this number, and where the variables are then: those that are carried on
        come first."""
        steps = {p: _look_up(s.plan, number) for p, s in plans.items()}
        keys = {
            p: [(c, source) for c, source in step.key if isinstance(source, str)] for p, step in steps.items()
        }
        kept = {p: step.kept if isinstance(step, Extend) else () for p, step in steps.items()}
        carried = {p: step.carry for p, step in steps.items()}
        wide_key, wide_kept, first = _widest(keys), _widest(kept), _widest(carried)
        left = flow.selectExpr(
            PLAN,
            *_aligned({p: [places[p][name] for _, name in key] for p, key in keys.items()}, wide_key, "k"),
            *_aligned({p: [places[p][name] for name in c] for p, c in carried.items()}, first, "v"),
            HEIGHT,
            WEIGHT,
        )
        parts = []
        for frame, mine in _by_frame({p: s.see(steps[p]) for p, s in plans.items()}):
            conditions = {p: fits(steps[p], self._encode) for p in mine}
            parts.append(
                _marked(frame, conditions).selectExpr(
                    f"{PLAN} AS their_{PLAN}",
                    *_aligned({p: [column(c) for c, _ in keys[p]] for p in mine}, wide_key, "their_k"),
                    *_aligned({p: [column(c) for _, c in kept[p]] for p in mine}, wide_kept, "v", first),
                    f"{HEIGHT} AS their_{HEIGHT}",
                    f"{WEIGHT} AS their_{WEIGHT}",
                )
            )
        equal = " AND ".join(f"{name} = their_{name}" for name in (PLAN, *(f"k{i}" for i in range(wide_key))))
        joined = (F.broadcast(left) if self._broadcast else left).join(united(parts), F.expr(equal), "inner")
        bindings = joined.selectExpr(
            PLAN,
            *(f"v{i}" for i in range(first + wide_kept)),
            f"greatest({HEIGHT}, their_{HEIGHT}) AS {HEIGHT}",
            f"{WEIGHT} * their_{WEIGHT} AS {WEIGHT}",
        )
        return bindings, {
            p: {name: f"v{i}" for i, name in enumerate(carried[p])}
            | {name: f"v{first + i}" for i, (name, _) in enumerate(kept[p])}
            for p in plans
        }

    def _value(self, source: Source, places: Mapping[str, str]) -> str:
        return places[source] if isinstance(source, str) else f"{self._encode(source)}L"


def _look_up(plan: Plan, number: int) -> Extend | Check:
    step = plan.steps[number]
    assert isinstance(step, Extend | Check), "the shape was asked for"
    return step


def _consolidates(plan: Plan, number: int) -> bool:
    step = plan.steps[number]
    return isinstance(step, Extend) and step.consolidate


def _needed(plan: Plan) -> list[tuple[str, int]]:
    """The variables of the starting atom that something is done with."""
    if plan.steps:
        step = _look_up(plan, 0)
        used = {*step.carry, *(source for _, source in step.key)}
    else:
        used = set(plan.columns)
    return [(name, c) for name, c in plan.start.variables if name in used]


def _by_frame(frames: Mapping[int, Sequence[DataFrame]]) -> list[tuple[DataFrame, list[int]]]:
    """Each frame once, with the plans that read it."""
    found: dict[int, tuple[DataFrame, list[int]]] = {}
    for plan, parts in frames.items():
        for frame in parts:
            found.setdefault(id(frame), (frame, []))[1].append(plan)
    return list(found.values())


def _marked(frame: DataFrame, conditions: Mapping[int, str]) -> DataFrame:
    """The rows, each once for every plan whose condition it fits, with the plan's number."""
    marks = [f"CASE WHEN {fitting} THEN {plan} END" for plan, fitting in conditions.items()]
    return frame.selectExpr("*", f"explode(array_compact(array({', '.join(marks)}))) AS {PLAN}")


def _widest(values: Mapping[int, Sequence[object]]) -> int:
    return max(map(len, values.values()))


def _aligned(values: Mapping[int, Sequence[str]], wide: int, prefix: str, first: int = 0) -> list[str]:
    """What stands at each of `wide` places, for every plan; zero where a plan has less."""
    return [
        f"{_chosen({p: v[i] if i < len(v) else '0L' for p, v in values.items()})} AS {prefix}{first + i}"
        for i in range(wide)
    ]


def _chosen(values: Mapping[int, str]) -> str:
    """The expression that belongs to the row's plan."""
    plans: dict[str, list[str]] = {}
    for plan, value in values.items():
        plans.setdefault(value, []).append(str(plan))
    *others, (last, _) = sorted(plans.items(), key=lambda item: len(item[1]))
    if not others:
        return last
    cases = " ".join(f"WHEN {PLAN} IN ({', '.join(mine)}) THEN {value}" for value, mine in others)
    return f"CASE {cases} ELSE {last} END"
