"""Finding Java and starting Spark: what is wrong is said at once, and how to mend it. Needs neither."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine.errors import InvalidRequestError, SparkUnavailableError
from engine.spark import java
from engine.spark.session import SparkOptions, SparkSource, within

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
    start = time.monotonic()
    with pytest.raises(SparkUnavailableError, match="cannot be reached"):
        SparkSource(SparkOptions(master=master, timeout=5)).session()
    assert time.monotonic() - start < 6


def test_a_start_that_takes_too_long() -> None:
    with pytest.raises(SparkUnavailableError, match=r"within 0\.05 seconds"):
        within(0.05, lambda: time.sleep(0.3), "the Spark master spark://somewhere")


def test_options_are_checked() -> None:
    with pytest.raises(InvalidRequestError, match="local"):
        SparkOptions(master="cluster")
    with pytest.raises(InvalidRequestError, match="partitions"):
        SparkOptions(partitions=0)


def test_a_resident_reasoner_does_not_load_spark() -> None:
    code = "import sys; from engine import Reasoner; Reasoner(); print('pyspark' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
