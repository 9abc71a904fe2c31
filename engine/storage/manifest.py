"""What a snapshot consists of: manifests, from one epoch down to the blocks.

    manifest of an epoch -> relation -> segments (base, then delta runs, oldest first) -> blocks
                         -> program (rules, declarations, schemas), symbol chunks, the epoch's changes

Everything below the epoch's manifest is an *object*: immutable, named by a hash of its content, shared by
every epoch that has it. So an epoch writes a small manifest (one line per relation), a relation object for
each changed relation, and the new blocks; it costs nothing for what did not change, however large that is.

A segment of one block names it in place; a larger one has an index object of its own, because the list of the
base's blocks must not be written again with every epoch.
"""

from __future__ import annotations

import base64
import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from engine.database.epoch import RuleInfo
from engine.errors import CorruptSnapshotError
from engine.language.schema import Column, ColumnType, Schema
from engine.storage.rows import Key

FORMAT = 1
BLOCK, SEGMENT, RELATION, PROGRAM, SYMBOLS = "b", "s", "r", "p", "y"

_ID_BYTES = 16
_ID_CHARACTERS = 1 + 22  # the kind, and 16 bytes in URL-safe base 64 without padding
_INDEX_HEADER = struct.Struct("<4sHI")  # magic, arity, blocks
_INDEX_MAGIC = b"Zs1\0"

Bounds = npt.NDArray[np.int64]


def in_hex(digest: int | None) -> str | None:
    """A digest as it is stored and shown: 32 hexadecimal digits. None stays None: the digest is not known."""
    return None if digest is None else f"{digest:032x}"


def from_hex(text: str | None) -> int | None:
    """The inverse of `in_hex`. Raises ValueError."""
    return None if text is None else int(text, 16)


def object_id(kind: str, data: bytes) -> str:
    """The name of an object: its kind and a 128-bit hash of its content."""
    digest = hashlib.blake2b(data, digest_size=_ID_BYTES, person=kind.encode()).digest()
    return kind + base64.urlsafe_b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class TupleCounts:
    """How many tuples a relation has; one that is asserted and derived counts in both."""

    all: int
    asserted: int
    derived: int


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """The blocks of a segment, in the order of their keys.

    rows int64[b]; first, last int64[b, arity]: the smallest and largest tuple of a block in the order of the
    rows; low, high int64[b, arity]: the smallest and largest code of each column.
    """

    ids: tuple[str, ...]
    rows: npt.NDArray[np.int64]
    first: Bounds
    last: Bounds
    low: Bounds
    high: Bounds

    def __len__(self) -> int:
        return len(self.ids)

    def last_key(self, block: int) -> Key:
        return tuple(int(code) for code in self.last[block])

    def encode(self) -> bytes:
        arrays = [self.rows, self.first, self.last, self.low, self.high]
        head = _INDEX_HEADER.pack(_INDEX_MAGIC, self.first.shape[1], len(self.ids))
        return head + b"".join(a.astype("<i8").tobytes() for a in arrays) + "".join(self.ids).encode()

    @classmethod
    def decode(cls, data: bytes) -> BlockIndex:
        try:
            magic, arity, count = _INDEX_HEADER.unpack_from(data)
            if magic != _INDEX_MAGIC:
                raise CorruptSnapshotError("a block index of the snapshot has an unknown format")
            offset = _INDEX_HEADER.size
            rows = np.frombuffer(data, "<i8", count, offset).astype(np.int64)
            offset += 8 * count
            bounds: list[Bounds] = []
            for _ in range(4):
                raw = np.frombuffer(data, "<i8", count * arity, offset)
                bounds.append(raw.astype(np.int64).reshape(count, arity))
                offset += 8 * count * arity
            names = data[offset:].decode("ascii")
        except (struct.error, ValueError) as error:
            raise CorruptSnapshotError(f"a block index of the snapshot is damaged: {error}") from error
        if len(names) != count * _ID_CHARACTERS:
            raise CorruptSnapshotError(
                "a block index of the snapshot is damaged: it does not name all blocks"
            )
        ids = tuple(names[i : i + _ID_CHARACTERS] for i in range(0, len(names), _ID_CHARACTERS))
        return cls(ids, rows, *bounds)


