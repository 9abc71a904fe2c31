"""One relation of the resident placement: the owner of its arrays and of its indexes.

Kernels never allocate from a full pool; this class enlarges the arrays and calls them again. An enlargement copies, so
pushing n tuples costs O(n) in all. Each method makes a bounded number of kernel calls for a batch, and does no work in
Python for each tuple.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.circuit.normal import Fold
from engine.errors import BudgetExceededError, WeightOverflowError, ZedlogError
from engine.language.schema import ColumnType
from engine.resident import build
from engine.resident import index as index_kernels
from engine.resident import table as kernels
from engine.resident.layout import (
    ASSERTED,
    ENTRIES,
    ENTRIES_USED,
    ENTRY,
    HELD,
    I8,
    I32,
    I64,
    KEY_FREE,
    KEYS,
    KEYS_USED,
    LIVE,
    NEGATIVE,
    NODE_FREE,
    NODES,
    NODES_USED,
    NONE,
    POSTINGS,
    ROW_FREE,
    ROWS,
    IndexArrays,
    Records,
    RelationArrays,
    grown,
    nbytes,
    new_index,
    new_relation,
)

ONE = np.ones(1, np.int64)
_stamps = itertools.count(1)
_SMALL = 1 << 20
_COMPACT = 1 << 16
_SOME_KEYS = 64
_KNOWN = 1 / 32
"""The share of the whole from which its size can be told."""


def _larger(capacity: int) -> int:
    """Twice as much while small, then half as much again: memory follows the content within 1.5."""
    return capacity * 2 if capacity < _SMALL else capacity + (capacity >> 1)


def _room(capacity: int, more: int) -> int:
    """What a full array grows to: by larger steps while many more are to come."""
    return 4 * capacity if more > 4 * capacity else _larger(capacity)


def _slots(members: int) -> int:
    """The slots of a table that is two thirds full with so many members and one more, or less."""
    slots = 32
    while slots * 2 < 3 * (members + 1):
        slots *= 2
    return slots


def _with_slack(size: int) -> int:
    return size + (size >> 5) + 16


class PushOverflow(Exception):
    """`push` stopped half way: `error` is for the user; `rows` are the rows whose weights were added, for the
    journal.
    """

    def __init__(self, error: ZedlogError, rows: I32) -> None:
        super().__init__(str(error))
        self.error = error
        self.rows = rows


class Index:
    """A hash index over some columns, with one posting for each entry. `stamp`: another one whenever `arrays` are
    other arrays."""

    def __init__(self, arity: int, columns: tuple[int, ...], entries: int, capacity: int = 16) -> None:
        self.columns = columns
        self.arrays = new_index(arity, columns, entries, capacity)

    @property
    def arrays(self) -> IndexArrays:
        return self._arrays

    @arrays.setter
    def arrays(self, arrays: IndexArrays) -> None:
        self._arrays = arrays
        self.stamp = next(_stamps)

    @classmethod
    def built(cls, columns: tuple[int, ...], relation: RelationArrays, rows: I32, ids: I32) -> Index:
        """An index with a posting for each of the entries `ids` of `rows`."""
        arity = relation.rows.shape[1]
        index = cls(arity, columns, len(relation.entries))
        if not len(rows):
            return index
        keys, first, counts = build.number_keys(index.arrays, relation.rows, rows)
        # With room for some more, so that the next one need not copy all.
        postings = _with_slack(int((1 << np.ceil(np.log2(counts)).astype(np.int64)).sum()))
        room = _with_slack(len(first))
        slots = _slots(room)
        index.arrays = index.arrays._replace(
            slots=np.full(slots, NONE, np.int32),
            keys=np.empty((room, len(columns)), np.int64),
            key_start=np.empty(room, np.int32),
            key_count=np.empty(room, np.int32),
            key_class=np.empty(room, np.int8),
            key_bound=np.empty(room, np.int32),
            payload=np.empty((postings, arity - len(columns)), np.int64),
            entry=np.empty(postings, np.int32),
        )
        build.fill_index(index.arrays, relation.rows, rows, ids, relation.entries, keys, first, counts)
        return index

    def add(self, rows: I64, row_ids: I32, ids: I32, entries: Records) -> None:
        """Add postings for the entries `ids` of the rows `row_ids`."""
        done = 0
        while (done := index_kernels.add_postings(self.arrays, rows, row_ids, ids, entries, done)) < len(
            row_ids
        ):
            self.grow()

    def remove(self, rows: I64, row_ids: I32, entries: I32) -> None:
        """Remove their postings."""
        index_kernels.remove_postings(self.arrays, rows, row_ids, entries)

    def compact(self) -> None:
        """Give back the blocks that keys have grown out of, when these are half as many as the others, or more."""
        a = self.arrays
        used = int(a.head[HELD])
        if len(a.entry) < _COMPACT or a.head[POSTINGS] * 2 < used * 3:
            return
        size = used + used // 8
        payload, entry = np.empty((size, a.payload.shape[1]), np.int64), np.empty(size, np.int32)
        index_kernels.compact(a, payload, entry)
        self.arrays = a._replace(payload=payload, entry=entry)

    def hold_entries(self, capacity: int) -> None:
        """Make room for entry ids below `capacity`."""
        self.arrays = self.arrays._replace(position=grown(self.arrays.position, capacity))

    def growth(self, more: int, capacity: int) -> int:
        """About the bytes of the arrays that have to be made for `more` postings, of entry ids below `capacity`."""
        a = self.arrays
        size = a.position.itemsize * capacity if capacity > len(a.position) else 0
        if a.head[HELD] + more > len(a.entry):
            posting = a.entry.itemsize + a.payload.itemsize * a.payload.shape[1]
            size += posting * max(_larger(len(a.entry)), int(a.head[HELD]) + more)
        if a.head[KEYS_USED] + more > len(a.key_start):
            # Of the keys that come nothing is known: one step.
            size += _larger(len(a.key_start)) * (a.keys.itemsize * a.keys.shape[1] + 13) + 2 * a.slots.nbytes
        return size

    def hold_keys(self, more: int) -> None:
        """Make room for some more keys where there is hardly any, so that it is not asked for with every posting."""
        if self.arrays.head[KEYS_USED] + min(more, _SOME_KEYS) > len(self.arrays.key_start):
            self._grow_keys()

    def _grow_keys(self) -> None:
        a = self.arrays
        size = _larger(len(a.key_start))
        self.arrays = a._replace(
            keys=grown(a.keys, size),
            key_start=grown(a.key_start, size),
            key_count=grown(a.key_count, size),
            key_class=grown(a.key_class, size),
            key_bound=grown(a.key_bound, size),
        )

    def grow(self) -> None:
        """Enlarge what `add_postings` found full."""
        a = self.arrays
        if a.head[KEY_FREE] == NONE and a.head[KEYS] == len(a.key_start):
            self._grow_keys()
        elif (a.head[KEYS_USED] + 1) * 3 > a.slots.size * 2:
            slots = np.full(a.slots.size * 2, NONE, np.int32)
            index_kernels.rehash_keys(a, slots)
            self.arrays = a._replace(slots=slots)
        else:
            size = _larger(len(a.entry))
            self.arrays = a._replace(payload=grown(a.payload, size), entry=grown(a.entry, size))


class Relation:
    """Rows, supports, entries and indexes of one relation. Row ids stay valid until `free` or `clear`.

    on_growth: called with the number of bytes before arrays are made. It may raise BudgetExceededError; then the
    relation is unchanged, except for the rows that a `push` has already changed (PushOverflow). marks: zeros, a byte
    for each row, for kernels. stamp: another one whenever `arrays` or `marks` are other arrays.
    """

    def __init__(
        self,
        name: str,
        arity: int,
        on_growth: Callable[[Relation, int], None] | None = None,
        fold: Fold | None = None,
    ) -> None:
        self.name = name
        self.arity = arity
        self.arrays: RelationArrays = new_relation(arity)
        self.indexes: dict[tuple[int, ...], Index] = {}
        self._on_growth = on_growth
        self.marks: I8 = np.zeros(16, np.int8)
        # A fold in place looks at all rows of a group: an index of rows, whose entry ids are row ids.
        self.fold = fold if fold is not None and not fold.sources else None
        # What the arrays with these stamps take.
        self._measured: tuple[tuple[int, ...], int] = (), 0
        self._groups: Index | None = None
        self._grouped: I8 = np.zeros(0, np.int8)

    @property
    def arrays(self) -> RelationArrays:
        return self._arrays

    @arrays.setter
    def arrays(self, arrays: RelationArrays) -> None:
        self._arrays = arrays
        self.stamp = next(_stamps)

    # ---- sizes

    @property
    def live(self) -> int:
        """Rows in use, also those that wait for `free`."""
        return int(self.arrays.head[LIVE])

    @property
    def asserted(self) -> int:
        """Tuples with an asserted weight."""
        return int(self.arrays.head[ASSERTED])

    @property
    def entries(self) -> int:
        return int(self.arrays.head[ENTRIES_USED])

    @property
    def negative(self) -> int:
        """Entries of weight -1."""
        return int(self.arrays.head[NEGATIVE])

    def memory(self) -> int:
        """Bytes reserved by rows, supports, entries and indexes."""
        arranged = [*self.indexes.values(), *(() if self._groups is None else (self._groups,))]
        stamps = (self.stamp, len(self._grouped), *(ix.stamp for ix in arranged))
        if stamps != self._measured[0]:
            size = nbytes(self.arrays) + self.marks.nbytes + self._grouped.nbytes
            self._measured = stamps, size + sum(nbytes(ix.arrays) for ix in arranged)
        return self._measured[1]

    # ---- supports

    def push(self, codes: I64, heights: I32, weights: I64) -> I32:
        """Add `weights` to the supports at `heights` (one element stands for all); returns the row of each tuple.

        Raises:
            PushOverflow: a count leaves 64 bits, or there is no more room; the tuples before that are pushed.
        """
        out = np.empty(len(codes), np.int32)
        done = 0
        while (done := kernels.push(self.arrays, codes, heights, weights, out, done)) < len(codes):
            if done < 0:
                raise PushOverflow(self.overflow(), out[: -1 - done])
            try:
                self.grow(len(codes) - done)
            except BudgetExceededError as stop:
                raise PushOverflow(stop, out[:done]) from None
        return out

    def overflow(self) -> WeightOverflowError:
        """The error for a support that leaves 64 bits."""
        return WeightOverflowError(
            f"a weight or a number of derivations in {self.name} does not fit into 64 bits",
            relation=self.name,
        )

    def grow(self, more: int = 0) -> None:
        """Enlarge what `push` found full; `more` tuples are still to be pushed."""
        a = self.arrays
        rows = _room(len(a.rows), more) if a.head[ROW_FREE] == NONE and a.head[ROWS] == len(a.rows) else 0
        slots = 0
        if (a.head[LIVE] + 1) * 3 > a.slots.size * 2:
            slots = a.slots.size * (4 if more > a.slots.size else 2)
        nodes = (
            _room(len(a.nodes), more) if a.head[NODE_FREE] == NONE and a.head[NODES] == len(a.nodes) else 0
        )
        row = a.rows.itemsize * self.arity + a.heads.itemsize + self.marks.itemsize
        self._announce(rows * row + slots * a.slots.itemsize + nodes * a.nodes.itemsize)
        if rows:
            self.marks = np.zeros(rows, np.int8)
            self.arrays = a = a._replace(rows=grown(a.rows, rows), heads=grown(a.heads, rows))
        if slots:
            table = np.full(slots, NONE, np.int32)
            kernels.rehash(a, table)
            self.arrays = a = a._replace(slots=table)
        if nodes:
            self.arrays = a._replace(nodes=grown(a.nodes, nodes))

    def _announce(self, size: int) -> None:
        if self._on_growth is not None and size:
            self._on_growth(self, size)

    # ---- entries

    def settle(self, touched: I32, height: int, signed: bool) -> tuple[I32, I64, int, I32, I32]:
        """What must change in the entries at `height`; see the kernels."""
        if self.fold is not None:
            return self._settle_groups(self.fold, touched, height)
        result: tuple[I32, I64, int, I32, I32] = kernels.settle(
            self.arrays, touched, self.marks, height, signed
        )
        return result

    def _settle_groups(self, fold: Fold, touched: I32, height: int) -> tuple[I32, I64, int, I32, I32]:
        groups = self._group_rows(fold, touched)
        marks = np.zeros(len(groups.arrays.key_start), np.int8)
        result: tuple[I32, I64, int, I32, I32] = kernels.settle_groups(
            self.arrays,
            groups.arrays,
            touched,
            marks,
            height,
            fold.place,
            fold.function == "max",
            fold.type is ColumnType.FLOAT,
        )
        return result

    def _group_rows(self, fold: Fold, touched: I32) -> Index:
        """The index of rows by group, with those of `touched` that it lacks."""
        capacity = len(self.arrays.rows)
        if self._groups is None:
            self._groups = Index(self.arity, fold.group, capacity)
        if len(self._grouped) < capacity:
            self._grouped = np.concatenate((self._grouped, np.zeros(capacity - len(self._grouped), np.int8)))
            self._groups.hold_entries(capacity)
        new = np.unique(touched[self._grouped[touched] == 0])
        if len(new):
            self._grouped[new] = 1
            self._groups.add(self.arrays.rows, new, new, np.zeros(capacity, ENTRY))
        return self._groups

    def group(self, rows: I32) -> None:
        """Add rows that got their supports and entries elsewhere to the index by group: a fold in place looks at all
        rows of a group.
        """
        if self.fold is not None and len(rows):
            self._group_rows(self.fold, rows)

    def change_entries(self, rows: I32, weights: I64, height: int, removals: int) -> None:
        """Add `weights` to the entries of `rows` at `height`, here and in every index. `weights` is not kept."""
        # Before anything changes: what is done in part could not be undone.
        self.hold_entries(len(rows))
        out_rows = np.empty(len(rows), np.int32)
        ids = np.empty(len(rows), np.int32)
        left = weights.copy()
        if removals:
            n = kernels.remove_entries(self.arrays, rows, left, height, out_rows, ids)
            for ix in self.indexes.values():
                ix.remove(self.arrays.rows, out_rows[:n], ids[:n])
        if not removals or left.any():
            n = kernels.add_entries(self.arrays, rows, left, height, out_rows, ids)
            for ix in self.indexes.values():
                ix.add(self.arrays.rows, out_rows[:n], ids[:n], self.arrays.entries)

    def hold_entries(self, more: int) -> None:
        """Make room for `more` entries; room for their postings is announced with it.

        Raises:
            BudgetExceededError: there is none; nothing has changed.
        """
        a, room = self.arrays, len(self.arrays.entries)
        if self.entries + more > room:
            room = max(_larger(room), self.entries + more)
        size = room * a.entries.itemsize if room > len(a.entries) else 0
        # The lists of rows, ids and weights come besides.
        size += 16 * more + sum(ix.growth(more, room) for ix in self.indexes.values())
        self._announce(size)
        if room > len(a.entries):
            self.arrays = a._replace(entries=grown(a.entries, room))
            for ix in self.indexes.values():
                ix.hold_entries(room)
        for ix in self.indexes.values():
            ix.hold_keys(more)

    def list_entries(self) -> tuple[I32, I32, I32]:
        """(rows, entry ids, height * 2 + sign) of all entries."""
        rows, ids, hw = (np.empty(self.entries, np.int32) for _ in range(3))
        kernels.list_entries(self.arrays, rows, ids, hw)
        return rows, ids, hw

    # ---- indexes

    def add_index(self, columns: tuple[int, ...]) -> None:
        """Build the index over `columns` from the entries, if it is not there."""
        if columns in self.indexes:
            return
        self._announce_index()
        self._build_index(columns)

    def _announce_index(self) -> None:
        # The index, and the lists of entries that it is made from.
        self._announce(self.entries * (28 + 8 * self.arity) + 4 * len(self.arrays.entries))

    def _build_index(self, columns: tuple[int, ...]) -> None:
        rows, ids = (np.empty(self.entries, np.int32) for _ in range(2))
        kernels.list_entries(self.arrays, rows, ids, np.empty(0, np.int32))
        self.indexes[columns] = Index.built(columns, self.arrays, rows, ids)

    # ---- reading

    def rows_of(self, codes: I64) -> I32:
        """The row of each tuple, or NONE."""
        out = np.empty(len(codes), np.int32)
        kernels.look_up(self.arrays, codes, out)
        return out

    def all_rows(self) -> I32:
        """All rows in use, ascending."""
        out = np.empty(self.live, np.int32)
        kernels.live_rows(self.arrays, out)
        return out

    def describe(self, rows: I32) -> tuple[I64, I64, I64, I64]:
        """(support at height 0, supports above summed, entries summed, height) of each row. The height is that of the
        last entry of weight +1, 0 where the tuple is not there.

        Of a relation folded in place, only the folded value counts as derived, where rules contribute it.
        """
        asserted, derived, present, height = (np.empty(len(rows), np.int64) for _ in range(4))
        kernels.describe(self.arrays, rows, asserted, derived, present, height)
        return asserted, derived_of(self.fold, derived, present), present, height

    def present(self) -> I64:
        """The tuples that are present, a copy. Only where no entry has a negative weight, so that none has two."""
        a = self.arrays
        if a.head[ENTRIES_USED] == a.head[ROWS]:
            rows: I64 = a.rows[: int(a.head[ROWS])].copy()
            return rows
        return self.codes(self.list_entries()[0])

    def present_heights(self) -> I64:
        """The heights of the tuples of `present`, in its order."""
        heights: I64 = self.list_entries()[2].astype(np.int64) >> 1
        return heights

    def codes(self, rows: I32) -> I64:
        """The tuples of `rows`, int64[n, arity], a copy."""
        return np.take(self.arrays.rows, rows, axis=0)

    # ---- bulk

    def empty(self) -> None:
        """Drop everything, but keep the arrays. Only for a relation without indexes that is not folded."""
        a = self.arrays
        a.slots.fill(NONE)
        fresh = new_relation(self.arity)
        a.head[:], a.low[:], a.high[:] = fresh.head, fresh.low, fresh.high

    def take(self, part: Relation, share: float) -> None:
        """Append the tuples of `part`, none of which is here, with their supports and entries. Until the works of
        `arranging` are done, nothing can be looked up. share: about the part of all that is to come that is here
        after it.

        Raises:
            BudgetExceededError: there is no room; nothing has changed.
        """
        a, more = self.arrays, part.arrays

        def room(have: int, counter: int) -> int:
            wanted = int(a.head[counter] + more.head[counter])
            # A few per cent more than is expected, since a copy costs more than that; but no leap by a first guess.
            most = 4.0 if share < _KNOWN else 1 / _KNOWN
            return have if wanted <= have else int(wanted * min(max(1.04 / share, 1.2), most)) + 16

        rows, nodes = room(len(a.rows), ROWS), room(len(a.nodes), NODES)
        entries = room(len(a.entries), ENTRIES)
        size = rows * (a.rows.itemsize * self.arity + a.heads.itemsize + 1) if rows > len(a.rows) else 0
        size += nodes * a.nodes.itemsize if nodes > len(a.nodes) else 0
        size += entries * a.entries.itemsize if entries > len(a.entries) else 0
        self._announce(size)
        if rows > len(a.rows):
            self.marks = np.zeros(rows, np.int8)
            self.arrays = a = a._replace(rows=grown(a.rows, rows), heads=grown(a.heads, rows))
        if nodes > len(a.nodes):
            self.arrays = a = a._replace(nodes=grown(a.nodes, nodes))
        if entries > len(a.entries):
            self.arrays = a = a._replace(entries=grown(a.entries, entries))
        build.append(a, more)

    def arranging(self) -> list[Callable[[], None]]:
        """What makes the table and the indexes after `take`: works that need nothing of each other.

        Raises:
            BudgetExceededError: there is no room; nothing has changed.
        """
        a = self.arrays
        slots = _slots(self.live)
        for _ in self.indexes:
            self._announce_index()
        self._announce(4 * slots)
        table = np.full(slots, NONE, np.int32)

        def fill() -> None:
            build.fill_slots(a, table)
            self.arrays = a._replace(slots=table)

        return [fill, *self.rebuilding()]

    def rebuilding(self) -> list[Callable[[], None]]:
        """What makes each index anew from the entries: works that need nothing of each other."""
        return [partial(self._build_index, columns) for columns in self.indexes]

    # ---- dropping

    def free(self, rows: I32) -> None:
        """Drop the rows among `rows` that have neither support nor entry; arrays that become empty give their memory
        back.
        """
        if self._groups is not None:
            bare = np.unique(rows)
            heads = self.arrays.heads[bare]
            bare = bare[(heads["support"] == NONE) & (heads["entry"] == NONE) & (self._grouped[bare] != 0)]
            self._groups.remove(self.arrays.rows, bare, bare)
            self._grouped[bare] = 0
        kernels.free_rows(self.arrays, rows)
        for ix in self.indexes.values():
            ix.compact()
        if self.live == 0 and len(self.arrays.rows) > 16:
            self.clear()

    def clear(self) -> None:
        """Empty the relation, but keep its (empty) indexes."""
        self.marks = np.zeros(16, np.int8)
        self.arrays = new_relation(self.arity)
        self._groups, self._grouped = None, np.zeros(0, np.int8)
        self.indexes = {columns: Index(self.arity, columns, 16) for columns in self.indexes}

    # ---- all arrays, for a checkpoint

    @property
    def groups(self) -> tuple[IndexArrays, I8] | None:
        """The index of rows by group and which rows it has, where a fold in place has made it."""
        return None if self._groups is None else (self._groups.arrays, self._grouped)

    def resume(
        self,
        arrays: RelationArrays,
        indexes: Mapping[tuple[int, ...], IndexArrays],
        groups: tuple[IndexArrays, I8] | None,
    ) -> None:
        """Go on with the arrays of a relation that was like this one, instead of its own."""
        self.marks = np.zeros(len(arrays.rows), np.int8)
        self.arrays = arrays
        for columns, of_index in indexes.items():
            self.indexes[columns].arrays = of_index
        if groups is not None:
            assert self.fold is not None, "only a fold in place needs groups"
            self._groups, self._grouped = Index(self.arity, self.fold.group, 16), groups[1]
            self._groups.arrays = groups[0]

    # ---- state, for tests and checks

    def supports(self) -> tuple[I32, I32, I64]:
        """(row, height, count) of every support."""
        rows = self.all_rows()
        nodes = int(self.arrays.head[NODES_USED])
        at, heights, counts = np.empty(nodes, np.int32), np.empty(nodes, np.int32), np.empty(nodes, np.int64)
        kernels.list_supports(self.arrays, rows, at, heights, counts)
        return rows[at], heights, counts

    def postings(self, columns: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], int]]:
        """(key, payload, entry id) of every posting of an index."""
        a: IndexArrays = self.indexes[columns].arrays
        used = [a.slots[s] for s in range(len(a.slots)) if a.slots[s] != NONE]
        n = int(sum(int(a.key_count[key]) for key in used))
        keys = np.empty((n, len(columns)), np.int64)
        payload = np.empty((n, self.arity - len(columns)), np.int64)
        entries = np.empty(n, np.int32)
        index_kernels.list_postings(a, keys, payload, entries)
        for key, rest, entry in zip(keys.tolist(), payload.tolist(), entries.tolist(), strict=True):
            yield tuple(key), tuple(rest), entry


def derived_of(fold: Fold | None, above: I64, present: I64) -> I64:
    """What counts as derived of tuples with these supports above height 0 and these sums of entries; `fold`: that in
    place, if there is one."""
    return above if fold is None else np.where(present > 0, above, 0)


def hidden_of(fold: Fold | None, asserted: I64, present: I64) -> npt.NDArray[np.bool_] | None:
    """Which tuples are facts that only contribute to the folded value; None where nothing is folded in place."""
    return None if fold is None else (asserted > 0) & (present <= 0)


def state_of(relation: Relation) -> Mapping[str, Any]:
    """Facts, supports, entries and indexes of one relation in codes, in a canonical form."""
    tuples = relation.arrays.rows
    facts: dict[tuple[int, ...], int] = {}
    supports: dict[tuple[int, ...], dict[int, int]] = {}
    for row, height, count in zip(*(a.tolist() for a in relation.supports()), strict=True):
        key = tuple(tuples[row].tolist())
        supports.setdefault(key, {})[height] = count
        if height == 0:
            facts[key] = count
    entries: dict[tuple[int, ...], dict[int, int]] = {}
    for row, _, hw in zip(*(a.tolist() for a in relation.list_entries()), strict=True):
        entries.setdefault(tuple(tuples[row].tolist()), {})[hw >> 1] = 1 - 2 * (hw & 1)
    indexes: dict[tuple[int, ...], dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]]] = {}
    for columns in sorted(relation.indexes):
        found = indexes.setdefault(columns, {})
        for key, rest, entry in relation.postings(columns):
            found.setdefault(key, []).append((rest, int(relation.arrays.entries[entry]["hw"])))
        for postings in found.values():
            postings.sort()
    return {"facts": facts, "supports": supports, "entries": entries, "indexes": indexes}
