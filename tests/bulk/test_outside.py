"""A real Kafka broker and a real database, read by a running system; the engine is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.errors import SparkUnavailableError
from engine.spark.session.java import java_home
from service.cli.main import run
from tests.bulk.broker import BUNDLED, CONNECTOR, H2, Broker, Database
from tests.bulk.test_jobs import ended
from tests.full import full
from tests.live import LiveSystem
from tests.waiting import until

# The first test waits for Spark and its packages, too.
pytestmark = [full, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with Database() as running:
        yield running


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, database: Database) -> Iterator[LiveSystem]:
    """A system whose Spark has the connector and a driver; Spark resolves them when it starts."""
    try:
        java_home()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("outside")
    (folder / "in").mkdir()
    (folder / "known").mkdir()
    for name, password in (("shop", "${SHOP_PASSWORD}"), ("wrong", "wr0ng")):
        (folder / "known" / f"{name}.properties").write_text(
            f"url={database.url}\nuser=sa\npassword={password}\n"
        )
    environment = {
        "ZEDLOG_IMPORT_ROOT": folder / "in",
        "ZEDLOG_BATCH_DIR": folder / "batches",
        "ZEDLOG_CONNECTIONS": folder / "known",
        "ZEDLOG_BULK_SCHEMES": "kafka,jdbc",
        "ZEDLOG_SPARK_PACKAGES": f"{CONNECTOR},{H2}",
        "ZEDLOG_SPARK_CONF": f"spark.jars.excludes={BUNDLED}",
        "SHOP_PASSWORD": database.password,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, str(value))
        with LiveSystem(folder) as live:
            start_spark(live, database)
            yield live


def start_spark(system: LiveSystem, database: Database) -> None:
    """The first job, which waits for the packages; without them all tests here are skipped."""
    body = {
        "path": database.url,
        "relation": "one",
        "dry_run": True,
        "options": {"query": "select 1 as n", "connection": "shop"},
    }
    with system.client() as client:
        job = client.post("/v1/imports", json=body).json()
        until(
            lambda: client.get(job["status_url"]).json()["status"] not in ("queued", "running"),
            system.logs,
            900,
        )
        problem = client.get(job["status_url"]).json()["problem"]
    if problem is not None and problem["code"] == "spark_unavailable":
        pytest.skip(f"Spark cannot resolve its packages here: {problem['detail'][:300]}")
    assert problem is None, problem


Ask = Callable[..., dict[str, Any]]


@pytest.fixture
def bring(system: LiveSystem) -> Ask:
    """Run an import to its end."""

    def ask(path: str, **body: Any) -> dict[str, Any]:
        with system.client() as client:
            answer = client.post("/v1/imports", json={"path": path, **body}).json()
            return ended(client, answer)

    return ask


def facts(system: LiveSystem, relation: str) -> dict[tuple[Any, ...], int]:
    with system.client() as client:
        found = client.get(f"/v1/relations/{relation}/facts?domain=asserted&limit=1000").json()
    return dict(zip(map(tuple, found["tuples"]), found["weights"], strict=True))


def test_each_message_counts_once_though_the_engine_is_killed_between_reading_and_committing(
    system: LiveSystem, database: Database, broker: Broker, bring: Ask
) -> None:
    path = broker.topic("edges", partitions=2)
    broker.send("edges", '{"a": "x", "b": 1}', '["y", 2]')
    job = bring(path, relation="edge")
    assert job["status"] == "succeeded", job["problem"]
    assert (job["result"]["stream"]["messages"], job["result"]["stream"]["lag"]) == (2, 0)
    broker.send("edges", '{"a": "x", "b": 1}', '{"a": "z", "b": 3}')
    with system.client() as client:
        job = client.post("/v1/imports", json={"path": path, "relation": "edge"}).json()
        batches = system.folder / "batches" / "test" / job["job"]
        # Its messages are read, and its transaction is not in the log, or not applied.
        until(lambda: any(batches.glob("**/*.parquet")), lambda: system.logs(), 240)
        system.kill("engine")
        system.start("engine")
        start_spark(system, database)
        job = ended(client, job)
    assert job["status"] == "succeeded", job["problem"]
    assert facts(system, "edge") == {("x", 1): 2, ("y", 2): 1, ("z", 3): 1}
    assert bring(path, relation="edge")["result"]["epoch"] is None
    kept = facts(system, "kafka_offset")
    assert set(kept.values()) == {1}
    assert sum(row[3] for row in kept if row[:2] == ("edges", "edge")) == 4


def test_a_message_that_cannot_be_read_is_shown_with_its_place_and_the_position_stays(
    system: LiveSystem, broker: Broker, bring: Ask
) -> None:
    path = broker.topic("lines")
    broker.send("lines", "a,1", "nonsense", "b,2")
    body = {"relation": "line", "format": "csv", "types": ["symbol", "number"]}
    problem = bring(path, **body)["problem"]
    assert problem["code"] == "bad_rows"
    expected = {"file": "lines", "partition": 0, "offset": 1, "reason": "not 2 fields", "text": "nonsense"}
    assert problem["samples"] == [expected]
    job = bring(path, **body, on_error="skip")
    assert (job["result"]["rows"], job["result"]["rejected"]) == (3, 1)
    assert facts(system, "line") == {("a", 1): 1, ("b", 2): 1}
    broker.send("lines", "a,1", headers={"op": "-1"})
    # The types are the relation's now.
    done = bring(path, relation="line", format="csv", options={"weight_header": "op"})
    assert done["status"] == "succeeded", done["problem"]
    assert facts(system, "line") == {("b", 2): 1}


def test_what_is_not_there_is_said_in_plain_words(system: LiveSystem, broker: Broker, bring: Ask) -> None:
    def code(path: str, **body: Any) -> tuple[str, str]:
        problem = bring(path, relation="r", **body)["problem"]
        return problem["code"], problem["detail"]

    assert code(f"kafka://{broker.address}/none") == (
        "source_unreadable",
        f"there is no topic none at {broker.address}, or it may not be read",
    )
    assert code("kafka://127.0.0.1:1/edges")[0] == "source_unreachable"
    found = code("jdbc:postgresql://127.0.0.1:1/x", options={"table": "t"})
    assert (found[0], "org.postgresql:postgresql" in found[1]) == ("package_missing", True)
    (system.folder / "in" / "lake").mkdir(exist_ok=True)
    for name, package in (("delta", "io.delta:delta-spark"), ("iceberg", "iceberg-spark-runtime")):
        found = code("lake", format=name)
        assert (found[0], package in found[1]) == ("package_missing", True), found
    assert code("s3a://bucket/x", format="parquet")[0] == "path_not_allowed"


def test_a_database_is_read_by_several_tasks_and_synchronised(
    system: LiveSystem, database: Database, bring: Ask
) -> None:
    database.run(
        "create table item(name varchar(20), price int, at date)",
        "insert into item values ('apple', 3, date '2026-01-02'), ('pear', 4, date '2026-01-03')",
    )
    known = {"connection": "shop"}
    shared = {"partition_column": "PRICE", "lower_bound": "1", "upper_bound": "5", "partitions": 2}
    job = bring(
        database.url,
        relation="item",
        types=["symbol", "number", "symbol"],
        options={"table": "ITEM", **known, **shared},
    )
    assert job["status"] == "succeeded", job["problem"]
    assert facts(system, "item") == {("apple", 3, "2026-01-02"): 1, ("pear", 4, "2026-01-03"): 1}
    query = "select name, price from item where price > 3"
    body = {"relation": "dear", "source": "shop", "replace": True, "mode": "set"}
    assert bring(database.url, **body, options={"query": query, **known})["result"]["epoch"] is not None
    database.run("update item set price = 9 where name = 'apple'", "delete from item where name = 'pear'")
    job = bring(database.url, **body, options={"query": query, **known})
    assert job["result"]["changes"] == {"dear": {"inserted": 1, "deleted": 1}}
    assert facts(system, "dear") == {("apple", 9): 1}
    database.run("delete from item")
    job = bring(database.url, **body, options={"query": query, **known})
    assert job["problem"]["code"] == "source_unreadable"
    assert "allow_empty" in job["problem"]["detail"]
    job = bring(database.url, **body, allow_empty=True, options={"query": query, **known})
    assert job["result"]["changes"] == {"dear": {"inserted": 0, "deleted": 1}}


def test_what_a_database_refuses_is_told_without_the_password(
    system: LiveSystem, database: Database, bring: Ask
) -> None:
    def problem(**options: str) -> dict[str, Any]:
        found = bring(database.url, relation="r", options=options)["problem"]
        assert database.password not in str(found)
        assert "wr0ng" not in str(found)
        return dict(found)

    assert problem(table="NONE", connection="shop")["code"] == "source_unreadable"
    assert problem(table="ITEM", connection="wrong")["code"] == "source_refused"
    assert problem(table="ITEM", connection="none")["code"] == "source_unreadable"
    with system.client() as client:
        assert database.password not in client.get("/v1/jobs").text
    assert database.password not in system.logs()


def test_following_a_topic_reads_on_until_a_signal(
    system: LiveSystem, broker: Broker, tmp_path: Path
) -> None:
    path = broker.topic("live")
    broker.send("live", '["a"]')
    said = tmp_path / "said.txt"
    command = [
        sys.executable,
        "-m",
        "zedlog",
        "import",
        path,
        "--relation",
        "live",
        "--follow",
        "--every",
        "0.5",
    ]
    with said.open("wb") as out:
        follower = subprocess.Popen(
            [*command, "--types", "symbol", "--url", system.url],
            stdout=out,
            stderr=out,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        until(
            lambda: facts(system, "live") == {("a",): 1} if "epoch" in said.read_text() else False,
            said.read_text,
            240,
        )
        broker.send("live", '["b"]')
        until(lambda: facts(system, "live") == {("a",): 1, ("b",): 1}, said.read_text, 120)
        follower.send_signal(signal.SIGTERM)
        assert follower.wait(60) == 0, said.read_text()
    finally:
        if follower.poll() is None:
            follower.kill()
            follower.wait()
    assert "1 message of live, 0 behind" in said.read_text()
    assert "stopped: 2 rows in 2 transactions" in said.read_text()


def test_the_command_shows_where_the_bad_messages_are(
    system: LiveSystem, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    path = broker.topic("bad")
    broker.send("bad", "[1]", "nope")
    assert run(["import", path, "--relation", "bad", "--types", "number", "--url", system.url]) == 1
    said = capsys.readouterr()
    assert "bad, partition 0, offset 1: not JSON" in said.err
