"""A service over a database in memory, with one token for each role."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.access.tokens import create, new_token
from service.app import create_app
from service.settings import Settings
from tests.service.conftest import Http
from tests.service.fake import FakeClient

Start = Callable[..., "Guarded"]


class Guarded(Http):
    """Calls with a token: `call("writer", "POST", ...)`; the role None sends none."""

    def __init__(self, app: Any, database: FakeClient, base: str = "http://localhost") -> None:
        super().__init__(app)
        self.client.base_url = httpx.URL(base)
        self.database = database
        self.tokens: dict[str, str] = {}

    def make(self, name: str, role: str = "reader", **rights: Any) -> str:
        """A token, kept under its name; the service sees it at once."""
        token, text = new_token(name, role, **rights)
        asyncio.run(create(self.database.tokens, token))
        self.app.state.service.tokens.forget()
        self.tokens[name] = text
        return text

    def call(self, who: str | None, method: str, url: str, **options: Any) -> httpx.Response:
        headers = dict(options.pop("headers", {}))
        if who is not None:
            headers["authorization"] = f"Bearer {self.tokens.get(who, who)}"
        return self.request(method, url, headers=headers, **options)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Make a service with these settings."""
    started: list[Guarded] = []

    def begin(*, base: str = "http://localhost", **settings: Any) -> Guarded:
        database = FakeClient()
        given = {"wait_timeout": 0.05, "batch_dir": tmp_path, "access_log": "none", **settings}
        started.append(Guarded(create_app(Settings(**given), database), database, base))
        return started[-1]

    yield begin
    for one in started:
        one.close()


@pytest.fixture
def guarded(start: Start) -> Guarded:
    """A service with the tokens `reader`, `writer` and `admin`."""
    service = start()
    for role in ("reader", "writer", "admin"):
        service.make(role, role)
    return service
