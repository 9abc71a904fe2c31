"""Plans in the form that kernels take: variables are column numbers, constants are codes, all in small arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine.circuit.plan import Absent, Check, CompiledRule, Extend, Let, Plan, Source, Step, Where
from engine.expressions import Condition, Expression, compile_condition, compile_term
from engine.expressions.postfix import comparison, number_term
from engine.language.schema import ColumnType
from engine.language.syntax import Constant
from engine.resident.layout import I64

Types = Mapping[str, ColumnType | None]


@dataclass(frozen=True, slots=True)
class BoundStart:
    """`trivial`: the table is the batch itself. `sign`: -1 for a negated atom."""

    relation: str
    sign: int
    constants: I64  # [n, 2] column, code
    equal: I64  # [n, 2] columns
    columns: I64
    trivial: bool


@dataclass(frozen=True, slots=True)
class BoundStep:
    """A look-up. `columns`: the index's columns, or None for whole tuples; `absent`: of a negated atom.

    `lossless`: every payload column is kept, so that one binding alone has no equal derivations.
    """

    relation: str
    before: bool
    absent: bool
    columns: tuple[int, ...] | None
    every_column: tuple[int, ...]
    sources: I64  # column of the bindings, or -1 - place in `constants`
    constants: I64
    carry: I64
    payload: I64  # positions inside the posting's payload
    equal: I64  # [n, 2] positions inside the payload
    kept_columns: tuple[int, ...]
    consolidate: bool
    lossless: bool


@dataclass(frozen=True, slots=True)
class BoundLet:
    """A new last column, computed from others; `known` names the columns of the bindings, `literal` is the place in
    the rule's body. `postfix`: the same as a program for compiled loops, where there is one."""

    literal: int
    expression: Expression
    known: tuple[str, ...]
    carry: I64
    postfix: I64 | None


@dataclass(frozen=True, slots=True)
class BoundWhere:
    """A condition on the bindings, otherwise as `BoundLet`."""

    literal: int
    condition: Condition
    known: tuple[str, ...]
    carry: I64
    postfix: I64 | None


AnyStep = BoundStep | BoundLet | BoundWhere


@dataclass(frozen=True, slots=True)
class BoundPlan:
    """`sources` and `constants` make the head from the last bindings; None: they are the head."""

    plan: Plan
    rule: CompiledRule
    start: BoundStart
    steps: tuple[AnyStep, ...]
    head: str
    sources: I64 | None
    constants: I64


def bind_rule(
    rule: CompiledRule, arities: Mapping[str, int], encode: Callable[[Constant], int]
) -> tuple[BoundPlan, ...]:
    """The bound plans of a rule, one for each atom of its body."""
    return tuple(_bind(rule, plan, arities, encode) for plan in rule.plans)


def _bind(
    rule: CompiledRule, plan: Plan, arities: Mapping[str, int], encode: Callable[[Constant], int]
) -> BoundPlan:
    start = plan.start
    columns = [column for _, column in start.variables]
    trivial = (
        not start.constants
        and not start.equal
        and not start.negated
        and columns == list(range(arities[start.relation]))
    )
    bound_start = BoundStart(
        start.relation,
        -1 if start.negated else 1,
        _pairs([(column, encode(constant)) for column, constant in start.constants]),
        _pairs(start.equal),
        np.array(columns, np.int64),
        trivial,
    )
    types = dict(rule.rule.types)
    known = [name for name, _ in start.variables]
    steps: list[AnyStep] = []
    for step in plan.steps:
        steps.append(_bind_step(step, known, arities, types, encode))
        new = [name for name, _ in step.kept] if isinstance(step, Extend) else []
        known = [*step.carry, *new, *([step.name] if isinstance(step, Let) else [])]
    sources, constants = _sources(plan.columns, known, encode)
    is_head = sources.tolist() == list(range(len(known)))
    return BoundPlan(
        plan, rule, bound_start, tuple(steps), plan.head, None if is_head else sources, constants
    )


def _bind_step(
    step: Step,
    known: Sequence[str],
    arities: Mapping[str, int],
    types: Types,
    encode: Callable[[Constant], int],
) -> AnyStep:
    carry = np.array([known.index(name) for name in step.carry], np.int64)
    match step:
        case Let():
            program = number_term(step.term, types, known)
            return BoundLet(
                step.literal, compile_term(step.term, types), tuple(known), carry, _array(program)
            )
        case Where():
            program = comparison(step.condition, types, known, encode)
            return BoundWhere(
                step.literal, compile_condition(step.condition, types), tuple(known), carry, _array(program)
            )
        case Check() | Absent():
            sources, constants = _sources([source for _, source in step.key], known, encode)
            every = tuple(range(arities[step.relation]))
            return BoundStep(
                relation=step.relation,
                before=step.before,
                absent=isinstance(step, Absent),
                columns=None,
                every_column=every,
                sources=sources,
                constants=constants,
                carry=carry,
                payload=np.empty(0, np.int64),
                equal=_pairs([]),
                kept_columns=(),
                consolidate=False,
                lossless=True,
            )
        case Extend():
            return _bind_join(step, known, arities[step.relation], carry, encode)


def _bind_join(
    step: Extend, known: Sequence[str], arity: int, carry: I64, encode: Callable[[Constant], int]
) -> BoundStep:
    sources, constants = _sources([source for _, source in step.key], known, encode)
    key = step.demand.columns
    place = {column: i for i, column in enumerate(c for c in range(arity) if c not in key)}
    return BoundStep(
        relation=step.relation,
        before=step.before,
        absent=False,
        columns=key,
        every_column=tuple(range(arity)),
        sources=sources,
        constants=constants,
        carry=carry,
        payload=np.array([place[column] for _, column in step.kept], np.int64),
        equal=_pairs([(place[a], place[b]) for a, b in step.equal]),
        kept_columns=tuple(column for _, column in step.kept),
        consolidate=step.consolidate,
        lossless=len(step.kept) + len(step.equal) == len(place),
    )


def _sources(
    wanted: Sequence[Source], known: Sequence[str], encode: Callable[[Constant], int]
) -> tuple[I64, I64]:
    constants: list[int] = []
    sources = []
    for source in wanted:
        if isinstance(source, Constant):
            constants.append(encode(source))
            sources.append(-len(constants))
        else:
            sources.append(known.index(source))
    return np.array(sources, np.int64), np.array(constants, np.int64)


def _array(program: list[int] | None) -> I64 | None:
    return None if program is None else np.array(program, np.int64)


def _pairs(pairs: Sequence[tuple[int, int]]) -> I64:
    return np.array(pairs, np.int64).reshape(len(pairs), 2)
