"""The tours of the documents show what their commands print, from an empty database on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tours
from tests.live import LiveSystem


def test_there_are_tours_for_four_people() -> None:
    assert sorted(tours.PAGES) == ["access", "analysis", "graph", "supply"]
    for name, page in tours.PAGES.items():
        commands = [step.command for step in tours.steps(page)]
        assert len(commands) >= 10, name
        said = " ".join(commands)
        # What every tour shows: a change, why, why not, a rollback.
        for words in ("sync", "explain", "--why-not", "rollback"):
            assert words in said, f"{name} does not show {words}"


@pytest.mark.parametrize("name", sorted(tours.PAGES))
def test_a_tour_prints_what_its_page_shows(name: str, live: LiveSystem, tmp_path: Path) -> None:
    """One service for all: each tour leaves its database as empty as it was, and begins at a later epoch."""
    with live.client() as client:
        base = client.get("/readyz").json()["epoch"]
        assert client.get("/v1/rules").json()["rules"] == []
        try:
            for step, printed in tours.run(tours.PAGES[name], live.url, tmp_path / "tour", base):
                assert tours.normal(printed) == tours.normal(step.output), f"{step.command}\n{printed}"
        finally:
            client.post("/v1/rollback", json={"to": base}, timeout=120).raise_for_status()
