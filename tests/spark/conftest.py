"""One Spark session for all tests of the placement, and reasoners on it in every manner of working.

`small`: changes are kept in the driver. `mixed`: work starts there and soon moves to the executors. `large`: everything
is on the executors. Where no Java can run Spark, the tests are skipped and say what to install.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from engine import Reasoner
from engine.errors import SparkUnavailableError
from engine.spark.session import SparkOptions, SparkSource

LOCAL_ROWS = {"small": 20_000, "mixed": 3, "large": 0}
# A test's queries are tiny: compiling them, and the JVM's better compiler, cost more than they give.
QUICK = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.default.parallelism": "1",
}


@pytest.fixture(scope="session")
def source() -> Iterator[SparkSource]:
    made = SparkSource(SparkOptions(memory="1g", conf=QUICK, adaptive=False))
    try:
        made.session()
    except SparkUnavailableError as error:
        pytest.skip(str(error))
    yield made
    made.close()


@pytest.fixture
def on_spark(source: SparkSource) -> Iterator[Callable[..., Reasoner]]:
    """Makes reasoners on Spark: `on_spark("mixed", partitions=5)`."""
    made: list[Reasoner] = []

    def make(manner: str = "small", partitions: int = 2) -> Reasoner:
        options = replace(source.options, local_rows=LOCAL_ROWS[manner], partitions=partitions)
        made.append(Reasoner("spark", spark=SparkSource(options, source.session())))
        return made[-1]

    yield make
    for reasoner in made:
        reasoner.close()
