"""A real embedded server for the tests of feeds; each test has a database of its own in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from engine.storage.embedded import EmbeddedServer
from tests.embedded import client, database, server
from tests.feeds.world import World

__all__ = ["client", "database", "server"]

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(client: redis.Redis, server: EmbeddedServer, database: str) -> Iterator[MakeWorld]:
    with ExitStack() as stack:

        def make(**options: Any) -> World:
            return stack.enter_context(World(client, server.url, database, **options))

        yield make


@pytest.fixture
def world(make_world: MakeWorld) -> World:
    return make_world()
