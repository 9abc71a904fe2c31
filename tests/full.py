"""Whether the tests that take minutes run too: `ZEDLOG_FULL=1`, as continuous integration sets it."""

from __future__ import annotations

import os

import pytest

FULL = os.environ.get("ZEDLOG_FULL", "0") not in ("", "0")
REASON = "takes minutes: `make test-all` runs it"
full = pytest.mark.skipif(not FULL, reason=REASON)
