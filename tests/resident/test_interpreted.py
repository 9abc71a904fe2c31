"""The kernels as plain Python: numpy checks every index then, which compiled code does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = [
    "tests/resident/test_join.py",
    "tests/resident/test_relation.py",
    "tests/resident/test_dred.py",
    "tests/test_reasoner.py",
]
# Sizes that only compiled code can do in a test's time.
LARGE = "not growth and not grown_out and not budget and not random_deletion and not evaluation"


def test_kernels_hold_without_the_compiler():
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", LARGE, *TESTS]
    # Unsigned products of hashes wrap round by intention.
    options = ["-W", "ignore:overflow encountered:RuntimeWarning"]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
