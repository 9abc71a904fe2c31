"""A delta plan as a DataFrame.

In: the changed tuples of the plan's starting atom and, for each step, the entries that its atom sees. Out: the head's
changes, one row for each derivation: (c0 .. cn, height, weight, fault), where height is 1 + the largest height of the
body's tuples and weight the product of theirs. Everything is columns of longs; no Python runs for a tuple.

    tc(x, z) :- tc(x, y), arc(y, z).     start: changes of tc as (v0 = x, v1 = y)
                                         join:  arc's entries on k0 = v1, keeping v2 = z
                                         head:  (v0, v2)

A binding for which a literal has no value derives nothing, but goes on with `fault` set, to the end or to a look-up
that needs the value, unless another literal is false: a fault that no complete binding has is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.circuit.normal import CoreRule
from engine.circuit.plan import Absent, Check, Extend, Let, Plan, Source, Start, Step, Where
from engine.circuit.undefined import can_fail
from engine.data.arrow import HEIGHT, column
from engine.language.syntax import Constant, Variable, walk
from engine.maintenance.placement import Encode
from engine.spark.frames import FAULT, WEIGHT, long, united
from engine.spark.plans.terms import Terms, is_native
from engine.spark.plans.texts import InDriver

HOLDS = "holds"
LookUp = Extend | Check | Absent
See = Callable[[LookUp], Sequence[DataFrame]]
"""The entries that a step's atom sees, in parts of (c0 .. cn, height, weight); the same part is the same frame. Heights
of relations of lower strata are 0."""


@dataclass(frozen=True, slots=True)
class Derived:
    """The head's changes. `lost`: bindings that a fault kept from a look-up, a row each."""

    heads: DataFrame
    lost: tuple[DataFrame, ...]


def fits(atom: Start | LookUp, encode: Encode) -> str:
    """The condition, in SQL, on a tuple to fit an atom's constants and repeated variables."""
    pairs = atom.constants if isinstance(atom, Start) else atom.key
    constants = [f"{column(c)} = {encode(source)}L" for c, source in pairs if isinstance(source, Constant)]
    equal = atom.equal if isinstance(atom, Start | Extend) else ()
    return " AND ".join([*constants, *(f"{column(a)} = {column(b)}" for a, b in equal)]) or "true"


def derivations(
    rule: CoreRule,
    plan: Plan,
    changes: DataFrame,
    see: See,
    encode: Encode,
    in_driver: InDriver,
    broadcast: bool,
    consolidate: bool,
) -> Derived | None:
    """The changes of the head; None if a step sees nothing.

    broadcast: the bindings are few and go to every partition of what they are joined with. consolidate: sum up equal
    bindings before a further step where the plan says that there may be some.
    """
    flow = Flow(rule, encode, in_driver, broadcast)
    flow.start(plan.start, changes)
    for number, step in enumerate(plan.steps):
        if not flow.take(step, see):
            return None
        last = number == len(plan.steps) - 1
        if consolidate and not last and isinstance(step, Extend) and step.consolidate:
            flow.consolidate()
    return Derived(flow.heads(plan.columns), tuple(flow.lost))


