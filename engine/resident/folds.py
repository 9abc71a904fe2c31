"""Folds from contributions: count, sum and mean over the tuples of a group.

A group is folded anew from its contributions, which lie together in the index of the source: one sequential read.
The result depends on the set of contributions alone, also for floats: they are added in ascending order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from engine.circuit.normal import Fold
from engine.errors import EvaluationError
from engine.language.schema import ColumnType
from engine.resident import join as kernels
from engine.resident.layout import I64
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
        owner, value = _postings(source, tuple(range(size)), groups, size, charge)
        owners.append(owner)
        values.append(value)
    owner, value = np.concatenate(owners), np.concatenate(values)
    counts = np.bincount(owner, minlength=len(groups)).astype(np.int64)
    if fold.function == "count":
        return counts, counts > 0
    order = np.lexsort((_ordered(value, fold.type), owner))
    owner, value = owner[order], value[order]
    is_float = fold.type is ColumnType.FLOAT
    sums = _float_sums(owner, value, len(groups)) if is_float else _number_sums(fold, owner, value, counts)
    if fold.function == "mean":
        numbers = sums.view(np.float64) if is_float else sums.astype(np.float64)
        return (numbers / np.maximum(counts, 1) + 0.0).view(np.int64), counts > 0
    return sums, counts > 0


def current_values(fold: Fold, groups: I64, target: Relation) -> tuple[I64, I64, npt.NDArray[np.bool_]]:
    """The target's tuple of each group: (codes int64[m, arity], value int64[m], whether there is one)."""
    owner, value = _postings(target, fold.group, groups, 0, lambda _: None, whole_payload=True)
    values = np.zeros(len(groups), np.int64)
    found = np.zeros(len(groups), np.bool_)
    values[owner], found[owner] = value, True
    codes = np.empty((len(groups), fold.arity), np.int64)
    codes[:, list(fold.group)] = groups
    codes[:, fold.place] = values
    return codes, values, found


def _postings(
    relation: Relation,
    columns: tuple[int, ...],
    groups: I64,
    value_column: int,
    charge: Callable[[int], None],
    whole_payload: bool = False,
) -> tuple[I64, I64]:
    """(number of the group, value) of every tuple whose `columns` are one of `groups`.

    The value stands in `value_column`; with `whole_payload` it is the only other column.
    """
    index = relation.indexes[columns].arrays
    table = np.column_stack((groups, np.arange(len(groups))))
    table = np.ascontiguousarray(table, np.int64)
    sources = np.arange(len(columns), dtype=np.int64)
    found, total = kernels.probe(index, table, sources, np.empty(0, np.int64))
    charge(total)
    payload = 0 if whole_payload else int(np.flatnonzero(index.payload_columns == value_column)[0])
    one = np.ones(1, np.int64)
    codes, _, weights, _ = kernels.expand(
        index,
        relation.arrays.entries,
        table,
        np.zeros(1, np.int32),
        one,
        found,
        0,
        np.array([len(columns)], np.int64),
        np.array([payload], np.int64),
        _NONE,
        False,
        1,
        np.iinfo(np.int64).max,
    )
    assert (weights == 1).all(), "contributions have one entry each"
    return codes[:, 0], codes[:, 1]


def _ordered(codes: I64, kind: ColumnType | None) -> I64:
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
                f"the {fold.function} of a group of {fold.target.split('@')[0]} leaves 64 bits: {total}",
                operation=fold.function,
                operands=[],
            )
        sums[group] = total
    return sums


def _float_sums(owner: I64, value: I64, groups: int) -> I64:
    """Sums in ascending order of the values, so that they depend on the contributions alone."""
    sums = np.zeros(groups, np.float64)
    np.add.at(sums, owner, value.view(np.float64))
    if not np.isfinite(sums).all():
        raise EvaluationError("a sum of floats is not a finite number", operation="sum", operands=[])
    return (sums + 0.0).view(np.int64)
