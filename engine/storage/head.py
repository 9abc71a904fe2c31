"""The head: the newest publication of a database, as stored in the hash `head`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.errors import CorruptSnapshotError

FIELDS = ("epoch", "last_id", "incarnation", "processed", "epoch_time")


@dataclass(frozen=True, slots=True)
class Head:
    """`last_id` is the last log entry whose outcome is published; `processed` counts them all. `epoch_time`
    says when the epoch was published; with the epoch's number it names one publication, also when a Redis
    server that lost its last second made the engine do an epoch again."""

    epoch: int
    last_id: str
    incarnation: str
    processed: int
    epoch_time: str

    @classmethod
    def decode(cls, fields: Sequence[bytes | None]) -> Head | None:
        """Make a head from the values of `FIELDS`; None if nothing has been published."""
        epoch, last_id, incarnation, processed, epoch_time = fields
        if epoch is None and last_id is None and incarnation is None:
            return None
        if epoch is None or last_id is None or incarnation is None or processed is None or epoch_time is None:
            raise CorruptSnapshotError("the head of the database is damaged: it lacks a field")
        try:
            return cls(
                int(epoch), last_id.decode(), incarnation.decode(), int(processed), epoch_time.decode()
            )
        except ValueError as error:
            raise CorruptSnapshotError(f"the head of the database is damaged: {error}") from error
