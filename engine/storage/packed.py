"""Packed rows: all rows of a segment in memory, in few bytes, with look-up by any column.

In: the blocks of a segment, or `Rows`. Out: for codes that columns must have, the rows that have them, in the order of
their codes. Each column is one array of unsigned differences to its smallest code (frame of reference, as in a block,
but for the whole segment), so that a row is found by its number without decoding a block. An `Order` of a column has
its values sorted, with the row of each; rows of equal values stay in the order of the rows, so the rows of one value
are a slice of ascending row numbers. The rows are sorted by their first column already: it needs no order.

Costs: 10 million rows of three columns with 32 bits each are 130 MB, each order is 80 MB more. A look-up is two binary
searches for each bound column, and then proportional to the rows that it returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.storage.rows import Key, Rows, above, members

Codes1 = npt.NDArray[np.int64]
Numbers = npt.NDArray[Any]
"""Row numbers of a segment, of any type of integers."""
Wanted = Mapping[int, Codes1]
"""For columns the codes that are looked for: ascending, distinct, at least one."""

_DERIVED, _HIDDEN, _ASSERTED, _OTHER_WEIGHT = 1, 2, 4, 8
_SIZES = (1, 2, 4, 8)
# A range of rows that must be filtered is looked at in steps of at least so many.
_LEAST_STEP = 16_384
# So many candidates are compared to count those that are right.
_MOST_COUNTED = 16_384


@dataclass(frozen=True, slots=True)
class _Column:
    """Codes as `low` + values; the values are unsigned and have no more bytes than they need."""

    low: int
    values: npt.NDArray[Any]

    @classmethod
    def empty(cls, low: int, high: int, rows: int) -> _Column:
        return cls(low, np.empty(rows, column_type(low, high)))

    def put(self, start: int, codes: Codes1) -> None:
        # Differences of int64 need 64 unsigned bits; the wrap-around of uint64 is exactly that.
        self.values[start : start + len(codes)] = codes.astype(np.uint64) - np.uint64(self.low % 2**64)

    def codes(self, numbers: Numbers) -> Codes1:
        found = self.values[numbers].astype(np.uint64) + np.uint64(self.low % 2**64)
        return found.view(np.int64)

    def code(self, number: int) -> int:
        return self.low + int(self.values[number])

    def packed(self, codes: Codes1) -> npt.NDArray[Any]:
        """The values of those codes that can occur in the column."""
        high = self.low + int(np.iinfo(self.values.dtype).max)
        first = int(np.searchsorted(codes, max(self.low, -(2**63))))
        last = int(np.searchsorted(codes, min(high, 2**63 - 1), side="right"))
        return (codes[first:last].astype(np.uint64) - np.uint64(self.low % 2**64)).astype(self.values.dtype)

    def equal_range(self, code: int, start: int, stop: int) -> tuple[int, int]:
        """The rows with the code among start <= row < stop, where the column ascends."""
        value = code - self.low
        if value < 0:
            return start, start
        if value > int(np.iinfo(self.values.dtype).max):
            return stop, stop
        # A value of another type would make numpy convert the whole column.
        wanted, part = self.values.dtype.type(value), self.values[start:stop]
        first = int(part.searchsorted(wanted))
        return start + first, start + first + int(part[first:].searchsorted(wanted, side="right"))


@dataclass(frozen=True, slots=True)
class Order:
    """A column's values, ascending, and the row number of each; equal values in the order of the rows."""

    values: npt.NDArray[Any]
    numbers: Numbers

    @classmethod
    def of(cls, rows: PackedRows, column: int) -> Order:
        """Sort a column. It takes 16 bytes a row more while it lasts."""
        values = rows.columns[column].values
        count = len(values)
        bits = max(count - 1, 0).bit_length()
        width = int(values.max()).bit_length() if count else 0
        kind = number_type(count)
        if width + bits > 64:
            order = np.argsort(values, kind="stable")
            return cls(values[order], order.astype(kind))
        # The row's number stands below its value: a sort of plain integers is several times as fast as a stable
        # argsort.
        packed = values.astype(np.uint64)
        packed <<= np.uint64(bits)
        packed |= np.arange(count, dtype=np.uint64)
        packed.sort()
        numbers = (packed & np.uint64((1 << bits) - 1)).astype(kind)
        packed >>= np.uint64(bits)
        return cls(packed.astype(values.dtype), numbers)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes + self.numbers.nbytes)


