"""A real embedded server for the tests of history; each test has a database of its own in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.embedded import client, database, server
from tests.live import LiveSystem

__all__ = ["client", "database", "server"]


@pytest.fixture(scope="session")
def own_live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    """A running system, whose parts the tests of this folder may kill."""
    with LiveSystem(tmp_path_factory.mktemp("live")) as system:
        yield system
