"""The changes of one relation in an epoch, computed from its journal: for the strata above, for readers, and for
undoing them.

In: the relation as it is now, its journal, and, if it was built anew, the relation that it replaced. Out: net changes
of presence, or of everything that a reader can see. Always: a relation with a journal costs in proportion to the
journal; one that was built anew costs a look-up for each tuple of the old and the new relation.
"""

from __future__ import annotations

import numpy as np

from engine.data.codes import Codes
from engine.maintenance.change import RelationChange
from engine.resident import table as kernels
from engine.resident.journal import RelationJournal
from engine.resident.layout import NONE
from engine.resident.relation import ONE, Relation, derived_of, hidden_of
from engine.resident.steps import Batch
from engine.resident.stratum import GROUND


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
        asserted, derived, present = relation.describe(rows)
        was_asserted = was_derived = was_present = np.zeros(len(rows), np.int64)
    else:
        # In a fold in place, a tuple may become the extreme though its own supports are as they were.
        found = kernels.moved(relation.arrays, changes.pushes, changes.entries)
        rows = found[:, 0].astype(np.int32)
        asserted, derived, present, was_asserted, was_derived, was_present = found.T[1:]
        derived = derived_of(relation.fold, derived, present)
        was_derived = derived_of(relation.fold, was_derived, was_present)
    seen = (asserted != was_asserted) | ((derived > 0) != (was_derived > 0)) | (present != was_present)
    rows = rows[seen]
    return RelationChange(
        relation.codes(rows),
        asserted[seen],
        derived[seen] > 0,
        (present - was_present)[seen].astype(np.int8),
        was_asserted[seen],
        was_derived[seen] > 0,
        hidden_of(relation.fold, asserted[seen], present[seen]),
    )


def is_all_derived(relation: Relation) -> bool:
    """Whether every tuple that is present is derived and no fact."""
    return not relation.asserted and not relation.negative and relation.fold is None


def _all_derived(relation: Relation) -> RelationChange:
    """The change of a relation that was empty and has no facts: all of its tuples have come."""
    codes = relation.present()
    ones, none = np.ones(len(codes), np.bool_), np.zeros(len(codes), np.bool_)
    no_weight = np.zeros(len(codes), np.int64)
    return RelationChange(codes, no_weight, ones, ones.view(np.int8), no_weight, none, None)


def _difference(old: Relation, new: Relation) -> tuple[Codes, Codes]:
    """The tuples that are present in only one of the two: codes, and +1 (new) or -1 (old)."""
    change = _visible_difference(old, new)
    moved = np.flatnonzero(change.present)
    return change.codes[moved], change.present[moved].astype(np.int64)


def _visible_difference(old: Relation, new: Relation) -> RelationChange:
    if old.arity != new.arity:
        old = Relation(new.name, new.arity)
    rows = new.all_rows()
    asserted, derived, present = new.describe(rows)
    codes = new.codes(rows)
    before = old.rows_of(codes)
    was = [np.zeros(len(rows), np.int64) for _ in range(3)]
    known = np.flatnonzero(before != NONE)
    for column, values in zip(was, old.describe(before[known]), strict=True):
        column[known] = values
    seen = (asserted != was[0]) | ((derived > 0) != (was[1] > 0)) | (present != was[2])
    gone_codes = old.codes(old.all_rows())
    gone_codes = gone_codes[new.rows_of(gone_codes) == NONE]
    gone_asserted, gone_derived, gone_present = old.describe(old.rows_of(gone_codes))
    # A tuple that was there at some heights only was not there for a reader.
    told = (gone_asserted != 0) | (gone_derived > 0) | (gone_present != 0)
    gone_codes, gone_asserted = gone_codes[told], gone_asserted[told]
    gone_derived, gone_present = gone_derived[told], gone_present[told]
    nothing = np.zeros(len(gone_codes), np.int64)
    return RelationChange(
        np.concatenate((codes[seen], gone_codes)),
        np.concatenate((asserted[seen], nothing)),
        np.concatenate((derived[seen] > 0, nothing > 0)),
        np.concatenate(((present - was[2])[seen], -gone_present)).astype(np.int8),
        np.concatenate((was[0][seen], gone_asserted)),
        np.concatenate((was[1][seen], gone_derived)) > 0,
        hidden_of(
            new.fold, np.concatenate((asserted[seen], nothing)), np.concatenate((present[seen], nothing))
        ),
    )


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
