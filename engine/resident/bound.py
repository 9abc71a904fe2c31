"""A plan as the kernels take it: variables are column numbers, constants are codes, all in small arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from engine.circuit.plan import CompiledRule, Extend, Plan, Source, Step
from engine.language.syntax import Constant
from engine.resident.layout import I64

Encode = Callable[[Constant], int]


@dataclass(frozen=True, slots=True)
class BoundStart:
    """`trivial`: the table is the batch itself."""

    relation: str
    constants: I64  # [n, 2] column, code
    equal: I64  # [n, 2] columns
    columns: I64
    trivial: bool


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One step. `columns`: the index's columns, or None for a check of whole tuples.

    `lossless`: every payload column is kept, so that one binding alone has no equal derivations.
    """

    relation: str
    before: bool
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
class BoundPlan:
    """`sources` and `constants` make the head from the last bindings; None: they are the head."""

    plan: Plan
    start: BoundStart
    steps: tuple[BoundStep, ...]
    head: str
    sources: I64 | None
    constants: I64


def bind_rule(rule: CompiledRule, arities: dict[str, int], encode: Encode) -> tuple[BoundPlan, ...]:
    """The bound plans of a rule, one for each body atom."""
    return tuple(_bind(plan, arities, encode) for plan in rule.plans)


def _bind(plan: Plan, arities: dict[str, int], encode: Encode) -> BoundPlan:
    start = plan.start
    columns = [column for _, column in start.variables]
    trivial = not start.constants and not start.equal and columns == list(range(arities[start.relation]))
    bound_start = BoundStart(
        start.relation,
        _pairs([(column, encode(constant)) for column, constant in start.constants]),
        _pairs(start.equal),
        np.array(columns, np.int64),
        trivial,
    )
    known = [name for name, _ in start.variables]
    steps = []
    for step in plan.steps:
        steps.append(_bind_step(step, known, arities[step.relation], encode))
        known = (
            [*step.carry, *(name for name, _ in step.kept)] if isinstance(step, Extend) else list(step.carry)
        )
    sources, constants = _sources(plan.columns, known, encode)
    is_head = sources.tolist() == list(range(len(known)))
    return BoundPlan(plan, bound_start, tuple(steps), plan.head, None if is_head else sources, constants)


def _bind_step(step: Step, known: Sequence[str], arity: int, encode: Encode) -> BoundStep:
    sources, constants = _sources([source for _, source in step.key], known, encode)
    carry = np.array([known.index(name) for name in step.carry], np.int64)
    every = tuple(range(arity))
    if not isinstance(step, Extend):
        empty = np.empty(0, np.int64)
        return BoundStep(
            step.relation,
            step.before,
            None,
            every,
            sources,
            constants,
            carry,
            empty,
            _pairs([]),
            (),
            False,
            True,
        )
    key = step.demand.columns
    place = {column: i for i, column in enumerate(c for c in every if c not in key)}
    return BoundStep(
        step.relation,
        step.before,
        key,
        every,
        sources,
        constants,
        carry,
        np.array([place[column] for _, column in step.kept], np.int64),
        _pairs([(place[a], place[b]) for a, b in step.equal]),
        tuple(column for _, column in step.kept),
        step.consolidate,
        len(step.kept) + len(step.equal) == len(place),
    )


def _sources(wanted: Sequence[Source], known: Sequence[str], encode: Encode) -> tuple[I64, I64]:
    constants: list[int] = []
    sources = []
    for source in wanted:
        if isinstance(source, Constant):
            constants.append(encode(source))
            sources.append(-len(constants))
        else:
            sources.append(known.index(source))
    return np.array(sources, np.int64), np.array(constants, np.int64)


def _pairs(pairs: Sequence[tuple[int, int]]) -> I64:
    return np.array(pairs, np.int64).reshape(len(pairs), 2)
