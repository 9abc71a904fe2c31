"""Backups over HTTP and from the command line, beside writers, and restores during which processes are killed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.backup.reading import opened
from service.cli.main import run
from tests.live import LiveSystem, Part
from tests.waiting import until

RULES = [
    "tc(x, y) :- edge(x, y).",
    "tc(x, z) :- tc(x, y), edge(y, z).",
    "n(count : { edge(_, _) }) :- edge(_, _).",
    "back(y, x) :- pair(x, y).",
]
PAIRS = 100_000


@contextmanager
def system(folder: Path) -> Iterator[LiveSystem]:
    """A running system whose batch files are in its own folder."""
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZEDLOG_BATCH_DIR", str(folder / "batches"))
        with LiveSystem(folder) as live:
            yield live


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    with system(tmp_path_factory.mktemp("origin") / "system") as live:
        with live.client(timeout=120) as http:
            http.post("/v1/rules", json=[{"rule": rule} for rule in RULES]).raise_for_status()
            rows = [[f"node {i}", f"node {i // 2}"] for i in range(1, 2000)]
            http.post("/v1/facts", json={"relation": "edge", "tuples": rows}).raise_for_status()
            pairs = [[i, (i * 7919) % 100_003] for i in range(PAIRS)]
            for source, weight, part in (("hr", 2, rows[:900]), ("it", 3, rows[600:1500])):
                sourced = {"relation": "edge", "tuples": part, "weight": weight}
                http.post("/v1/facts", json=sourced, params={"source": source}).raise_for_status()
            for start in range(0, len(pairs), 50_000):
                part = {"relation": "pair", "tuples": pairs[start : start + 50_000]}
                http.post("/v1/facts", json=part).raise_for_status()
        yield live


def everything(live: LiveSystem, epoch: int | None = None) -> dict[str, Any]:
    """All relations with weights, page by page, at one epoch, and the rules."""
    with live.client() as http:
        at = {} if epoch is None else {"as_of": epoch}
        rules = http.get("/v1/rules", params=at).json()
        found: dict[str, Any] = {"rules": [(r["rule"], r["weight"]) for r in rules["rules"]]}
        relations = http.get("/v1/relations", params=at).json()["relations"]
        found["digests"] = {r["relation"]: r["digest"] for r in relations}
        assert None not in found["digests"].values()
        sources = http.get("/v1/sources", params=at).json()["sources"]
        found["sources"] = {one["source"]: one["relations"] for one in sources}
        for name in found["digests"]:
            rows: list[Any] = []
            parameters: dict[str, Any] = {**at, "limit": 50_000}
            while True:
                page = http.get(f"/v1/relations/{name}/facts", params=parameters)
                assert page.status_code == 200, page.text
                body = page.json()
                keys = [
                    key
                    for key in body
                    if isinstance(body[key], list) and len(body[key]) == len(body["tuples"])
                ]
                rows += zip(*(map(repr, body[key]) for key in sorted(keys)), strict=True)
                if body.get("cursor") is None:
                    break
                parameters["cursor"] = body["cursor"]
            found[name] = sorted(rows)
        return found


def test_a_backup_beside_writers_is_one_epoch_exactly(origin: LiveSystem, tmp_path: Path) -> None:
    stop = threading.Event()

    def write(seed: int) -> None:
        chosen = random.Random(seed)
        with origin.client() as http:
            while not stop.is_set():
                row = [f"node {chosen.randrange(2000)}", f"late {chosen.randrange(50)}"]
                weight = chosen.choice((1, 1, 2, -1))
                source = chosen.choice(({}, {}, {"source": "hr"}, {"source": "it"}))
                change = {"relation": "edge", "tuples": [row], "weight": weight}
                http.post("/v1/facts", json=change, params=source)

    writers = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
    for writer in writers:
        writer.start()
    path = tmp_path / "b.zip"
    try:
        assert run(["backup", str(path), "--url", origin.url]) == 0
        epoch = opened(path).manifest.epoch
        before = everything(origin, epoch)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    with origin.client() as http:
        assert http.get("/v1/rules").json()["epoch"] > epoch
    with system(tmp_path / "other") as other:
        assert run(["restore", str(path), "--url", other.url]) == 0
        assert everything(other) == before
        assert len(before["tc"]) > 10_000
        assert {source: part[0]["facts"] >= 900 for source, part in before["sources"].items()} == {
            "hr": True,
            "it": True,
        }
        # Those who wrote it can be told what to take back, as before.
        with other.client() as http:
            # No client may send facts under the names that sources have inside.
            inside = {"relation": "edge (from hr)", "tuples": [["a", "b"]]}
            for call, body in (
                ("facts", inside),
                ("transactions", {"facts": [{**inside, "weight": -1}], "source": "hr"}),
                ("imports", {"path": "x.csv", "relation": inside["relation"]}),
            ):
                refusal = http.post(f"/v1/{call}", json=body)
                assert (refusal.status_code, refusal.json()["code"]) == (400, "invalid_request"), refusal.text
            taken = http.delete("/v1/sources/hr")
            assert taken.status_code == 200, taken.text
            assert [one["source"] for one in http.get("/v1/sources").json()["sources"]] == ["it"]
        # Once more is refused, before anything is sent.
        assert run(["restore", str(path), "--url", other.url]) == 1
        with other.client() as http:
            refusal = http.post("/v1/restore", content=path.read_bytes())
            assert (refusal.status_code, refusal.json()["code"]) == (409, "database_not_empty")


def test_the_command_line(origin: LiveSystem, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "b.zip"
    assert run(["backup", str(path), "--url", origin.url]) == 0
    assert "written and checked" in capsys.readouterr().out
    data = path.read_bytes()
    assert run(["backup", str(path), "--url", origin.url]) == 2
    assert run(["backup", str(path), "--url", origin.url, "--overwrite"]) == 0
    assert run(["restore", str(path), "--check"]) == 0
    assert "  edge(" in capsys.readouterr().out
    assert run(["dump", str(tmp_path / "d"), "--from", str(path)]) == 0
    assert run(["dump", str(tmp_path / "d.dl"), "--url", origin.url]) == 0
    assert run(["dump", str(tmp_path / "d"), "--from", str(path)]) == 2
    capsys.readouterr()
    assert (
        run(["run", str(tmp_path / "d/program.dl"), "-F", str(tmp_path / "d"), "-D", str(tmp_path / "o")])
        == 0
    )
    assert (tmp_path / "o/tc.csv").read_text().count("\n") == len(everything(origin)["tc"])
    place = data.index(b"facts/edge.parquet") + 200
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    assert run(["restore", str(path), "--url", "http://127.0.0.1:9"]) == 1
    assert "facts/edge.parquet" in capsys.readouterr().err
    # Nothing half written stays.
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.zip", "d", "d.dl", "o"]


def test_a_backup_of_an_epoch_that_is_gone(origin: LiveSystem, tmp_path: Path) -> None:
    assert run(["backup", str(tmp_path / "b.zip"), "--url", origin.url, "--epoch", "123456789"]) == 1
    assert list(tmp_path.iterdir()) == []


def test_kill_9_in_the_middle_of_a_restore_leaves_all_or_nothing(origin: LiveSystem, tmp_path: Path) -> None:
    """The restore is there at the end, once and whole, and no reader ever saw a part of it."""
    path = tmp_path / "b.zip"
    assert run(["backup", str(path), "--url", origin.url]) == 0
    with system(tmp_path / "other") as other:
        with other.client() as http:
            job = http.post("/v1/restore", content=path.read_bytes())
            assert job.status_code == 202, job.text
            url = job.json()["status_url"]
        chosen = random.Random(9)
        parts: tuple[Part, ...] = ("engine", "service")
        for part in parts:
            time.sleep(chosen.uniform(0, 0.3))
            other.kill(part)
            other.start(part)
        seen: set[tuple[int, ...]] = set()

        def ended() -> dict[str, Any] | None:
            try:
                with other.client() as http:
                    seen.add(sizes(http))
                    state: dict[str, Any] = http.get(url).json()
            except httpx.TransportError:
                return None
            return state if state["status"] not in ("queued", "running") else None

        state = until(ended, other.logs, 120)
        assert state["status"] == "succeeded", state
        assert state["result"]["differences"] == []
        with other.client() as http:
            assert sizes(http) == (PAIRS, PAIRS)
        assert seen <= {(0, 0), (PAIRS, PAIRS)}


def sizes(http: httpx.Client) -> tuple[int, ...]:
    counts = {r["relation"]: r["counts"]["all"] for r in http.get("/v1/relations").json()["relations"]}
    return tuple(counts.get(name, 0) for name in ("pair", "back"))
