"""The mark: which transactions the engine applies now, kept where it outlives the engine's process.

It is written before an epoch is executed, and obsolete as soon as the head has passed it, so the atomic publication
needs no extra step to remove it. A mark that is ahead of the head names the transactions that a process was applying
when it ended, or that are being applied now.

Cost: one command of some 50 microseconds for each epoch, whose answer nobody waits for, and no write to the disk. A
mark must outlive the engine, not Redis. Only during a long epoch is it written to the append-only file as well, in case
something ends both at once (a container that runs out of memory).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import orjson
from redis.exceptions import RedisError

from engine.errors import StorageUnavailableError
from engine.storage.announcements import StreamId, stream_id
from engine.storage.connection import connect, storage_errors
from engine.storage.keys import Keys
from engine.storage.lease import Lease
from engine.storage.log import START
from engine.storage.outcome import Running
from engine.storage.scripts import ATTEND, BEGIN, LEAVE, NOTE_FAULT


@dataclass(frozen=True, slots=True)
class Mark:
    """The transactions `first` to `last` are being applied, or were when the process ended.

    until: all transactions up to this one have been in an epoch during which a process ended; they are tried alone.
    owner: of the process. since: seconds since 1970. relations: those of the stratum that was evaluated, where known.
    """

    first: str
    last: str
    until: str
    owner: str
    since: float
    relations: tuple[str, ...] = ()

    def fields(self) -> list[str]:
        """Names and values, as Redis keeps them."""
        values = {
            "first": self.first,
            "last": self.last,
            "until": self.until,
            "owner": self.owner,
            "since": repr(self.since),
            "relations": orjson.dumps(self.relations).decode(),
        }
        return [part for pair in values.items() for part in pair]

    @classmethod
    def decode(cls, fields: Mapping[bytes, bytes]) -> Mark | None:
        """A mark from the hash; None if there is none. After an orderly end it has no transactions left."""
        if not fields:
            return None
        text = {name.decode(): value.decode() for name, value in fields.items()}
        return cls(
            text.get("first", START),
            text.get("last", START),
            text["until"],
            text["owner"],
            float(text["since"]),
            tuple(orjson.loads(text["relations"])),
        )

    def is_ahead(self, last_id: str) -> bool:
        """Whether its transactions are not published yet; `last_id` is the last one that is."""
        return place(self.last) > place(last_id)

    def running(self, now: float) -> Running:
        """The same for readers."""
        return Running(
            self.first, self.last, self.since, round(max(0.0, now - self.since), 3), self.relations
        )


class Marks:
    """The engine's side. `begin` from one thread, `attend` from another one."""

    def __init__(self, redis_url: str, database: str, lease: Lease) -> None:
        self._keys = Keys(database)
        self._lease = lease
        self._redis = connect(redis_url)
        # Their answers wait on connections of their own.
        self._connection: Any = None
        self._unread = False
        self._attend = self._redis.register_script(ATTEND)
        self._leave = self._redis.register_script(LEAVE)
        self._note = self._redis.register_script(NOTE_FAULT)

    def read(self) -> Mark | None:
        """The mark that the last engine left."""
        with storage_errors():
            return Mark.decode(cast(dict[bytes, bytes], self._redis.hgetall(self._keys.begun)))

    def begin(self, mark: Mark) -> None:
        """Write the mark. Does not fail: without Redis the epoch cannot be published either, and that waits."""
        keys = (self._keys.generation, self._keys.begun)
        fields = (*mark.fields(), "kept", "")
        command = ("EVAL", BEGIN, len(keys), *keys, self._lease.generation, *fields)
        for _ in range(2):
            try:
                if self._connection is None:
                    self._connection = self._redis.connection_pool.get_connection()
                if self._unread:
                    self._unread = False
                    self._connection.read_response()
                self._connection.send_command(*command)
                self._unread = True
                return
            except (RedisError, OSError):
                # It is as old as the last epoch, and the server may have been restarted since.
                self._drop()

    def attend(self, mark: Mark) -> frozenset[str]:
        """The epoch takes long: make its mark durable. Returns the ids of transactions that are to be cancelled.

        Raises:
            StorageUnavailableError.
        """
        kept = f"{mark.first} {' '.join(mark.relations)}"
        keys = [self._keys.generation, self._keys.begun, self._keys.cancels]
        with storage_errors():
            answer = self._attend(keys=keys, args=[self._lease.generation, mark.first, kept, *mark.fields()])
        return frozenset(name.decode() for name in cast(list[bytes], answer))

    def leave(self) -> None:
        """The process ends in an orderly way, so the transactions that it was applying are not at fault. Does not
        fail.
        """
        with suppress(StorageUnavailableError), storage_errors():
            # After a mark that is still on its way.
            if self._unread:
                self._unread = False
                self._connection.read_response()
            self._leave(keys=[self._keys.generation, self._keys.begun], args=[self._lease.generation])

    def note_fault(self, refused: int, fault: Mapping[str, Any]) -> None:
        """Show readers a fault, and the number of transactions that it refused. Does not fail."""
        with suppress(StorageUnavailableError), storage_errors():
            self._note(
                keys=[self._keys.generation, self._keys.status],
                args=[self._lease.generation, refused, orjson.dumps({"time": time.time(), **fault})],
            )

    def close(self) -> None:
        """Close the connections."""
        self._drop()
        self._redis.close()

    def _drop(self) -> None:
        connection, self._connection, self._unread = self._connection, None, False
        if connection is not None:
            connection.disconnect()
            self._redis.connection_pool.release(connection)


def place(transaction_id: str) -> StreamId:
    """A transaction id in comparable form; an unreadable one comes before all others."""
    return stream_id(transaction_id) or (0, 0)
