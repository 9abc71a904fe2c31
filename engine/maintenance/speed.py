"""Whether a stratum's bootstrap takes less time on a cluster than in this process: an estimate.

In: what the bootstrap enumerates and holds, as far as it is known, and rates: derivations, bytes and heights a second,
here and there. Out: after how many derivations here it is better to go there (0: at once), and the numbers in words.
Always: it decides where an epoch is evaluated, and so what it costs, never what comes out.

**Known work.** The last bootstrap's derivations, scaled by what the stratum has grown since (policy.py), are compared:
here they take their number over the rate; there they take the start (nothing if the session runs), the way of what is
read, a time for each height, their number over the rate of all cores, and the way back of what is derived.

**Unknown work.** A stratum that was never derived says nothing about its size before it runs, and a sample of it says
little about a recursion. So it begins here, and goes to the cluster once it has taken as long here as going there costs
beyond what the cluster saves. This is the rent-or-buy rule: whatever the size turns out to be, the whole takes at most
about twice as long as it would have taken with the better of the two from the beginning; and a bootstrap that is over
before costs nothing more than before.

The rates are measured in the session, each time a larger piece of work has been done, and have defaults before (in the
order of what benchmarks/spark.py shows on one machine).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.maintenance.policy import BootstrapCost

HEIGHTS = 20
"""Heights of a recursion of which none is known."""
_LEAST = 0.5
"""Seconds of work from which on a rate is measured."""
_KEPT = 0.5
"""The weight of what was known about a rate before the newest measurement."""


@dataclass(frozen=True, slots=True)
class Rates:
    """here: derivations a second in this process; there: on one core of the cluster. start: seconds until a session
    runs. height: seconds for each height there. sent, fetched: bytes a second to the cluster and back.
    """

    here: float = 4e6
    there: float = 1e6
    start: float = 15.0
    height: float = 0.6
    sent: float = 50e6
    fetched: float = 30e6

    def measured(self, name: str, amount: float, seconds: float) -> Rates:
        """With what a piece of work has shown about a rate; a small one shows nothing."""
        if seconds < _LEAST or amount <= 0:
            return self
        return replace(self, **{name: _KEPT * getattr(self, name) + (1 - _KEPT) * amount / seconds})


@dataclass(frozen=True, slots=True)
class Cluster:
    """cores: of all executors. running: whether the session runs. name: the master, for people."""

    name: str
    cores: int
    running: bool


@dataclass(frozen=True, slots=True)
class Work:
    """A stratum's bootstrap. last: None if it was never derived. reads: bytes that it reads from what is here. row:
    bytes of a derived tuple. pivoted: whether one job on the cluster goes through all heights.
    """

    last: BootstrapCost | None
    reads: int
    row: int
    pivoted: bool

    @property
    def heights(self) -> int:
        if self.pivoted:
            return 1
        return HEIGHTS if self.last is None else max(1, len(self.last.heights))


@dataclass(frozen=True, slots=True)
class Verdict:
    """after: the derivations here after which the stratum is to go to the cluster; None: never. goes, stays: why, in
    words, about the stratum."""

    after: int | None
    goes: str
    stays: str


def judged(work: Work, rates: Rates, cluster: Cluster) -> Verdict:
    """See the module."""
    start = 0.0 if cluster.running else rates.start
    fixed = start + work.reads / rates.sent + work.heights * rates.height
    ratio = 1.0 if work.last is None else work.last.ratio
    each = 1 / (rates.there * cluster.cores) + ratio * work.row / rates.fetched
    told = (
        f"{cluster.cores} cores of {cluster.name} at {rates.there:,.0f} derivations a second, {start:.1f} s to start, "
        f"{work.reads / 2**20:,.1f} MiB to send"
    )
    if work.last is not None:
        derivations = work.last.estimate()
        here, there = derivations / rates.here, fixed + derivations * each
        numbers = f"{here:.1f} s here ({derivations:,.0f} derivations), {there:.1f} s there ({told})"
        told = f"was expected to take {numbers}"
        return Verdict(0 if there < here else None, told, told)
    saved = 1 / rates.here - each
    if saved <= 0:
        return Verdict(None, "", f"would not be derived faster there ({told})")
    after = round(fixed / saved)
    pays = f"{after:,} derivations, from which on going there pays ({told})"
    return Verdict(after, f"was not finished here after {pays}", f"was finished here before {pays}")


class Elsewhere(Exception):
    """A stratum's bootstrap is not to go on in this process: it is expected to take less time on the cluster."""

    def __init__(self, relations: tuple[str, ...]) -> None:
        super().__init__("the stratum is to be evaluated on the cluster")
        self.relations = relations