@dataclass(slots=True)
class PackedRows:
    """Sorted rows of one segment, each tuple once, tombstones and hidden rows included; filled once, then immutable."""

    columns: tuple[_Column, ...]
    flags: npt.NDArray[np.uint8]
    # The rows whose weight is neither 0 nor 1, and their weights.
    _others: Codes1 = field(default_factory=lambda: np.empty(0, np.int64))
    _weights: Codes1 = field(default_factory=lambda: np.empty(0, np.int64))
    # None: all are 0; otherwise with the fewest bytes that hold the largest so far.
    _heights: npt.NDArray[Any] | None = None

    @classmethod
    def empty(cls, low: Sequence[int], high: Sequence[int], rows: int) -> PackedRows:
        """Room for rows whose columns have codes from `low` to `high`."""
        columns = tuple(_Column.empty(lo, hi, rows) for lo, hi in zip(low, high, strict=True))
        return cls(columns, np.zeros(rows, np.uint8))

    @classmethod
    def of(cls, rows: Rows) -> PackedRows:
        some = len(rows) > 0
        low = [int(column.min()) if some else 0 for column in rows.codes.T]
        high = [int(column.max()) if some else 0 for column in rows.codes.T]
        packed = cls.empty(low, high, len(rows))
        packed.put(0, rows)
        return packed

    def put(self, start: int, rows: Rows) -> None:
        """Fill in the rows from the number `start` on; parts come in ascending order."""
        for i, column in enumerate(self.columns):
            column.put(start, rows.codes[:, i])
        other = (rows.asserted != 0) & (rows.asserted != 1)
        self.flags[start : start + len(rows)] = (
            rows.derived * np.uint8(_DERIVED)
            | rows.hidden * np.uint8(_HIDDEN)
            | (rows.asserted != 0) * np.uint8(_ASSERTED)
            | other * np.uint8(_OTHER_WEIGHT)
        )
        if other.any():
            self._others = np.concatenate([self._others, np.flatnonzero(other) + start])
            self._weights = np.concatenate([self._weights, rows.asserted[other]])
        highest = int(rows.heights.max(initial=0))
        if highest:
            kind = column_type(0, highest)
            if self._heights is None:
                self._heights = np.zeros(len(self), kind)
            elif kind.itemsize > self._heights.itemsize:
                self._heights = self._heights.astype(kind)
            self._heights[start : start + len(rows)] = rows.heights

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def nbytes(self) -> int:
        columns = sum(int(column.values.nbytes) for column in self.columns)
        heights = 0 if self._heights is None else int(self._heights.nbytes)
        return columns + int(self.flags.nbytes + self._others.nbytes + self._weights.nbytes) + heights

    def key(self, number: int) -> Key:
        return tuple(column.code(number) for column in self.columns)

    def rows(self, numbers: Numbers) -> Rows:
        """The rows with these numbers."""
        codes = np.empty((len(numbers), len(self.columns)), np.int64, order="F")
        for i, column in enumerate(self.columns):
            codes[:, i] = column.codes(numbers)
        flags = self.flags[numbers]
        asserted = ((flags & _ASSERTED) != 0).astype(np.int64)
        other = (flags & _OTHER_WEIGHT) != 0
        if other.any():
            asserted[other] = self._weights[np.searchsorted(self._others, numbers[other])]
        heights = np.zeros(len(numbers), np.int64)
        if self._heights is not None:
            heights[:] = self._heights[numbers]
        return Rows(codes, asserted, (flags & _DERIVED) != 0, (flags & _HIDDEN) != 0, heights)

    def all_rows(self) -> Rows:
        return self.rows(np.arange(len(self)))

    def position(self, key: Key) -> int:
        """How many rows are not greater than the key."""
        start, stop = 0, len(self)
        for column, code in zip(self.columns, key, strict=True):
            start, stop = column.equal_range(code, start, stop)
            if start == stop:
                return start
        return stop


