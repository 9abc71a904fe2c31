"""Folds computed from contributions: count, sum and mean over the tuples of a group.

A group is folded anew from its contributions, which are adjacent in the index of the source: one sequential read. The
result depends on the set of contributions alone, also for floats: they are added in ascending order. Folds whose
contributions depend on the folded relation itself are in clocked.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from engine.circuit.normal import Fold
from engine.errors import EvaluationError
from engine.language.schema import ColumnType
from engine.resident import join as kernels
from engine.resident.layout import I32, I64
from engine.resident.relation import Relation

_NONE = np.empty((0, 2), np.int64)
_EXACT = 2.0**62


def distinct_rows(codes: I64) -> I64:
    """The distinct rows, int64[m, n]."""
    if codes.shape[1] == 0:
        return codes[:1]
    return np.unique(codes, axis=0)


def fold_groups(
    fold: Fold, groups: I64, sources: Sequence[Relation], charge: Callable[[int], None]
) -> tuple[I64, npt.NDArray[np.bool_]]:
    """The folded value's code for each group, int64[m], and whether the group has contributions.

    Raises:
        EvaluationError: a sum leaves 64 bits, or is not a number.
    """
    size = len(fold.group)
    owners, values = [], []
    for source in sources:
        owner, payload, _, weights = read_groups(source, tuple(range(size)), groups, False, charge)
        assert (weights == 1).all(), "contributions have one entry each"
        owners.append(owner)
        values.append(payload[:, 0])
    owner, value = np.concatenate(owners), np.concatenate(values)
    counts = np.bincount(owner, minlength=len(groups)).astype(np.int64)
    if fold.function == "count":
        return counts, counts > 0
    order = np.lexsort((ordered(value, fold.type), owner))
    return fold_values(fold, owner[order], value[order], counts), counts > 0


def fold_values(fold: Fold, owner: I64, value: I64, counts: I64) -> I64:
    """The folded value's code for each group, int64[m]; 0 where there are no contributions.

    owner: the group's number of each contribution; value: its code; both ascending by owner, then by value. counts:
    contributions of each group.

    Raises:
        EvaluationError: a sum leaves 64 bits, or is not a number.
    """
    if fold.function == "count":
        return counts
    is_float = fold.type is ColumnType.FLOAT
    sums = _float_sums(owner, value, len(counts)) if is_float else _number_sums(fold, owner, value, counts)
    if fold.function == "mean":
        numbers = sums.view(np.float64) if is_float else sums.astype(np.float64)
        return (numbers / np.maximum(counts, 1) + 0.0).view(np.int64)
    return sums


def current_values(fold: Fold, groups: I64, target: Relation) -> tuple[I64, I64, npt.NDArray[np.bool_]]:
    """The target's tuple of each group: (codes int64[m, arity], value int64[m], whether there is one)."""
    owner, payload, _, weights = read_groups(target, fold.group, groups, False, lambda _: None)
    assert (weights == 1).all(), "a folded tuple has one entry"
    value = payload[:, 0]
    values = np.zeros(len(groups), np.int64)
    found = np.zeros(len(groups), np.bool_)
    values[owner], found[owner] = value, True
    codes = np.empty((len(groups), fold.arity), np.int64)
    codes[:, list(fold.group)] = groups
    codes[:, fold.place] = values
    return codes, values, found


def read_groups(
    relation: Relation,
    columns: tuple[int, ...],
    groups: I64,
    by_height: bool,
    charge: Callable[[int], None],
) -> tuple[I64, I64, I32, I64]:
    """Every entry of the tuples whose `columns` are one of `groups`, from the index over them.

    Returns (number of the group, the other columns int64[n, arity - size], height, weight); heights are 0 unless
    `by_height`.
    """
    index = relation.indexes[columns].arrays
    table = np.ascontiguousarray(np.column_stack((groups, np.arange(len(groups)))), np.int64)
    sources = np.arange(len(columns), dtype=np.int64)
    found, total = kernels.probe(index, table, sources, np.empty(0, np.int64))
    charge(total)
    bindings = table, np.zeros(1, np.int32), np.ones(1, np.int64)
    carry = np.array([len(columns)], np.int64)
    payload = np.arange(index.payload_columns.size, dtype=np.int64)
    shape = carry, payload, _NONE, by_height, 1
    codes, heights, weights, _ = kernels.expand(
        index, relation.arrays.entries, bindings, found, 0, shape, np.iinfo(np.int64).max
    )
    return codes[:, 0], codes[:, 1:], heights, weights


def ordered(codes: I64, kind: ColumnType | None) -> I64:
    """Codes as integers that are ordered as their values."""
    if kind is not ColumnType.FLOAT:
        return codes
    return np.where(codes < 0, codes ^ np.iinfo(np.int64).max, codes)


def _number_sums(fold: Fold, owner: I64, value: I64, counts: I64) -> I64:
    largest = float(np.abs(value.astype(np.float64)).max(initial=0.0))
    sums = np.zeros(len(counts), np.int64)
    if largest * float(counts.max(initial=0)) < _EXACT:
        np.add.at(sums, owner, value)
        return sums
    # Too large to be sure: exactly, group by group.
    for group in np.flatnonzero(counts):
        total = sum(value[owner == group].tolist())
        if not -(2**63) <= total < 2**63:
            raise EvaluationError(
                f"the {fold.function} of a group of {fold.target.split('@')[0]} does not fit into 64 bits: {total}",
                operation=fold.function,
                operands=[],
            )
        sums[group] = total
    return sums


def _float_sums(owner: I64, value: I64, groups: int) -> I64:
    """Sums in ascending order of the values, so that they depend on the contributions alone."""
    sums = np.zeros(groups, np.float64)
    # What leaves the range is found below.
    with np.errstate(over="ignore", invalid="ignore"):
        np.add.at(sums, owner, value.view(np.float64))
    if not np.isfinite(sums).all():
        raise EvaluationError("a sum of floats is not a finite number", operation="sum", operands=[])
    return (sums + 0.0).view(np.int64)
