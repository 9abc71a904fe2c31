"""How much of a database's past stays readable, as plain, checked data."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import InvalidRequestError


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept. An epoch's snapshot stays while it is one of the last `epochs` or younger than `seconds`,
    so that a reader can finish also when epochs are short. For subscriptions older epochs stay, from the first one that
    a subscription has not acknowledged: at most the last `subscribed_epochs`, and at most `subscribed_bytes` that these
    epochs wrote."""

    epochs: int = 64
    seconds: float = 5.0
    results: int = 100_000
    summaries: int = 10_000
    subscribed_epochs: int = 10_000
    subscribed_bytes: int = 1 << 30

    def __post_init__(self) -> None:
        limits = (self.seconds, self.subscribed_epochs, self.subscribed_bytes)
        if self.epochs < 1 or min(limits) < 0 or self.results < 1 or self.summaries < 1:
            raise InvalidRequestError(
                "the retention must be at least 1 epoch, 1 result and 1 summary, and its time and limits must "
                "not be negative"
            )
