"""Folds on the height clock: count, sum and mean where the contributions depend on the folded relation itself.

In: at each height, in ascending order, the entry changes of the sources that are of the fold's own stratum (one batch
a source), and once the groups that changed in lower sources. Out: what to add to the target's supports at that height.

    C(k)   the contributions present at height k; those of lower strata are present from height 1 on F(k)   the
    aggregate over C(k); there is none if C(k) is empty H(k)   the value held: F(k), but H(k - 1) if both exist and
    |F(k) - H(k - 1)| <= tolerance the target's supports at k: +1 for H(k) and -1 for H(k - 1), if they differ

Always: supports below the present height are those of the new facts and rules; supports at or above it are still the
old ones. So the timeline of a group is walked from the first height at which something in it changed, and each change
is the difference between the new timeline and the old one. The result depends only on the present contributions: sums
of floats are computed anew, in ascending order, wherever the set of contributions changed.

Nothing is kept between epochs. A group is read once, when it is first touched: its present contributions, and all that
old entries say about larger heights. From there on a height costs the contributions of the groups that change at it,
and their sorting; all of it in whole arrays, a bounded number of calls a height.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from engine.circuit.normal import Fold
from engine.data.symbols import SymbolTable
from engine.data.values import decode, decode_column
from engine.errors import FixpointNotReachedError, shown
from engine.language.schema import ColumnType
from engine.language.syntax import Fixpoint
from engine.resident.folds import fold_values, ordered, read_groups
from engine.resident.layout import I32, I64, grown
from engine.resident.relation import ONE, Relation

FIRST = 1
"""The height of contributions from lower strata, which is that of any derivation from them."""
_GROUND = np.zeros(1, np.int32)
_EXACT = Fixpoint(0.0, np.iinfo(np.int32).max)
_ID, _VALUE, _KEY, _WEIGHT = range(4)

Flags = npt.NDArray[np.bool_]
Source = tuple[str, Relation, bool]
"""A source's name, its relation, and whether it is of the fold's own stratum."""


class Pending:
    """Rows int64[n, width] by height, which are taken in ascending height.

    Sorted runs, each more than twice as long as the next: adding and taking n rows costs O(n log n), however they come.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._runs: list[tuple[I32, I64]] = []

    def add(self, heights: I32, rows: I64) -> None:
        if not len(heights):
            return
        while self._runs and len(self._runs[-1][0]) <= 2 * len(heights):
            earlier, its_rows = self._runs.pop()
            heights, rows = np.concatenate((earlier, heights)), np.concatenate((its_rows, rows))
        order = np.argsort(heights, kind="stable")
        self._runs.append((heights[order], rows[order]))

    def take(self, height: int) -> I64:
        """All rows of this height, the smallest one left, or none."""
        found = [np.empty((0, self._width), np.int64)]
        left = []
        for heights, rows in self._runs:
            end = int(np.searchsorted(heights, height, side="right"))
            found.append(rows[:end])
            if end < len(heights):
                left.append((heights[end:], rows[end:]))
        self._runs = left
        return np.concatenate(found)

    def lowest(self) -> int | None:
        """The smallest height left."""
        return min((int(heights[0]) for heights, _ in self._runs), default=None)


class Contributions:
    """The present contributions of groups: for each group a stretch (value, key), ascending by value.

    A stretch that changes is written anew at the end; what is left behind is given back when it is the larger part.
    """

    def __init__(self) -> None:
        self._start: I64 = np.zeros(16, np.int64)
        self._length: I64 = np.zeros(16, np.int64)
        self._rows: I64 = np.empty((64, 2), np.int64)
        self._end = 0
        self._live = 0

    def of(self, groups: I64) -> tuple[I64, I64]:
        """(place in `groups`, row) of every contribution of distinct groups."""
        if len(groups) and groups.max() >= len(self._start):
            size = 2 * (int(groups.max()) + 1)
            old = len(self._start)
            self._start, self._length = grown(self._start, size), grown(self._length, size)
            self._start[old:], self._length[old:] = 0, 0
        length = self._length[groups]
        owner = np.repeat(np.arange(len(groups)), length)
        place = np.arange(len(owner)) + np.repeat(self._start[groups] - (np.cumsum(length) - length), length)
        return owner, self._rows[place]

    def put(self, groups: I64, owner: I64, rows: I64) -> None:
        """Replace the stretches of `groups`; `owner` is ascending."""
        self._live -= int(self._length[groups].sum())
        length = np.bincount(owner, minlength=len(groups))
        if self._end + len(rows) > len(self._rows):
            self._make_room(len(rows))
        self._rows[self._end : self._end + len(rows)] = rows
        self._start[groups] = self._end + np.cumsum(length) - length
        self._length[groups] = length
        self._end += len(rows)
        self._live += len(rows)

    def _make_room(self, more: int) -> None:
        if self._live * 2 <= self._end:
            rows = self.of(np.arange(len(self._start)))[1]
            self._end = len(rows)
            self._rows[: self._end] = rows
            self._start = np.cumsum(self._length) - self._length
        if self._end + more > len(self._rows):
            self._rows = grown(self._rows, max(2 * len(self._rows), self._end + more))


