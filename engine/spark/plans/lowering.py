"""Delta plans as a DataFrame: one plan, or several of one shape that start at the same moment.

In: the changed tuples of the plans' starting atoms and, for each step, the entries that its atom sees. Out: the heads'
changes, one row for each derivation: (rel, c0 .. cn, height, weight, derivations), where height is 1 + the largest
height of the body's tuples and weight the product of theirs. Everything is columns of longs; no Python runs for a
tuple.

    tc(x, z) :- tc(x, y), arc(y, z).     start: changes of tc as (v0 = x, v1 = y)
                                         join:  arc's entries on k0 = v1, keeping v1 = z
                                         head:  (v0, v1)

A query with a scan, a join for each step and a projection for every plan of a height has so many operators that Spark
takes longer to plan and to compile it than to run it. Plans that only look tuples up differ in nothing but constants
and columns, so they go together: the plan's number travels with each row. A scan marks a row with all plans whose
conditions it fits, what differs is a CASE over the number, and the number is part of every join's key. So a query grows
with the steps of the longest plan, not with the number of plans. A plan that goes alone has no number.

    p(x, 1) :- q(x, 7).  p(x, y) :- q(y, x), r(y).       q's rows -> explode [0 if c1 = 7, 1]

A binding for which a literal has no value derives nothing, but goes on with `fault` set, to the end or to a look-up
that needs the value, unless another literal is false: a fault that no complete binding has does not count. There is
such a column only behind a literal that may have no value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.circuit.normal import CoreRule
from engine.circuit.plan import Absent, Check, CompiledRule, Extend, Let, Plan, Source, Start, Step, Where
from engine.circuit.undefined import can_fail
from engine.data.arrow import HEIGHT, column
from engine.language.syntax import Constant, Variable, walk
from engine.maintenance.placement import Encode
from engine.spark.frames import DERIVATIONS, FAULT, REL, WEIGHT, long, united
from engine.spark.plans.terms import Terms, is_native
from engine.spark.plans.texts import InDriver
from engine.spark.supports import Subject

HOLDS, PLAN = "holds", "plan"
LookUp = Extend | Check | Absent
See = Callable[[LookUp], Sequence[DataFrame]]
"""The entries that a step's atom sees, in parts of (c0 .. cn, height, weight); the same part is the same frame. Heights
of relations of lower strata are 0."""


@dataclass(frozen=True, slots=True)
class Started:
    """A plan and what it starts from: (c0 .., height, weight), whose weights count `weight` times. Each of its steps
    that looks a tuple up sees something."""

    rule: CompiledRule
    plan: Plan
    changes: DataFrame
    see: See
    weight: int


@dataclass(frozen=True, slots=True)
class Derived:
    """The heads' changes, (rel, c0 .., height, weight, derivations), and `fault` at the end if some literal may have no
    value: then only that flag of a row with a fault means something. lost: bindings that a fault kept from a look-up, a
    row each."""

    heads: DataFrame
    may_fail: bool
    lost: tuple[DataFrame, ...]


def shape(plan: Plan) -> int | None:
    """Plans of the same shape can go together; None for one that goes alone: it computes or negates, or looks something
    up under no variable, so that all its rows would meet in one place."""
    for step in plan.steps:
        if not isinstance(step, Extend | Check) or not any(isinstance(source, str) for _, source in step.key):
            return None
    return len(plan.steps)


def derivations(started: Sequence[Started], subject: Subject, in_driver: InDriver, few: bool) -> Derived:
    """The changes of the heads of plans that go together, or of one plan.

    few: the bindings go to every partition of what they are joined with. Where they are many, equal bindings are summed
    up before a further step if a plan says that there may be some.
    """
    plans = [one.plan for one in started]
    flow = Flow(started[0].rule.rule, subject.encode, in_driver, broadcast=few)
    flow.start([(one.plan.start, one.changes, one.weight) for one in started])
    for number in range(len(plans[0].steps)):
        steps = [plan.steps[number] for plan in plans]
        found = flow.take(steps, [one.see for one in started])
        assert found, "a plan that sees nothing is left out"
        last = number == len(plans[0].steps) - 1
        if not (few or last) and any(isinstance(step, Extend) and step.consolidate for step in steps):
            flow.consolidate()
    return Derived(flow.heads(plans, subject), flow.may_fail, tuple(flow.lost))


def fits(atom: Start | LookUp, encode: Encode) -> str:
    """The condition, in SQL, on a tuple to fit an atom's constants and repeated variables."""
    pairs = atom.constants if isinstance(atom, Start) else atom.key
    constants = [f"{column(c)} = {encode(source)}L" for c, source in pairs if isinstance(source, Constant)]
    equal = atom.equal if isinstance(atom, Start | Extend) else ()
    return " AND ".join([*constants, *(f"{column(a)} = {column(b)}" for a, b in equal)]) or "true"


