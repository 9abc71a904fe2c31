"""A delta plan as a DataFrame.

In: the changed tuples of the plan's starting atom and, for each step, the entries that its atom sees. Out: the head's
changes, one row for each derivation: (c0 .. cn, height, weight), where height is 1 + the largest height of the body's
tuples and weight the product of theirs. Everything is columns of longs; no Python runs for a tuple.

    tc(x, z) :- tc(x, y), arc(y, z).     start: changes of tc as (v0 = x, v1 = y)
                                         join:  arc's entries on k0 = v1, keeping v2 = z
                                         head:  (v0, v2)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from engine.arrow import HEIGHT, column
from engine.circuit.normal import CoreRule
from engine.circuit.plan import Absent, Check, Extend, Let, Plan, Source, Start, Where
from engine.language.syntax import Constant, Variable
from engine.spark.conditions import condition
from engine.spark.frames import WEIGHT, long

Encode = Callable[[Constant], int]
LookUp = Extend | Check | Absent
See = Callable[[LookUp], DataFrame | None]
"""The entries that a step's atom sees as (c0 .. cn, height, weight); None if there are none. Heights of relations of
lower strata are 0."""


def fits(start: Start, encode: Encode) -> list[Column]:
    """The conditions on a changed tuple to fit the starting atom's constants and repeated variables."""
    constants = [F.col(column(c)) == long(encode(constant)) for c, constant in start.constants]
    return [*constants, *(F.col(column(a)) == F.col(column(b)) for a, b in start.equal)]


def derivations(
    rule: CoreRule,
    plan: Plan,
    changes: DataFrame,
    see: See,
    encode: Encode,
    broadcast: bool,
    consolidate: bool,
) -> DataFrame | None:
    """The changes of the head; None if a step sees nothing.

    broadcast: the bindings are few and go to every partition of what they are joined with. consolidate: sum up equal
    bindings before a further step where the plan says that there may be some.
    """
    names: dict[str, str] = {}

    def variable(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}")

    bound = [F.col(column(c)).alias(variable(name)) for name, c in plan.start.variables]
    sign = -F.col(WEIGHT) if plan.start.negated else F.col(WEIGHT)
    fitting = changes.where(_all(fits(plan.start, encode)))
    bindings = fitting.select(*bound, HEIGHT, sign.alias(WEIGHT))
    for number, step in enumerate(plan.steps):
        few = F.broadcast(bindings) if broadcast else bindings
        match step:
            case Let():
                value = _value(_copied(step), variable, encode).alias(variable(step.name))
                bindings = bindings.select(*map(variable, step.carry), value, HEIGHT, WEIGHT)
            case Where():
                kept = bindings.where(condition(step.condition, dict(rule.types), variable, encode))
                bindings = kept.select(*map(variable, step.carry), HEIGHT, WEIGHT)
            case Absent():
                kept = bindings.select(*map(variable, step.carry), HEIGHT, WEIGHT)
                seen = see(step)
                if seen is not None:
                    # present is 0 or 1, so what is absent is everything less what is present.
                    found = _joined(step, few, seen, variable, encode)
                    gone = found.select(*map(variable, step.carry), HEIGHT, (-F.col(WEIGHT)).alias(WEIGHT))
                    kept = kept.union(gone)
                bindings = kept
            case Extend() | Check():
                seen = see(step)
                if seen is None:
                    return None
                bindings = _joined(step, few, seen, variable, encode)
        last = number == len(plan.steps) - 1
        if consolidate and not last and isinstance(step, Extend) and step.consolidate:
            key = [c for c in bindings.columns if c != WEIGHT]
            bindings = bindings.groupBy(*key).agg(F.sum(WEIGHT).alias(WEIGHT))
    head = [_value(source, variable, encode).alias(column(i)) for i, source in enumerate(plan.columns)]
    return bindings.select(*head, (F.col(HEIGHT) + 1).cast("int").alias(HEIGHT), WEIGHT)


def _copied(step: Let) -> Source:
    """The variable or constant that a new variable is equal to."""
    if isinstance(step.term, Variable):
        return step.term.name
    assert isinstance(step.term, Constant), "check_supported refuses computed values"
    return step.term


def _joined(
    step: LookUp, bindings: DataFrame, seen: DataFrame, variable: Callable[[str], str], encode: Encode
) -> DataFrame:
    """One step: look the key up among the entries, keep what the plan carries on, bind what is new."""
    wanted = [
        F.col(column(c)) == long(encode(source)) for c, source in step.key if isinstance(source, Constant)
    ]
    kept: tuple[tuple[str, int], ...] = ()
    if isinstance(step, Extend):
        wanted += [F.col(column(a)) == F.col(column(b)) for a, b in step.equal]
        kept = step.kept
    key = [(c, source) for c, source in step.key if isinstance(source, str)]
    right = seen.where(_all(wanted)).select(
        *(F.col(column(c)).alias(f"k{c}") for c, _ in key),
        *(F.col(column(c)).alias(variable(name)) for name, c in kept),
        F.col(HEIGHT).alias("their_height"),
        F.col(WEIGHT).alias("their_weight"),
    )
    equal = [F.col(variable(name)) == F.col(f"k{c}") for c, name in key]
    joined = bindings.join(right, _all(equal), "inner") if equal else bindings.crossJoin(right)
    return joined.select(
        *(variable(name) for name in step.carry),
        *(variable(name) for name, _ in kept),
        F.greatest(HEIGHT, "their_height").alias(HEIGHT),
        (F.col(WEIGHT) * F.col("their_weight")).alias(WEIGHT),
    )


def _value(source: Source, variable: Callable[[str], str], encode: Encode) -> Column:
    return long(encode(source)) if isinstance(source, Constant) else F.col(variable(source))


def _all(conditions: list[Column]) -> Column:
    return reduce(lambda a, b: a & b, conditions) if conditions else F.lit(True)
