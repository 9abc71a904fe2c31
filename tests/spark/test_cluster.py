"""A master and two workers with executors of their own: the same deltas and supports, whatever is killed.

One session is to a process: while these tests run, the shared local one is stopped.
"""

from __future__ import annotations

import sysconfig
import threading
import venv
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from engine.errors import (
    SparkStateLostError,
    SparkUnavailableError,
    ZedlogError,
)
from engine.maintenance.placement import Budget
from engine.spark.placement import SparkPlacement
from engine.spark.session.session import SparkSource
from engine.spark.session.watch import executors
from tests.full import full
from tests.mixed.test_speed import (
    CHAIN,
    CLOSURE,
    SLOW_HERE,
    SLOW_THERE,
    check_a_bootstrap_goes_and_comes_home,
    fix,
)
from tests.oracle.programs import History, histories
from tests.spark.compare import assert_same_epoch, assert_same_state
from tests.spark.conftest import classic, options, reasoners
from tests.spark.standalone import Standalone
from tests.spark.test_differential import few, run_both
from tests.waiting import until
from zedlog import Reasoner

pytestmark = [classic, pytest.mark.slow, pytest.mark.timeout(900)]

Make = Callable[..., Reasoner]
LINEAR = [("tc(x, y) :- e(x, y).", 1), ("tc(x, z) :- tc(x, y), e(y, z).", 1)]
EDGES = {"e": [((i, (i * i + 3) % 20), 1) for i in range(20)]}
STEPS: list[dict[str, Any]] = [
    {"facts": {"e": [((0, 3), -1), ((3, 30), 1)]}},
    {"facts": {"e": [((30, 0), 2), ((4, 19), -1)]}},
    {"facts": {"e": [((3, 30), -1)]}, "rules": [("back(x) :- tc(x, x).", 1)]},
    {"facts": {"e": [((0, 3), 1)]}},
]


@pytest.fixture(scope="module")
def cluster(
    java: None, source: SparkSource, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standalone]:
    source.close()
    with Standalone(tmp_path_factory.mktemp("standalone")) as started:
        yield started


@pytest.fixture
def session(cluster: Standalone, request: pytest.FixtureRequest) -> Iterator[SparkSource]:
    """A session on both workers; a test's `param` are options of it."""
    while len(cluster.workers) < 2:
        cluster.add_worker()
    made = SparkSource(options(cluster.address, **getattr(request, "param", {})))
    until(lambda: executors(made.session()) >= 2, "two executors")
    yield made
    made.close()


@pytest.fixture
def on_cluster(session: SparkSource) -> Iterator[Make]:
    yield from reasoners(session)


def both(spark: Reasoner, resident: Reasoner, step: dict[str, Any]) -> None:
    assert_same_epoch(spark.apply(**step), resident.apply(**step))


@full
def test_differential_on_two_executors_and_when_one_is_killed(
    on_cluster: Make, session: SparkSource, cluster: Standalone
) -> None:
    """A pivoted bootstrap in Python tasks of the executors, updates, and kill -9 of a worker with its executor
    between two epochs: each part of the state is on both, so nothing is lost."""
    spark, resident = on_cluster("large"), Reasoner()
    both(spark, resident, {"facts": EDGES, "rules": LINEAR})
    placement = spark.database.placement
    assert isinstance(placement, SparkPlacement)
    assert placement.heights == 1, "the recursive stratum was one job"
    both(spark, resident, STEPS[0])
    assert_same_state(spark, resident)
    cluster.kill_worker(cluster.workers[0])
    both(spark, resident, STEPS[1])
    assert_same_state(spark, resident)
    spark.check_invariants()


@full
@pytest.mark.parametrize("partitions", [2, 5])
@few
@given(history=histories(max_epochs=2))
def test_differential_of_random_programs_on_two_executors(
    on_cluster: Make, partitions: int, history: History
) -> None:
    run_both(history, on_cluster("mixed", partitions))


@full
@pytest.mark.parametrize("worker_too", [False, True], ids=["executor", "worker"])
def test_faults_killed_during_an_epoch(
    on_cluster: Make, session: SparkSource, cluster: Standalone, worker_too: bool
) -> None:
    """The epoch completes or is refused whole; the next one is right."""
    spark, resident = on_cluster("large"), Reasoner()
    both(spark, resident, {"facts": EDGES, "rules": LINEAR})
    placement = spark.database.placement
    assert isinstance(placement, SparkPlacement)
    before, queries = resident.state(), placement.queries
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(spark.apply(**STEPS[0]))
        except ZedlogError as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: placement.queries >= queries + 5, "the middle of the epoch")
    assert not outcome, "the epoch is under way"
    if worker_too:
        cluster.kill_worker(cluster.workers[0])
    else:
        cluster.kill_executor(cluster.workers[0])
    thread.join(300)
    assert not thread.is_alive()
    if isinstance(outcome[0], ZedlogError):
        assert isinstance(outcome[0], SparkUnavailableError), outcome[0]
        assert spark.epoch == 1
        assert {part: spark.state()[part] for part in ("facts", "supports")} == {
            part: before[part] for part in ("facts", "supports")
        }
    else:
        assert_same_epoch(outcome[0], resident.apply(**STEPS[0]))
    for step in STEPS[1:3]:
        both(spark, resident, step)
    assert_same_state(spark, resident)
    spark.check_invariants()


