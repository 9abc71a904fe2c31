"""The process that holds the store: `python -m service.sparql.process FD`, started by remote.py.

FD is a socket. Each byte on it is a command that comes with a socket of its own, on which the rest is said: the request
to its end, then the answer to its end, both a line of JSON and then bytes.

    L  load: {"sizes": [n, n]}, plain lines, blank lines; some of the tuples of the first epoch
    D  follow: {"changes", "skipped", "epoch"}, what is left of the first epoch, or what later ones changed
    Q  query: the fields of `Asked`, and "seconds" and "memory"
    U  update: {"text", "most", "seconds", "memory"}
    K  kill: {"pid"}

A query or an update runs in a fork, which has the store as it is at that moment. It first says {"pid", "epoch"}, so
that it can be killed. It cannot open anything (no file, no connection to another service), takes no more memory than it
is allowed beside the store, and is ended by the system when its time is over. This process does nothing else at the
same time and has no threads, so that a fork is safe. It ends when the other end of FD is closed and its
forks have ended; they end at once if it is killed (Linux).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import orjson

from engine.errors import ZedlogError
from service.sparql.answers import Asked, NoFormatError, answer
from service.sparql.store import TripleStore
from service.sparql.updates import net_effect

_REAP_SECONDS = 0.5
# By so much longer than the service waits: it knows better what to say.
_GRACE_SECONDS = 2.0

# Loaded here, and not by each fork.
_LIBC = ctypes.CDLL(None) if sys.platform.startswith("linux") else None

Answer = tuple[Mapping[str, Any], bytes]


class Held:
    """The store and the epoch that it stands for; the forks that have not ended."""

    def __init__(self) -> None:
        self.store = TripleStore()
        self.epoch = -1
        self.forks: set[int] = set()

    def load(self, request: Mapping[str, Any], data: bytes) -> Answer:
        first, second = request["sizes"]
        self.store.load(data[:first], data[first : first + second])
        return {}, b""

    def follow(self, request: Mapping[str, Any], _: bytes) -> Answer:
        self.store.apply([(sign, (s, p, o)) for sign, (s, p, o) in request["changes"]])
        self.store.skipped += request["skipped"]
        self.epoch = request["epoch"]
        return {
            "epoch": self.epoch,
            "triples": len(self.store),
            "skipped": self.store.skipped,
            "bytes": resident_bytes(),
        }, b""

    def kill(self, request: Mapping[str, Any], _: bytes) -> Answer:
        # One that has ended keeps its number until it is reaped, so no other process is hit.
        if request["pid"] in self.forks:
            os.kill(request["pid"], signal.SIGKILL)
        return {}, b""

    def query(self, request: dict[str, Any], _: bytes) -> Answer:
        kind, data = answer(self.store.store, Asked(**request))
        return {"type": kind}, data

    def update(self, request: dict[str, Any], _: bytes) -> Answer:
        gone, come = net_effect(self.store, request["text"], request["most"])
        return {"gone": gone, "come": come}, b""

    def reap(self) -> None:
        while self.forks:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            self.forks.discard(pid)

    def fork(self, command: bytes, channel: socket.socket, control: socket.socket) -> None:
        pid = os.fork()
        if pid:
            self.forks.add(pid)
            return
        control.close()
        _in_fork(self, self.query if command == b"Q" else self.update, channel)


def resident_bytes() -> int:
    """The memory of this process; where the system does not say it, the most that it ever was."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def _in_fork(held: Held, work: Callable[[dict[str, Any], bytes], Answer], channel: socket.socket) -> NoReturn:
    try:
        # Collecting garbage would touch, and so copy, all that is shared.
        gc.disable()
        if _LIBC is not None:
            # It ends with its parent, also when that is killed.
            _LIBC.prctl(1, int(signal.SIGKILL), 0, 0, 0)
        _send(channel, {"pid": os.getpid(), "epoch": held.epoch}, b"")
        request, data = _receive(channel)
        _confine(request.pop("seconds"), request.pop("memory"))
        _reply(channel, lambda: work(request, data))
        _end(channel)
    finally:
        os._exit(0)


def _confine(seconds: float, memory: int) -> None:
    # By default this signal ends the process, whatever it is computing.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds + _GRACE_SECONDS)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    with contextlib.suppress(OSError, ValueError), open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (now + memory, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def _reply(channel: socket.socket, work: Callable[[], Answer]) -> None:
    try:
        header, data = work()
    except NoFormatError as error:
        header, data = {"form": error.form}, b""
    except ZedlogError as error:
        header, data = {"error": type(error).__name__, "problem": error.problem()}, b""
    except MemoryError:
        header, data = {"error": "memory"}, b""
    except Exception as error:
        header, data = {"error": "fault", "problem": {"message": repr(error)}}, b""
    with contextlib.suppress(OSError):
        # Who asked for it may be gone.
        _send(channel, header, data)


def _send(channel: socket.socket, header: Mapping[str, Any], data: bytes) -> None:
    channel.sendall(orjson.dumps(header, default=str, option=orjson.OPT_APPEND_NEWLINE))
    channel.sendall(data)


def _end(channel: socket.socket) -> None:
    """Say that this is all, so that nobody waits until the memory of the process is taken back."""
    with contextlib.suppress(OSError):
        channel.shutdown(socket.SHUT_WR)


def _receive(channel: socket.socket) -> tuple[dict[str, Any], bytes]:
    with channel.makefile("rb") as file:
        header: dict[str, Any] = orjson.loads(file.readline())
        return header, file.read()


def run(control: socket.socket) -> None:
    """Serve until the other end is closed."""
    held = Held()
    commands = {b"L": held.load, b"D": held.follow, b"K": held.kill}
    while True:
        held.reap()
        if not select.select([control], [], [], _REAP_SECONDS if held.forks else None)[0]:
            continue
        command, sockets, _, _ = socket.recv_fds(control, 1, 1)
        if not command:
            break
        with socket.socket(fileno=sockets[0]) as channel:
            if command in commands:
                request, data = _receive(channel)
                _reply(channel, lambda: commands[command](request, data))  # noqa: B023  # it is called at once
            else:
                held.fork(command, channel, control)
    for pid in held.forks:
        # They end in time by themselves.
        os.waitpid(pid, 0)


if __name__ == "__main__":
    # Ctrl-C in a terminal is for the service, whose end is this one's end, too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    run(socket.socket(fileno=int(sys.argv[1])))
