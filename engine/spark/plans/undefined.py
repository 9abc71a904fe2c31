"""Whether a value that does not exist refuses the epoch: the contract is that of engine/circuit/undefined.py.

The resident placement remembers the bindings for which a literal has no value, and asks about these. Here they may be
many, and only the rule is remembered; if it is still there at the end, it is evaluated once more over the whole state.
Costs one query for each such rule, in proportion to the state; none in an epoch that met nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.plan import CompiledRule
from engine.circuit.undefined import ask
from engine.data.arrow import array_of
from engine.maintenance.placement import Encode
from engine.spark.frames import FAULT, WEIGHT
from engine.spark.plans.lowering import Flow, LookUp
from engine.spark.plans.texts import InDriver
from engine.spark.tables import Tables


def check_faults(
    rules: Iterable[CompiledRule],
    entries: Callable[[str], DataFrame | None],
    tables: Tables,
    encode: Encode,
) -> None:
    """`entries`: of each relation, (c0 .., height, weight), to be summed up.

    Raises:
        EvaluationError: a rule has a complete binding for which a value does not exist. Of several, the first in order.
    """
    for rule in rules:
        in_driver = InDriver(tables, encode)
        try:
            _check(rule, entries, tables, encode, in_driver)
        finally:
            in_driver.release()


def _check(
    rule: CompiledRule,
    entries: Callable[[str], DataFrame | None],
    tables: Tables,
    encode: Encode,
    in_driver: InDriver,
) -> None:
    question = ask(rule.rule)
    plan = next(plan for plan in question.sure.plans if not plan.start.negated)

    def see(step: LookUp) -> list[DataFrame]:
        seen = entries(step.relation)
        return [] if seen is None else [seen]

    changes = entries(plan.start.relation)
    if changes is None:
        return
    flow = Flow(question.sure.rule, encode, in_driver, broadcast=False)
    flow.start([(plan.start, changes, 1)])
    if not all(flow.take([step], [see]) for step in plan.steps):
        return
    names = {name: flow.variable(name) for name in question.variables}
    flow.present(list(names.values()))
    for step in question.last:
        flow.take([step], [see])
    key = list(names.values())
    rows = flow.bindings.where(FAULT).groupBy(*key).agg(F.sum(WEIGHT).alias(WEIGHT))
    found = tables.collect(rows.where(F.col(WEIGHT) > 0).orderBy(*key, WEIGHT).limit(1), small=False)
    if found.num_rows:
        raise question.refusal(
            {name: array_of(found, column) for name, column in names.items()}, encode.symbols
        )
