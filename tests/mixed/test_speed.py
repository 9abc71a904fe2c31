"""A bootstrap goes to a cluster if it is expected to take less time there. The rates are given, so nothing is timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import SparkUnavailableError
from engine.maintenance.placement import Budget
from engine.maintenance.policy import BootstrapCost
from engine.maintenance.speed import Cluster, Rates, Work, judged
from engine.spark.session.session import SparkOptions, SparkSource
from tests.mixed.conftest import mixed_of
from tests.oracle.subject import changes_of
from tests.spark.compare import assert_same_state
from tests.spark.conftest import patient
from zedlog import Reasoner

pytestmark = patient

RATES = Rates(here=1e6, there=1e6, start=10.0, height=0.5, sent=1e6, fetched=1e6)
CLUSTER = Cluster("spark://there", 4, False)
# Nothing is measured in a test: what was measured would decide.
SLOW_HERE = Rates(here=10.0, there=1e6, start=0.0, height=0.001, sent=1e9, fetched=1e9)
SLOW_THERE = replace(SLOW_HERE, here=1e9, there=1.0)
CLOSURE = [("tc(x, y) :- e(x, y).", 1), ("tc(x, z) :- tc(x, y), e(y, z).", 1)]
CHAIN = {"e": [((i, i + 1), 1) for i in range(5)]}


def cost(derivations: int, held: float = 100.0, now: float = 100.0, heights: int = 4) -> BootstrapCost:
    return BootstrapCost(derivations, 0, held, now, tuple(range(heights)), (derivations,) * heights)


def test_known_work_is_compared_as_a_whole() -> None:
    # 10 s to start, 2 s for the way there, 4 heights of 0.5 s, and 40 s on four cores instead of one.
    work = Work(cost(40_000_000), 2_000_000, 32, False)
    assert judged(work, RATES, CLUSTER).after == 0
    assert "40.0 s here (40,000,000 derivations), 24.0 s there" in judged(work, RATES, CLUSTER).goes
    small = replace(work, last=cost(18_000_000))
    assert judged(small, RATES, CLUSTER).after is None
    assert "18.0 s here (18,000,000 derivations), 18.5 s there" in judged(small, RATES, CLUSTER).stays
    # A session that runs needs no start; a stratum that has grown takes longer.
    assert judged(small, RATES, replace(CLUSTER, running=True)).after == 0
    assert judged(replace(small, last=cost(18_000_000, now=200.0)), RATES, CLUSTER).after == 0
    # What comes back counts: 1 push for each derivation, 32 bytes each.
    heavy = replace(work, last=replace(cost(40_000_000), pushed=40_000_000))
    assert judged(heavy, RATES, CLUSTER).after is None


def test_unknown_work_goes_when_it_has_taken_as_long_here_as_going_there_costs() -> None:
    rates = replace(RATES, fetched=1e12)
    # 10 s to start, and 20 heights of 0.5 s; each derivation saves three quarters of a millionth of a second.
    found = judged(Work(None, 0, 32, False), rates, CLUSTER)
    assert found.after == pytest.approx(20 / 0.75e-6, rel=1e-3)
    # With a pivot one job goes through all heights.
    found = judged(Work(None, 0, 32, True), rates, CLUSTER)
    assert found.after == pytest.approx(10.5 / 0.75e-6, rel=1e-3)
    one = judged(Work(None, 0, 32, False), rates, replace(CLUSTER, cores=1))
    assert (one.after, one.goes) == (None, "")
    assert one.stays.startswith("would not be derived faster there (1 cores of spark://there")


def test_a_rate_is_measured_from_work_that_takes_a_while() -> None:
    assert RATES.measured("here", 100.0, 0.1) == RATES
    assert RATES.measured("here", 3e6, 1.0).here == 2e6
    assert RATES.measured("sent", 0, 1.0) == RATES


class Given(SparkSource):
    """The tests' session as if it were that of a cluster."""

    def __init__(self, session: Any, lost: bool = False) -> None:
        super().__init__(SparkOptions("spark://pretended:7077", partitions=2, timeout=240), session)
        self.lost_ = lost

    def session(self) -> Any:
        if self.lost_:
            raise SparkUnavailableError("the cluster is gone")
        return super().session()