@dataclass(frozen=True, slots=True)
class Part:
    """Packed rows with those orders that exist. What has no order is filtered row by row."""

    packed: PackedRows
    orders: Mapping[int, Order]

    def count(self, wanted: Wanted) -> int:
        """No more rows than these have the wanted codes; exact if there are few candidates."""
        start, stop = self._range(wanted, 0)
        least = stop - start
        for column, order in self._ordered(wanted):
            starts, stops = self._places(column, order, wanted[column])
            least = min(least, int((stops - starts).sum()))
        if least > _MOST_COUNTED:
            return least
        chosen, rest = self._candidates(wanted, 0)
        return len(self._filtered(chosen, rest, wanted)) if rest else len(chosen)

    def select(self, wanted: Wanted, low: Key | None, most: int) -> tuple[Rows, Key | None]:
        """Rows greater than `low` that have the wanted codes, out of about `most` candidates; and the key up to which
        these are all, None if there are no more."""
        chosen, rest = self._candidates(wanted, 0 if low is None else self.packed.position(low))
        step = max(most, _LEAST_STEP) if isinstance(chosen, range) and rest else most
        more = len(chosen) > step
        end = self.packed.key(int(chosen[step - 1])) if more else None
        return self.packed.rows(self._filtered(chosen[:step], rest, wanted)), end

    def everything(self, wanted: Wanted) -> Rows:
        """All rows that have the wanted codes."""
        chosen, rest = self._candidates(wanted, 0)
        return self.packed.rows(self._filtered(chosen, rest, wanted))

    def _candidates(self, wanted: Wanted, start: int) -> tuple[range | Numbers, list[int]]:
        """Ascending numbers, from `start` on, of rows among which those with the wanted codes are, and the columns that
        are still to be compared: the shortest such list that is at hand."""
        start, stop = self._range(wanted, start)
        prefix = _prefix(wanted)
        best: tuple[range | Numbers, list[int]] = (
            range(start, stop),
            [column for column in wanted if column >= prefix],
        )
        for column, order in self._ordered(wanted):
            starts, stops = self._places(column, order, wanted[column])
            if int((stops - starts).sum()) >= len(best[0]):
                continue
            if len(starts) == 1:
                found = self._at(order, slice(int(starts[0]), int(stops[0])))
            else:
                found = np.sort(self._at(order, _joined(starts, stops)))
            first, last = (int(np.searchsorted(found, found.dtype.type(at))) for at in (start, stop))
            best = found[first:last], [other for other in wanted if other != column]
        return best

    def _range(self, wanted: Wanted, start: int) -> tuple[int, int]:
        """The rows, from `start` on, that have the wanted codes in the first columns, as far as there is one code for
        each."""
        low, high = 0, len(self.packed)
        for column in range(_prefix(wanted)):
            low, high = self.packed.columns[column].equal_range(int(wanted[column][0]), low, high)
        return max(low, start), max(high, start)

    def _ordered(self, wanted: Wanted) -> list[tuple[int, Order | None]]:
        """The wanted columns by which rows can be found: those with an order, and the first one, if it is not part of
        the range."""
        prefix = _prefix(wanted)
        return [
            (column, self.orders.get(column))
            for column in wanted
            if column >= prefix and (column == 0 or column in self.orders)
        ]

    def _places(
        self, column: int, order: Order | None, codes: Codes1
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Where the codes stand in the column's order: start and stop of each that may occur."""
        about = self.packed.columns[column]
        values, packed = about.values if order is None else order.values, about.packed(codes)
        if not len(packed):
            return np.zeros(1, np.int64), np.zeros(1, np.int64)
        return values.searchsorted(packed), values.searchsorted(packed, side="right")

    @staticmethod
    def _at(order: Order | None, places: slice | npt.NDArray[np.int64]) -> Numbers:
        """The row numbers at places of the order; the first column's is that of the rows themselves."""
        if order is not None:
            return order.numbers[places]
        return np.arange(places.start, places.stop) if isinstance(places, slice) else places

    def _filtered(self, numbers: range | Numbers, rest: list[int], wanted: Wanted) -> Numbers:
        at: slice | Numbers
        if isinstance(numbers, range):
            at, numbers = slice(numbers.start, numbers.stop), np.arange(numbers.start, numbers.stop)
        else:
            at = numbers
        mask: npt.NDArray[np.bool_] | None = None
        for column in rest:
            about = self.packed.columns[column]
            equal = members(about.values[at], about.packed(wanted[column]))
            mask = equal if mask is None else mask & equal
        return numbers if mask is None else numbers[mask]


def up_to(rows: Rows, key: Key | None) -> Rows:
    """The rows that are not greater than the key."""
    if key is None or not len(rows) or rows.key(len(rows) - 1) <= key:
        return rows
    return rows.part(0, len(rows) - int(np.count_nonzero(above(rows.codes, key))))


def column_type(low: int, high: int) -> np.dtype[Any]:
    """The unsigned type for the differences of codes from `low` to `high`."""
    size = max(1, ((high - low).bit_length() + 7) // 8)
    return np.dtype(f"u{next(known for known in _SIZES if known >= size)}")


def number_type(rows: int) -> np.dtype[Any]:
    """The type for the numbers of so many rows."""
    return np.dtype(np.uint32 if rows < 2**32 else np.int64)


def demanded(wanted: Wanted) -> frozenset[int]:
    """The columns whose order helps to find the wanted codes: those that the order of the rows does not answer."""
    prefix = _prefix(wanted)
    return frozenset(column for column in wanted if column >= max(prefix, 1))


def _prefix(wanted: Wanted) -> int:
    """How many of the first columns have one wanted code each."""
    column = 0
    while column in wanted and len(wanted[column]) == 1:
        column += 1
    return column


def _joined(starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The numbers of all ranges start <= i < stop, one range after the other."""
    lengths = stops - starts
    ends = np.cumsum(lengths)
    joined: npt.NDArray[np.int64] = np.repeat(starts - (ends - lengths), lengths)
    joined += np.arange(len(joined))
    return joined
