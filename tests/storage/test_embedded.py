"""The embedded server as a child: starting, refusing, dying, coming back, and not staying behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from engine.data.transaction import Transaction
from engine.errors import ServerStartError, StorageUnavailableError
from engine.storage import embedded
from engine.storage.connection import connect
from engine.storage.embedded import EmbeddedServer
from engine.storage.log import START, EpochLog, LogEntry
from tests.waiting import until

ROOT = Path(__file__).resolve().parent.parent.parent


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        # It may end between the opening and the reading.
        return False


def wait_until_gone(pid: int) -> None:
    until(lambda: not running(pid), f"the end of process {pid}")


def read_again(log: EpochLog) -> list[LogEntry]:
    """What the log holds, as soon as its server is there again."""
    found: list[LogEntry] = []

    def read() -> bool:
        try:
            found[:] = log.read(START, 1000, 1 << 20)
        except StorageUnavailableError:
            return False
        return True

    until(read, "the server")
    return found


def test_it_keeps_data_and_ends(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path / "new" / "data") as server:
        first, pid = server.run_id, server.pid
        with connect(server.url) as client:
            client.set("a", "1")
            assert client.config_get("appendfsync") == {"appendfsync": "always"}
        assert oct((tmp_path / "new" / "data" / "redis.sock").stat().st_mode)[-3:] == "700"
    assert not running(pid)
    assert not (tmp_path / "new" / "data" / "redis.sock").exists()
    with EmbeddedServer(tmp_path / "new" / "data") as server, connect(server.url) as client:
        assert client.get("a") == b"1"
        assert server.run_id != first


def test_one_owner_per_directory(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server:
        with pytest.raises(ServerStartError, match=f"in use by process {os.getpid()}"):
            EmbeddedServer(tmp_path).start()
        assert server.run_id


def test_a_long_path_and_a_port(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 30) / "with space"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with EmbeddedServer(folder, port=port) as server:
        directory = server._socket.parent
        assert directory != folder
        with connect(server.url) as one, connect(f"redis://127.0.0.1:{port}/0") as other:
            one.set("a", "1")
            assert other.get("a") == b"1"
    assert not directory.exists()


def test_why_it_does_not_start(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ServerStartError, match="in use") as failure:
            EmbeddedServer(tmp_path / "a", port=taken.getsockname()[1]).start()
        assert failure.value.detail["log"]
    (tmp_path / "file").write_text("")
    with pytest.raises(ServerStartError, match="cannot be used"):
        EmbeddedServer(tmp_path / "file").start()
    # The directory is free again.
    with EmbeddedServer(tmp_path / "a") as server:
        assert server.run_id


def test_faults_a_killed_server_comes_back_with_every_append(tmp_path: Path) -> None:
    told: list[str] = []
    acknowledged: list[str] = []
    with EmbeddedServer(tmp_path, on_restart=told.append) as server, connect(server.url) as client:
        log = EpochLog(client, "main")
        for round_ in range(3):
            pid = server.pid
            for i in range(20):
                transaction = Transaction.parse([{"relation": "e", "tuples": [[round_, i]]}])
                acknowledged.append(log.append(transaction).transaction_id)
            os.kill(pid, signal.SIGKILL)
            wait_until_gone(pid)
            assert [entry.id for entry in read_again(log)] == acknowledged
            assert server.pid != pid
        assert server.restarts == 3
        assert len(told) == 3
        assert "started again" in told[0]


@pytest.mark.parametrize(
    "torn",
    [
        b"",
        b"*3\r\n$3\r\nSET\r\n$5\r\nhalf",
        b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$8\r\nab\0\0c",
    ],
)
@pytest.mark.parametrize("zeros", [1, (1 << 20) + 7])
def test_faults_zero_bytes_at_the_end_are_cut_off(tmp_path: Path, torn: bytes, zeros: int) -> None:
    """As ext4 and xfs leave a file whose new size was written and its new content was not, after whole commands or
    after a part of one."""
    with EmbeddedServer(tmp_path) as server, connect(server.url) as client:
        client.set("a", b"ends in zeros\0\0")
    (log,) = (tmp_path / "appendonlydir").glob("*.incr.aof")
    with log.open("ab") as file:
        file.write(torn + bytes(zeros))
    told: list[str] = []
    with EmbeddedServer(tmp_path, on_repair=told.append) as server, connect(server.url) as client:
        assert client.get("a") == b"ends in zeros\0\0"
        assert client.dbsize() == 1
        client.set("b", "1")
    assert len(told) == 1
    assert f"{log} ended in {zeros:,} zero bytes" in told[0]
    with EmbeddedServer(tmp_path, on_repair=told.append) as server, connect(server.url) as client:
        assert client.get("b") == b"1"
    assert len(told) == 1


def test_faults_damage_before_the_end_stops_the_start_and_says_what_to_do(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path) as server, connect(server.url) as client:
        client.set("a", "1")
        client.set("b", "1")
    (log,) = (tmp_path / "appendonlydir").glob("*.incr.aof")
    content = log.read_bytes()
    place = content.index(b"*3\r\n")
    log.write_bytes(content[:place] + bytes(2) + content[place + 2 :])
    with pytest.raises(ServerStartError, match="restore the directory from a copy"):
        EmbeddedServer(tmp_path).start()


def test_an_unsupervised_server_stays_down_until_started(tmp_path: Path) -> None:
    with EmbeddedServer(tmp_path, supervise=False) as server:
        os.kill(server.pid, signal.SIGKILL)
        server.wait(10)
        with pytest.raises(StorageUnavailableError):
            _ = server.run_id
        server.start()
        assert server.run_id
        assert server.restarts == 0
        with pytest.raises(TimeoutError):
            server.wait(0.01)


OWNER = """
import sys, time
from engine.storage.embedded import EmbeddedServer
server = EmbeddedServer(sys.argv[1]).start()
print(server.pid, flush=True)
time.sleep(600)
"""


def start_owner(folder: Path, **environment: str) -> tuple[subprocess.Popen[bytes], int]:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )
    assert owner.stdout is not None
    with owner.stdout as output:
        return owner, int(output.readline())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs PR_SET_PDEATHSIG")
def test_faults_it_does_not_outlive_a_killed_owner(tmp_path: Path) -> None:
    owner, server = start_owner(tmp_path)
    assert running(server)
    owner.kill()
    owner.wait()
    wait_until_gone(server)


def test_faults_a_server_left_behind_is_replaced(tmp_path: Path) -> None:
    """Where the kernel does not end it: the next start does, and keeps its data."""
    binary = embedded.get_binary_path()
    path = tmp_path / "redis.sock"
    left = subprocess.Popen(
        [
            binary,
            "--port",
            "0",
            "--unixsocket",
            path,
            "--dir",
            tmp_path,
            "--appendonly",
            "yes",
            "--logfile",
            tmp_path / "l",
        ]
    )
    try:
        (tmp_path / "socket").write_text(str(path))
        until(path.exists, "the socket")
        with connect(f"unix://{path}") as client:
            client.set("a", "1")
        with EmbeddedServer(tmp_path) as server, connect(server.url) as client:
            left.wait(10)
            assert server.pid != left.pid
            assert client.get("a") == b"1"
    finally:
        left.kill()
        left.wait()
