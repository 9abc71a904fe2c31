"""The changes of one relation in an epoch, computed from its journal: for the strata above, for readers, and for
undoing them.

In: the relation as it is now, its journal, and, if it was built anew, the relation that it replaced. Out: net changes
of presence, or of everything that a reader can see. Always: a relation with a journal costs in proportion to the
journal; one that was built anew costs a look-up for each tuple of the old and the new relation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from engine.circuit.normal import Fold
from engine.data.codes import Codes
from engine.maintenance.change import RelationChange
from engine.resident import table as kernels
from engine.resident.journal import RelationJournal
from engine.resident.layout import I64, NONE
from engine.resident.relation import ONE, Relation, derived_of, hidden_of
from engine.resident.steps import Batch
from engine.resident.stratum import GROUND

Mask: TypeAlias = npt.NDArray[np.bool_]
Described: TypeAlias = tuple[I64, I64, I64, I64]
"""asserted, derived, present and height of some tuples, int64[n] each (`Relation.describe`)."""


def net_change(relation: Relation, changes: RelationJournal, replaced: Relation | None) -> Batch:
    """The net change of one relation's presence, as a batch at height 0 for the strata above."""
    if replaced is not None:
        codes, weights = _difference(replaced, relation)
        return Batch(codes, GROUND, weights)
    if changes.fresh and not relation.negative:
        return Batch(relation.present(), GROUND, ONE)
    rows, place = np.unique(changes.entries[0], return_inverse=True)
    net = np.zeros(len(rows), np.int64)
    np.add.at(net, place, changes.entries[2])
    left = np.flatnonzero(net)
    return Batch(relation.codes(rows[left]), GROUND, net[left])


def visible_change(relation: Relation, changes: RelationJournal, replaced: Relation | None) -> RelationChange:
    """What the epoch changed of a relation that a reader can see."""
    if replaced is not None:
        return _visible_difference(replaced, relation)
    if changes.fresh and is_all_derived(relation):
        return _all_derived(relation)
    if changes.fresh:
        rows = relation.all_rows()
        now = relation.describe(rows)
        was = nothing(len(rows))
    else:
        # In a fold in place, a tuple may become the extreme though its own supports are as they were.
        found = kernels.moved(relation.arrays, changes.pushes, changes.entries)
        rows = found[:, 0].astype(np.int32)
        now, was = (described_as(relation.fold, *found.T[first : first + 4]) for first in (1, 5))
    return change_of(lambda seen: relation.codes(rows[seen]), was, now, relation.fold)


def described_as(fold: Fold | None, asserted: I64, derived: I64, present: I64, height: I64) -> Described:
    """Sums over a tuple's supports and entries, and the height of its last entry, as `Relation.describe` tells them."""
    return asserted, derived_of(fold, derived, present), present, np.where(present > 0, height, 0)


def change_of(
    codes: Callable[[slice | Mask], Codes], was: Described, now: Described, fold: Fold | None
) -> RelationChange:
    """What a reader sees of tuples that were and are described so. codes: gives those of the tuples that are told.
    fold: the fold in place after the epoch."""
    (was_asserted, was_derived, was_present, was_height), (asserted, derived, present, height) = was, now
    moved = present - was_present
    changed = (asserted != was_asserted) | ((derived > 0) != (was_derived > 0))
    changed |= (moved != 0) | (height != was_height)
    # All is the rule where a relation is made, and then nothing is copied.
    seen = slice(None) if changed.all() else changed
    return RelationChange(
        codes(seen),
        asserted[seen],
        derived[seen] > 0,
        moved[seen].astype(np.int8),
        was_asserted[seen],
        was_derived[seen] > 0,
        hidden_of(fold, asserted[seen], present[seen]),
        height[seen],
        was_height[seen],
    )


def is_all_derived(relation: Relation) -> bool:
    """Whether every tuple that is present is derived and no fact."""
    return not relation.asserted and not relation.negative and relation.fold is None


