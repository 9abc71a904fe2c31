"""Histories of random programs where everything that is done only to much data is done to little: blocks, and indexes
that are built anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ["tests/oracle/test_master_property_dialect.py", "tests/test_reasoner.py"]
PROGRAM = """
import sys
import pytest
from engine.resident import blocks, stratum

stratum.MANY, blocks.LEAST, blocks.TUPLES, blocks._WIDE = 1, 1, 5, 1
sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def test_random_histories_hold_with_small_sizes() -> None:
    command = [sys.executable, "-c", PROGRAM, *TESTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