class Flow:
    """Bindings on their way through plans: (plan, v0 .., height, weight, fault); `plan` only where there are several,
    and `fault` only where a literal may have had no value. rule: of the plan, where it is one; several compute nothing,
    and need none."""

    def __init__(self, rule: CoreRule, encode: Encode, in_driver: InDriver, broadcast: bool) -> None:
        self._types = dict(rule.types)
        self._encode = encode
        self._in_driver = in_driver
        self._broadcast = broadcast
        self._terms = Terms(self._types, self.variable, encode)
        self._places: list[dict[str, str]] = []
        """By plan and variable, the column."""
        self._wide = 0
        """How many columns variables have had since the last look-up."""
        self._plan: list[str] = []
        self._flag: list[str] = []
        """The columns `plan` and `fault`, where they are."""
        self._unsure: set[str] = set()
        """Variables that are NULL in a binding with a fault."""
        self.lost: list[DataFrame] = []
        self._bindings: DataFrame | None = None

    @property
    def bindings(self) -> DataFrame:
        assert self._bindings is not None, "the plan has started"
        return self._bindings

    @property
    def may_fail(self) -> bool:
        """Whether there is a column `fault`."""
        return bool(self._flag)

    def variable(self, name: str) -> str:
        """The column of a variable of the only plan."""
        return self._places[0][name]

    def start(self, starts: Sequence[tuple[Start, DataFrame, int]]) -> None:
        """The bindings of all starting atoms; the weights of each count so many times."""
        self._plan = [PLAN] if len(starts) > 1 else []
        names = [start.variables for start, _, _ in starts]
        self._wide = _widest(names)
        parts = []
        for frame, mine in _by_frame([[changes] for _, changes, _ in starts]):
            signed = {p: -starts[p][2] if starts[p][0].negated else starts[p][2] for p in mine}
            marked = self._marked(frame, {p: fits(starts[p][0], self._encode) for p in mine})
            own = {p: [column(c) for _, c in names[p]] for p in mine}
            weights = {p: WEIGHT if sign == 1 else f"{WEIGHT} * {sign}L" for p, sign in signed.items()}
            parts.append(
                marked.selectExpr(
                    *self._plan, *_aligned(own, self._wide, "v"), HEIGHT, f"{_chosen(weights)} AS {WEIGHT}"
                )
            )
        self._bindings = united(parts)
        self._places = [{name: f"v{i}" for i, (name, _) in enumerate(some)} for some in names]

    def take(self, steps: Sequence[Step], sees: Sequence[See]) -> bool:
        """A step of each plan; false if one sees nothing."""
        look_ups = [step for step in steps if isinstance(step, Extend | Check)]
        if look_ups:
            seen = [see(step) for see, step in zip(sees, look_ups, strict=True)]
            if not all(seen):
                return False
            self._keep_faults(look_ups)
            self._bindings, self._places = self._joined(look_ups, seen)
            self._wide = max(len(places) for places in self._places)
            return True
        (step,), (see,) = steps, sees
        match step:
            case Let():
                self._let(step)
            case Where():
                self._where(step)
            case Absent():
                self._absent(step, see(step))
        return True

    def consolidate(self) -> None:
        """Sum up equal bindings."""
        key = [c for c in self.bindings.columns if c != WEIGHT]
        self._bindings = self.bindings.groupBy(*key).agg(F.sum(WEIGHT).alias(WEIGHT))

    def present(self, columns: list[str]) -> None:
        """Keep the bindings whose weights sum to more than zero, once each."""
        summed = self.bindings.groupBy(*columns, *self._flag).agg(F.sum(WEIGHT).alias(WEIGHT))
        kept = summed.where(F.col(WEIGHT) > 0)
        self._bindings = kept.select(*columns, F.lit(0).alias(HEIGHT), long(1).alias(WEIGHT), *self._flag)

    def heads(self, plans: Sequence[Plan], subject: Subject) -> DataFrame:
        """(rel, c0 .., height, weight, derivations, fault), a row for each derivation."""
        rel = {p: str(subject.names.index(plan.head)) for p, plan in enumerate(plans)}
        values = {p: [self._value(source, p) for source in plan.columns] for p, plan in enumerate(plans)}
        return self.bindings.selectExpr(
            f"{_chosen(rel)} AS {REL}",
            *_aligned(values, subject.width, "c"),
            f"{HEIGHT} + 1 AS {HEIGHT}",
            WEIGHT,
            f"1L AS {DERIVATIONS}",
            *self._flag,
        )

    def _value(self, source: Source, plan: int) -> str:
        return self._places[plan][source] if isinstance(source, str) else f"{self._encode(source)}L"

    def _marked(self, frame: DataFrame, conditions: Mapping[int, str]) -> DataFrame:
        """The rows, each once for every plan whose condition it fits, with the plan's number where there are several
        plans."""
        if not self._plan:
            return frame.where(conditions[0])
        marks = [f"CASE WHEN {fitting} THEN {plan} END" for plan, fitting in conditions.items()]
        return frame.selectExpr("*", f"explode(array_compact(array({', '.join(marks)}))) AS {PLAN}")

    # ---- steps that look nothing up; a plan with one goes alone

    def _let(self, step: Let) -> None:
        if is_native(step.term, self._types):
            frame, value = self.bindings, self._terms.code(step.term)
        else:
            frame, value = self._in_driver.value(
                self.bindings, step.term, self._types, self.variable, self._broadcast
            )
        target = f"v{self._wide}"
        frame = frame.select(
            *self._carried(step), value.cast("long").alias(target), HEIGHT, WEIGHT, *self._flag
        )
        self._wide += 1
        self._places[0][step.name] = target
        if can_fail(step.term) or self._needs_unsure(step):
            self._unsure.add(step.name)
            frame = self._flagged(frame, F.col(target).isNull())
        self._bindings = frame

    def _where(self, step: Where) -> None:
        if is_native(step.condition, self._types):
            frame, holds = self.bindings, self._terms.condition(step.condition)
        else:
            frame, holds = self._in_driver.condition(
                self.bindings, step.condition, self._types, self.variable, self._broadcast
            )
        if can_fail(step.condition) or self._needs_unsure(step):
            frame = frame.select("*", holds.alias(HOLDS)).where(F.coalesce(HOLDS, F.lit(True)))
            frame = self._flagged(frame, F.col(HOLDS).isNull())
        else:
            frame = frame.where(holds)
        self._bindings = frame.select(*self._carried(step), HEIGHT, WEIGHT, *self._flag)

    def _flagged(self, frame: DataFrame, fault: Column) -> DataFrame:
        """With the fault noted, beside those that were noted before."""
        frame = frame.withColumn(FAULT, F.col(FAULT) | fault if self._flag else fault)
        self._flag = [FAULT]
        return frame

    def _needs_unsure(self, step: Let | Where) -> bool:
        used = step.term if isinstance(step, Let) else step.condition
        return any(isinstance(part, Variable) and part.name in self._unsure for part in walk(used))

    def _carried(self, step: Step) -> list[str]:
        return [self.variable(name) for name in step.carry]

    def _absent(self, step: Absent, seen: Sequence[DataFrame]) -> None:
        kept = self.bindings.select(*self._carried(step), HEIGHT, WEIGHT, *self._flag)
        if seen:
            # present is 0 or 1, so what is absent is everything less what is present.
            found, places = self._joined([step], [seen])
            same = [f"{places[0][name]} AS {self.variable(name)}" for name in step.carry]
            gone = found.selectExpr(*same, HEIGHT, f"-{WEIGHT} AS {WEIGHT}", *self._flag)
            kept = kept.union(gone)
        self._bindings = kept

    # ---- look-ups

    def _keep_faults(self, steps: Sequence[LookUp]) -> None:
        """Bindings with a fault find nothing under a key that they lack, so they end here."""
        if any(
            isinstance(source, str) and source in self._unsure for step in steps for _, source in step.key
        ):
            self.lost.append(self.bindings.where(FAULT).select(FAULT))
            self._bindings = self.bindings.where(~F.col(FAULT))

    def _joined(
        self, steps: Sequence[LookUp], seen: Sequence[Sequence[DataFrame]]
    ) -> tuple[DataFrame, list[dict[str, str]]]:
        """Look the keys up among the entries, keep what the plans carry on, bind what is new. The bindings, and where
        the variables are then: those that are carried on come first."""
        keys = [[(c, source) for c, source in step.key if isinstance(source, str)] for step in steps]
        kept = [step.kept if isinstance(step, Extend) else () for step in steps]
        carried = [step.carry for step in steps]
        wide_key, wide_kept, first = _widest(keys), _widest(kept), _widest(carried)
        places = dict(enumerate(self._places))
        left = self.bindings.selectExpr(
            *self._plan,
            *_aligned({p: [own[name] for _, name in keys[p]] for p, own in places.items()}, wide_key, "k"),
            *_aligned({p: [own[name] for name in carried[p]] for p, own in places.items()}, first, "v"),
            HEIGHT,
            WEIGHT,
            *self._flag,
        )
        parts = []
        for frame, mine in _by_frame(seen):
            marked = self._marked(frame, {p: fits(steps[p], self._encode) for p in mine})
            parts.append(
                marked.selectExpr(
                    *(f"{name} AS their_{name}" for name in self._plan),
                    *_aligned({p: [column(c) for c, _ in keys[p]] for p in mine}, wide_key, "their_k"),
                    *_aligned({p: [column(c) for _, c in kept[p]] for p in mine}, wide_kept, "v", first),
                    f"{HEIGHT} AS their_{HEIGHT}",
                    f"{WEIGHT} AS their_{WEIGHT}",
                )
            )
        right = united(parts)
        equal = [f"{name} = their_{name}" for name in (*self._plan, *(f"k{i}" for i in range(wide_key)))]
        left = F.broadcast(left) if self._broadcast else left
        joined = left.join(right, F.expr(" AND ".join(equal)), "inner") if equal else left.crossJoin(right)
        bindings = joined.selectExpr(
            *self._plan,
            *(f"v{i}" for i in range(first + wide_kept)),
            f"greatest({HEIGHT}, their_{HEIGHT}) AS {HEIGHT}",
            f"{WEIGHT} * their_{WEIGHT} AS {WEIGHT}",
            *self._flag,
        )
        return bindings, [
            {name: f"v{i}" for i, name in enumerate(carried[p])}
            | {name: f"v{first + i}" for i, (name, _) in enumerate(kept[p])}
            for p in places
        ]


def _by_frame(frames: Sequence[Sequence[DataFrame]]) -> list[tuple[DataFrame, list[int]]]:
    """Each frame once, with the plans that read it."""
    found: dict[int, tuple[DataFrame, list[int]]] = {}
    for plan, parts in enumerate(frames):
        for frame in parts:
            found.setdefault(id(frame), (frame, []))[1].append(plan)
    return list(found.values())


def _widest(values: Sequence[Sequence[object]]) -> int:
    return max(map(len, values))


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