class Flow:
    """Bindings on their way through a plan: (v0 .. vn, height, weight, fault)."""

    def __init__(self, rule: CoreRule, encode: Encode, in_driver: InDriver, broadcast: bool) -> None:
        self._types = dict(rule.types)
        self._encode = encode
        self._in_driver = in_driver
        self._broadcast = broadcast
        self._names: dict[str, str] = {}
        self._terms = Terms(self._types, self.variable, encode)
        self._unsure: set[str] = set()
        """Variables that are NULL in a binding with a fault."""
        self.lost: list[DataFrame] = []
        self._bindings: DataFrame | None = None

    @property
    def bindings(self) -> DataFrame:
        assert self._bindings is not None, "the plan has started"
        return self._bindings

    def variable(self, name: str) -> str:
        """The column of a variable."""
        return self._names.setdefault(name, f"v{len(self._names)}")

    def start(self, start: Start, changes: DataFrame) -> None:
        bound = [F.col(column(c)).alias(self.variable(name)) for name, c in start.variables]
        sign = -F.col(WEIGHT) if start.negated else F.col(WEIGHT)
        fitting = changes.where(fits(start, self._encode))
        self._bindings = fitting.select(*bound, HEIGHT, sign.alias(WEIGHT), F.lit(False).alias(FAULT))

    def take(self, step: Step, see: See) -> bool:
        """One step; false if it sees nothing."""
        match step:
            case Let():
                self._let(step)
            case Where():
                self._where(step)
            case Absent():
                self._absent(step, see(step))
            case Extend() | Check():
                seen = see(step)
                if not seen:
                    return False
                self._keep_faults(step)
                self._bindings = self._joined(step, united(seen))
        return True

    def consolidate(self) -> None:
        """Sum up equal bindings."""
        key = [c for c in self.bindings.columns if c != WEIGHT]
        self._bindings = self.bindings.groupBy(*key).agg(F.sum(WEIGHT).alias(WEIGHT))

    def present(self, columns: list[str]) -> None:
        """Keep the bindings whose weights sum to more than zero, once each."""
        summed = self.bindings.groupBy(*columns, FAULT).agg(F.sum(WEIGHT).alias(WEIGHT))
        kept = summed.where(F.col(WEIGHT) > 0)
        self._bindings = kept.select(*columns, F.lit(0).alias(HEIGHT), long(1).alias(WEIGHT), FAULT)

    def heads(self, sources: tuple[Source, ...]) -> DataFrame:
        """(c0 .. cn, height, weight, fault); only the flag of a row with a fault means something."""
        head = [self._source(source).alias(column(i)) for i, source in enumerate(sources)]
        return self.bindings.select(*head, (F.col(HEIGHT) + 1).cast("int").alias(HEIGHT), WEIGHT, FAULT)

    # ---- steps that look nothing up

    def _let(self, step: Let) -> None:
        if is_native(step.term, self._types):
            frame, value = self.bindings, self._terms.code(step.term)
        else:
            frame, value = self._in_driver.value(
                self.bindings, step.term, self._types, self.variable, self._broadcast
            )
        target = self.variable(step.name)
        frame = frame.select(*self._carried(step), value.cast("long").alias(target), HEIGHT, WEIGHT, FAULT)
        if can_fail(step.term) or self._needs_unsure(step):
            self._unsure.add(step.name)
            frame = frame.withColumn(FAULT, F.col(FAULT) | F.col(target).isNull())
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
            frame = frame.withColumn(FAULT, F.col(FAULT) | F.col(HOLDS).isNull())
        else:
            frame = frame.where(holds)
        self._bindings = frame.select(*self._carried(step), HEIGHT, WEIGHT, FAULT)

    def _needs_unsure(self, step: Let | Where) -> bool:
        used = step.term if isinstance(step, Let) else step.condition
        return any(isinstance(part, Variable) and part.name in self._unsure for part in walk(used))

    def _carried(self, step: Step) -> list[str]:
        return [self.variable(name) for name in step.carry]

    # ---- look-ups

    def _keep_faults(self, step: LookUp) -> None:
        """Bindings with a fault find nothing under a key that they lack, so they end here."""
        if any(isinstance(source, str) and source in self._unsure for _, source in step.key):
            self.lost.append(self.bindings.where(FAULT).select(FAULT))
            self._bindings = self.bindings.where(~F.col(FAULT))

    def _absent(self, step: Absent, seen: Sequence[DataFrame]) -> None:
        kept = self.bindings.select(*self._carried(step), HEIGHT, WEIGHT, FAULT)
        if seen:
            # present is 0 or 1, so what is absent is everything less what is present.
            found = self._joined(step, united(seen))
            gone = found.select(*self._carried(step), HEIGHT, (-F.col(WEIGHT)).alias(WEIGHT), FAULT)
            kept = kept.union(gone)
        self._bindings = kept

    def _joined(self, step: LookUp, seen: DataFrame) -> DataFrame:
        """Look the key up among the entries, keep what the plan carries on, bind what is new."""
        kept = step.kept if isinstance(step, Extend) else ()
        key = [(c, source) for c, source in step.key if isinstance(source, str)]
        right = seen.where(fits(step, self._encode)).select(
            *(F.col(column(c)).alias(f"k{c}") for c, _ in key),
            *(F.col(column(c)).alias(self.variable(name)) for name, c in kept),
            F.col(HEIGHT).alias("their_height"),
            F.col(WEIGHT).alias("their_weight"),
        )
        left = F.broadcast(self.bindings) if self._broadcast else self.bindings
        equal = [F.col(self.variable(name)) == F.col(f"k{c}") for c, name in key]
        joined = left.join(right, equal, "inner") if equal else left.crossJoin(right)
        return joined.select(
            *self._carried(step),
            *(self.variable(name) for name, _ in kept),
            F.greatest(HEIGHT, "their_height").alias(HEIGHT),
            (F.col(WEIGHT) * F.col("their_weight")).alias(WEIGHT),
            FAULT,
        )

    def _source(self, source: Source) -> Column:
        return self._terms.code(Variable(source) if isinstance(source, str) else source)
