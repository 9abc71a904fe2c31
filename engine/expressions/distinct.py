"""The distinct rows of some columns, so that operations that need Python run once for each of them.

In: columns of codes, all of length n, or 1 for a constant. Out: the distinct rows in the order of their first
occurrence, and for each row the place of its equal among them. Costs linear time where the codes lie close together, as
those of symbols do, otherwise a sort of each column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes
from engine.expressions.texts import Texts

Places = npt.NDArray[np.intp]
_SPARSE = 4
"""A table over the range of the codes may be this many times as long as the column."""


def distinct_rows(operands: Sequence[Codes]) -> tuple[Places, Places]:
    """(rows, place): the first row of each distinct one, ascending; and place[i], which of them row i equals."""
    length = max(map(len, operands))
    place = np.zeros(length, np.intp)
    for column in operands:
        if len(column) == length:
            values, codes = sorted_distinct(column)
            # Compressed after each column, so the product stays below n * n.
            place = sorted_distinct(place * len(values) + codes)[1] if place.any() else codes
    first = np.empty(int(place.max()) + 1, np.intp)
    # Of several values for one place the last one stays: backwards, that is the first row.
    first[place[::-1]] = np.arange(length - 1, -1, -1)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[place]


def sorted_distinct(column: Codes) -> tuple[Codes, Places]:
    """(values, place): the distinct values in ascending order, and where each row's value is among them."""
    low, high = int(column.min()), int(column.max())
    if high - low >= _SPARSE * len(column):
        values, inverse = np.unique(column, return_inverse=True)
        return values, inverse
    offset = column - low
    present = np.zeros(high - low + 1, np.bool_)
    present[offset] = True
    places = np.cumsum(present) - 1
    return np.flatnonzero(present) + low, places[offset]


def ranks(texts: Texts, operands: Sequence[Codes]) -> list[Codes]:
    """Columns of symbols as columns of numbers in the same order (that of code points, as Python and UTF-8)."""
    codes, place = sorted_distinct(np.concatenate(operands))
    of_code = texts.texts(codes)
    rank = np.empty(len(codes), np.int64)
    rank[sorted(range(len(codes)), key=of_code.__getitem__)] = np.arange(len(codes))
    return np.split(rank[place], np.cumsum([len(column) for column in operands])[:-1])


def at(column: Codes, rows: Places) -> Codes:
    """The rows of a column, which may be a constant of length 1."""
    return column[rows] if len(column) > 1 else np.broadcast_to(column, len(rows))
