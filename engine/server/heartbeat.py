"""The heartbeat: a thread that keeps the lease alive and tells readers the engine's state.

The lease must not run out while the engine is in the middle of a long epoch, so a thread of its own renews it, over a
connection of its own. When another engine has taken the lease, `lost` is set, and the engine stops what it does. If it
notices that too late, the fencing token stops its publication.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from engine.errors import EngineLeaseError, StorageUnavailableError
from engine.storage.connection import connect
from engine.storage.holds import oldest_held
from engine.storage.keys import Keys
from engine.storage.lease import Lease

ATTEND_SECONDS = 0.25


class Heartbeat:
    """The lease of one engine, and its status. Make it, `start` it, tell it the state, `stop` it. `attend` is called
    by its thread, every `ATTEND_SECONDS`. `recovered` says how the state came back, for the readers. `held` is the
    oldest epoch that must stay readable (engine/storage/holds.py), as of the last beat."""

    def __init__(self, redis_url: str, database: str, ttl: float) -> None:
        self.attend: Callable[[], None] = lambda: None
        self.recovered = ""
        self.held: int | None = None
        self._keys = Keys(database)
        self._redis = connect(redis_url)
        self.lease = Lease(self._redis, database, ttl)
        self._interval = ttl / 4
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._state = "recovering"
        self._epoch = -1
        self._started = time.time()
        self.lost = threading.Event()

    def start(self) -> None:
        """Take the lease and begin to beat.

        Raises:
            EngineLeaseError: another engine has it.
        """
        self._end_thread()
        self.lease.take()
        self.lost.clear()
        self._look_at_holds()
        self._stop.clear()
        self._thread = threading.Thread(target=self._beat, name="engine heartbeat", daemon=True)
        self._thread.start()

    def tell(self, state: str, epoch: int) -> None:
        """Set the state, which readers see at once. Does not fail: the next beat sends it again."""
        changed = state != self._state
        self._state, self._epoch = state, epoch
        if changed:
            self._renew()

    def stop(self, state: str, error: str = "") -> None:
        """Give the lease back, and tell readers the last state."""
        self._end_thread()
        self._state = state
        try:
            self.lease.release(self._status(error))
        except (EngineLeaseError, StorageUnavailableError):
            # Somebody else has it, or nobody can be told; it expires.
            pass
        finally:
            self._redis.close()

    def _end_thread(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _beat(self) -> None:
        self._renew()
        renewed = time.monotonic()
        while not self._stop.wait(min(self._interval, ATTEND_SECONDS)):
            if time.monotonic() - renewed >= self._interval:
                self._renew()
                renewed = time.monotonic()
            self.attend()
            self._look_at_holds()

    def _look_at_holds(self) -> None:
        # Where Redis is away, what was held last is still held.
        with suppress(StorageUnavailableError):
            self.held = oldest_held(self._redis, self._keys)

    def _renew(self) -> None:
        with self._lock:
            try:
                self.lease.renew(self._status(""))
            except EngineLeaseError:
                self.lost.set()
            except StorageUnavailableError:
                # The engine's own commands notice it too, and say so.
                pass

    def _status(self, error: str) -> dict[str, str]:
        return {
            "state": self._state,
            "epoch": str(self._epoch),
            "error": error,
            "recovered": self.recovered,
            "heartbeat": repr(time.time()),
            "started": repr(self._started),
            "pid": str(os.getpid()),
            "host": socket.gethostname(),
        }
