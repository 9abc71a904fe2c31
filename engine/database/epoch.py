"""What an epoch did: the types in which it is told to the publisher and to the caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from engine.data.values import Tuple
from engine.language.schema import Schema
from engine.maintenance.change import RelationChange


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
    """Under which an epoch tells what a relation held whose column types it changed; no text can name it."""
    return relation + _REPLACED


def changed_name(key: str) -> str:
    """The relation whose change stands under `key`."""
    return key.removesuffix(_REPLACED)


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One committed epoch, complete: what the publisher writes and nothing else is needed to read.

    `relations` are the changes; what a relation lost because the types of its columns changed stands under
    `replaced(name)`: all that it held, with the old types. `schemas` are all relations after the epoch,
    `changed_schemas` those of the keys of `relations` (also of one that is there no more), `rules` all rules of
    weight > 0. `declarations` is the text of
    all `.decl` directives in force. `symbols` are the strings interned by this epoch: the first has the code
    `first_symbol`, the next one more, and so on. `forgotten`, ascending, are the codes of symbols that nothing used
    before this epoch, which does not use them either: they stand for nothing any more.
    """

    epoch: int
    relations: Mapping[str, RelationChange]
    rules: tuple[RuleInfo, ...]
    schemas: Mapping[str, Schema]
    changed_schemas: Mapping[str, Schema]
    declarations: str
    first_symbol: int
    symbols: tuple[str, ...]
    strategy: str
    placement: str
    derivations: int
    reason: str
    elapsed_ms: float
    abandoned: int = 0
    estimate: int = 0
    bootstrap: int = 0
    forgotten: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    @property
    def counts(self) -> dict[str, tuple[int, int]]:
        """How many tuples (appeared, went) by relation; those of which none did left out."""
        counts: dict[str, tuple[int, int]] = {}
        for key, change in sorted(self.relations.items()):
            inserted, deleted = counts.get(changed_name(key), (0, 0))
            counts[changed_name(key)] = inserted + change.inserted, deleted + change.deleted
        return {name: pair for name, pair in counts.items() if pair != (0, 0)}

    @property
    def cost(self) -> dict[str, int]:
        """Derivations: enumerated in all; of those, by updates that were dropped for a bootstrap; what the updates were
        expected to need; what bootstraps of the strata that changed were expected to need."""
        return {
            "derivations": self.derivations,
            "abandoned": self.abandoned,
            "estimate": self.estimate,
            "bootstrap": self.bootstrap,
        }


@dataclass(slots=True, weakref_slot=True, eq=False)
class EpochResult:
    """What the caller of `Reasoner.apply` gets.

    `changes[r]` is the list of (tuple, +1 or -1) of relation r, sorted by nothing in particular; decoded when
    first asked for. `counts[r]` is (inserted, deleted). A dry run has the epoch number it would have had.
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
