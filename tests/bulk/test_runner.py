"""The job thread and its place in Redis, without Spark: what it refuses, whom it obeys, what it cleans up."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine.bulk.batches import REJECTS, UPLOADS
from engine.bulk.runner import JobOptions, JobRunner
from engine.bulk.sources import Places
from engine.data.transaction import BatchFile, FactFiles, Transaction
from engine.errors import (
    IdempotencyConflictError,
    JobCancelledError,
    JobNotCancellableError,
    SparkUnavailableError,
    UnknownJobError,
)
from engine.language.schema import ColumnType
from engine.server.loop import restore_reasoner
from engine.storage.connection import connect
from engine.storage.embedded import EmbeddedServer
from engine.storage.jobs import Job, JobQueue, LostJobError
from tests.process.running import Database, EngineThread, facts
from tests.waiting import until

_numbers = itertools.count(1)


class NoSpark:
    """What a machine without Java has."""

    running = False

    def another(self) -> Any:
        raise SparkUnavailableError("Spark needs Java, but there is no Java that it can use; install one")

    def close(self) -> None:
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def name() -> str:
    return f"jobs-{next(_numbers)}"


@pytest.fixture
def queue(server: EmbeddedServer, name: str) -> Iterator[JobQueue]:
    client = connect(server.url)
    queue = JobQueue(client, name)
    queue.begin("1")
    yield queue
    client.close()


@pytest.fixture
def database(server: EmbeddedServer, name: str) -> Iterator[Database]:
    with Database(server.url, name) as opened:
        yield opened


def runner(server: EmbeddedServer, name: str, folder: Path) -> JobRunner:
    places = Places(import_root=folder, export_root=folder)
    return JobRunner(server.url, name, JobOptions(folder / "batches", places), NoSpark())  # type: ignore[arg-type]


def ended(database: Database, job_id: str) -> Job:
    def look() -> Job | None:
        job = database.run(database.client.jobs.get(job_id))
        return job if job.ended else None

    return until(look)


REQUEST = {"paths": ["e.csv"], "format": "csv", "relation": "e", "uploaded": False}


def submit(database: Database, request: dict[str, Any] | None = None, key: str | None = None) -> str:
    return database.run(database.client.jobs.submit("import", request or REQUEST, key)).job_id


def test_without_java_a_job_says_what_to_install_and_the_engine_goes_on(
    server: EmbeddedServer, name: str, database: Database, tmp_path: Path
) -> None:
    (tmp_path / "e.csv").write_text("a,b\n")
    jobs = runner(server, name, tmp_path)
    engine = EngineThread(server.url, name)
    engine.engine._jobs = jobs
    with engine:
        job = ended(database, submit(database))
        assert job.status == "failed"
        assert job.problem is not None
        assert job.problem["code"] == "spark_unavailable"
        assert "install" in job.problem["message"]
        assert database.apply(facts("e", ("a", "b"))).status == "committed"
        missing = ended(database, submit(database, {**REQUEST, "paths": ["none.csv"]}))
        assert missing.problem is not None
        assert missing.problem["code"] == "source_unreadable"
    assert list((tmp_path / "batches" / name).glob("j*")) == []
    jobs.close()


def test_a_key_submits_once(database: Database) -> None:
    first = submit(database, key="k")
    assert submit(database, key="k") == first
    with pytest.raises(IdempotencyConflictError):
        submit(database, {**REQUEST, "relation": "f"}, key="k")
    assert submit(database) != submit(database)


def test_jobs_are_taken_in_order_and_again_after_a_crash(database: Database, queue: JobQueue) -> None:
    first, second = submit(database), submit(database)
    taken = queue.take(1)
    assert taken is not None
    assert (taken.id, taken.status, taken.attempts) == (first, "running", 1)
    # Another engine has the lease now.
    queue.begin("2")
    again = queue.take(1)
    assert again is not None
    assert (again.id, again.attempts) == (first, 2)
    following = queue.take(1)
    assert following is not None
    assert following.id == second
    assert queue.take(0.01) is None


def test_an_engine_that_lost_the_lease_changes_nothing(
    server: EmbeddedServer, name: str, database: Database, queue: JobQueue
) -> None:
    job_id = submit(database)
    assert queue.take(1) is not None
    client = connect(server.url)
    other = JobQueue(client, name)
    other.begin("2")
    assert other.take(1) is not None
    for late in (
        lambda: queue.update(job_id, stages=[]),
        lambda: queue.append(job_id, facts("e", ("a",)).encode()),
        lambda: queue.finish(job_id, "failed"),
    ):
        with pytest.raises(LostJobError):
            late()
    assert client.xlen(queue._keys.log) == 0
    client.close()


def test_a_transaction_is_logged_once_and_not_after_a_cancellation(
    database: Database, queue: JobQueue
) -> None:
    job_id, other = submit(database), submit(database)
    payload = facts("e", ("a",)).encode()
    assert queue.take(1) is not None
    assert queue.take(1) is not None
    entry = queue.append(job_id, payload)
    assert queue.append(job_id, payload) == entry
    assert queue.named_batches() == {job_id: entry}
    with pytest.raises(JobNotCancellableError, match="log"):
        database.run(database.client.jobs.cancel(job_id))
    database.run(database.client.jobs.cancel(other))
    for late in (lambda: queue.append(other, payload), lambda: queue.update(other)):
        with pytest.raises(JobCancelledError):
            late()
    assert queue.named_batches() == {job_id: entry}
    with pytest.raises(UnknownJobError):
        database.run(database.client.jobs.cancel("nothing"))


def test_a_job_that_ends_engines_is_given_up(
    server: EmbeddedServer, name: str, database: Database, queue: JobQueue, tmp_path: Path
) -> None:
    job_id = submit(database)
    for lease in range(2, 7):
        assert queue.take(1) is not None
        queue.begin(str(lease))
    jobs = runner(server, name, tmp_path)
    jobs.start("7")
    job = ended(database, job_id)
    jobs.stop()
    jobs.close()
    assert job.problem is not None
    assert (job.status, job.problem["code"]) == ("failed", "job_abandoned")


def test_a_batch_that_cannot_be_read_is_refused_and_nothing_else(
    server: EmbeddedServer, name: str, database: Database, tmp_path: Path
) -> None:
    batch = FactFiles("e", ("symbol",), (BatchFile("gone/e-00000.parquet", "00", 1, 1),))
    engine = EngineThread(server.url, name)
    engine.engine._jobs = jobs = runner(server, name, tmp_path)
    with engine:
        refused = database.apply(Transaction(batches=(batch,)))
        assert (refused.status, refused.body["code"]) == ("refused", "batch_unreadable")
        assert "gone/e-00000.parquet" in refused.body["message"]
        assert database.apply(facts("e", ("a",))).body["epoch"] == 1
    jobs.close()


def test_what_nobody_needs_is_swept_away(
    server: EmbeddedServer, name: str, database: Database, queue: JobQueue, tmp_path: Path
) -> None:
    store = tmp_path / "batches" / name
    named, waiting = submit(database), submit(database)
    assert queue.take(1) is not None
    queue.append(named, facts("e", ("a",)).encode())
    queue.finish(named, "succeeded")
    for folder in (named, waiting, "jstray", f"{UPLOADS}/aa", REJECTS):
        (store / folder).mkdir(parents=True)
    (store / REJECTS / f"{named}.jsonl").touch()
    (store / REJECTS / "jold.jsonl").touch()
    jobs = runner(server, name, tmp_path)
    jobs._sweep()
    assert sorted(p.name for p in store.iterdir()) == sorted([named, waiting, REJECTS, UPLOADS])
    assert [p.stem for p in (store / REJECTS).iterdir()] == [named]
    # The log moves on: its entries before the newest go.
    newest = queue._redis.xadd(queue._keys.log, {"tx": b"x"})
    queue._redis.xtrim(queue._keys.log, minid=newest, approximate=False)
    jobs._sweep()
    assert not (store / named).exists()
    assert queue.named_batches() == {}
    jobs.close()


def test_a_log_entry_is_replayed_from_its_files(
    server: EmbeddedServer, name: str, database: Database, tmp_path: Path
) -> None:
    """What was in the log when its engine died is applied by the next one, in one epoch, and once."""
    rows = {("a", 1, 0.5, True): 2, ("b", -1, -0.0, False): 1, ("a", 2, 1.5, True): 3}
    values = list(zip(*rows, strict=True))
    table = pa.table(
        [*map(pa.array, values), pa.array(rows.values())], names=["c0", "c1", "c2", "c3", "weight"]
    )
    jobs = runner(server, name, tmp_path)
    pq.write_table(table, jobs.store.folder("jdead") / "part.parquet")
    types = [ColumnType.SYMBOL, ColumnType.NUMBER, ColumnType.FLOAT, ColumnType.BOOL]
    batch = jobs.store.keep("jdead", "r", types, [jobs.store.root / "jdead" / "part.parquet"])
    receipt = database.run(database.client.append(Transaction(batches=(batch,))))
    expected = {(x, n, f + 0.0, b): weight for (x, n, f, b), weight in rows.items()}
    for _ in range(2):
        engine = EngineThread(server.url, name, factory=restore_reasoner)
        engine.engine._jobs = jobs
        with engine:
            outcome = database.run(database.client.wait_outcome(receipt.transaction_id, 20))
            assert outcome is not None
            assert outcome.status == "committed"
            assert database.facts("r") == expected
            assert outcome.body["changes"] == {"r": {"inserted": 3, "deleted": 0}}
    log_size = database.run(database.client.status()).lag
    assert log_size == 0
    jobs.close()