@pytest.fixture
def on(source: SparkSource) -> Iterator[Any]:
    made: list[Reasoner] = []

    def one(rates: Rates, lost: bool = False, **more: Any) -> Reasoner:
        given = Given(source.session(), lost)
        made.append(Reasoner("auto", spark=given, threads=1, **{"budget": Budget(), **more}))
        fix(made[-1], rates)
        return made[-1]

    yield one
    for reasoner in made:
        reasoner.close()


def fix(reasoner: Reasoner, rates: Rates) -> None:
    reasoner.database.places.rates = rates
    reasoner.database.places.learns = False


def check_a_bootstrap_goes_and_comes_home(reasoner: Reasoner) -> None:
    steady = Reasoner("resident", threads=1)
    for step, placement, why in (
        ({"facts": CHAIN}, "resident", "maintained"),
        # Never derived: it begins here, and goes.
        ({"rules": CLOSURE}, "mixed", "moved {tc} to spark, which is faster: was not finished here after"),
        # Its state fits, and comes home.
        ({"facts": {"e": [((3, 9), 1)]}}, "resident", "back on resident: the state fits"),
        # Its size is known now.
        (
            {"facts": {"e": [((4, 2), 1)]}, "strategy": "bootstrap"},
            "mixed",
            "moved {tc} to spark, which is faster: was expected to take",
        ),
        ({"facts": {"e": [((4, 2), -1)]}}, "resident", "back on resident"),
    ):
        result = reasoner.apply(**step)  # type: ignore[arg-type]
        assert changes_of(result) == changes_of(steady.apply(**step))  # type: ignore[arg-type]
        assert result.placement == placement
        assert why in result.reason
        assert_same_state(reasoner, steady)
        reasoner.check_invariants()
        if placement == "mixed":
            assert mixed_of(reasoner).away.keys() == {"tc"}


def test_what_is_faster_on_the_cluster_runs_there_and_comes_home(on: Any) -> None:
    check_a_bootstrap_goes_and_comes_home(on(SLOW_HERE))


def test_what_is_faster_here_stays_and_a_long_one_says_why(on: Any) -> None:
    reasoner = on(replace(SLOW_THERE, here=1.0, there=0.01))
    assert reasoner.apply(facts=CHAIN).reason == "maintained"
    result = reasoner.apply(rules=CLOSURE)
    assert result.placement == "resident"
    assert (
        "stays on resident: {tc} would not be derived faster there (2 cores of spark://pretended"
        in result.reason
    )
    again = reasoner.apply(facts={"e": [((4, 2), 1)]}, strategy="bootstrap")
    assert "stays on resident: {tc} was expected to take" in again.reason


def test_on_this_machine_it_stays_and_says_so() -> None:
    reasoner = Reasoner("auto", spark=SparkOptions("local[2]"), budget=Budget(), threads=1)
    fix(reasoner, replace(SLOW_HERE, here=1.0))
    result = reasoner.apply(facts=CHAIN, rules=CLOSURE)
    assert result.placement == "resident"
    assert result.reason == "maintained; stays on resident: Spark would run on this machine's own cores"


def test_a_cluster_that_is_gone_refuses_nothing_that_fits_here(on: Any) -> None:
    reasoner = on(SLOW_HERE, lost=True)
    result = reasoner.apply(facts=CHAIN, rules=CLOSURE)
    assert result.placement == "resident"
    assert result.reason == "maintained; stays on resident: the cluster is gone"
    assert reasoner.count("tc") == 15
    reasoner.check_invariants()


def test_a_dry_run_is_evaluated_where_the_state_is(on: Any) -> None:
    reasoner = on(SLOW_HERE)
    promised = reasoner.dry_run(facts=CHAIN, rules=CLOSURE)
    assert promised.placement == "resident"
    assert reasoner.placement == "resident"
