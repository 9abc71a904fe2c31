"""The publisher: one epoch becomes visible to readers in one atomic step.

In: an `EpochRecord` (what the epoch changed) and the outcomes of its transactions. Out, all at once: blocks, manifest,
changes, summary, results, the head epoch and the last processed log id; and objects that no retained manifest names any
more are removed. Epochs that a subscription has not acknowledged stay, within limits; each publication brings back
which subscription holds the oldest, for the next one to know. A reader sees the state before or the state after, never
a mixture.

Blocks are immutable and invisible until a manifest names them. So a large number of them is sent ahead (with an expiry,
in case the atomic step never comes) and only confirmed in that step; a small number travels with it. The step is a Lua
script that first checks the fencing token of the lease and that the head is the one that this publication follows, so
it can be sent again when the connection broke and nobody knows whether it was done.

Costs: proportional to the changed tuples, plus one line per relation for the manifest; and the whole program, when
rules or schemas changed.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import orjson
import redis

from engine.database.epoch import EpochRecord, RuleInfo, changed_name
from engine.errors import CorruptSnapshotError, EngineLeaseError, EpochNotRetainedError, shown
from engine.language.schema import Schema
from engine.maintenance.change import Change, RelationChange
from engine.storage.compaction import EMPTY, apply_change, read_parts
from engine.storage.connection import storage_errors
from engine.storage.digests import MODULUS, Digester, epoch_digest, program_digest
from engine.storage.head import FIELDS, Head
from engine.storage.keys import Keys
from engine.storage.lease import Lease
from engine.storage.log import START
from engine.storage.manifest import (
    PROGRAM,
    Manifest,
    RelationEntry,
    RelationManifest,
    Segment,
    StoredProgram,
    SymbolChunk,
    TupleCounts,
    in_hex,
)
from engine.storage.objects import FETCH_OBJECTS, ObjectStore
from engine.storage.outcome import Outcome
from engine.storage.references import References
from engine.storage.retention import Retention
from engine.storage.scripts import LOWEST, PORTION_BYTES, PUBLISH, STAGE, STAGED_SECONDS
from engine.storage.symbol_chunks import CHUNK_SYMBOLS, append_symbols, forget_symbols

logger = logging.getLogger("zedlog.engine")

# Objects of more bytes than this together are sent ahead, in portions, so that no single command grows with
# the epoch and other clients get their turn in between.
_INLINE_BYTES = 256 << 10
# Epochs that one publication removes: after a long hold there are many, and readers must not wait for all of them.
_MOST_REMOVED = 64


class OnSpark(Protocol):
    """Applies changes that are on Spark (engine/storage/by_executors.py, which is imported when there is one)."""

    why: str

    def apply(
        self,
        old: RelationManifest | None,
        counts: TupleCounts,
        change: Any,
        schema: Schema | None,
        chunks: tuple[SymbolChunk, ...],
        /,
    ) -> tuple[RelationManifest, TupleCounts, Segment, int | None]: ...


@dataclass(frozen=True, slots=True)
class _Retained:
    epoch: int
    time: float
    children: list[str]
    written: int

    @classmethod
    def of(cls, manifest: Manifest) -> _Retained:
        return cls(manifest.epoch, manifest.time, manifest.children(), manifest.written)


@dataclass(frozen=True, slots=True)
class _Holding:
    """The subscription that holds the oldest epoch: the last that it has acknowledged. limit: of epochs."""

    name: str
    epoch: int
    limit: int

    @classmethod
    def decode(cls, answer: Sequence[bytes]) -> _Holding | None:
        if not answer:
            return None
        name, epoch, limit = answer
        return cls(name.decode(), int(float(epoch)), int(limit))


@dataclass(frozen=True, slots=True)
class _Published:
    """The program that was written last: its object, and what it was made from, by identity."""

    id: str
    rules: tuple[RuleInfo, ...]
    schemas: Mapping[str, Schema]
    declarations: str
    digest: int


@dataclass(slots=True)
class _Publication:
    """One publication, complete; it can be sent more than once."""

    manifest: Manifest | None
    objects: dict[str, bytes]
    ahead: list[str]
    """Objects that were sent ahead, and whose bytes are not here any more."""
    dead: list[str]
    dead_keys: list[str]
    released: Sequence[_Holding]
    outcomes: Sequence[tuple[str, Outcome]]
    last_id: str
    trim_before: str
    summary: bytes
    time: float = field(default_factory=time.time)


class Publisher:
    """The writer's side of a snapshot. One at a time, under the lease."""

    def __init__(
        self,
        client: redis.Redis,
        database: str,
        lease: Lease,
        retention: Retention | None = None,
        cache_bytes: int = 128 << 20,
        url: str | None = None,
    ) -> None:
        """Read the head and the retained manifests; the first time, publish the empty epoch 0. url: where Spark's
        executors reach the client's server.

        Raises:
            StorageUnavailableError, EngineLeaseError, CorruptSnapshotError.
        """
        self._redis = client
        self._keys = Keys(database)
        self._lease = lease
        self._retention = retention or Retention()
        self._script = client.register_script(PUBLISH)
        self._stage_script = client.register_script(STAGE)
        self._url = url
        self._on_spark: OnSpark | None = None
        self.store = ObjectStore(client, self._keys, cache_bytes)
        self.store.stage = self._stage
        self._digester = Digester(self.store)
        self._references = References(self.store.children)
        self._retained: deque[_Retained] = deque()
        self._retained_bytes = 0
        self._unsettled: _Publication | None = None
        self.held: Callable[[], int | None] = lambda: None
        self._program: _Published | None = None
        self._holding = read_holding(client, self._keys)
        self._head = read_head(client, self._keys)
        self.incarnation = self._head.incarnation if self._head else secrets.token_hex(4)
        self._manifest: Manifest | None = None
        if self._head is None:
            self.publish(_EMPTY_EPOCH, (), START)
        else:
            self._load(self._head)

    @property
    def manifest(self) -> Manifest:
        """The newest published one."""
        assert self._manifest is not None
        return self._manifest

    @property
    def head(self) -> Head:
        assert self._head is not None
        return self._head

    def retained(self, epoch: int) -> Manifest:
        """The manifest of an epoch that is kept.

        Raises:
            EpochNotRetainedError: it is in the future, or no longer kept.
            StorageUnavailableError, CorruptSnapshotError.
        """
        if epoch == self.manifest.epoch:
            return self.manifest
        if not any(kept.epoch == epoch for kept in self._retained):
            oldest, newest = self._retained[0].epoch, self.manifest.epoch
            why = "is still to come" if epoch > newest else "is no longer kept"
            raise EpochNotRetainedError(
                f"epoch {epoch} {why}; the epochs {oldest} to {newest} are kept",
                epoch=epoch,
                oldest=oldest,
                newest=newest,
            )
        return self._read_manifests([epoch])[0]

    def publish(
        self,
        record: EpochRecord | None,
        outcomes: Sequence[tuple[str, Outcome]],
        last_transaction_id: str,
        trim_log_before: str | None = None,
    ) -> None:
        """Make an epoch (or, with None, outcomes alone) visible. `trim_log_before`: older log entries go.

        After StorageUnavailableError, call it again with the same arguments: the publication is done exactly once,
        whatever happened to the first attempt.

        Raises:
            StorageUnavailableError: Redis cannot be reached.
            EngineLeaseError: another engine has taken over, or the head in Redis is not the one that this
            writer
                left, or what was sent ahead is gone; nothing was written, and the writer must start again from Redis.
            SparkStateLostError, SparkUnavailableError: of a change that is on Spark; nothing was written.
        """
        if self._unsettled is None or self._unsettled.last_id != last_transaction_id:
            # Raises before anything of this object's own state has changed.
            self._unsettled = self._prepare(record, outcomes, last_transaction_id, trim_log_before or "")
        publication = self._unsettled
        self._send(publication)
        old = self._head
        processed = (old.processed if old else 0) + len(publication.outcomes)
        if publication.manifest is not None:
            self._manifest = publication.manifest
        epoch_time = repr(publication.time) if publication.manifest or old is None else old.epoch_time
        self._head = Head(self.manifest.epoch, publication.last_id, self.incarnation, processed, epoch_time)
        # Also what a merge made and another merge took up again, so that no manifest ever named it.
        for name in [*publication.dead, *self.store.pending, *self.store.ahead]:
            if name not in self._references:
                self.store.forget(name)
        self.store.begin()
        self._unsettled = None

    def _load(self, head: Head) -> None:
        newest = self._read_manifests([head.epoch])[0]
        older = self._read_manifests(range(newest.oldest, head.epoch))
        self._manifest = newest
        manifests = [*older, newest]
        self.store.load([name for manifest in manifests for name in manifest.children()])
        for manifest in manifests:
            self._references.add(manifest.children())
            self._retain(manifest)
        if newest.digest is None:
            self._manifest = self._digested(newest)

    def _digested(self, manifest: Manifest) -> Manifest:
        """A manifest of a version that did not have digests, or that could not compute them, with digests. What cannot
        be read stays without one: it may never be needed, and must not keep the engine from starting.
        """
        program = StoredProgram.decode(self.store.get([manifest.program_id])[0])
        relations = dict(manifest.relations)
        for name, entry in relations.items():
            if entry.digest is None:
                parts, schema = read_parts(self.store.relation(entry.id), self.store), program.schemas[name]
                try:
                    total = sum(self._digester.of_rows(schema, rows, manifest.symbols) for rows in parts)
                except CorruptSnapshotError as error:
                    logger.warning("%s has no digest: %s", name, error)
                    continue
                relations[name] = replace(entry, digest=total % MODULUS)
        digest = _digest_of(program_digest(program.rules, program.declarations), relations)
        return replace(manifest, relations=relations, digest=digest)

    def _retain(self, manifest: Manifest) -> None:
        self._retained.append(_Retained.of(manifest))
        self._retained_bytes += manifest.written

    def _read_manifests(self, epochs: Sequence[int]) -> list[Manifest]:
        if not epochs:
            return []
        with storage_errors():
            answers = cast(list[bytes | None], self._redis.mget([self._keys.manifest(e) for e in epochs]))
        missing = [epoch for epoch, data in zip(epochs, answers, strict=True) if data is None]
        if missing:
            raise CorruptSnapshotError(f"the manifest of epoch {missing[0]} is missing", epoch=missing[0])
        return [Manifest.decode(data) for data in answers if data is not None]

    def _prepare(
        self,
        record: EpochRecord | None,
        outcomes: Sequence[tuple[str, Outcome]],
        last_id: str,
        trim_before: str,
    ) -> _Publication:
        self.store.begin()
        if record is None:
            return _Publication(None, {}, [], [], [], [], outcomes, last_id, trim_before, b"")
        now = time.time()
        manifest = self._next_manifest(record, now)
        # From here on nothing fails: what the new manifest names is in memory.
        alive = self._references.add(manifest.children())
        self._retain(manifest)
        dead: list[str] = []
        dead_keys: list[str] = []
        while self._retained[0].epoch < manifest.oldest:
            gone = self._retained.popleft()
            self._retained_bytes -= gone.written
            dead_keys.append(self._keys.manifest(gone.epoch))
            dead += self._references.remove(gone.children)
        dead_keys += [self._keys.object(name) for name in dead]
        ahead = [name for name in alive if name in self.store.ahead]
        objects = {name: self.store.pending[name] for name in alive if name not in self.store.ahead}
        if self._on_spark is not None and self._on_spark.why:
            record = replace(
                record, reason=f"{record.reason}; published through the engine process: {self._on_spark.why}"
            )
        summary = _summary(record, now, outcomes, manifest.digest)
        # The next one is not known before this one has let go; it holds nothing older.
        late = self._holding
        released = [late] if late is not None and manifest.epoch - late.epoch > late.limit else []
        return _Publication(
            manifest, objects, ahead, dead, dead_keys, released, outcomes, last_id, trim_before, summary, now
        )

    def _next_manifest(self, record: EpochRecord, now: float) -> Manifest:
        before = self._manifest
        assert record.epoch == (before.epoch + 1 if before else 0), "epochs are numbered one after the other"
        symbols = before.symbols if before else ()
        assert not record.symbols or record.first_symbol == (before.symbol_count if before else 0), (
            "an epoch's symbols go on where the last one's ended"
        )
        for start in range(0, len(record.symbols), CHUNK_SYMBOLS):
            texts = record.symbols[start : start + CHUNK_SYMBOLS]
            self._digester.symbols.add(record.first_symbol + start, texts)
        after = append_symbols(
            forget_symbols(symbols, record.forgotten, self.store), record.symbols, self.store
        )
        self._prepare_spark(record.relations.values())
        relations = dict(before.relations) if before else {}
        changes: dict[str, Segment] = {}
        # What a relation held with other types goes before what it holds now comes.
        for key in sorted(record.relations, reverse=True):
            name, change = changed_name(key), record.relations[key]
            if not change.rows:
                continue
            entry = relations.pop(name, None)
            old = self.store.relation(entry.id) if entry else None
            counts = entry.counts if entry else EMPTY
            schema = record.changed_schemas[key]
            digest: int | None
            if isinstance(change, RelationChange):
                digest = self._digest_after(entry, schema, change, symbols)
                relation, counts, changes[key] = apply_change(old, counts, change, self.store)
            else:
                assert self._on_spark is not None, "it was prepared"
                known = entry.digest if entry else 0
                wanted = None if known is None else schema
                relation, counts, changes[key], more = self._on_spark.apply(
                    old, counts, change, wanted, after
                )
                digest = None if known is None or more is None else (known + more) % MODULUS
            assert key == name or not counts.all, "a relation that is replaced is emptied first"
            if counts.all:
                relations[name] = RelationEntry(self.store.put_relation(relation), counts, digest)
        program = self._published_program(record)
        return Manifest(
            epoch=record.epoch,
            oldest=self._oldest_retained(record.epoch, now),
            incarnation=self.incarnation,
            time=now,
            program_id=program.id,
            relations=relations,
            symbols=after,
            changes=changes,
            changed_schemas={
                name: record.changed_schemas[name]
                for name in changes
                if record.changed_schemas[name] != record.schemas.get(name)
            },
            written=self.store.written,
            digest=_digest_of(program.digest, relations),
            away=record.away,
        )

    def _prepare_spark(self, changes: Iterable[Change]) -> None:
        """Where a change is on Spark, let executors read what they need of this publication."""
        if self._on_spark is not None:
            self._on_spark.why = ""
        if all(isinstance(change, RelationChange) for change in changes):
            return
        if self._on_spark is None:
            # It loads Spark's packages, which only an engine that has used Spark has.
            from engine.storage.by_executors import ByExecutors

            generation = str(self._lease.generation)
            self._on_spark = ByExecutors(self._url, self._keys.database, generation, self.store)
        self.store.send_ahead()

    def _digest_after(
        self,
        entry: RelationEntry | None,
        schema: Schema,
        change: RelationChange,
        symbols: tuple[SymbolChunk, ...],
    ) -> int | None:
        """The digest of a relation after a change; None if it is not known. What is damaged elsewhere must not keep an
        epoch from being published.
        """
        before = entry.digest if entry else 0
        if before is None:
            return None
        try:
            return self._digester.changed(before, schema, change, symbols)
        except CorruptSnapshotError as error:
            logger.error("%s has no digest from now on: %s", schema.relation, error)
            return None

    def _published_program(self, record: EpochRecord) -> _Published:
        """The object of the record's program; that of the last epoch, if it has the same rules and schemas."""
        before, last = self._manifest, self._program
        if before is not None and last is not None and before.program_id == last.id:
            unchanged = record.rules is last.rules and record.schemas is last.schemas
            if unchanged and record.declarations == last.declarations:
                return last
        program = StoredProgram(record.rules, record.declarations, dict(record.schemas))
        id_ = self.store.put(PROGRAM, program.encode())
        digest = program_digest(record.rules, record.declarations)
        self._program = _Published(id_, record.rules, record.schemas, record.declarations, digest)
        return self._program

    def _oldest_retained(self, epoch: int, now: float) -> int:
        """Each epoch is looked at until it goes, so this costs what goes."""
        kept, held, read = self._retention, self._holding, self.held()
        size = self._retained_bytes
        for number, retained in enumerate(self._retained):
            age = epoch - retained.epoch
            recent = age < kept.epochs or retained.time > now - kept.seconds
            if recent or number == _MOST_REMOVED or (read is not None and retained.epoch >= read):
                return retained.epoch
            within = age <= kept.subscribed_epochs and size <= kept.subscribed_bytes
            if held is not None and retained.epoch >= held.epoch and within:
                return retained.epoch
            size -= retained.written
        return epoch

    def _send(self, publication: _Publication) -> None:
        while True:
            size = sum(map(len, publication.objects.values()))
            large = size > _INLINE_BYTES or publication.ahead
            staged = [*publication.ahead, *self._stage(publication.objects)] if large else []
            with storage_errors():
                answer = cast(
                    Any, self._script(keys=self._script_keys(), args=self._args(publication, staged))
                )
            if isinstance(answer, list):
                self._holding = _Holding.decode(answer[1:])
                return
            if answer == b"done":
                return
            if answer == b"fenced":
                raise EngineLeaseError(
                    f"another engine has taken over the database {shown(self._keys.database)}"
                )
            if answer == b"stale":
                raise EngineLeaseError(
                    f"the database {shown(self._keys.database)} in Redis was changed by something other than its engine"
                )
            # A server that was restarted may have lost what was sent ahead: send it again.
            assert answer == b"missing", answer
            self._check_ahead(publication)

    def _check_ahead(self, publication: _Publication) -> None:
        """Raise EngineLeaseError if something is gone that cannot be sent again."""
        names = publication.ahead
        for start in range(0, len(names), FETCH_OBJECTS):
            part = [self._keys.object(name) for name in names[start : start + FETCH_OBJECTS]]
            with storage_errors():
                there = self._redis.exists(*part)
            if there < len(part):
                raise EngineLeaseError(
                    f"what was written ahead for the next epoch of the database {shown(self._keys.database)} is not in "
                    "Redis any more: the server lost it, or the publication took more than six hours"
                )

    def _stage(self, objects: Mapping[str, bytes]) -> list[str]:
        names = list(objects)
        start = 0
        while start < len(names):
            portion: list[str | bytes] = []
            size = 0
            while start < len(names) and size < PORTION_BYTES:
                data = objects[names[start]]
                portion += [self._keys.object(names[start]), data]
                size += len(data)
                start += 1
            with storage_errors():
                self._stage_script(args=[STAGED_SECONDS, *portion])
        return names

    def _script_keys(self) -> list[str]:
        keys = self._keys
        named = [keys.generation, keys.head, keys.results, keys.epochs, keys.published, keys.log, keys.lease]
        return [*named, keys.holding, keys.subscriptions]

    def _args(self, publication: _Publication, staged: list[str]) -> list[Any]:
        manifest, old = publication.manifest, self._head
        pairs: list[Any] = []
        if manifest is not None:
            pairs += [self._keys.manifest(manifest.epoch), manifest.encode()]
        if not staged:
            for name, data in publication.objects.items():
                pairs += [self._keys.object(name), data]
        outcomes: list[Any] = []
        for transaction_id, outcome in publication.outcomes:
            meta = orjson.dumps({**outcome.meta, "time": publication.time})
            outcomes += [transaction_id, outcome.status, orjson.dumps(outcome.body), meta]
        return [
            self._lease.generation,
            self._lease.owner,
            self._lease.ttl_ms,
            old.epoch if old else "",
            old.last_id if old else "",
            manifest.epoch if manifest else "",
            publication.last_id,
            len(publication.outcomes),
            repr(publication.time),
            self.incarnation,
            publication.summary,
            self._retention.results,
            self._retention.summaries,
            publication.trim_before,
            len(staged),
            *(self._keys.object(name) for name in staged),
            len(pairs) // 2,
            *pairs,
            len(publication.outcomes),
            *outcomes,
            len(publication.dead_keys),
            *publication.dead_keys,
            len(publication.released),
            *(part for one in publication.released for part in (one.name, one.epoch)),
        ]


