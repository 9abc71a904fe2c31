"""Finding Java and starting Spark: what is wrong is said at once, and how to mend it. Most of it needs neither."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from engine.errors import (
    CheckpointUnavailableError,
    InvalidRequestError,
    SparkStateLostError,
    SparkUnavailableError,
    WeightOverflowError,
)
from engine.spark.session import checkpoints, java, session
from engine.spark.session.failures import FAILURES, typed
from engine.spark.session.session import SparkOptions, SparkSource, within
from engine.spark.session.watch import Ended, watching
from engine.spark.tables import Tables
from tests.spark.conftest import classic
from zedlog import Reasoner

OLD = "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2"


def fake_java(home: Path, script: str) -> Path:
    (home / "bin").mkdir(parents=True)
    binary = home / "bin" / "java"
    binary.write_text(f"#!/bin/sh\n{script}\n")
    binary.chmod(0o755)
    return home


def test_an_old_or_trimmed_java_is_named(tmp_path: Path) -> None:
    assert java.unfit(fake_java(tmp_path / "old", OLD)) == "is version 11"
    trimmed = 'echo "Error occurred during initialization of boot layer" >&2; exit 1'
    assert "jdk.incubator.vector" in str(java.unfit(fake_java(tmp_path / "trimmed", trimmed)))
    good = "echo 'openjdk version \"21.0.1\" 2023-10-17' >&2"
    assert java.unfit(fake_java(tmp_path / "good", good)) is None
    assert java.unfit(tmp_path / "none") == "has no bin/java"


def test_without_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", OLD)))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "_PLACES", ())
    java.java_home.cache_clear()
    try:
        with pytest.raises(SparkUnavailableError, match=r"is version 11.*apt install openjdk-17"):
            SparkSource(SparkOptions()).session()
    finally:
        java.java_home.cache_clear()


@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", "sc://127.0.0.1:1"])
def test_a_master_that_cannot_be_reached(master: str) -> None:
    with pytest.raises(SparkUnavailableError, match="cannot be reached"):
        SparkSource(SparkOptions(master=master, timeout=5)).session()


def test_a_start_that_takes_too_long() -> None:
    with pytest.raises(SparkUnavailableError, match=r"within 0\.05 seconds"):
        within(0.05, lambda: time.sleep(0.3), "the Spark master spark://somewhere")


def test_options_are_checked() -> None:
    with pytest.raises(InvalidRequestError, match="local"):
        SparkOptions(master="cluster")
    with pytest.raises(InvalidRequestError, match="partitions"):
        SparkOptions(partitions=0)


def test_a_resident_reasoner_does_not_load_spark() -> None:
    code = "import sys; from zedlog import Reasoner; Reasoner(); print('pyspark' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


@classic
def test_a_second_session_with_another_master_is_refused(source: SparkSource) -> None:
    """Spark itself would hand out the first session again."""
    there = source.session().sparkContext.master
    with pytest.raises(InvalidRequestError, match=rf"already has a Spark session with {re.escape(there)}"):
        SparkSource(SparkOptions("local[7]")).session()


@classic
def test_a_checkpoint_directory_that_cannot_be_made(source: SparkSource, tmp_path: Path) -> None:
    """Said when the session starts: nothing is applied. The session that was started for it does not stay."""
    (tmp_path / "file").write_text("")
    source.close()
    place = str(tmp_path / "file" / "checkpoints")
    reasoner = Reasoner("spark", spark=replace(source.options, checkpoint_dir=place))
    with pytest.raises(
        CheckpointUnavailableError, match=rf"{place} cannot be used: .*that the driver and every"
    ):
        reasoner.apply(facts={"e": [((1, 2), 1)]})
    assert reasoner.epoch == 0
    assert reasoner.relations() == {}
    reasoner.close()
    assert source.session().range(3).count() == 3


@classic
def test_a_checkpoint_whose_time_is_over_is_ended(source: SparkSource) -> None:
    """A session's tags do not reach the job that writes a checkpoint."""
    session = source.session()
    frame = session.range(1).selectExpr("reflect('java.lang.Thread', 'sleep', 20000L) AS slept")
    ended = Ended()
    with pytest.raises(FAILURES), watching(session, time.monotonic() + 1, None, None, ended):
        frame.localCheckpoint()
    assert ended.why == "overdue"


@classic
def test_a_query_that_nobody_wants_any_more_is_ended(source: SparkSource) -> None:
    session = source.session()
    frame = session.range(1).selectExpr("reflect('java.lang.Thread', 'sleep', 20000L) AS slept")
    ended = Ended()
    with pytest.raises(FAILURES), watching(session, None, None, lambda: True, ended):
        frame.collect()
    assert ended.why == "cancelled"


def test_left_over_checkpoints_are_told_from_those_in_use() -> None:
    mine = checkpoints._self()
    assert not checkpoints.ended(mine)
    assert checkpoints.ended({**mine, "started": "0"})
    assert checkpoints.ended({**mine, "pid": 2**22 + 1})
    assert not checkpoints.ended({**mine, "pid": 2**22 + 1, "host": "another"})


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND] Checkpoint block rdd_7_0 not found!", SparkStateLostError),
        ("Cannot call methods on a stopped SparkContext.", SparkStateLostError),
        ("Job 7 cancelled because SparkContext was shut down", SparkStateLostError),
        ("org.apache.spark.sql.classic.SparkSession does not exist in the JVM", SparkStateLostError),
        ("An error occurred while calling o31.select", SparkStateLostError),
        (
            "[CANNOT_PARSE_DATATYPE] Unable to parse datatype. [Errno 111] Connection refused.",
            SparkStateLostError,
        ),
        ("An error occurred while calling o31.select. Trace:\nits own fault", SparkUnavailableError),
        ("[ARITHMETIC_OVERFLOW] long overflow", WeightOverflowError),
        ("[TABLE_OR_VIEW_NOT_FOUND] no such table", SparkUnavailableError),
    ],
)
def test_what_spark_throws(text: str, kind: type[Exception]) -> None:
    assert type(typed(PySparkException(text))) is kind
    assert type(typed(EOFError())) is SparkStateLostError


class _Session:
    """A session; of one that has ended, every call fails as the bridge to its JVM does then."""

    def __init__(self, ended: bool = False) -> None:
        self.ended = ended

    def newSession(self) -> str:  # Spark's name
        if self.ended:
            raise Py4JError("org.apache.spark.sql.classic.SparkSession does not exist in the JVM")
        return "another"


def test_a_session_that_has_ended_is_followed_by_a_new_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = _Session(), _Session()
    starts, stopped = iter([first, second]), []
    monkeypatch.setattr(session, "_start", lambda options: next(starts))
    monkeypatch.setattr(session, "_stop", lambda gone, options: stopped.append(gone))
    source = SparkSource(SparkOptions())
    tables = Tables(source)
    assert tables.spark is first
    assert source.another() == "another"
    first.ended = True
    assert source.another() == "another"
    assert (source.session(), stopped) == (second, [first])
    # What was kept in the first is gone, also where its state's owner did not see it end.
    with pytest.raises(SparkStateLostError, match="the Spark session has ended"):
        _ = tables.spark
    # Told late, of one that is no more: the present one stays.
    source.lost(first)
    assert Tables(source).spark is second
    assert stopped == [first]


def test_a_session_that_was_given_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_start", lambda options: pytest.fail("nothing is to be started"))
    source = SparkSource(SparkOptions(), _Session(ended=True))
    with pytest.raises(Py4JError):
        source.another()
    assert source.running
