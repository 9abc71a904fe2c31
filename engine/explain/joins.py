"""Bindings as columns of codes, and their joins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes

Order = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Bindings:
    """n bindings: a column int64[n] of codes for each variable that is bound."""

    n: int
    columns: Mapping[str, Codes]

    def take(self, rows: Order | npt.NDArray[np.bool_] | slice) -> Bindings:
        columns = {name: codes[rows] for name, codes in self.columns.items()}
        if columns:
            return Bindings(len(next(iter(columns.values()))), columns)
        return Bindings(len(np.arange(self.n)[rows]), columns)

    def with_(self, columns: Mapping[str, Codes]) -> Bindings:
        return Bindings(self.n, {**self.columns, **columns})

    def row(self, number: int) -> dict[str, int]:
        return {name: int(codes[number]) for name, codes in self.columns.items()}

    @classmethod
    def of(cls, values: Mapping[str, int]) -> Bindings:
        """One binding."""
        return cls(1, {name: np.array([code], np.int64) for name, code in values.items()})


def matches(left: Sequence[Codes], right: Sequence[Codes], n: int, m: int) -> tuple[Order, Order]:
    """The numbers of the pairs of rows whose columns are equal; those of the left side ascend."""
    if not left:
        return np.repeat(np.arange(n), m), np.tile(np.arange(m), n)
    if n == 1:
        kept = np.ones(m, np.bool_)
        for one, other in zip(left, right, strict=True):
            kept &= other == one[0]
        places = np.flatnonzero(kept)
        return np.zeros(len(places), np.int64), places
    if len(left) == 1:
        a, b = left[0], right[0]
    else:
        both = np.concatenate((np.column_stack(left), np.column_stack(right)))
        numbers = np.unique(both, axis=0, return_inverse=True)[1].ravel()
        a, b = numbers[:n], numbers[n:]
    order = np.argsort(b, kind="stable")
    ordered = b[order]
    first, last = np.searchsorted(ordered, a, "left"), np.searchsorted(ordered, a, "right")
    counts = last - first
    total = int(counts.sum())
    offsets = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.repeat(np.arange(n), counts), order[np.repeat(first, counts) + offsets]


def joined(parts: Sequence[Bindings]) -> Bindings:
    """The parts one after the other."""
    if not parts:
        return Bindings(0, {})
    if len(parts) == 1:
        return parts[0]
    names = parts[0].columns
    return Bindings(
        sum(part.n for part in parts),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in names},
    )


def distinct(found: Bindings, names: Iterable[str] | None = None) -> Bindings:
    """Each binding of the variables `names` once; by default of all."""
    compared = [found.columns[name] for name in (found.columns if names is None else names)]
    if found.n < 2:
        return found
    if not compared:
        return found.take(slice(0, 1))
    _, first = np.unique(np.column_stack(compared), axis=0, return_index=True)
    return found.take(np.sort(first))
