"""Finds recursion that alternates for ever, while a stratum is evaluated height by height.

A `min` or `max` may be recursive. If the rest of the program is monotone in it, as with shortest paths, every height
brings better values and the heights end. Otherwise a value may remove the tuples from which it was derived, come back,
and so on: such a program has no model. The tuples that are present at a height determine those of the next one, so a
stratum alternates for ever exactly when the same set of tuples is present at two heights between which something
changed.

In: the entry changes of each height. Out: nothing, or `Swing` with the folded relation, the changing group with the
smallest codes, and the values that it takes. Sets are compared by a sum of 64-bit hashes of their tuples, which is
maintained from height to height and compared with a mark that is set again after 1, 2, 4 ... heights (Brent, BIT 20,
1980), so that only the sum and the mark are kept. An update changes an existing timeline; after the last height of the
old timeline the changes alone determine the new one, so marks are set only from there on. The first `PATIENCE` heights
cost nothing, and each later one some calls for its changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from engine.circuit.circuit import Stratum, is_internal
from engine.circuit.normal import Fold
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import decode, decode_column
from engine.errors import FixpointNotReachedError, shown

PATIENCE = 64
"""The number of heights of an epoch after which a stratum is watched."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)

Changes = Mapping[str, tuple[Codes, Codes]]
"""By relation, the entry changes of a height: codes int64[n, arity], weights int64[n]."""


class Swing(Exception):
    """A stratum alternates for ever; `codes` are the tuples of a group of `fold` that come and go, `height` is where
    that was found. others: the relations that change, where no fold does.
    """

    def __init__(self, fold: Fold, codes: Codes, height: int, others: Sequence[str] = ()) -> None:
        super().__init__(fold.relation)
        self._fold, self._codes, self._height, self._others = fold, codes, height, others

    def error(self, symbols: SymbolTable) -> FixpointNotReachedError:
        """The same as an error for the user."""
        fold, codes = self._fold, self._codes
        if self._others:
            names = " and ".join(self._others)
            return FixpointNotReachedError(
                f"the recursion of {names} never settles: it alternates between the same sets of tuples, each of which "
                f"derives the next one, since the {fold.function} {fold.relation} made tuples disappear that others "
                f"had been derived from; nothing was changed. Rules on which a recursive {fold.function} depends must "
                "not test for a particular value of it (by a constant, by =, or by a condition that a better value "
                "makes false)",
                relation=self._others[0],
                group=[],
                values=[],
                height=self._height,
            )
        types = [fold.types[column] for column in fold.group]
        group = list(decode(codes[:1, list(fold.group)], types, symbols)[0])
        values = sorted(decode_column(codes[:, fold.place], fold.result, symbols))
        name = fold.relation
        where = f"of {name}({', '.join(map(shown, group))})" if group else f"of {name}"
        told = ", ".join(map(shown, values[:10])) + (", ..." if len(values) > 10 else "")
        return FixpointNotReachedError(
            f"the {fold.function} {where} never settles: it alternates between {told}, because as soon as {name} has "
            f"one of these values, the rules no longer derive it; nothing was changed. Rules on which a recursive "
            f"{fold.function} depends must not test for a particular value of it (by a constant, by =, or by a "
            "condition that a better value makes false)",
            relation=name,
            group=group,
            values=values[:100],
            height=self._height,
        )


class Oscillation:
    """Watches one stratum in one epoch. last_height: called once, returns the largest height of an entry that the
    stratum has now.
    """

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
        self._others: set[str] = set()

    @property
    def watches(self) -> bool:
        """Whether the changes of the present height are to be given to `note`."""
        return self._from is not None

    def rise(self, height: int) -> None:
        """The epoch comes to `height`: the heights before it are complete.

        Raises:
            Swing: the stratum alternates for ever.
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
            self._others.clear()
        if self._seen is not None:
            return
        self._since += 1
        if self._since == self._wait:
            self._mark, self._moved = self._sum, False
            self._since, self._wait = 0, 2 * self._wait

    def note(self, changes: Changes) -> None:
        """Take entry changes of the present height, if it `watches`."""
        for name, (codes, weights) in changes.items():
            self.add(name, hash_sum(name, codes, weights), bool(weights.any()))
            if self._seen is not None and name in self._folds:
                self._seen.setdefault(name, []).append(codes[weights != 0])

    def add(self, name: str, hashes: int, moved: bool) -> None:
        """The same for changes that are held elsewhere, given by the sum of their hashes."""
        self._sum = (self._sum + hashes) % 2**64
        self._moved = self._moved or moved
        if moved and not is_internal(name):
            self._others.add(name)

    def _report(self, height: int) -> None:
        assert self._seen is not None
        for name in sorted(self._seen):
            fold, codes = self._folds[name], np.unique(np.concatenate(self._seen[name]), axis=0)
            groups = codes[:, list(fold.group)]
            first = groups[np.lexsort(groups.T[::-1])[0]] if groups.shape[1] else groups[0]
            raise Swing(fold, codes[(groups == first).all(axis=1)], height)
        # No fold changes any more, but what one did earlier goes round: a tuple that disappeared takes others with it,
        # which it comes back from.
        others = sorted(self._others) or sorted(self._folds)
        raise Swing(min(self._folds.items())[1], np.empty((0, 0), np.int64), height, others)


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
