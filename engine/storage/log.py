"""The epoch log: every acknowledged transaction, in the order in which it is applied.

A Redis stream. A transaction is in it before anyone is told so, and its id there is its transaction id; the
durable truth of the database is this stream and the last snapshot. With an Idempotency-Key the append is one
atomic script: the same key and payload give the first transaction's id again, so a client may retry until it
hears an answer, and the transaction is applied once.

This is the writer's, synchronous side; `DatabaseClient.append` writes the same form.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis

from engine.data.transaction import Transaction
from engine.errors import CorruptLogError, IdempotencyConflictError, shown
from engine.storage.connection import storage_errors
from engine.storage.keys import Keys
from engine.storage.outcome import Receipt
from engine.storage.scripts import APPEND_ONCE, READ_GROUP

# How long an Idempotency-Key is remembered.
IDEMPOTENCY_SECONDS = 7 * 24 * 3600

# The same for an append without one: as long as a connection may try.
_ONCE_SECONDS = 60

# Before the first entry.
START = "0-0"


@dataclass(frozen=True, slots=True)
class LogEntry:
    """An entry as it is in the log: its id, and the payload (None if the entry has none)."""

    id: str
    payload: bytes | None

    def transaction(self) -> Transaction:
        """Decode it.

        Raises:
            CorruptLogError: it is not a transaction; the message names the entry.
        """
        if self.payload is None:
            raise CorruptLogError(f"the log entry {self.id} has no transaction", entry=self.id)
        try:
            return Transaction.decode(self.payload)
        # Whatever decoding meets, it means that this is not what `encode` wrote.
        except Exception as error:
            raise CorruptLogError(
                f"the log entry {self.id} cannot be read: {error}", entry=self.id
            ) from error


@dataclass(frozen=True, slots=True)
class Append:
    """A transaction ready to be appended once: what the script gets, and how to read its answer.

    Without an Idempotency-Key it gets one of its own, so that the connection may send it again.
    """

    key: str | None
    keys: list[str]
    args: list[Any]

    @classmethod
    def prepare(cls, keys: Keys, payload: bytes, key: str | None, asked: bytes | None = None) -> Append:
        """asked: what the client sent, where the payload was computed from it and may be another one next time."""
        if key is None:
            names = [keys.idempotency(secrets.token_hex(16)), keys.log]
            return cls(None, names, [payload, "-", _ONCE_SECONDS])
        # Hashed: a key of any length and content is a short, plain name.
        name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
        digest = hashlib.blake2b(payload if asked is None else asked, digest_size=16).hexdigest()
        return cls(key, [keys.idempotency(name), keys.log], [payload, digest, IDEMPOTENCY_SECONDS])

    def receipt(self, answer: Sequence[Any]) -> Receipt:
        """What the script's answer means. Raises IdempotencyConflictError."""
        transaction_id, what = bytes(answer[0]).decode(), int(answer[1])
        if what == 2 and self.key is not None:
            raise IdempotencyConflictError(
                f"the Idempotency-Key {shown(self.key[:200])} was used before with a different body",
                idempotency_key=self.key,
                transaction_id=transaction_id,
            )
        return Receipt(transaction_id, replayed=what == 1 and self.key is not None)


class EpochLog:
    """The log of one database."""

    def __init__(self, client: redis.Redis, database: str) -> None:
        self._redis = client
        self._keys = Keys(database)
        self._append_once = client.register_script(APPEND_ONCE)
        self._read_group = client.register_script(READ_GROUP)

    def append(self, tx: Transaction, idempotency_key: str | None = None) -> Receipt:
        """Write a transaction. When this returns, it survives.

        Raises:
            IdempotencyConflictError: the key came with another body before.
            StorageUnavailableError: Redis cannot be reached; it may have been written if the connection
            broke.
        """
        append = Append.prepare(self._keys, tx.encode(), idempotency_key)
        with storage_errors():
            answer = self._append_once(keys=append.keys, args=append.args)
        return append.receipt(cast(list[Any], answer))

    def read(self, after: str, max_entries: int, max_bytes: int) -> list[LogEntry]:
        """The entries after an id, in order: limited in number and bytes, but at least one if there is one."""
        return self.read_group(after, max_entries, max_bytes)[0]

    def read_group(
        self, after: str, max_entries: int, max_bytes: int
    ) -> tuple[list[LogEntry], frozenset[str]]:
        """The same, and the ids of all transactions that are to be cancelled."""
        keys = [self._keys.log, self._keys.cancels]
        with storage_errors():
            answer = self._read_group(keys=keys, args=[after, max_entries, max_bytes])
        entries, cancels = cast(list[Any], answer)
        return [_entry(entry_id, fields) for entry_id, fields in entries], frozenset(
            name.decode() for name in cancels
        )

    def forget_cancels(self, ids: Sequence[str]) -> None:
        """Forget the requests to cancel these transactions, which have their outcomes now."""
        with storage_errors():
            self._redis.srem(self._keys.cancels, *ids)

    def wait(self, after: str, timeout: float) -> LogEntry | None:
        """The first entry after an id, waiting up to `timeout` seconds for it."""
        with storage_errors():
            answer = self._redis.xread({self._keys.log: after}, count=1, block=max(1, round(timeout * 1000)))
        for _, entries in cast(list[Any], answer or []):
            for entry_id, fields in entries:
                return LogEntry(entry_id.decode(), fields.get(b"tx"))
        return None

    def __len__(self) -> int:
        with storage_errors():
            return self._redis.xlen(self._keys.log)


def _entry(entry_id: bytes, fields: list[bytes]) -> LogEntry:
    return LogEntry(entry_id.decode(), dict(zip(fields[::2], fields[1::2], strict=True)).get(b"tx"))
