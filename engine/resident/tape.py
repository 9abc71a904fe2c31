"""Bound plans as numbers on one tape, for the compiled loop (climb.py).

A plan is START_ARRAYS numbers, then the arrays of its start; for each step ARRAYS numbers and the step's arrays; and
HEAD_ARRAYS numbers and the arrays of its head. A plan and a step begin with their kind and their length. Relations and
indexes are numbers of lines on a board (views.py). A step that computes a value has a program (postfix.py); without
one, Python runs it and all steps behind it, and the tape says only where.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.resident.bound import BoundLet, BoundPlan, BoundStep, BoundWhere
from engine.resident.layout import I64, NONE

# Of a plan and of a step. TRIVIAL: the bindings are the batch itself.
KIND = TRIVIAL = 0
LENGTH = 1
START_CONSTANTS, START_EQUAL, START_COLUMNS, STEPS, START_ARRAYS = range(2, 7)
# Of a step. KEPT: the column of the relation that a dense sum is over, or NONE.
(
    RELATION_NUMBER,
    INDEX_NUMBER,
    USE_HEIGHTS,
    LOSSLESS,
    CONSOLIDATE,
    KEPT,
    SOURCES,
    CONSTANTS,
    CARRY,
    PAYLOAD,
    EQUAL,
    ARRAYS,
) = range(2, 14)
# Of the head. HEAD_COLUMNS: NONE if it is the bindings themselves.
HEAD_RELATION, HEAD_COLUMNS, HEAD_SOURCES, HEAD_CONSTANTS, HEAD_ARRAYS = range(5)
# Kinds of steps.
EXTEND, CHECK, ABSENT, COMPUTED, LET, WHERE = range(6)
# Of a step that computes: how many numbers its arrays have, the columns that stay and the program.
COMPUTED_CARRY, COMPUTED_PROGRAM, COMPUTED_ARRAYS = range(2, 5)


def written(
    plan: BoundPlan,
    relation: Callable[[str], int],
    index: Callable[[str, tuple[int, ...]], int],
    own: Callable[[str], bool],
) -> list[int]:
    """A plan as numbers. relation, index: numbers of lines. own: whether a relation's heights count."""
    start = plan.start
    # The batch of a negated atom comes with its weights negated.
    line = [
        int(start.trivial),
        0,
        len(start.constants),
        len(start.equal),
        len(start.columns),
        len(plan.steps),
    ]
    for array in (start.constants, start.equal, start.columns):
        line += array.ravel().tolist()
    line[LENGTH] = len(line)
    for step in plan.steps:
        line += _step(step, relation, index, own) if isinstance(step, BoundStep) else _computed(step)
    sources = np.empty(0, np.int64) if plan.sources is None else plan.sources
    columns = NONE if plan.sources is None else len(sources)
    line += [relation(plan.head), columns, len(sources), len(plan.constants)]
    return [*line, *sources.tolist(), *plan.constants.tolist()]


def _computed(step: BoundLet | BoundWhere) -> list[int]:
    if step.postfix is None:
        return [COMPUTED, 2]
    arrays = [*step.carry.tolist(), *step.postfix.tolist()]
    kind = LET if isinstance(step, BoundLet) else WHERE
    return [kind, COMPUTED_ARRAYS + len(arrays), len(step.carry), len(step.postfix), *arrays]


def _step(
    step: BoundStep,
    relation: Callable[[str], int],
    index: Callable[[str, tuple[int, ...]], int],
    own: Callable[[str], bool],
) -> list[int]:
    kind = ABSENT if step.absent else CHECK if step.columns is None else EXTEND
    arrays: tuple[I64, ...] = (step.sources, step.constants, step.carry, step.payload, step.equal)
    numbers = [
        relation(step.relation),
        NONE if step.columns is None else index(step.relation, step.columns),
        int(own(step.relation)),
        int(step.lossless),
        int(step.consolidate),
        step.kept_columns[0] if len(step.kept_columns) == 1 else NONE,
        *(len(array) for array in arrays),
    ]
    found = [number for array in arrays for number in array.ravel().tolist()]
    return [kind, ARRAYS + len(found), *numbers, *found]
