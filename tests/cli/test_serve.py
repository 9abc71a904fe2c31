"""`zedlog serve` and `zedlog demo` as processes: they recover what is killed, keep data, leave nothing."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from service.cli import output, serve
from tests.cli.test_supervisor import alive
from tests.full import full
from tests.live import free_port
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 120.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


class Zedlog:
    """One `zedlog` command that keeps running; its output is in a file."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.output = folder / f"output-{time.monotonic_ns()}"
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "service.cli.main", *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
            )

    def text(self) -> str:
        return self.output.read_text()

    def wait_for(self, condition: Callable[[], object], seconds: float = START_SECONDS) -> None:
        until(condition, self.text, seconds)

    def url(self) -> str:
        self.wait_for(lambda: "Zedlog is ready" in self.text() or self.process.poll() is not None)
        found = re.search(r"Zedlog is ready on (http://\S+)", self.text())
        assert found, self.text()
        return found[1]

    def children(self) -> dict[str, int]:
        """Process ids of the parts."""
        found = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                command = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if parent == self.process.pid:
                for name, mark in (
                    ("engine", "engine.server"),
                    ("service", "service.cli.worker"),
                    ("server", "valkey"),
                ):
                    if mark in command:
                        found[name] = int(stat.parent.name)
        return found

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Zedlog]]:
    started: list[Zedlog] = []

    def call(*arguments: str) -> Zedlog:
        started.append(Zedlog(tmp_path, *arguments))
        return started[-1]

    yield call
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def add(url: str, *edges: list[str]) -> None:
    body = {"facts": [{"relation": "edge", "tuples": list(edges)}]}
    httpx.post(f"{url}/v1/transactions", json=body, timeout=60).raise_for_status()


def edges(url: str) -> list[list[str]]:
    answer = httpx.post(f"{url}/v1/query", json={"query": "edge(x, y)"}, timeout=60).raise_for_status().json()
    return sorted(answer["tuples"])


def test_it_serves_recovers_and_keeps_its_data(start: Callable[..., Zedlog], tmp_path: Path) -> None:
    serve = start("serve", "--port", "0", "--data-dir", str(tmp_path / "data"))
    url = serve.url()
    assert f"{tmp_path / 'data' / 'zedlog.log'}" in serve.text()
    add(url, ["a", "b"])
    parts = serve.children()
    assert parts.keys() == {"engine", "service", "server"}

    os.kill(parts["engine"], signal.SIGKILL)
    serve.wait_for(lambda: "engine: started again" in serve.text())
    add(url, ["b", "c"])
    os.kill(parts["server"], signal.SIGKILL)
    serve.wait_for(lambda: "the embedded server ended" in serve.text())
    serve.wait_for(lambda: httpx.get(f"{url}/readyz").status_code == 200)
    os.kill(parts["service"], signal.SIGKILL)
    # The listening socket stays open meanwhile: the request waits, it is not refused.
    assert edges(url) == [["a", "b"], ["b", "c"]]

    last = serve.children()
    assert serve.end(signal.SIGINT) == 0
    assert [pid for pid in {*parts.values(), *last.values()} if alive(pid)] == []

    again = start("serve", "--port", "0", "--data-dir", str(tmp_path / "data"))
    assert edges(again.url()) == [["a", "b"], ["b", "c"]]
    assert again.end() == 0


def test_nothing_stays_when_it_is_killed(start: Callable[..., Zedlog], tmp_path: Path) -> None:
    serve = start("serve", "--port", "0", "--data-dir", str(tmp_path / "data"))
    serve.url()
    parts = serve.children()
    assert len(parts) == 3
    serve.end(signal.SIGKILL)
    serve.wait_for(lambda: not any(alive(pid) for pid in parts.values()), 30)


