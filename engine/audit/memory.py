"""The resident state compared with one that was derived anew: relation by relation, on codes, vectorised.

In: the arrays of a relation as the engine holds them, and a relation with the same facts and rules that a bootstrap
made. Out: differences in a `Report`: tuples that are held and do not follow, or follow and are not held; asserted
weights; supports and entries by height; postings of every index. Always: nothing of the held arrays is trusted
(engine/audit/lists.py), so damage is reported, and does not end the process; the arrays are only read.

Both states are a function of facts and rules, height by height, however they came about; that is what makes this
comparison possible. Costs about as much as sorting supports, entries and postings once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.audit import lists
from engine.audit.lists import Damaged, Ids
from engine.audit.report import NAMED, Report
from engine.circuit.normal import Fold
from engine.data.codes import Codes
from engine.resident.layout import FREE, ROWS, RelationArrays
from engine.resident.relation import Relation, derived_of, hidden_of
from engine.storage.rows import Rows, rows_in_order, sort_order

Decode = Callable[[Codes], list[Sequence[Any]]]
"""Codes of tuples of one relation -> their values."""

MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Held:
    """What a relation's arrays hold. rows: in use, with their tuples in `codes`; supports and entries by their place in
    `rows`."""

    rows: Ids
    codes: Codes
    support_at: Ids
    heights: Ids
    counts: Ids
    entry_at: Ids
    entry_ids: Ids
    hw: Ids

    def described(self) -> tuple[Ids, Ids, Ids, Ids]:
        """(asserted weight, supports above height 0, entries summed, height) of each row, as `Relation.describe` tells
        them."""
        asserted, derived, present, height = (np.zeros(len(self.rows), np.int64) for _ in range(4))
        ground = self.heights == 0
        np.add.at(asserted, self.support_at[ground], self.counts[ground])
        np.add.at(derived, self.support_at[~ground], self.counts[~ground])
        np.add.at(present, self.entry_at, 1 - 2 * (self.hw & 1))
        plus = self.hw & 1 == 0
        np.maximum.at(height, self.entry_at[plus], self.hw[plus] >> 1)
        return asserted, derived, present, np.where(present > 0, height, 0)


def held(relation: Relation) -> Held:
    """What the arrays of a relation hold. Raises Damaged."""
    return _held(relation.arrays)


def _held(arrays: RelationArrays) -> Held:
    rows = lists.rows_in_use(arrays)
    return Held(rows, arrays.rows[rows], *lists.supports(arrays, rows), *lists.entries(arrays, rows))


def visible(found: Held, fold: Fold | None) -> Rows:
    """What a reader would see of it, as rows of a snapshot."""
    asserted, above, present, heights = found.described()
    derived = derived_of(fold, above, present) > 0
    hidden = hidden_of(fold, asserted, present)
    order = sort_order(found.codes)
    rows = rows_in_order(found.codes, asserted, derived, hidden, heights, order)
    return rows.where(rows.live)


class Comparison:
    """Of one relation. name: as it is told; decode: of its tuples."""

    def __init__(self, report: Report, name: str, decode: Decode) -> None:
        self._report, self._name, self._decode = report, name, decode

    def compare(self, live: Relation, anew: Relation) -> None:
        """Everything about a relation."""
        try:
            found = held(live)
            lists.check_slots(live.arrays.slots, _row_hashes(live), _members(live))
        except Damaged as damage:
            self._report.add("table", MEMORY, f"{self._name} {damage}", self._name)
            return
        right = held(anew)
        self._count(right)
        # Of each held row the place in `right`, or -1.
        place_of = np.full(len(anew.arrays.rows) + 1, -1, np.int64)
        place_of[right.rows] = np.arange(len(right.rows))
        at = place_of[anew.rows_of(np.ascontiguousarray(found.codes))]
        self._tuples(found, right, at)
        known = at >= 0
        self._numbers(
            "support",
            right.codes,
            _keyed(right.support_at, right.heights, right.counts),
            _keyed(at[found.support_at], found.heights, found.counts, known[found.support_at]),
        )
        self._numbers(
            "entry",
            right.codes,
            _keyed(right.entry_at, right.hw, 1 - 2 * (right.hw & 1)),
            _keyed(at[found.entry_at], found.hw, 1 - 2 * (found.hw & 1), known[found.entry_at]),
        )
        self._bounds(live, found)
        self._indexes(live, anew, found)

    def _count(self, right: Held) -> None:
        report = self._report
        report.relations += 1
        report.tuples += len(right.rows)
        report.supports += len(right.counts)
        report.entries += len(right.hw)

    def _tuples(self, found: Held, right: Held, at: Ids) -> None:
        extra = np.flatnonzero(at < 0)
        for values in self._values(found.codes, extra):
            self._report.add(
                "tuple", MEMORY, "is held, but does not follow", self._name, values, "absent", "present"
            )
        seen = np.bincount(at[at >= 0], minlength=len(right.rows))
        missing, twice = np.flatnonzero(seen == 0), np.flatnonzero(seen > 1)
        for values in self._values(right.codes, missing):
            self._report.add(
                "tuple", MEMORY, "follows, but is not held", self._name, values, "present", "absent"
            )
        for values in self._values(right.codes, twice):
            self._report.add("table", MEMORY, "is held more than once", self._name, values, 1, 2)

    def _numbers(
        self, kind: str, codes: Codes, right: tuple[Ids, Ids, Ids], found: tuple[Ids, Ids, Ids]
    ) -> None:
        """Compare numbers by tuple and height, which `_keyed` has put in order."""
        if all(np.array_equal(one, other) for one, other in zip(right, found, strict=True)):
            return
        pairs = np.concatenate((np.stack(right[:2], axis=1), np.stack(found[:2], axis=1)))
        keys, inverse = np.unique(pairs, axis=0, return_inverse=True)
        expected, have = np.zeros(len(keys), np.int64), np.zeros(len(keys), np.int64)
        split = len(right[0])
        np.add.at(expected, inverse[:split], right[2])
        np.add.at(have, inverse[split:], found[2])
        wrong = np.flatnonzero(expected != have)
        for i, values in zip(wrong[:NAMED].tolist(), self._values(codes, keys[wrong, 0]), strict=True):
            height = int(keys[i, 1])
            what, name = kind, f"{kind} at height {height}"
            if kind == "entry":
                name = f"entry at height {height >> 1} of weight {1 - 2 * (height & 1)}"
            elif height == 0:
                what = name = "weight"
            wanted, got = int(expected[i]), int(have[i])
            self._report.add(what, MEMORY, f"has another {name}", self._name, values, wanted, got)

    def _values(self, codes: Codes, places: Ids) -> list[Sequence[Any]]:
        return named(self._report, codes, places, self._decode)

    def _bounds(self, live: Relation, found: Held) -> None:
        """The counters and limits that the kernels go by."""
        asserted = found.described()[0]
        negative = int(np.count_nonzero(found.hw & 1))
        for name, have, wanted in (
            ("facts", live.asserted, int(np.count_nonzero(asserted))),
            ("entries", live.entries, len(found.hw)),
            ("entries of weight -1", live.negative, negative),
        ):
            if have != wanted:
                self._report.add(
                    "table", MEMORY, f"has a wrong counter of {name}", self._name, None, wanted, have
                )
        if len(found.rows):
            outside = (found.codes < live.arrays.low) | (found.codes > live.arrays.high)
            for values in self._values(found.codes, np.flatnonzero(outside.any(axis=1))):
                self._report.add("table", MEMORY, "lies outside of the noted range", self._name, values)

    def _indexes(self, live: Relation, anew: Relation, found: Held) -> None:
        for columns in sorted(anew.indexes.keys() - live.indexes.keys()):
            self._report.add("index", MEMORY, f"has no index {list(columns)}", self._name)
        row_of = np.full(len(live.arrays.entries), -1, np.int64)
        row_of[found.entry_ids] = found.rows[found.entry_at]
        for columns, index in sorted(live.indexes.items()):
            what = f"index over the columns {[c + 1 for c in columns]}"
            try:
                posted = lists.postings(index.arrays, live.arity, live.arrays.entries["hw"])
            except Damaged as damage:
                self._report.add("index", MEMORY, f"the {what} {damage}", self._name)
                continue
            self._report.postings += len(posted.entries)
            rows = row_of[posted.entries]
            wrong = (rows < 0) | (posted.tuples != live.arrays.rows[rows]).any(axis=1)
            for values in self._values(posted.tuples, np.flatnonzero(wrong)):
                self._report.add(
                    "index", MEMORY, f"is in the {what}, but has no such entry", self._name, values
                )
            times = np.bincount(posted.entries[~wrong], minlength=len(row_of))[found.entry_ids]
            for told, off, number in (
                ("is missing in", times == 0, 0),
                ("is more than once in", times > 1, 2),
            ):
                for values in self._values(found.codes, found.entry_at[off]):
                    self._report.add("index", MEMORY, f"{told} the {what}", self._name, values, 1, number)


def named(report: Report, codes: Codes, places: Ids, decode: Decode) -> list[Sequence[Any]]:
    """The first tuples at places, decoded; the others are only counted."""
    report.count(max(0, len(places) - NAMED))
    return decode(codes[places[:NAMED]]) if len(places) else []


def _keyed(
    at: Ids, keys: Ids, numbers: Ids, known: npt.NDArray[np.bool_] | None = None
) -> tuple[Ids, Ids, Ids]:
    """Numbers by place and key, in their order; without those of unknown tuples."""
    if known is not None and not known.all():
        at, keys, numbers = at[known], keys[known], numbers[known]
    order = np.lexsort((keys, at))
    return at[order], keys[order], numbers[order]


def _row_hashes(relation: Relation) -> npt.NDArray[np.uint64]:
    return lists.hashes(relation.arrays.rows[: int(relation.arrays.head[ROWS])])


def _members(relation: Relation) -> Ids:
    used = int(relation.arrays.head[ROWS])
    return np.flatnonzero(relation.arrays.heads["entry"][:used] != FREE)
