"""Recursion that swings for ever: found while the heights of a stratum go by.

A `min` or `max` may be recursive. Where the rest of the program is monotone in it, as shortest paths are, every height
brings better values and the heights end. Otherwise a value may take away what it rests on, come back, and so on: such a
program has no model. The tuples that are present at a height determine those of the next one, so a stratum swings for
ever exactly when the same set of tuples is present at two heights between which something changed.

In: the entry changes of each height. Out: nothing, or `Swing` with the folded relation, the group of the smallest
codes that changes, and the values that it takes. Sets are compared by a sum of 64-bit hashes of their tuples, kept from
height to height, with a mark that is set again after 1, 2, 4 ... heights (Brent, BIT 20, 1980), so that nothing but the
sum and the mark is kept. An update changes a timeline that was there before; from the last height of the old one on the
changes alone say what the new one does, and only from there on marks are set. It costs nothing for the first `PATIENCE`
heights, and then some calls for the changes of a height.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from engine.circuit.circuit import Stratum
from engine.circuit.normal import Fold
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import decode, decode_column
from engine.errors import FixpointNotReachedError, shown

PATIENCE = 64
"""Heights of an epoch after which a stratum is watched."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)

Changes = Mapping[str, tuple[Codes, Codes]]
"""By relation, the entry changes of a height: codes int64[n, arity], weights int64[n]."""


class Swing(Exception):
    """A stratum swings for ever; `codes` are the tuples of a group of `fold` that come and go, `height` where it was
    found."""

    def __init__(self, fold: Fold, codes: Codes, height: int) -> None:
        super().__init__(fold.relation)
        self._fold, self._codes, self._height = fold, codes, height

    def error(self, symbols: SymbolTable) -> FixpointNotReachedError:
        """The same for the user."""
        fold, codes = self._fold, self._codes
        types = [fold.types[column] for column in fold.group]
        group = list(decode(codes[:1, list(fold.group)], types, symbols)[0])
        values = sorted(decode_column(codes[:, fold.place], fold.result, symbols))
        name = fold.relation
        where = f"of {name}({', '.join(map(shown, group))})" if group else f"of {name}"
        told = ", ".join(map(shown, values[:10])) + (", ..." if len(values) > 10 else "")
        return FixpointNotReachedError(
            f"the {fold.function} {where} never comes to rest: it swings between {told}, because the rules take away "
            f"what a value rests on as soon as {name} has that value; nothing was changed. Rules on which a recursive "
            f"{fold.function} depends must not ask for one value of it (by a constant, by =, or by a condition that a "
            "better value makes false)",
            relation=name,
            group=group,
            values=values[:100],
            height=self._height,
        )


class Oscillation:
    """The watch over one stratum in one epoch. last_height: asked once, gives the largest height of an entry that the
    stratum has now."""

    def __init__(self, stratum: Stratum, last_height: Callable[[], int], patience: int = PATIENCE) -> None:
        self._folds = {fold.target: fold for fold in stratum.folds}
        self._last_height = last_height
        self._left = patience
        self._from: int | None = None
        self._marked = False
        self._sum = self._mark = 0
        self._since = 0
        self._wait = 1
        self._moved = False
        self._seen: dict[str, list[Codes]] | None = None

    @property
    def watches(self) -> bool:
        """Whether it wants the changes of the present height."""
        return self._from is not None

    def rise(self, height: int) -> None:
        """The epoch comes to `height`: the heights before it are complete.

        Raises:
            Swing: the stratum goes on for ever.
        """
        if self._from is None:
            self._left -= 1
            if self._left < 0:
                self._from = max(height, self._last_height() + 1)
            return
        if not self._marked:
            if height >= self._from:
                self._mark, self._moved, self._marked = self._sum, False, True
            return
        if self._moved and self._sum == self._mark:
            if self._seen is not None:
                self._report(height)
            # Once more round, to see what changes.
            self._seen, self._moved = {}, False
        if self._seen is not None:
            return
        self._since += 1
        if self._since == self._wait:
            self._mark, self._moved = self._sum, False
            self._since, self._wait = 0, 2 * self._wait

    def note(self, changes: Changes) -> None:
        """Entry changes of the present height, if it `watches`."""
        for name, (codes, weights) in changes.items():
            self.add(name, hash_sum(name, codes, weights), bool(weights.any()))
            if self._seen is not None and name in self._folds:
                self._seen.setdefault(name, []).append(codes[weights != 0])

    def add(self, name: str, hashes: int, moved: bool) -> None:
        """The same of changes that are elsewhere, by the sum of their hashes."""
        self._sum = (self._sum + hashes) % 2**64
        self._moved = self._moved or moved

    def _report(self, height: int) -> None:
        assert self._seen is not None
        for name in sorted(self._seen):
            fold, codes = self._folds[name], np.unique(np.concatenate(self._seen[name]), axis=0)
            groups = codes[:, list(fold.group)]
            first = groups[np.lexsort(groups.T[::-1])[0]] if groups.shape[1] else groups[0]
            raise Swing(fold, codes[(groups == first).all(axis=1)], height)
        # Without a change of a fold there is nothing but growth, and no set of tuples comes twice.
        self._seen = None


def hash_sum(name: str, codes: Codes, weights: Codes) -> int:
    """The weighted sum of the hashes of tuples, modulo 2**64."""
    seed = sum(byte * 257**i for i, byte in enumerate(name.encode())) % 2**64
    hashes = np.full(len(codes), seed, np.uint64)
    for column in _columns(codes):
        hashes = (hashes ^ column) * _MULTIPLIER
        hashes ^= hashes >> _SHIFT
        hashes *= _MULTIPLIER
        hashes ^= hashes >> _SHIFT
    return int((hashes * weights.astype(np.uint64)).sum(dtype=np.uint64))


def _columns(codes: Codes) -> Sequence[npt.NDArray[np.uint64]]:
    return (
        list(np.ascontiguousarray(codes.T).view(np.uint64))
        if codes.shape[1]
        else [np.zeros(len(codes), np.uint64)]
    )