def read_head(client: redis.Redis, keys: Keys) -> Head | None:
    """The newest publication, or None."""
    with storage_errors():
        return Head.decode(cast(list[bytes | None], client.hmget(keys.head, list(FIELDS))))


def read_holding(client: redis.Redis, keys: Keys) -> _Holding | None:
    """The subscription that holds the oldest epoch, or None."""
    with storage_errors():
        answer = client.eval(LOWEST, 2, keys.holding, keys.subscriptions)
    return _Holding.decode(cast(list[bytes], answer))


_EMPTY_EPOCH = EpochRecord(
    epoch=0,
    relations={},
    rules=(),
    schemas={},
    changed_schemas={},
    declarations="",
    first_symbol=0,
    symbols=(),
    strategy="bootstrap",
    placement="resident",
    derivations=0,
    reason="a new database",
    elapsed_ms=0.0,
)


def _digest_of(program: int, relations: Mapping[str, RelationEntry]) -> int | None:
    """The digest of an epoch; None if that of one of its relations is not known."""
    digests = [entry.digest for entry in relations.values()]
    known = [digest for digest in digests if digest is not None]
    return epoch_digest(program, known) if len(known) == len(digests) else None


def _summary(
    record: EpochRecord, now: float, outcomes: Sequence[tuple[str, Outcome]], digest: int | None
) -> bytes:
    changes = {name: {"inserted": i, "deleted": d} for name, (i, d) in record.counts.items()}
    return orjson.dumps(
        {
            "epoch": record.epoch,
            "time": now,
            "transactions": len(outcomes),
            # They follow one another in the log, and in the results.
            "first_transaction": outcomes[0][0] if outcomes else None,
            "last_transaction": outcomes[-1][0] if outcomes else None,
            "digest": in_hex(digest),
            "changes": changes,
            "strategy": record.strategy,
            "placement": record.placement,
            "derivations": record.derivations,
            "cost": record.cost,
            "reason": record.reason,
            "elapsed_ms": record.elapsed_ms,
        }
    )