def test_a_taken_port_and_a_taken_data_directory_are_named(
    start: Callable[..., Zedlog], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = start("serve", "--port", str(port), "--data-dir", str(tmp_path / "one"))
        assert refused.process.wait(60) == 1
        assert f"cannot listen on 127.0.0.1:{port}" in refused.text()
    first = start("serve", "--port", "0", "--data-dir", str(tmp_path / "two"), "--no-engine")
    first.url()
    second = start("serve", "--port", "0", "--data-dir", str(tmp_path / "two"))
    assert second.process.wait(60) == 1
    assert f"the data directory {tmp_path / 'two'} is in use by process {first.process.pid}" in second.text()
    assert first.end() == 0


def test_a_data_directory_that_cannot_be_made_is_named(start: Callable[..., Zedlog], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = start("serve", "--port", "0", "--data-dir", str(tmp_path / "file" / "data"))
    assert refused.process.wait(60) == 1
    assert "cannot be used: Not a directory" in refused.text()


def test_a_service_beside_an_engine_of_its_own(start: Callable[..., Zedlog], tmp_path: Path) -> None:
    """`serve --no-engine` answers reads and says that nobody applies writes; `engine --check` agrees."""
    serve = start("serve", "--port", "0", "--data-dir", str(tmp_path / "data"), "--no-engine")
    url = serve.url()
    assert serve.children().keys() == {"service", "server"}
    assert httpx.get(f"{url}/readyz").status_code == 503
    redis = f"unix://{tmp_path / 'data' / 'redis.sock'}"
    absent = start("engine", "--check", "--redis-url", redis)
    assert absent.process.wait(60) == 1
    assert "not running" in absent.text()
    engine = start("engine", "--redis-url", redis)
    serve.wait_for(lambda: httpx.get(f"{url}/readyz").status_code == 200)
    present = start("engine", "--check", "--redis-url", redis)
    assert present.process.wait(60) == 0
    add(url, ["a", "b"])
    assert edges(url) == [["a", "b"]]
    assert engine.end() == 0
    assert serve.end() == 0


def test_the_demo_tells_its_story_and_ends(start: Callable[..., Zedlog]) -> None:
    demo = start("demo", "--exit", "--port", "0", "--no-spark")
    assert demo.process.wait(START_SECONDS) == 0, demo.text()
    told = demo.text()
    epochs = [int(n) for n in re.findall(r"^  epoch (\d+): [\d.]+ m?s in the engine", told, re.MULTILINE)]
    assert epochs == [1, 2, 3, 4, 5, 6]
    # The story's own arithmetic: what the rule derived goes with it, and the exposed are who is listed.
    derived, gone = (re.findall(rf"^  terms \{sign}([\d,]+)$", told, re.MULTILINE) for sign in "+-")
    assert derived == gone != []
    exposed = re.search(r"^  exposed \+(\d+)$", told, re.MULTILINE)
    assert exposed is not None
    rows = [line for line in told.splitlines() if re.search("directly|through others", line) and "│" in line]
    assert len(rows) == int(exposed[1]) > 0
    assert re.search(r"^    - requires\(", told, re.MULTILINE)


@full
def test_the_demo_has_a_chapter_about_spark(start: Callable[..., Zedlog]) -> None:
    demo = start("demo", "--exit", "--port", "0")
    assert demo.process.wait(3 * START_SECONDS) == 0, demo.text()
    told = demo.text()
    if "left out" in told:
        assert "install" in told
        return
    rows = re.search(r"requires.parquet: ([\d,]+) rows", told)
    assert rows is not None
    assert f"spark.requires: +{rows[1]} -0" in told
    equal = re.search(r"once more: ([\d,]+) tuples on Spark in .* ([\d,]+) tuples resident .*: equal", told)
    assert equal is not None
    assert equal[1] == equal[2]


def test_the_demo_stays_until_it_is_told_to_go(start: Callable[..., Zedlog]) -> None:
    demo = start("demo", "--port", "0", "--no-spark")
    url = demo.url()
    demo.wait_for(lambda: "Ctrl-C stops it" in demo.text())
    told = demo.text()
    assert f"zedlog epochs --url {url}" in told
    # The curl line does what it says.
    goal = re.search(r"-d '(.*)'", told)
    assert goal is not None
    headers = {"content-type": "application/json"}
    answer = httpx.post(f"{url}/v1/query", content=goal[1], headers=headers).raise_for_status().json()
    assert len(answer["tuples"]) > 0
    assert demo.end(signal.SIGINT) == 0


@pytest.mark.parametrize("terminal", [False, True])
def test_a_long_start_says_what_the_engine_does(
    terminal: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing answers at the URL; the log says how far the engine has come."""
    shown = Console(stderr=True, force_terminal=terminal, highlight=False, soft_wrap=True)
    monkeypatch.setattr(serve, "err", shown)
    monkeypatch.setattr(output, "err", shown)
    monkeypatch.setattr(serve, "PATIENCE_SECONDS", -1.0)
    settings = serve.Deployment(tmp_path)
    line = "2026-01-01 INFO compiling kernels (once after an install), {} of 24\n"
    settings.log.write_text(line.format(9))
    with serve._readiness(f"http://127.0.0.1:{free_port()}", settings) as ready:
        assert not ready()
        with settings.log.open("a") as log:
            log.write(f"more\n{line.format(1)}{line.format(2)}INFO: Started server process\n")
        assert not ready()
        assert not ready()
    told = capsys.readouterr().err
    # What stood in the log before this start tells nothing of this one.
    assert "9 of 24" not in told
    assert "the engine is loading its kernels and rebuilding the database ..." in told
    assert "compiling kernels (once after an install), 2 of 24 ..." in told
    if not terminal:
        assert told.count("\n") == 2
