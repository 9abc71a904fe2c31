"""The supervisor over small processes: what ends is started again, what is stopped ends in order, nothing
stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.cli import supervisor
from service.cli.supervisor import MAX_FAILURES, Part, PartFailed, Supervisor, describe_end
from tests.waiting import until

# Appends its name and what happens to it to a file, and runs until SIGTERM.
PROCESS = """
import signal, sys, time
def write(what):
    with open(sys.argv[1], "a") as out:
        out.write(f"{sys.argv[2]} {what}\\n")
def stop(number, frame):
    write("stopped")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
write("started")
while True:
    time.sleep(0.02)
"""


def alive(pid: int) -> bool:
    """Whether a process runs (one that has ended and waits for its parent to look does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Running:
    """A supervisor whose `watch` runs in a thread, and what it said."""

    def __init__(self, folder: Path) -> None:
        self.events = folder / "events"
        self.events.touch()
        self.log = folder / "log"
        self.said: list[str] = []
        self.thread: threading.Thread | None = None
        self.supervisor: Supervisor | None = None
        self.error: BaseException | None = None

    def part(self, name: str, essential: bool = True) -> Part:
        command = [sys.executable, "-c", PROCESS, str(self.events), name]
        return Part(name, command, ready=lambda: f"{name} started" in self.lines(), essential=essential)

    def lines(self) -> list[str]:
        return self.events.read_text().splitlines()

    def run(self, *parts: Part) -> Supervisor:
        supervisor = self.supervisor = Supervisor(parts, self.log, self.said.append)
        started = threading.Event()

        def work() -> None:
            try:
                supervisor.start(lambda: True)
                started.set()
                supervisor.watch()
            except PartFailed as error:
                self.error = error
            finally:
                started.set()
                # In the thread that started the parts: they end when that thread does.
                supervisor.stop()

        self.thread = threading.Thread(target=work)
        self.thread.start()
        assert started.wait(30)
        return supervisor

    def end(self) -> None:
        if self.supervisor is not None and self.thread is not None:
            self.supervisor.request_stop()
            self.thread.join()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    one = Running(tmp_path)
    try:
        yield one
    finally:
        one.end()


def test_parts_start_in_order_and_stop_in_reverse(running: Running) -> None:
    running.run(running.part("server"), running.part("engine"), running.part("service"))
    running.end()
    assert running.lines() == [
        "server started",
        "engine started",
        "service started",
        "service stopped",
        "engine stopped",
        "server stopped",
    ]


def test_a_killed_part_is_started_again(running: Running) -> None:
    engine = running.part("engine")
    running.run(running.part("server"), engine)
    assert engine.process is not None
    first = engine.process.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: running.lines().count("engine started") == 2)
    assert engine.process.pid != first
    assert running.said[0] == "engine: was ended by SIGKILL; starting it again in 0.2 s"
    assert running.said[1] == f"engine: started again (process {engine.process.pid})"
    assert running.lines().count("server started") == 1


def test_a_part_that_has_run_for_some_time_is_started_again_at_once(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "STEADY_SECONDS", 0.0)
    engine = running.part("engine")
    running.run(running.part("server"), engine)
    assert engine.process is not None
    os.kill(engine.process.pid, signal.SIGKILL)
    until(lambda: running.lines().count("engine started") == 2)
    assert running.said[0] == "engine: was ended by SIGKILL; starting it again"


def test_a_part_that_keeps_ending_is_a_failure_with_its_last_words(running: Running) -> None:
    code = "import sys; print('no such planet'); sys.exit(3)"
    running.run(Part("engine", [sys.executable, "-c", code], ready=lambda: False))
    assert isinstance(running.error, PartFailed)
    assert f"the engine ended with status 3, {MAX_FAILURES} times in a row" in str(running.error)
    assert "no such planet" in str(running.error)


def test_a_part_that_others_can_do_without_is_given_up(running: Running, tmp_path: Path) -> None:
    flag = tmp_path / "fail"
    wait = "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.01)"
    code = f"import pathlib, sys, time\n{wait}\nsys.exit(1)"
    engine = Part("engine", [sys.executable, "-c", code, str(flag)], essential=False)
    running.run(running.part("server"), engine)
    flag.touch()
    until(lambda: engine.given_up, 20)
    assert running.error is None
    assert "given up; the rest goes on without it" in running.said[-1]
    assert running.lines() == ["server started"]


def test_a_part_that_is_never_ready_is_a_failure(tmp_path: Path) -> None:
    part = Part("server", [sys.executable, "-c", "import time; time.sleep(60)"], ready=lambda: False)
    supervisor = Supervisor([part], tmp_path / "log", print)
    try:
        with pytest.raises(PartFailed, match="the server is not ready after 0 s"):
            supervisor.start(lambda: True, timeout=0.3)
    finally:
        supervisor.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_parts_do_not_outlive_a_killed_supervisor(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    part = f"import os, time; open({str(pid_file)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    script = textwrap.dedent(
        f"""
        import sys, pathlib
        from service.cli.supervisor import Part, Supervisor
        part = Part("engine", [sys.executable, "-c", {part!r}])
        supervisor = Supervisor([part], pathlib.Path({str(tmp_path / "log")!r}), print)
        supervisor.start(lambda: True)
        supervisor.watch()
        """
    )
    supervisor = subprocess.Popen([sys.executable, "-c", script])
    try:
        until(lambda: pid_file.exists() and pid_file.read_text() != "")
        pid = int(pid_file.read_text())
        assert alive(pid)
        supervisor.kill()
        until(lambda: not alive(pid))
    finally:
        supervisor.kill()
        supervisor.wait()


def test_ends_in_words() -> None:
    assert describe_end(1) == "ended with status 1"
    assert describe_end(-signal.SIGKILL) == "was ended by SIGKILL"
    assert describe_end(-200) == "was ended by signal 200"
