"""The resident state as arrays and a description of them, to be kept outside of the process and taken up again.

In: `Arrangements` between two epochs. Out: the arrays as they are (no copies), in an order that the description (plain
data for JSON) gives; and the way back, into a new placement that has installed the same circuit. Always: a state that
is taken up is the one that was described, array for array. Nothing is known here of what the arrays mean: they are
the fields of `RelationArrays` and `IndexArrays`, whatever these are; `layout` names their form.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.maintenance.policy import BootstrapCost
from engine.resident.arrangements import Arrangements
from engine.resident.kernels import sources_digest
from engine.resident.layout import IndexArrays, RelationArrays, new_index, new_relation
from engine.resident.relation import Relation

VERSION = 1
"""Of what the arrays mean. To be raised when heights, supports, entries, or the names of a circuit's internal relations
and rules are no longer what they were, although `layout` would not notice it."""

Array = npt.NDArray[Any]


class CheckpointUnusable(Exception):
    """A checkpoint cannot be used. The text says why, and goes on after "because"."""


class ResidentParts(NamedTuple):
    """A resident state: `about` is plain data, which says what the arrays are."""

    about: Mapping[str, Any]
    arrays: Sequence[Array]


@cache
def layout() -> str:
    """The form of the arrays: their names and types, and the kernels that work on them."""
    templates: list[RelationArrays | IndexArrays] = [new_relation(2), new_index(2, (0,), 16)]
    forms = [
        (name, str(array.dtype.descr), array.shape[1:])
        for arrays in templates
        for name, array in arrays._asdict().items()
    ]
    described = repr((VERSION, sys.byteorder, forms, sources_digest()))
    return hashlib.blake2b(described.encode(), digest_size=16).hexdigest()


def parts_of(state: Arrangements) -> ResidentParts:
    """The state; an empty relation is left out, because it is as good as a new one."""
    relations: list[dict[str, Any]] = []
    arrays: list[Array] = []
    for name, relation in sorted(state.relations.items()):
        if not relation.live:
            continue
        columns, groups = list(relation.indexes), relation.groups
        relations.append({"name": name, "indexes": columns, "grouped": groups is not None})
        arrays += relation.arrays
        for key in columns:
            arrays += relation.indexes[key].arrays
        if groups is not None:
            arrays += [*groups[0], groups[1]]
    costs = [[relations, *astuple(cost)] for relations, cost in state.costs.items()]
    return ResidentParts({"relations": relations, "costs": costs}, arrays)


def take_up(state: Arrangements, parts: ResidentParts) -> None:
    """Fill the empty relations of a state, which has the circuit of `parts`.

    Raises:
        CheckpointUnusable: the parts do not fit; the state must not be used any more.
    """
    arrays = iter(parts.arrays)
    for about in parts.about["relations"]:
        relation = state.relations.get(about["name"])
        columns = [tuple(key) for key in about["indexes"]]
        if relation is None or set(columns) != relation.indexes.keys():
            raise CheckpointUnusable("its relations and indexes are not those of its rules")
        own = RelationArrays._make(_like(relation.arrays, arrays))
        indexes = {key: IndexArrays._make(_like(relation.indexes[key].arrays, arrays)) for key in columns}
        relation.resume(own, indexes, _groups(relation, arrays) if about["grouped"] else None)
    state.resized(state.relations)
    stratum_of = state.circuit.stratum_of
    for names, *cost in parts.about["costs"]:
        # The order of a stratum's relations depends on how the circuit came about; one that nothing mentions any more
        # is not in the new one.
        stratum = stratum_of.get(names[0])
        if stratum is None or set(stratum.relations) != set(names):
            continue
        derivations, pushed, held, now, heights, sums, pivoted = cost
        state.costs[stratum.relations] = BootstrapCost(
            derivations, pushed, held, now, tuple(heights), tuple(sums), pivoted
        )


def effort(state: Arrangements) -> float:
    """About how many tuples and derivations it takes to derive the state anew."""
    held = sum(relation.live for relation in state.relations.values())
    return held + sum(cost.estimate() for cost in state.costs.values())


def _groups(relation: Relation, arrays: Iterator[Array]) -> tuple[IndexArrays, npt.NDArray[np.int8]]:
    if relation.fold is None:
        raise CheckpointUnusable("its folds are not those of its rules")
    groups = IndexArrays._make(_like(new_index(relation.arity, relation.fold.group, 16), arrays))
    (grouped,) = _like((np.zeros(0, np.int8),), arrays)
    return groups, grouped


def _like(known: Sequence[Array], arrays: Iterator[Array]) -> list[Array]:
    """The next arrays, which have the forms of the known ones."""
    found = list(islice(arrays, len(known)))
    forms = [(array.dtype, array.shape[1:]) for array in known]
    if [(array.dtype, array.shape[1:]) for array in found] != forms:
        raise CheckpointUnusable("its arrays do not have the form of this version's")
    return found
