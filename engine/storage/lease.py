"""The lease: it says which process is the single writer of a database, and keeps every other one from publishing.

A key that expires says who the writer is and, by being there, that it is alive. Each time the lease is given,
a counter goes up; the holder's number is its fencing token. Every publication checks, inside of its atomic
step, that no later lease was given, so an engine that slept through its lease cannot publish, whatever its
clock says.

A holder that was killed leaves the key behind until it expires. A new engine on the same machine need not wait for
that: the holder's name says in which boot and process namespace it runs, so the new engine can look up whether it still
runs (the start time of the process reveals a reused process id). Where that cannot be looked up, the supervisor of
both knows it: it starts an engine only when the one before has ended, and the holder's name says whose child it was.
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any, cast

import orjson
import redis

from engine.errors import EngineLeaseError, shown
from engine.storage.child import supervisor
from engine.storage.connection import storage_errors
from engine.storage.keys import Keys
from engine.storage.scripts import RENEW_LEASE, TAKE_LEASE


class Lease:
    """The writer's lease on one database; `generation` is the fencing token while it is held."""

    def __init__(self, client: redis.Redis, database: str, ttl: float) -> None:
        self._redis = client
        self._keys = Keys(database)
        self._take = client.register_script(TAKE_LEASE)
        self._renew = client.register_script(RENEW_LEASE)
        self.ttl_ms = max(1, round(ttl * 1000))
        self.owner = _this_process()
        self.generation = 0

    def take(self) -> None:
        """Become the writer, with a new fencing token.

        Raises:
            EngineLeaseError: another engine is, and it is not known to be dead.
        """
        keys = [self._keys.lease, self._keys.generation]
        with storage_errors():
            taken, who = cast(list[Any], self._take(keys=keys, args=[self.owner, self.ttl_ms, ""]))
            if not taken and _is_dead(who):
                taken, who = cast(list[Any], self._take(keys=keys, args=[self.owner, self.ttl_ms, who]))
        if not taken:
            holder = _describe(who)
            raise EngineLeaseError(
                f"another engine serves the database {shown(self._keys.database)}: {holder}", holder=holder
            )
        self.generation = int(who)

    def renew(self, status: dict[str, str] | None = None) -> None:
        """The heartbeat: keep the lease, and tell readers the status.

        Raises:
            EngineLeaseError: another engine has taken it since.
        """
        self._put(self.ttl_ms, status)

    def release(self, status: dict[str, str] | None = None) -> None:
        """Give it back, if it is still held."""
        self._put(0, status)

    def _put(self, ttl_ms: int, status: dict[str, str] | None) -> None:
        fields = [text for pair in (status or {}).items() for text in pair]
        with storage_errors():
            held = self._renew(
                keys=[self._keys.lease, self._keys.generation, self._keys.status],
                args=[self.owner, self.generation, ttl_ms, *fields],
            )
        if not held:
            raise EngineLeaseError(f"another engine has taken over the database {shown(self._keys.database)}")


def _this_process() -> bytes:
    pid = os.getpid()
    name = {"host": socket.gethostname(), "pid": pid, "id": secrets.token_hex(8), "supervisor": supervisor()}
    return orjson.dumps({**name, **_namespace(), "started": _start_time(pid)}, option=orjson.OPT_SORT_KEYS)


def _is_dead(holder: bytes) -> bool:
    """Whether the holder surely no longer runs: it was in our boot and process namespace, and is not there; or it was
    the child before us of our own supervisor."""
    try:
        name = orjson.loads(holder)
        above = supervisor()
        if above is not None and name.get("supervisor") == above:
            return True
        ours = _namespace()
        if not ours or any(name.get(key) != value for key, value in ours.items()):
            return False
        started = name["started"]
        return started is not None and _start_time(int(name["pid"])) != started
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return False


def _namespace() -> dict[str, str]:
    """The boot and the process namespace, within which a process id means the same process; empty if the system does
    not say.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return {"boot": file.read().strip(), "pids": os.readlink("/proc/self/ns/pid")}
    except OSError:
        return {}


def _start_time(pid: int) -> str | None:
    """When a process was started, in clock ticks since boot; None if it does not run."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is a name in parentheses that may hold anything; the state follows it.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _describe(holder: bytes) -> str:
    try:
        name = orjson.loads(holder)
        return f"process {name['pid']} on {name['host']}"
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return holder.decode(errors="replace")