class ClockedFold:
    """One fold through one epoch: see the module. `charge` counts the contributions that are folded."""

    def __init__(
        self, fold: Fold, target: Relation, sources: Sequence[Source], charge: Callable[[int], None]
    ) -> None:
        self.fold = fold
        self._limit = fold.fixpoint or _EXACT
        self._size = len(fold.group)
        self._target = target
        self._sources = sources
        self._number = {name: i for i, (name, _, _) in enumerate(sources)}
        self._charge = charge
        # A group's id is its row here.
        self._groups = Relation(fold.target, self._size)
        self._contributions = Contributions()
        self._held: I64 = np.zeros(16, np.int64)
        self._has: Flags = np.zeros(16, np.bool_)
        self._ahead = Pending(4)
        self._old = Pending(3)
        self._touched: list[I64] = []
        self._noted: list[tuple[int, I32, I64]] = []

    def touch(self, groups: I64) -> None:
        """Take groups int64[n, size] in which a lower source changed, or all groups of a source; called before any
        height.
        """
        if len(groups):
            self._touched.append(groups)

    def note(self, source: str, rows: I32, weights: I64) -> None:
        """Entry changes of an own source, made at the height of the next `advance`."""
        self._noted.append((self._number[source], rows, weights))

    def is_due(self, height: int) -> bool:
        return bool(self._noted) or self.next_height() == height

    def next_height(self) -> int | None:
        """The smallest height at which there is known work."""
        heights = [self._ahead.lowest(), self._old.lowest(), FIRST if self._touched else None]
        return min((height for height in heights if height is not None), default=None)

    def advance(self, height: int, symbols: SymbolTable | None) -> tuple[I64, I64]:
        """What to add to the target's supports at `height`: codes int64[n, arity], weights int64[n].

        Raises:
            FixpointNotReachedError: a value changes beyond max_height.
            EvaluationError: a sum has no value.
        """
        new, changes = self._changes(height)
        old = self._old.take(height)
        ids = np.unique(np.concatenate((new, changes[:, _ID], old[:, _ID])))
        values, found = self._fold(ids, changes)
        held, had = self._held[ids], self._has[ids]
        kept = found & had & self._within(values, held)
        values = np.where(kept, held, values)
        moved = (found != had) | (found & ~kept)
        self._held[ids], self._has[ids] = values, found
        if moved.any() and height > self._limit.max_height:
            before, after = (held[moved], had[moved]), (values[moved], found[moved])
            raise self._unsettled(ids[moved], before, after, height, symbols)
        gone, come = np.flatnonzero(moved & had), np.flatnonzero(moved & found)
        return self._difference(
            np.concatenate((ids[gone], ids[come], old[:, _ID])),
            np.concatenate((held[gone], values[come], old[:, _VALUE])),
            np.concatenate((np.full(len(gone), -1), np.full(len(come), 1), -old[:, 2])),
        )

    # ---- what changes

    def _changes(self, height: int) -> tuple[I64, I64]:
        """The groups that are touched for the first time, and all changes of contributions at `height`."""
        known = self._groups.live
        rows = [np.empty((0, 4), np.int64)]
        touched = [np.empty(0, np.int64)]
        for number, changed, weights in self._noted:
            codes = self._sources[number][1].codes(changed)
            ids = self._ids(codes[:, : self._size])
            touched.append(ids)
            noted = np.column_stack((ids, codes[:, self._size], self._keys(number, changed), weights))
            # A group that is new is read below, with these changes in it.
            rows.append(noted[ids < known])
        self._noted = []
        if self._touched:
            touched.append(self._ids(np.concatenate(self._touched)))
            self._touched = []
        ids = np.concatenate(touched)
        new = np.unique(ids[ids >= known])
        rows.append(self._ahead.take(height))
        if len(new):
            rows.append(self._read(new, height))
        return new, np.concatenate(rows)

    def _ids(self, groups: I64) -> I64:
        ids = self._groups.push(np.ascontiguousarray(groups), _GROUND, ONE).astype(np.int64)
        if self._groups.live > len(self._held):
            size = 2 * self._groups.live
            old = len(self._held)
            self._held, self._has = grown(self._held, size), grown(self._has, size)
            self._held[old:], self._has[old:] = 0, False
        return ids

    def _keys(self, number: int, rows: npt.NDArray[np.integer]) -> I64:
        """One number for a contribution: its source and its row."""
        return rows.astype(np.int64) * len(self._sources) + number

    def _read(self, new: I64, height: int) -> I64:
        """Read new groups: their contributions up to `height`; what is larger waits."""
        groups = self._groups.codes(new.astype(np.int32))
        found = [np.empty((0, 4), np.int64)]
        for number, (_, relation, own) in enumerate(self._sources):
            columns = tuple(range(self._size))
            owner, payload, heights, weights = read_groups(relation, columns, groups, own, self._charge)
            at = relation.rows_of(np.column_stack((groups[owner], payload)))
            rows = np.column_stack((new[owner], payload[:, 0], self._keys(number, at), weights))
            now = heights <= height
            found.append(rows[now])
            self._ahead.add(heights[~now], rows[~now])
        owner, payload, heights, weights = read_groups(
            self._target, self.fold.group, groups, True, lambda _: None
        )
        below = heights < height
        # A timeline is +a, -a +b, -b +c ...: its sum is the value held, also where the sum wraps round on the way.
        held, count = np.zeros(len(new), np.int64), np.zeros(len(new), np.int64)
        np.add.at(held, owner[below], payload[below, 0] * weights[below])
        np.add.at(count, owner[below], weights[below])
        self._held[new], self._has[new] = held, count > 0
        later = ~below
        self._old.add(heights[later], np.column_stack((new[owner], payload[:, 0], weights))[later])
        return np.concatenate(found)

    # ---- values

    def _fold(self, ids: I64, changes: I64) -> tuple[I64, Flags]:
        """Bring the contributions of `ids` up to date, and fold them."""
        owner, rows = self._contributions.of(ids)
        owner = np.concatenate((owner, np.searchsorted(ids, changes[:, _ID])))
        weights = np.concatenate((np.ones(len(rows), np.int64), changes[:, _WEIGHT]))
        rows = np.concatenate((rows, changes[:, _VALUE : _KEY + 1]))
        self._charge(len(rows))
        order = np.lexsort((rows[:, 1], ordered(rows[:, 0], self.fold.type), owner))
        owner, rows, weights = owner[order], rows[order], weights[order]
        if len(rows):
            first = np.flatnonzero(
                np.concatenate(([True], (owner[1:] != owner[:-1]) | (rows[1:, 1] != rows[:-1, 1])))
            )
            present = np.add.reduceat(weights, first)
            assert ((present == 0) | (present == 1)).all(), "a contribution is there once, or not"
            left = first[present > 0]
            owner, rows = owner[left], rows[left]
        self._contributions.put(ids, owner, rows)
        counts = np.bincount(owner, minlength=len(ids)).astype(np.int64)
        return fold_values(self.fold, owner, np.ascontiguousarray(rows[:, 0]), counts), counts > 0

    def _within(self, values: I64, held: I64) -> Flags:
        """Which new values differ from the held ones by no more than the tolerance."""
        tolerance = self._limit.tolerance
        near: Flags = values == held
        if tolerance > 0 and self.fold.result is ColumnType.FLOAT:
            with np.errstate(over="ignore"):
                near = np.abs(values.view(np.float64) - held.view(np.float64)) <= tolerance
        elif tolerance > 0:
            # The difference of two int64 as uint64 is exact.
            apart = (np.maximum(values, held) - np.minimum(values, held)).view(np.uint64)
            near = apart <= np.uint64(min(tolerance, 2.0**63))
        return near

    def _difference(self, ids: I64, values: I64, weights: I64) -> tuple[I64, I64]:
        """Sum up the weights of equal (group, value)."""
        if not len(ids):
            return np.empty((0, self.fold.arity), np.int64), weights
        order = np.lexsort((values, ids))
        ids, values, weights = ids[order], values[order], weights[order]
        first = np.flatnonzero(np.concatenate(([True], (ids[1:] != ids[:-1]) | (values[1:] != values[:-1]))))
        sums = np.add.reduceat(weights, first)
        left = first[sums != 0]
        codes = np.empty((len(left), self.fold.arity), np.int64)
        codes[:, list(self.fold.group)] = self._groups.codes(ids[left].astype(np.int32))
        codes[:, self.fold.place] = values[left]
        return codes, sums[sums != 0]

    def _unsettled(
        self,
        ids: I64,
        before: tuple[I64, Flags],
        after: tuple[I64, Flags],
        height: int,
        symbols: SymbolTable | None,
    ) -> FixpointNotReachedError:
        """The error, for the group with the smallest codes, so that it does not depend on the order of the facts.

        before, after: the values of the groups `ids`, and whether there are any.
        """
        groups = self._groups.codes(ids.astype(np.int32))
        at = int(np.lexsort(groups.T[::-1])[0]) if groups.shape[1] else 0
        types = [self.fold.types[column] for column in self.fold.group]
        assert symbols is not None, "the placement gives the symbols"
        group = list(decode(groups[at : at + 1], types, symbols)[0])

        def value(codes: I64, there: Flags) -> object:
            return decode_column(codes[at : at + 1], self.fold.result, symbols)[0] if there[at] else None

        last = [value(*before), value(*after)]
        name, limit = self.fold.relation, self._limit
        where = f"of {name}({', '.join(map(shown, group))})" if group else f"of {name}"
        return FixpointNotReachedError(
            f"the {self.fold.function} {where} has not settled at height {limit.max_height}: it still changes from "
            f"{last[0]} to {last[1]} at height {height}; nothing was changed. If it converges, declare {name} with a "
            "larger max_height or a larger tolerance; if it does not, bound the values that the recursion adds",
            relation=name,
            group=group,
            values=last,
            height=height,
            max_height=limit.max_height,
            tolerance=limit.tolerance,
        )
