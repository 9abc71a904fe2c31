"""What all tests share: hypothesis profiles, the shared data sets, and a live system.

ZEDLOG_HYPOTHESIS chooses the profile: `default` is bounded so that the whole suite stays usable on a laptop,
`nightly` looks far longer. A failing example is printed with the blob that reproduces it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests.full import FULL, REASON

if TYPE_CHECKING:
    from tests.live import LiveSystem

ROOT = Path(__file__).resolve().parent.parent

# Kernels may load from disk in the first example, which would look like a flaky deadline.
_COMMON = hypothesis.settings(
    deadline=None,
    print_blob=True,
    # Without "explain": it doubles the time of a failure for a hint that a history of epochs has no use for.
    phases=[p for p in hypothesis.Phase if p is not hypothesis.Phase.explain],
)
hypothesis.settings.register_profile("default", _COMMON)
hypothesis.settings.register_profile("nightly", _COMMON, max_examples=10_000)
PROFILE = os.environ.get("ZEDLOG_HYPOTHESIS", "default")
hypothesis.settings.load_profile(PROFILE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The nightly profile runs for as long as its examples take."""
    if PROFILE == "nightly":
        for item in items:
            if hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
                item.add_marker(pytest.mark.timeout(0))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Above the closing line: what was left out because it takes long."""
    left = sum(REASON in str(report.longrepr) for report in terminalreporter.getreports("skipped"))
    if left and not FULL:
        more = "more cases and manners of working on Spark, and more random histories"
        terminalreporter.write_line(f"left to `make test-all`: {left} tests that take minutes; {more}")


@pytest.fixture(scope="session")
def data() -> Path:
    """The public data sets beside the project; a test that needs them is skipped where they are missing."""
    path = ROOT.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"the shared data sets are not at {path}")
    return path


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    """A running system with an empty database, one for each test module that asks for it."""
    from tests.live import LiveSystem  # here, so that tests of one part need only that part

    with LiveSystem(tmp_path_factory.mktemp("live")) as system:
        yield system
