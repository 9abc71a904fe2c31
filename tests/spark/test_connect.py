"""Spark Connect: the same over a server that others started, and what cannot be the same is refused by name.

A process that has used Connect cannot have another session any more, so these tests run in one of their own: the first
one here starts a server and runs this file and the comparisons again with it as the master.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from engine.errors import CheckpointUnavailableError, InvalidRequestError, SparkUnavailableError
from engine.spark.frames import from_driver
from engine.spark.session import session as session_module
from engine.spark.session.checkpoints import Checkpoints
from engine.spark.session.session import SparkOptions, SparkSource
from tests.full import full
from tests.spark.compare import assert_same_epoch, assert_same_state
from tests.spark.conftest import MASTER, classic, patient
from tests.spark.standalone import ConnectServer
from tests.spark.test_semi_naive import RULES, Make
from zedlog import Reasoner

ROOT = Path(__file__).resolve().parent.parent.parent
PARTS = [f"tests/spark/test_{name}.py" for name in ("connect", "differential", "pivot", "epochs")]
PARTS += [f"tests/bulk/test_{name}.py" for name in ("importing", "round_trip")]

remote = pytest.mark.skipif(not MASTER.startswith("sc://"), reason="runs with a Connect server as the master")


@classic
@full
@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_differential_over_a_connect_server(java: None, tmp_path: Path) -> None:
    try:
        session_module._check_connect_packages()
    except SparkUnavailableError as error:
        pytest.skip(error.message)
    place = tmp_path / "checkpoints"
    reliable = {
        "spark.checkpoint.dir": str(place),
        "spark.cleaner.referenceTracking.cleanCheckpoints": "true",
    }
    with ConnectServer(tmp_path, reliable) as server:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *PARTS],
            cwd=ROOT,
            env={
                **os.environ,
                # One pair of manner and partitions each is enough here: what differs is the session.
                "ZEDLOG_FULL": "0",
                "ZEDLOG_TEST_SPARK_MASTER": server.address,
                "ZEDLOG_TEST_PLACE": str(place),
            },
            capture_output=True,
            text=True,
            timeout=1400,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert re.search(r"\b[2-9]\d passed", done.stdout), done.stdout[-2000:]


@remote
def test_a_checkpoint_directory_is_the_servers(source: SparkSource) -> None:
    with pytest.raises(
        CheckpointUnavailableError, match=r"start it with --conf spark\.checkpoint\.dir=/elsewhere"
    ):
        SparkSource(replace(source.options, checkpoint_dir="/elsewhere")).session()


@remote
def test_reliable_checkpoints_are_written_by_the_server(source: SparkSource) -> None:
    place = os.environ["ZEDLOG_TEST_PLACE"]
    spark, resident = (
        Reasoner("spark", spark=replace(source.options, checkpoint_dir=place, local_rows=0)),
        Reasoner(),
    )
    step = {"facts": {"e": [((1, 2), 1), ((2, 3), 1)]}, "rules": [("p(x, z) :- e(x, y), e(y, z).", 1)]}
    assert_same_epoch(spark.apply(**step), resident.apply(**step))
    assert_same_state(spark, resident)
    assert list(Path(place).glob("*/rdd-*"))
    spark.close()


@remote
def test_a_setting_of_the_server_is_refused_by_name(source: SparkSource) -> None:
    conf = {**source.options.conf, "spark.executor.memory": "7g"}
    with pytest.raises(InvalidRequestError, match=r"start it with --conf spark\.executor\.memory=7g"):
        SparkSource(replace(source.options, conf=conf)).session()


@remote
def test_a_driver_of_our_own_is_refused_beside_it(source: SparkSource) -> None:
    source.session()
    with pytest.raises(InvalidRequestError, match="already has a Spark session with "):
        SparkSource(SparkOptions("local[2]")).session()


@remote
@patient
def test_a_relation_is_joined_with_itself_through_many_heights(on_spark: Make) -> None:
    """So many that the server's estimates of sizes, if they grew, would have millions of digits."""
    spark, resident = on_spark("large"), Reasoner()
    step = {"facts": {"e": [((i, i + 1), 1) for i in range(30)]}, "rules": RULES}
    assert_same_epoch(spark.apply(**step), resident.apply(**step))
    assert_same_state(spark, resident)
    later = {"facts": {"e": [((5, 6), -1), ((28, 30), 1)]}}
    assert_same_epoch(spark.apply(**later), resident.apply(**later))
    assert_same_state(spark, resident)


def test_a_checkpoint_keeps_no_absurd_estimate(
    source: SparkSource, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of whatever session. The eighth product of a relation with itself would be estimated at 1E+300 and more."""
    checkpoints, tens = Checkpoints(source.options), []
    frame = source.session().range(40)
    for _ in range(8):
        other = frame.withColumnRenamed("id", "other")
        frame = checkpoints.make(frame.join(other, frame.id == other.other).select("id"))
        capsys.readouterr()
        frame.explain(mode="cost")
        told = re.search(r"sizeInBytes=([\d.]+)(?:E\+(\d+))? ", capsys.readouterr().out)
        assert told, "Spark tells an estimate"
        tens.append(int(told[2] or 0))
    assert max(tens) < 60, tens
    assert sorted(row.id for row in frame.collect()) == list(range(40))
    checkpoints.drop(frame)


def test_an_empty_table_of_the_driver_keeps_its_columns(source: SparkSource) -> None:
    rows = pa.table({"c0": pa.array([], pa.int64()), "height": pa.array([], pa.int32())})
    frame = from_driver(source.session(), rows)
    assert frame.dtypes == [("c0", "bigint"), ("height", "int")]
    assert frame.toArrow().num_rows == 0


def test_missing_packages_of_the_client_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"nowhere.at_all": "nothing-at-all", "json": "standard"}
    monkeypatch.setattr(session_module, "_CONNECT_PACKAGES", known)
    with pytest.raises(SparkUnavailableError, match=r"not installed: nothing-at-all; .*zedlog\[connect\]"):
        session_module._check_connect_packages()