@dataclass(frozen=True, slots=True)
class Segment:
    """Sorted blocks: the base of a relation, or a delta run. It has an `index_id`, or one block in place."""

    rows: int
    index_id: str | None
    block: BlockIndex | None

    def to_json(self) -> list[Any]:
        if self.block is None:
            return [self.rows, self.index_id]
        bounds = [b[0].tolist() for b in (self.block.first, self.block.last, self.block.low, self.block.high)]
        return [self.rows, self.block.ids[0], *bounds]

    @classmethod
    def from_json(cls, data: list[Any]) -> Segment:
        rows, name, *bounds = data
        if not bounds:
            return cls(rows, name, None)
        first, last, low, high = (np.array([b], np.int64).reshape(1, len(b)) for b in bounds)
        return cls(rows, None, BlockIndex((name,), np.array([rows], np.int64), first, last, low, high))

    @property
    def child(self) -> str:
        """The object that holds it: its index, or its only block."""
        if self.block is not None:
            return self.block.ids[0]
        assert self.index_id is not None
        return self.index_id


@dataclass(frozen=True, slots=True)
class RelationManifest:
    """The segments of a relation: the base, then runs, oldest first; the newest row of a tuple is its
    state."""

    arity: int
    segments: tuple[Segment, ...]

    def encode(self) -> bytes:
        return orjson.dumps({"arity": self.arity, "segments": [s.to_json() for s in self.segments]})

    @classmethod
    def decode(cls, data: bytes) -> RelationManifest:
        with_json = _json(data, "a relation")
        try:
            return cls(with_json["arity"], tuple(Segment.from_json(s) for s in with_json["segments"]))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptSnapshotError(f"a relation of the snapshot is damaged: {error}") from error


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """Rules, declarations and schemas of an epoch."""

    rules: tuple[RuleInfo, ...]
    declarations: str
    schemas: dict[str, Schema]

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "rules": [[r.id, r.text, r.canonical, r.weight] for r in self.rules],
                "declarations": self.declarations,
                "schemas": _schemas_to_json(self.schemas),
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> StoredProgram:
        parsed = _json(data, "the program")
        try:
            schemas = _schemas_from_json(parsed["schemas"])
            return cls(tuple(RuleInfo(*rule) for rule in parsed["rules"]), parsed["declarations"], schemas)
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptSnapshotError(f"the program of the snapshot is damaged: {error}") from error


@dataclass(frozen=True, slots=True)
class SymbolChunk:
    """The symbols with the codes first <= code < first + count. Some may have been forgotten, and between two chunks
    there may be a gap where all were; the last chunk stays, for the next code follows from it."""

    id: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class RelationEntry:
    """A relation's line in the manifest of an epoch. digest: of its rows (engine/storage/digests.py); None in a
    manifest of a version that did not have digests."""

    id: str
    counts: TupleCounts
    digest: int | None = None


