"""Spark's settings for each kind of master, and the environment of the processes that it starts.

Executors and Python workers of a cluster run the interpreter at the path of this one, and find the package and its
compiled kernels at the paths of this process: every machine has the same installation, or the same image. If the
installation is elsewhere, PYSPARK_PYTHON and `spark.executorEnv.*` (in `SparkOptions.conf`) say where, and take
precedence over the settings here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from engine.spark.session.java import java_home
from engine.spark.session.options import SparkOptions


def settings(options: SparkOptions) -> dict[str, str]:
    """All settings; over Spark Connect only those of a session, because the others are the server's."""
    session = {
        "spark.sql.shuffle.partitions": str(options.partitions),
        "spark.sql.ansi.enabled": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if options.connect:
        return session | dict(options.conf)
    driver = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": options.memory,
        "spark.log.level": "ERROR",
        # Records of past queries, for a web interface that is off: most of what a long-lived driver would keep.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "1000",
        "spark.ui.retainedDeadExecutors": "10",
        "spark.sql.ui.retainedExecutions": "10",
        # The queries of a bootstrap compile to more classes than the 100 that Spark keeps; each that it drops is
        # generated, loaded and warmed up again in every epoch.
        "spark.sql.codegen.cache.maxEntries": "1000",
        # Else every call of the DataFrame API records where in our code it stands: four more trips to the JVM each.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.cleaner.referenceTracking.cleanCheckpoints": "true",
    }
    if options.local:
        driver |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if options.packages:
        driver["spark.jars.packages"] = ",".join(options.packages)
    return session | driver | _workers() | dict(options.conf)


def prepare_environment() -> None:
    """Set the variables that Spark's launcher and its Python API read from this process's environment."""
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _workers() -> dict[str, str]:
    """Settings with which Python workers run this package and its compiled kernels."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    found = {"spark.executorEnv.PYTHONPATH": path}
    cache = os.environ.get("NUMBA_CACHE_DIR")
    return found | ({"spark.executorEnv.NUMBA_CACHE_DIR": str(Path(cache).resolve())} if cache else {})
