"""Whether a value that does not exist refuses the epoch: the contract is that of engine/circuit/undefined.py.

An epoch is refused if, in the state that it leads to, some binding fulfils a rule but for literals that have no value.
The resident placement remembers such bindings and asks for the rest of the rule. Here they may be many, and only the
rule is remembered; if it is still there at the end, it is evaluated once more over the whole state: first everything
that always has a value, all atoms included, then the literals that may have none, and what waits for their variables.
Costs one query for each such rule, in proportion to the state; none in an epoch that met nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.circuit.normal import INTERNAL, CoreRule
from engine.circuit.plan import Absent, CompiledRule, Let, Source, Where, compile_rule, equation
from engine.data.arrow import array_of
from engine.data.codes import Codes
from engine.errors import EvaluationError
from engine.expressions import compile_condition, compile_term
from engine.language.canonical import format_rule
from engine.language.syntax import (
    Atom,
    Comparison,
    Constant,
    Literal,
    Negation,
    Term,
    Variable,
    names_of,
    walk,
)
from engine.maintenance.placement import Encode
from engine.spark.frames import FAULT, WEIGHT
from engine.spark.plans.lowering import Flow, LookUp
from engine.spark.plans.terms import can_fail
from engine.spark.plans.texts import InDriver
from engine.spark.tables import Tables

Last = Let | Where | Absent


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
    sure, last = _parted(rule.rule)
    plan = next(plan for plan in compile_rule(sure).plans if not plan.start.negated)

    def see(step: LookUp) -> list[DataFrame]:
        seen = entries(step.relation)
        return [] if seen is None else [seen]

    changes = entries(plan.start.relation)
    if changes is None:
        return
    flow = Flow(sure, encode, in_driver, broadcast=False)
    flow.start(plan.start, changes)
    if not all(flow.take(step, see) for step in plan.steps):
        return
    names = {name: flow.variable(name) for name in _in_order(sure, names_of(sure.head))}
    flow.present(list(names.values()))
    for step in last:
        flow.take(step, see)
    key = list(names.values())
    rows = flow.bindings.where(FAULT).groupBy(*key).agg(F.sum(WEIGHT).alias(WEIGHT))
    found = tables.collect(rows.where(F.col(WEIGHT) > 0).orderBy(*key, WEIGHT).limit(1), small=False)
    if found.num_rows:
        columns = {name: array_of(found, column) for name, column in names.items()}
        raise _error(rule, last, columns, encode)


def _parted(rule: CoreRule) -> tuple[CoreRule, list[Last]]:
    """The rule without what may fail and what waits for that, with all its variables in the head; and the steps that
    are left, in an order in which they can be taken."""
    first: list[Literal] = [literal for literal in rule.body if isinstance(literal, Atom)]
    left = [literal for literal in rule.body if not isinstance(literal, Atom)]
    known = {name for literal in first for name in names_of(literal)}
    while True:
        ready = next(
            (x for x in left if not (isinstance(x, Comparison) and can_fail(x)) and _is_ready(x, known)), None
        )
        if ready is None:
            break
        first.append(ready)
        left.remove(ready)
        known |= names_of(ready)
    head = Atom(f"{rule.head.relation}{INTERNAL}faults", tuple(map(Variable, _in_order(rule, known))))
    last: list[Last] = []
    while left:
        ready = next(literal for literal in left if _is_ready(literal, known))
        left.remove(ready)
        last.append(_step(rule.body.index(ready), ready, known))
        known |= names_of(ready)
    return CoreRule(head.relation, head, tuple(first), rule.types, rule.origin), last


def _step(place: int, literal: Literal, known: set[str]) -> Last:
    carry = tuple(sorted(known))
    if isinstance(literal, Negation):
        return Absent(
            0,
            literal.atom.relation,
            False,
            tuple((c, _source(t)) for c, t in enumerate(literal.atom.terms)),
            carry,
        )
    assert isinstance(literal, Comparison), "atoms come first"
    bound = equation(literal, known)
    return Where(place, literal, carry) if bound is None else Let(place, *bound, carry)


def _is_ready(literal: Literal, known: set[str]) -> bool:
    return names_of(literal) <= known or (
        isinstance(literal, Comparison) and equation(literal, known) is not None
    )


def _source(term: Term) -> Source:
    assert isinstance(term, Variable | Constant), "a negated atom has no other terms"
    return term.name if isinstance(term, Variable) else term


def _in_order(rule: CoreRule, known: set[str]) -> list[str]:
    """As they stand in the body."""
    parts = (part for literal in rule.body for part in walk(literal))
    return list(dict.fromkeys(p.name for p in parts if isinstance(p, Variable) and p.name in known))


def _error(
    rule: CompiledRule, last: Iterable[Last], columns: Mapping[str, Codes], encode: Encode
) -> EvaluationError:
    """What the resident evaluation says of this binding."""
    types = dict(rule.rule.types)
    known = dict(columns)
    try:
        for step in last:
            if isinstance(step, Let):
                known[step.name] = compile_term(step.term, types).evaluate(known, 1, encode.symbols)
            elif isinstance(step, Where):
                compile_condition(step.condition, types).evaluate(known, 1, encode.symbols)
    except EvaluationError as error:
        error.detail["rule"] = format_rule(rule.rule.origin)
        return error
    raise AssertionError("the columns and the expressions disagree about a binding")
