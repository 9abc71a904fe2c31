"""The snapshot in Redis, verified: every object that a manifest names, and the digests of the relations.

In: the manifest of an epoch as its publisher has it, and a connection. Out: differences in a `Report`, and the rows of
the relations whose objects are all undamaged. All objects are read once, at the beginning, and kept as they are stored
(some bytes a tuple) up to a limit; so an epoch that leaves the retention later on does not disturb the audit. One that
leaves it before that is not a difference: then the snapshot is not compared, and the report says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import orjson
import redis

from engine.audit.memory import MEMORY, Decode, named
from engine.audit.report import Report
from engine.errors import CorruptSnapshotError
from engine.storage.compaction import read_facts, read_parts
from engine.storage.connection import storage_errors
from engine.storage.digests import MODULUS, Digester, epoch_digest, program_digest
from engine.storage.keys import Keys
from engine.storage.manifest import (
    BLOCK,
    Manifest,
    RelationEntry,
    RelationManifest,
    Segment,
    StoredProgram,
    decode_symbols,
    in_hex,
    object_id,
)
from engine.storage.objects import FETCH_OBJECTS, ObjectStore
from engine.storage.rows import Rows, concatenate, sort_order

SNAPSHOT = "snapshot"
_DIGESTS = ("digest", "digests")
Wanted = tuple[str, str | None, str]
"""An object: its name, the relation that cannot be read without it, and what it is."""


class NotRetained(Exception):
    """The epoch has left the retention."""


class Stored:
    """See the module. keep: so many bytes of objects are kept in memory; the others are read again when needed."""

    def __init__(
        self, report: Report, client: redis.Redis, keys: Keys, manifest: Manifest, keep: int = 1 << 30
    ) -> None:
        self._report, self._redis, self._keys = report, client, keys
        self.manifest = manifest
        self._store = ObjectStore(client, keys, 0)
        self._digester = Digester(self._store)
        self._keep = keep
        self._read: set[str] = set()
        self._bad: set[str] = set()
        self.damaged: set[str] = set()
        """The relations with an object that is missing or damaged."""
        self.program: StoredProgram | None = None

    def read(self) -> None:
        """Read and verify the manifest and all objects.

        Raises:
            NotRetained: the epoch has left the retention meanwhile; nothing was noted about its objects.
            StorageUnavailableError: Redis cannot be reached.
        """
        self._check_manifest()
        manifest = self.manifest
        self._fetch([(manifest.program_id, None, "the program")])
        if manifest.program_id not in self._bad:
            self.program = StoredProgram.decode(self._store.pending[manifest.program_id])
        self._fetch([(chunk.id, None, "a chunk of symbols") for chunk in manifest.symbols])
        self._fetch(
            [(e.id, name, f"the list of segments of {name}") for name, e in manifest.relations.items()]
        )
        segments: list[tuple[str | None, str, Segment]] = [
            (None, f"the changes of {name}", segment) for name, segment in manifest.changes.items()
        ]
        for name, entry in manifest.relations.items():
            if entry.id not in self._bad:
                relation = RelationManifest.decode(self._store.pending[entry.id])
                segments += [(name, name, segment) for segment in relation.segments]
        indexes = [(s.child, at, f"an index of blocks of {of}") for at, of, s in segments if s.block is None]
        self._fetch(indexes)
        blocks: list[Wanted] = []
        for at, of, segment in segments:
            if segment.block is not None or segment.child not in self._bad:
                blocks += [(block, at, f"a block of {of}") for block in self._store.index(segment).ids]
        self._fetch(blocks)
        # Whatever else it names.
        self._fetch([(name, None, "an object") for name in manifest.children()])

    def _check_manifest(self) -> None:
        manifest = self.manifest
        with storage_errors():
            data = cast(bytes | None, self._redis.get(self._keys.manifest(manifest.epoch)))
        what = f"the manifest of epoch {manifest.epoch}"
        if data is None:
            self._check_retained(missing=True)
            return
        try:
            stored = orjson.loads(Manifest.decode(data).encode())
        except CorruptSnapshotError as error:
            self._report.add("manifest", SNAPSHOT, f"{what} cannot be read: {error.message}")
            return
        right = orjson.loads(manifest.encode())
        for field in sorted(right.keys() - set(_DIGESTS)):
            if stored[field] != right[field]:
                self._report.add("manifest", SNAPSHOT, f"{what} has another {field} than was published")
        for relation, digest in stored["digests"].items():
            if digest not in (None, right["digests"].get(relation)):
                self._report.add(
                    "digest",
                    SNAPSHOT,
                    f"{what} has another digest than was published",
                    relation,
                    None,
                    right["digests"].get(relation),
                    digest,
                )
        if stored["digest"] not in (None, right["digest"]):
            self._report.add(
                "digest",
                SNAPSHOT,
                f"{what} has another digest of the epoch",
                None,
                None,
                right["digest"],
                stored["digest"],
            )

    def _check_retained(self, missing: bool = False) -> None:
        """Raise NotRetained if the epoch is not kept any more."""
        epoch = self.manifest.epoch
        with storage_errors():
            pipeline = self._redis.pipeline(transaction=True)
            pipeline.exists(self._keys.manifest(epoch))
            pipeline.hget(self._keys.head, "epoch")
            there, head = pipeline.execute()
            newest = cast(bytes | None, self._redis.get(self._keys.manifest(int(head or -1))))
        if there:
            return
        if newest is not None and int(orjson.loads(newest)["oldest"]) > epoch:
            raise NotRetained
        if missing:
            self._report.add("manifest", SNAPSHOT, f"the manifest of epoch {epoch} is missing")

    def _fetch(self, wanted: list[Wanted]) -> None:
        """Read objects, compare them with their names, and keep them."""
        users: dict[str, Wanted] = {}
        for one in wanted:
            # What a relation cannot do without goes before what only tells of an epoch's changes.
            if one[0] not in users or one[1] is not None:
                users[one[0]] = one
        names = [name for name in users if name not in self._read]
        self._read.update(names)
        for start in range(0, len(names), FETCH_OBJECTS):
            part = names[start : start + FETCH_OBJECTS]
            with storage_errors():
                found = cast(list[bytes | None], self._redis.mget([self._keys.object(name) for name in part]))
            for name, data in zip(part, found, strict=True):
                self._take(users[name], data)
        self.damaged |= {of for name, of, _ in users.values() if name in self._bad and of is not None}

    def _take(self, wanted: Wanted, data: bytes | None) -> None:
        name, relation, what = wanted
        if data is None:
            self._check_retained()
            self._bad.add(name)
            self._report.add("object", SNAPSHOT, f"{what} is missing: {name}", relation)
            return
        self._report.objects += 1
        self._report.bytes += len(data)
        held = object_id(name[0], data)
        if held != name:
            self._bad.add(name)
            self._report.add(
                "object",
                SNAPSHOT,
                f"{what} is damaged: its content is not what its name says",
                relation,
                None,
                name,
                held,
            )
        elif name[0] != BLOCK or self._report.bytes <= self._keep:
            self._store.pending[name] = data

    # ---- what is stored, where it is undamaged

    def parts(self, relation: str) -> Iterator[Rows]:
        """The rows of a relation, in order and in parts."""
        return read_parts(self._store.relation(self.manifest.relations[relation].id), self._store)

    def facts(self, relation: str) -> Rows:
        """The rows that are asserted."""
        return read_facts(self._store.relation(self.manifest.relations[relation].id), self._store)

    @property
    def has_symbols(self) -> bool:
        """Whether all symbols are there."""
        return not any(chunk.id in self._bad for chunk in self.manifest.symbols)

    def digest(self, relation: str, rows: Rows) -> int:
        """The digest of these rows as rows of a relation; by the texts of the stored symbols.

        Raises:
            CorruptSnapshotError: a tuple has a symbol that is not there.
        """
        assert self.program is not None, "the program has been read"
        return self._digester.of_rows(self.program.schemas[relation], rows, self.manifest.symbols)

    def check_digests(self) -> None:
        """Compare the digests and counts of the manifest with those of the rows that are stored."""
        if self.program is None or not self.has_symbols:
            self._report.leave_out(
                "the digests of the snapshot, because the program or symbols are missing or damaged"
            )
            return
        digests: list[int] = []
        for name, entry in sorted(self.manifest.relations.items()):
            if name in self.damaged:
                continue
            total, counts = 0, np.zeros(3, np.int64)
            try:
                for rows in self.parts(name):
                    total += self.digest(name, rows)
                    counts += (
                        np.count_nonzero(~rows.hidden),
                        np.count_nonzero(rows.asserted),
                        np.count_nonzero(rows.derived),
                    )
            except CorruptSnapshotError as error:
                self._check_retained()
                self._report.add("symbol", SNAPSHOT, error.message, name)
                continue
            digests.append(total % MODULUS)
            self._compare_digest(name, entry, digests[-1], tuple(counts.tolist()))
        if len(digests) == len(self.manifest.relations) and self.manifest.digest is not None:
            program = program_digest(self.program.rules, self.program.declarations)
            whole = epoch_digest(program, digests)
            if whole != self.manifest.digest:
                what = "the digest of the epoch is not that of its program and relations"
                self._report.add(
                    "digest", SNAPSHOT, what, None, None, in_hex(self.manifest.digest), in_hex(whole)
                )

    def _compare_digest(self, name: str, entry: RelationEntry, digest: int, counts: tuple[int, ...]) -> None:
        if entry.digest is None:
            self._report.leave_out("digests that a version without digests did not record")
        elif entry.digest != digest:
            what = "the stored rows have another digest than their manifest"
            self._report.add("digest", SNAPSHOT, what, name, None, in_hex(entry.digest), in_hex(digest))
        if counts != (entry.counts.all, entry.counts.asserted, entry.counts.derived):
            what = "the stored rows are not as many (all, asserted, derived) as the manifest says"
            wanted = [entry.counts.all, entry.counts.asserted, entry.counts.derived]
            self._report.add("counts", SNAPSHOT, what, name, None, wanted, list(counts))

    def check_symbols(self, held: Sequence[str | None]) -> None:
        """Compare the symbols that the engine holds, by their codes, with the stored ones."""
        for chunk in self.manifest.symbols:
            if chunk.id in self._bad:
                continue
            texts = decode_symbols(self._store.pending[chunk.id])
            for i, (stored, own) in enumerate(
                zip(texts, held[chunk.first : chunk.first + len(texts)], strict=False)
            ):
                # What either side has forgotten stands for nothing any more.
                if stored != own and stored is not None and own is not None:
                    what = f"the engine holds another text for the symbol of code {chunk.first + i}"
                    self._report.add("symbol", MEMORY, what, None, None, stored, own)


def compare_rows(
    report: Report, place: str, relation: str, expected: Rows, found: Rows, decode: Decode
) -> None:
    """Compare rows with those that are expected; both sorted. place: where the found ones are; the expected ones of
    memory are those of the snapshot. A height of 0 in the snapshot may be one that is not known, because a version
    without heights has published the row: it is not compared.
    """
    fields = Rows.__slots__
    if all(np.array_equal(getattr(expected, field), getattr(found, field)) for field in fields):
        return
    both = concatenate([expected, found], expected.arity)
    order = sort_order(both.codes)
    codes = both.codes.take(order, axis=0)
    # The sort is stable: of two equal tuples the expected one comes first.
    twin = np.zeros(len(order) + 1, np.bool_)
    twin[1:-1] = (codes[1:] == codes[:-1]).all(axis=1)
    alone = order[~twin[:-1] & ~twin[1:]]
    for places, what, sides in (
        (alone[alone >= len(expected)], "is there, but does not follow", ("absent", "present")),
        (alone[alone < len(expected)], "follows, but is not there", ("present", "absent")),
    ):
        for values in named(report, both.codes, places, decode):
            report.add("tuple", place, what, relation, values, *sides)
    firsts = np.flatnonzero(twin[1:])
    right, other = order[firsts], order[firsts + 1]
    known = both.heights[other if place == SNAPSHOT else right] != 0
    for kind, column in (
        ("weight", both.asserted),
        ("derived", both.derived),
        ("hidden", both.hidden),
        ("height", both.heights),
    ):
        differ = column[right] != column[other]
        off = np.flatnonzero(differ & known if kind == "height" else differ)
        tuples = named(report, both.codes, right[off], decode)
        for i, values in zip(off[: len(tuples)].tolist(), tuples, strict=True):
            wanted, got = column[right[i]].item(), column[other[i]].item()
            report.add(kind, place, f"has another value of {kind}", relation, values, wanted, got)