@dataclass(frozen=True, slots=True)
class Manifest:
    """One epoch. `time` is when it was published, in seconds since 1970. `changes` are this epoch's own;
    `changed_schemas` are of changed relations that the epoch left without a schema, or with another one.

    `oldest` is the oldest epoch that was retained when this one was published. `written` are the bytes of the objects
    that this epoch wrote. `digest` is of the whole epoch, its program included; None in a manifest of a version that
    did not have digests. `away` are the relations that the engine has on Spark, with the reason in words (`EVERYTHING`
    stands for all); None in a manifest of a version that did not say.
    """

    epoch: int
    oldest: int
    incarnation: str
    time: float
    program_id: str
    relations: Mapping[str, RelationEntry]
    symbols: tuple[SymbolChunk, ...]
    changes: Mapping[str, Segment]
    changed_schemas: Mapping[str, Schema]
    written: int = 0
    digest: int | None = None
    away: Mapping[str, str] | None = None

    @property
    def symbol_count(self) -> int:
        return self.symbols[-1].first + self.symbols[-1].count if self.symbols else 0

    def children(self) -> list[str]:
        """The objects that it names directly."""
        own = [self.program_id, *(e.id for e in self.relations.values()), *(c.id for c in self.symbols)]
        return own + [segment.child for segment in self.changes.values()]

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "format": FORMAT,
                "epoch": self.epoch,
                "oldest": self.oldest,
                "incarnation": self.incarnation,
                "time": self.time,
                "program": self.program_id,
                "relations": {
                    name: [e.id, e.counts.all, e.counts.asserted, e.counts.derived]
                    for name, e in self.relations.items()
                },
                "symbols": [[c.id, c.first, c.count] for c in self.symbols],
                "changes": {name: segment.to_json() for name, segment in self.changes.items()},
                "changed_schemas": _schemas_to_json(self.changed_schemas),
                "written": self.written,
                # Beside the relations' lines, so that a version that does not know digests can read the rest.
                "digest": in_hex(self.digest),
                "digests": {name: in_hex(e.digest) for name, e in self.relations.items()},
                "away": self.away,
            }
        )

    @classmethod
    def decode(cls, data: bytes) -> Manifest:
        parsed = _json(data, "the manifest")
        try:
            digests = parsed.get("digests", {})
            if parsed["format"] != FORMAT:
                raise CorruptSnapshotError(
                    f"the snapshot has format {parsed['format']}; this version reads format {FORMAT}"
                )
            return cls(
                epoch=parsed["epoch"],
                oldest=parsed["oldest"],
                incarnation=parsed["incarnation"],
                time=parsed["time"],
                program_id=parsed["program"],
                relations={
                    name: RelationEntry(entry[0], TupleCounts(*entry[1:]), from_hex(digests.get(name)))
                    for name, entry in parsed["relations"].items()
                },
                symbols=tuple(SymbolChunk(*chunk) for chunk in parsed["symbols"]),
                changes={name: Segment.from_json(s) for name, s in parsed["changes"].items()},
                changed_schemas=_schemas_from_json(parsed["changed_schemas"]),
                written=parsed.get("written", 0),
                digest=from_hex(parsed.get("digest")),
                away=parsed.get("away"),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise CorruptSnapshotError(f"the manifest of an epoch is damaged: {error}") from error


def encode_symbols(symbols: Sequence[str | None]) -> bytes:
    """A chunk of symbols; None for one that was forgotten, and nothing for those at the end."""
    length = next((i for i in range(len(symbols), 0, -1) if symbols[i - 1] is not None), 0)
    return orjson.dumps(list(symbols[:length]))


def decode_symbols(data: bytes) -> list[str | None]:
    """The inverse of `encode_symbols`, without the forgotten symbols at the end."""
    parsed = _json(data, "a symbol chunk")
    if not isinstance(parsed, list):
        raise CorruptSnapshotError("a symbol chunk of the snapshot is damaged: it is not a list")
    return parsed


def _schemas_to_json(schemas: Mapping[str, Schema]) -> dict[str, Any]:
    return {
        name: [schema.declared, [[c.name, c.type and c.type.value] for c in schema.columns]]
        for name, schema in sorted(schemas.items())
    }


def _schemas_from_json(parsed: Mapping[str, Any]) -> dict[str, Schema]:
    return {
        name: Schema(name, tuple(Column(c, t and ColumnType(t)) for c, t in columns), declared)
        for name, (declared, columns) in parsed.items()
    }


def _json(data: bytes, what: str) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise CorruptSnapshotError(f"{what} of the snapshot is damaged: {error}") from error