@full
@pytest.mark.parametrize("session", [{"copies": 1}], indirect=True)
def test_faults_state_that_nothing_else_holds_is_lost_and_said_to_be(
    on_cluster: Make, session: SparkSource, cluster: Standalone
) -> None:
    """One copy of everything, and all executors killed. A new reasoner from the same facts and rules goes on."""
    spark, resident = on_cluster("large"), Reasoner()
    both(spark, resident, {"facts": EDGES, "rules": LINEAR})
    saved = spark.export()
    for worker in list(cluster.workers):
        cluster.kill_executor(worker)
    with pytest.raises(SparkStateLostError, match="checkpoint directory"):
        spark.apply(**STEPS[0])
    assert spark.epoch == 1
    again = Reasoner.restore(
        saved,
        placement="spark",
        spark=SparkSource(replace(session.options, local_rows=0), session.session()),
    )
    both(again, resident, STEPS[0])
    assert_same_state(again, resident)
    again.close()


@full
def test_faults_with_a_checkpoint_directory_all_executors_may_go(cluster: Standalone, tmp_path: Path) -> None:
    """Files hold the state; old ones are removed epoch by epoch, all of them at the end."""
    place = tmp_path / "checkpoints"
    while len(cluster.workers) < 2:
        cluster.add_worker()
    reasoner = Reasoner("spark", spark=options(cluster.address, checkpoint_dir=str(place), local_rows=0))
    resident = Reasoner()
    both(reasoner, resident, {"facts": EDGES, "rules": LINEAR})
    numbers = []
    for step in STEPS[:2]:
        for worker in list(cluster.workers):
            cluster.kill_executor(worker)
        both(reasoner, resident, step)
        numbers.append(len(list(place.glob("*/rdd-*"))))
        until(lambda: all(worker.children() for worker in cluster.workers), "new executors")
    assert_same_state(reasoner, resident)
    assert 1 <= max(numbers) <= 3 * 7, "no more than the layers of the relations"
    reasoner.close()
    assert list(place.iterdir()) == []


@full
def test_no_executor_is_left(on_cluster: Make, session: SparkSource, cluster: Standalone) -> None:
    """Spark would wait for ever; the epoch is refused in time, and goes through when there is a worker again."""
    chosen = replace(session.options, local_rows=0, timeout=8)
    spark = Reasoner("spark", spark=SparkSource(chosen, session.session()))
    for worker in list(cluster.workers):
        cluster.kill_worker(worker)
    with pytest.raises(SparkUnavailableError, match="no executors for 8 seconds"):
        spark.apply(facts=EDGES, rules=LINEAR)
    assert spark.relations() == {}
    cluster.add_worker()
    until(lambda: executors(session.session()) >= 1, "an executor")
    resident = Reasoner()
    both(spark, resident, {"facts": EDGES, "rules": LINEAR})
    spark.close()


@full
def test_a_master_without_workers(java: None, source: SparkSource, tmp_path: Path) -> None:
    source.close()
    with Standalone(tmp_path, workers=0) as empty:
        with pytest.raises(SparkUnavailableError, match=r"within 10 seconds; check that it has workers"):
            SparkSource(replace(options(empty.address), timeout=10)).session()
        # Nothing of it stays: the next session is another one.
        until(lambda: "Removing app" in empty.master.output(), "the application's end")


@full
def test_workers_without_our_package(
    cluster: Standalone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executors' Python has the libraries, but not this package: it is said before anything is applied."""
    while len(cluster.workers) < 1:
        cluster.add_worker()
    monkeypatch.setenv("PYSPARK_PYTHON", str(_interpreter_with_our_libraries(tmp_path)))
    bare = options(cluster.address)
    lacking = {"spark.executorEnv.PYTHONPATH": "/nowhere", "spark.executorEnv.PYTHONNOUSERSITE": "1"}
    made = SparkSource(replace(bare, conf={**bare.conf, **lacking}))
    try:
        with pytest.raises(
            SparkUnavailableError, match=r"cannot run Zedlog's tasks: .*No module named 'engine'"
        ):
            made.session()
        assert not made.running
    finally:
        made.close()


def _interpreter_with_our_libraries(folder: Path) -> Path:
    """An environment that finds our libraries, but not what is installed in place among them."""
    venv.create(folder / "bare")
    packages = sysconfig.get_path("purelib", vars={"base": str(folder / "bare")})
    # What a .pth file adds is only looked into for modules, not for further .pth files.
    Path(packages, "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bare" / "bin" / "python"


@full
def test_an_interpreter_that_is_not_there(cluster: Standalone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/bin/python3")
    made = SparkSource(options(cluster.address))
    try:
        with pytest.raises(SparkUnavailableError, match=r"cannot run Python tasks: .*/nowhere/bin/python3"):
            made.session()
    finally:
        made.close()


def test_auto_goes_to_a_faster_cluster_and_stays_where_it_is_not_faster(session: SparkSource) -> None:
    for rates in (SLOW_HERE, replace(SLOW_THERE, here=1.0, there=0.01)):
        reasoner = Reasoner("auto", spark=session, budget=Budget(), threads=1)
        fix(reasoner, rates)
        if rates is SLOW_HERE:
            check_a_bootstrap_goes_and_comes_home(reasoner)
        else:
            result = reasoner.apply(facts=CHAIN, rules=CLOSURE)
            assert result.placement == "resident"
            assert "{tc} would not be derived faster there" in result.reason
        reasoner.close()
