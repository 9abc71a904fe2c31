"""What an epoch did: the types in which it is told to the publisher and to the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.data.sources import is_hidden
from engine.data.values import Tuple
from engine.language.schema import Schema
from engine.maintenance.change import Change


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """A rule of weight > 0. `text` is as it was first written, `canonical` is its identity."""

    id: str
    text: str
    canonical: str
    weight: int


Changes = dict[str, list[tuple[Tuple, int]]]
"""The tuples of each relation that appeared (+1) or went (-1)."""

_REPLACED = " (replaced)"


def replaced(relation: str) -> str:
    """The key under which an epoch reports what a relation held before it changed the relation's column types. No
    program text can contain this name.
    """
    return relation + _REPLACED


def changed_name(key: str) -> str:
    """The relation whose change is reported under `key`."""
    return key.removesuffix(_REPLACED)


EVERYTHING = "*"
"""In `EpochRecord.away`: every relation."""
NOTHING_FORGOTTEN: npt.NDArray[np.int64] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One committed epoch, complete: the publisher writes it, and readers need nothing else.

    `relations` are the changes; if the types of a relation's columns changed, all that it held, with the old types, is
    under `replaced(name)`. `schemas` are all relations after the epoch, `changed_schemas` those of the keys of
    `relations` (also of a relation that no longer exists), `rules` all rules of weight > 0. `declarations` is the text
    of all `.prefix` and `.decl` directives in force. `symbols` are the strings interned by this epoch: the first has
    the code `first_symbol`, the next one more, and so on. `forgotten`, ascending, are the codes of symbols that nothing
    used before this epoch and that it does not use either: they no longer stand for anything.
    `away` are the relations that are on Spark, with the reason in words; `EVERYTHING` stands for all.
    """

    epoch: int
    relations: Mapping[str, Change]
    rules: tuple[RuleInfo, ...]
    schemas: Mapping[str, Schema]
    changed_schemas: Mapping[str, Schema]
    declarations: str
    first_symbol: int
    symbols: Sequence[str]
    strategy: str
    placement: str
    derivations: int
    reason: str
    elapsed_ms: float
    abandoned: int = 0
    estimate: int = 0
    bootstrap: int = 0
    forgotten: npt.NDArray[np.int64] = field(default_factory=lambda: NOTHING_FORGOTTEN)
    away: Mapping[str, str] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """How many tuples (appeared, disappeared) by relation, without the relations in which none did, and without
        hidden collections.
        """
        counts: dict[str, tuple[int, int]] = {}
        for key, change in sorted(self.relations.items()):
            if is_hidden(key):
                continue
            inserted, deleted = counts.get(changed_name(key), (0, 0))
            counts[changed_name(key)] = inserted + change.inserted, deleted + change.deleted
        return {name: pair for name, pair in counts.items() if pair != (0, 0)}

    @property
    def cost(self) -> dict[str, int]:
        """Numbers of derivations: enumerated in all; of those, by updates that were given up for a bootstrap; expected
        for the updates; expected for bootstraps of the strata that changed.
        """
        return {
            "derivations": self.derivations,
            "abandoned": self.abandoned,
            "estimate": self.estimate,
            "bootstrap": self.bootstrap,
        }


@dataclass(slots=True, weakref_slot=True, eq=False)
class EpochResult:
    """What the caller of `Reasoner.apply` gets.

    `changes[r]` is the list of (tuple, +1 or -1) of relation r, in no particular order; decoded when first asked for.
    `counts[r]` is (inserted, deleted). A dry run has the epoch number it would have had. A large change on Spark stays
    there until `changes` is first asked for, or its placement is closed; after that it cannot be read.
    """

    epoch: int
    dry_run: bool
    record: EpochRecord
    _decode: Callable[[EpochRecord], Changes] = field(repr=False)
    _changes: Changes | None = field(default=None, repr=False)

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        return self.record.counts

    @property
    def changes(self) -> Changes:
        if self._changes is None:
            self._changes = self._decode(self.record)
        return self._changes

    @property
    def strategy(self) -> str:
        return self.record.strategy

    @property
    def placement(self) -> str:
        return self.record.placement

    @property
    def cost(self) -> dict[str, int]:
        return self.record.cost

    @property
    def reason(self) -> str:
        """Why this strategy and this placement, in words."""
        return self.record.reason

    @property
    def elapsed_ms(self) -> float:
        return self.record.elapsed_ms
