"""Commands called against the live system."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from service.cli.main import run
from tests.live import LiveSystem


@dataclass
class Done:
    status: int
    out: str
    err: str


Zedlog = Callable[..., Done]


@pytest.fixture
def zedlog(live: LiveSystem, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Zedlog:
    monkeypatch.setenv("ZEDLOG_URL", live.url)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments: str) -> Done:
        status = run(arguments)
        seen = capsys.readouterr()
        return Done(status, seen.out, seen.err)

    return call
