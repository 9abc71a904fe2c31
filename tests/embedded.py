"""Fixtures of tests that need a real embedded server; each test has a database of its own in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import redis

from engine.storage.connection import connect
from engine.storage.embedded import EmbeddedServer

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="session")
def client(server: EmbeddedServer) -> Iterator[redis.Redis]:
    with connect(server.url) as connected:
        yield connected


@pytest.fixture
def database() -> str:
    """The name of a new database."""
    return f"test-{next(_numbers)}"
