"""Rows: tuples of one relation with their state, sorted by their codes; sorting, merging, look-up.

`codes` int64[n, arity], `asserted` int64[n] (the fact's weight), `derived` bool[n], `hidden` bool[n], `heights`
int64[n] (as in `RelationChange`); sorted lexicographically by codes as signed integers, each tuple once. A row with
asserted = 0 and derived = False is a *tombstone*: it says that the tuple is gone, and lives only in delta runs, above
older rows of the same tuple. A hidden row is a fact that only contributes to a min or max: it is asserted, but its
tuple is not there. Everything here is vectorised: a merge costs one sort of what goes in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes

Mask = npt.NDArray[np.bool_]
Order = npt.NDArray[np.int64]
Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Rows:
    """Sorted rows of one relation, each tuple once."""

    codes: Codes
    asserted: npt.NDArray[np.int64]
    derived: Mask
    hidden: Mask
    heights: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.codes.shape[0])

    @property
    def arity(self) -> int:
        return int(self.codes.shape[1])

    @property
    def nbytes(self) -> int:
        return sum(int(getattr(self, name).nbytes) for name in self.__slots__)

    @property
    def live(self) -> Mask:
        """bool[n]: the rows that are not tombstones."""
        live: Mask = (self.asserted != 0) | self.derived
        return live

    def where(self, mask: Mask | Order) -> Rows:
        """The rows where `mask` holds, or with these numbers; sorted, if these are in the order of the codes."""
        return self._of(lambda column: column[mask])

    def part(self, start: int, stop: int) -> Rows:
        """The rows start <= i < stop, as views."""
        return self._of(lambda column: column[start:stop])

    def _of(self, taken: Callable[[Any], Any]) -> Rows:
        return Rows(*(taken(getattr(self, name)) for name in self.__slots__))

    def key(self, row: int) -> Key:
        return tuple(int(code) for code in self.codes[row])


def empty_rows(arity: int) -> Rows:
    none, zero = np.empty(0, np.bool_), np.empty(0, np.int64)
    return Rows(np.empty((0, arity), np.int64), zero, none, none, zero)


def concatenate(parts: Sequence[Rows], arity: int) -> Rows:
    """The parts one after the other; sorted if they were disjoint and in order."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return empty_rows(arity)
    return Rows(*(np.concatenate([getattr(p, name) for p in parts]) for name in Rows.__slots__))


def sort_order(codes: Codes) -> Order:
    """The stable permutation that sorts `codes` lexicographically.

    Where the columns' ranges fit into 63 bits together, they are packed into one integer. If the row's number
    fits below them, one sort of plain integers (vectorised in numpy) does it: a million pairs in 0.03 s, a
    stable argsort takes 0.2 s.
    """
    rows, arity = codes.shape
    if rows <= 1 or arity == 0:
        return np.arange(rows)
    # Column by column: a reduction along the long axis of narrow rows is ten times as slow.
    low = [int(column.min()) for column in codes.T]
    widths = [(int(column.max()) - lo).bit_length() for lo, column in zip(low, codes.T, strict=True)]
    if sum(widths) > 63:
        return np.lexsort(codes.T[::-1])
    packed: npt.NDArray[np.int64] = codes[:, 0] - low[0]
    for column in range(1, arity):
        packed <<= widths[column]
        packed |= codes[:, column] - low[column]
    number_bits = (rows - 1).bit_length()
    if sum(widths) + number_bits > 63:
        return np.argsort(packed, kind="stable")
    packed <<= number_bits
    packed |= np.arange(rows)
    packed.sort()
    packed &= (1 << number_bits) - 1
    return packed


def rows_in_order(
    codes: Codes,
    asserted: npt.NDArray[np.int64],
    derived: Mask,
    hidden: Mask | None,
    heights: npt.NDArray[np.int64] | None,
    order: Order,
) -> Rows:
    """The rows that `order` (of `sort_order`) makes of tuples that come in any order, each once. hidden: None if no
    row is. heights: None if all are 0."""
    # Column-major: what follows walks one column at a time.
    ordered = np.empty(codes.shape, np.int64, order="F")
    for column in range(codes.shape[1]):
        codes[:, column].take(order, out=ordered[:, column])
    kept = np.zeros(len(order), np.bool_) if hidden is None else hidden.take(order)
    high = np.zeros(len(order), np.int64) if heights is None else heights.take(order)
    return Rows(ordered, asserted.take(order), derived.take(order), kept, high)


def merge(newest_first: Sequence[Rows], arity: int, *, drop_tombstones: bool) -> Rows:
    """One `Rows` out of several; where a tuple stands in more than one, the first of them wins.

    `drop_tombstones`: for a merge with nothing below it, where a deletion has nothing left to delete.
    """
    parts = [part for part in newest_first if len(part)]
    merged = concatenate(parts, arity)
    if len(parts) > 1:
        order = sort_order(merged.codes)
        codes = merged.codes.take(order, axis=0)
        first = np.ones(len(order), np.bool_)
        # The sort is stable, so of equal tuples the newest comes first.
        first[1:] = (codes[1:] != codes[:-1]).any(axis=1)
        kept = order[first]
        merged = merged.where(kept)
    if drop_tombstones:
        live = merged.live
        if not live.all():
            merged = merged.where(live)
    return merged


def above(codes: Codes, key: Key) -> Mask:
    """bool[n]: the rows lexicographically greater than `key`."""
    greater = np.zeros(codes.shape[0], np.bool_)
    for column in range(codes.shape[1] - 1, -1, -1):
        values = codes[:, column]
        greater = (values > key[column]) | ((values == key[column]) & greater)
    return greater


def members(values: npt.NDArray[Any], known: npt.NDArray[Any]) -> Mask:
    """bool[n]: the values that are among the known ones, which ascend."""
    if len(known) < 2:
        return values == known[0] if len(known) else np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    found: Mask = known[places] == values
    return found


def in_domain(rows: Rows, domain: str) -> Rows:
    """Those of live rows that are facts (`asserted`), that a rule derives (`derived`), or that are there (`all`)."""
    if domain == "asserted":
        return rows.where(rows.asserted != 0)
    if domain == "derived":
        return rows.where(rows.derived)
    return rows.where(~rows.hidden) if rows.hidden.any() else rows
