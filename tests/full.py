"""Whether the tests that take minutes run too: `ZEDLOG_FULL=1`, as continuous integration sets it."""

from __future__ import annotations

import os

import pytest

FULL = os.environ.get("ZEDLOG_FULL", "0") not in ("", "0")
full = pytest.mark.skipif(not FULL, reason="takes minutes: ZEDLOG_FULL=1 runs it")
