"""How much of a database's past stays readable, as plain, checked data."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept. An epoch's snapshot stays while it is one of the last `epochs` or younger than `seconds`,
    so that a reader can finish also when epochs are short."""

    epochs: int = 64
    seconds: float = 5.0
    results: int = 100_000
    summaries: int = 10_000

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.seconds < 0 or self.results < 1 or self.summaries < 1:
            raise InvalidRequestError(
                "the retention must be at least 1 epoch, 1 result and 1 summary, and its time must not be negative"
            )