def _all_derived(relation: Relation) -> RelationChange:
    """The change of a relation that was empty and has no facts: all of its tuples have come."""
    codes = relation.present()
    ones, none = np.ones(len(codes), np.bool_), np.zeros(len(codes), np.bool_)
    nothing = np.zeros(len(codes), np.int64)
    heights = relation.present_heights()
    return RelationChange(
        codes, nothing, ones, ones.view(np.int8), nothing, none, None, heights, np.zeros_like(nothing)
    )


def _difference(old: Relation, new: Relation) -> tuple[Codes, Codes]:
    """The tuples that are present in only one of the two: codes, and +1 (new) or -1 (old)."""
    change = _visible_difference(old, new)
    moved = np.flatnonzero(change.present)
    return change.codes[moved], change.present[moved].astype(np.int64)


def _visible_difference(old: Relation, new: Relation) -> RelationChange:
    if old.arity != new.arity:
        old = Relation(new.name, new.arity)
    rows, old_rows = new.all_rows(), old.all_rows()
    codes = new.codes(rows)
    # A new tuple is looked up in the old relation; the old ones that none meets are gone.
    met = old.rows_of(codes)
    known = np.flatnonzero(met != NONE)
    stayed = np.zeros(int(old_rows[-1]) + 1 if len(old_rows) else 0, np.bool_)
    stayed[met[known]] = True
    gone = old_rows[~stayed[old_rows]]
    number = len(rows) + len(gone)
    codes = np.concatenate((codes, old.codes(gone)))
    place = np.concatenate((known, np.arange(len(rows), number)))
    was = _spread(old.describe(np.concatenate((met[known], gone))), place, number)
    now = _spread(new.describe(rows), np.arange(len(rows)), number)
    return change_of(lambda seen: codes[seen], was, now, new.fold)


def _spread(told: Described, place: I64, number: int) -> Described:
    """What is told of the tuples at some places of `number`, and zeros elsewhere."""
    asserted, derived, present, height = (np.zeros(number, np.int64) for _ in range(4))
    asserted[place], derived[place], present[place], height[place] = told
    return asserted, derived, present, height


def described(relation: Relation, codes: Codes) -> Described:
    """`Relation.describe` of tuples, int64[n, arity]; zeros where the relation does not know one."""
    rows = relation.rows_of(codes)
    known = np.flatnonzero(rows != NONE)
    asserted, derived, present, height = (np.zeros(len(codes), np.int64) for _ in range(4))
    asserted[known], derived[known], present[known], height[known] = relation.describe(rows[known])
    return asserted, derived, present, height


def nothing(tuples: int) -> Described:
    """What tuples are described as that are not there."""
    return (np.zeros(tuples, np.int64),) * 4


def undo(relation: Relation, changes: RelationJournal) -> None:
    """Undo what an epoch did, by doing the opposite: entries first, then supports, then rows."""
    if changes.fresh:
        relation.clear()
        return
    rows, heights, weights = changes.entries
    # By row and height: the changes of an entry sum up.
    keys, place = np.unique((heights.astype(np.int64) << 32) | rows, return_inverse=True)
    net = np.zeros(len(keys), np.int64)
    np.add.at(net, place, weights)
    keys, net = keys[net != 0], net[net != 0]
    at = (keys >> 32).astype(np.int32)
    cuts = np.flatnonzero(at[1:] != at[:-1]) + 1
    for part in np.split(np.arange(len(keys)), cuts) if len(keys) else ():
        moved = (keys[part] & 0xFFFFFFFF).astype(np.int32)
        # An entry at the height may be there (to be removed or turned round): the kernel looks.
        relation.change_entries(moved, -net[part], int(at[part[0]]), len(part))
    rows, heights, weights = changes.pushes
    relation.push(relation.codes(rows), heights, -weights)
    relation.free(np.unique(rows))
