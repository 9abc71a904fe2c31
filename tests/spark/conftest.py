"""One Spark session for all tests of the placement, and reasoners on it in every manner of working.

`small`: changes are kept in the driver. `mixed`: work starts there and soon moves to the executors. `large`: everything
is on the executors. Where no Java can run Spark, the tests are skipped and say what to install.

ZEDLOG_TEST_SPARK_MASTER is another master for the whole run, `sc://...` for example: the tests that look into Spark's
own storage are for a driver in this process (`classic`). ZEDLOG_FULL=1 runs what takes minutes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from engine.errors import SparkUnavailableError
from engine.spark.session.java import java_home
from engine.spark.session.session import SparkOptions, SparkSource
from zedlog import Reasoner

MASTER = os.environ.get("ZEDLOG_TEST_SPARK_MASTER", "local[2]")
LOCAL_ROWS = {"small": 20_000, "mixed": 3, "large": 0}
JVM = "-XX:+UseSerialGC"
# A test's queries are tiny: compiling them costs more than it gives. The session of most tests lives for long, and the
# JVM's better compiler pays there, but not in the many JVMs of a cluster.
QUERIES = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
QUICK = QUERIES | {"spark.driver.extraJavaOptions": JVM, "spark.default.parallelism": "1"}
SHORT_LIVED = f"{JVM} -XX:TieredStopAtLevel=1"
ON_CLUSTER = QUICK | {
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
}

# A signal in the middle of a call to the JVM leaves the session useless, so only what hangs is to be ended.
patient = pytest.mark.timeout(1800)
classic = pytest.mark.skipif(MASTER.startswith("sc://"), reason="looks into a driver that is in this process")


def options(master: str, **more: object) -> SparkOptions:
    """How the tests use a master."""
    conf = QUERIES if master.startswith("sc://") else ON_CLUSTER if master.startswith("spark://") else QUICK
    return replace(SparkOptions(master, memory="1g", conf=conf, adaptive=False, timeout=240), **more)


@pytest.fixture(scope="session")
def java() -> None:
    try:
        java_home()
    except SparkUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def source(java: None) -> Iterator[SparkSource]:
    """The shared session; it starts, and starts again, when it is asked for."""
    made = SparkSource(options(MASTER))
    yield made
    made.close()


@pytest.fixture
def on_spark(source: SparkSource) -> Iterator[Callable[..., Reasoner]]:
    """Makes reasoners on Spark: `on_spark("mixed", partitions=5)`."""
    yield from reasoners(source)


def reasoners(source: SparkSource) -> Iterator[Callable[..., Reasoner]]:
    """A function that makes reasoners on a session; at the end all are closed."""
    made: list[Reasoner] = []

    def make(manner: str = "small", partitions: int = 2, **more: Any) -> Reasoner:
        chosen = replace(source.options, local_rows=LOCAL_ROWS[manner], partitions=partitions)
        made.append(Reasoner("spark", spark=SparkSource(chosen, source.session()), **more))
        return made[-1]

    yield make
    for reasoner in made:
        reasoner.close()
