"""DRed as a strategy: which strata it can maintain, and what it did, in words. The work is done by the placement
(engine/resident/dred.py).

A stratum is maintained by over-deletion and re-derivation if it does not aggregate its own tuples, as `min` and `max`
do, and any aggregate in recursion. What it negates or aggregates otherwise is below it, and complete. A program none of
whose strata can be maintained so is refused; of another one the rest is updated, and the epoch says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from engine.circuit.circuit import Circuit, Stratum
from engine.errors import InvalidRequestError
from engine.maintenance.policy import known_to_users


@runtime_checkable
class Repairing(Protocol):
    """The work on a stratum, where the placement knows DRed."""

    def repair(self) -> tuple[int, int]:
        """Instead of `run`: how many tuples were over-deleted, and how many of them derived again."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was done to a stratum that DRed was asked for. instead: empty, or why it was updated; then the numbers of
    tuples are 0."""

    relations: tuple[str, ...]
    deleted: int = 0
    derived: int = 0
    instead: str = ""


def check_positive(circuit: Circuit) -> None:
    """Check that DRed can maintain some stratum.

    Raises:
        InvalidRequestError: it cannot; a program without rules is no reason.
    """
    derived = [stratum for stratum in circuit.strata if stratum.derives]
    if derived and all(stratum.signed for stratum in derived):
        names = sorted(name for stratum in derived for name in known_to_users(stratum.relations))
        raise InvalidRequestError(
            "the strategy dred maintains what does not aggregate its own tuples, as min, max and any aggregate in "
            f"recursion do, and of the derived relations {_set(names)} all do; leave the strategy out, or ask for "
            "update or bootstrap",
            strategy="dred",
            relations=names,
        )


def repaired(stratum: Stratum, work: object) -> Repaired | None:
    """Do the work on a stratum by DRed; or say why it cannot be done so, or nothing of a stratum without rules: then
    nothing was done.
    """
    if not stratum.derives:
        return None
    if stratum.signed:
        return Repaired(stratum.relations, instead="aggregates its own tuples")
    if not isinstance(work, Repairing):
        return Repaired(stratum.relations, instead="is not in the engine process")
    return Repaired(stratum.relations, *work.repair())


def told(done: Sequence[Repaired]) -> str:
    """What DRed did, in words; empty if it was not asked for, or had nothing to do."""
    by_dred = [one for one in done if not one.instead]
    parts = []
    if by_dred:
        deleted, derived = sum(one.deleted for one in by_dred), sum(one.derived for one in by_dred)
        parts.append(f"over-deleted {deleted:,} tuple{'' if deleted == 1 else 's'}, re-derived {derived:,}")
    for one in done:
        if one.instead and (names := known_to_users(one.relations)):
            parts.append(f"updated {_set(names)}, which {one.instead}")
    return "; ".join(parts)


def _set(names: Iterable[str]) -> str:
    return "{" + ", ".join(names) + "}"
