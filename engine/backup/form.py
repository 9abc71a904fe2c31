"""What is in a backup: the names of its members, its manifest, and the words for a stranger who finds it.

A backup is a zip without compression of its own. In it: `facts/RELATION.parquet` for each relation that has facts (in
`sources/` what single sources assert), `program.dl`, `rules.json`, `README.txt`, and as the last member
`manifest.json`, with the SHA-256 of all the others. The zip ends with a comment that has the SHA-256 of everything
before it, so that no byte of a backup can change unnoticed, those of the zip's own structure included.

Derived tuples are not in it, because they follow from the rest; their numbers (and digests, where the epoch has them)
are, so that a restore can be compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from engine.data.sources import origin
from engine.language.schema import Column, ColumnType, Schema

FORMAT: Final = 1
"""Grows when an older version could no longer read what is written. Every version reads the formats before its own."""
PRODUCT: Final = "zedlog"
MANIFEST, PROGRAM, RULES, README = "manifest.json", "program.dl", "rules.json", "README.txt"
TEXTS: Final = (PROGRAM, RULES, README)
FACTS, SOURCES = "facts", "sources"
WEIGHT: Final = "weight"
MEMBER_NAME: Final = re.compile(
    r"(README\.txt|program\.dl|rules\.json|manifest\.json|(facts|sources)/[A-Za-z0-9_-][A-Za-z0-9_.-]*\.parquet)",
    re.ASCII,
)
"""The names that members may have; none of them leads out of the folder that a backup is unpacked in."""

_COMMENT_HEAD: Final = b"zedlog backup, sha256 "
COMMENT_BYTES: Final = len(_COMMENT_HEAD) + 64
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Member:
    """A file in the zip. rows: of a file of facts."""

    name: str
    bytes: int
    sha256: str
    rows: int | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A relation, or a hidden collection of what one source asserts of it, as the epoch had it.

    tuples: how many there are (`all`), how many are facts (`asserted`), and how many rules derive (`derived`). digest:
    of its content, where the epoch has one. file: the member with its facts; None if it has none.
    """

    schema: Schema
    tuples: Mapping[str, int]
    digest: str | None = None
    file: str | None = None
    hidden: bool = False

    @property
    def name(self) -> str:
        return self.schema.relation

    @property
    def place(self) -> dict[str, str]:
        """The relation and, of a hidden collection, the source."""
        found = origin(self.name) if self.hidden else None
        return {"relation": self.name} if found is None else {"relation": found[0], "source": found[1]}

    @property
    def types(self) -> list[ColumnType]:
        """The types of its columns, all of which are known where there are facts."""
        return [column.type or ColumnType.SYMBOL for column in self.schema.columns]

    def field_names(self) -> list[str]:
        """The names of the file's columns: the relation's, then `weight`, with underscores where that is taken."""
        names = [column.name for column in self.schema.columns]
        weight = WEIGHT
        while weight in names:
            weight = f"_{weight}"
        return [*names, weight]


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """`manifest.json`. time: when the epoch was published; written: when the backup was. Seconds since 1970."""

    version: str
    database: str
    epoch: int
    token: str
    time: float
    written: float
    declarations: str
    rules: int
    collections: Sequence[Collection]
    files: Sequence[Member]
    format: int = FORMAT

    def encode(self) -> bytes:
        body = {
            "product": PRODUCT,
            "format": self.format,
            "version": self.version,
            "database": self.database,
            "epoch": self.epoch,
            "token": self.token,
            "time": self.time,
            "written": self.written,
            "declarations": self.declarations,
            "rules": self.rules,
            "relations": [_collection_json(one) for one in self.collections],
            "files": [
                {"name": f.name, "bytes": f.bytes, "sha256": f.sha256}
                | ({} if f.rows is None else {"rows": f.rows})
                for f in self.files
            ],
        }
        return orjson.dumps(body, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def decode(cls, body: Mapping[str, Any]) -> BackupManifest:
        """Raises KeyError, TypeError or ValueError: it is not what `encode` writes."""
        return cls(
            version=str(body["version"]),
            database=str(body["database"]),
            epoch=int(body["epoch"]),
            token=str(body["token"]),
            time=float(body["time"]),
            written=float(body["written"]),
            declarations=str(body["declarations"]),
            rules=int(body["rules"]),
            collections=[_collection(one) for one in body["relations"]],
            files=[Member(f["name"], int(f["bytes"]), f["sha256"], f.get("rows")) for f in body["files"]],
            format=int(body["format"]),
        )

    @property
    def rows(self) -> int:
        """How many facts there are in all relations."""
        return sum(one.tuples["asserted"] for one in self.collections if not one.hidden)


def _collection_json(one: Collection) -> dict[str, Any]:
    return {
        "name": one.name,
        "hidden": one.hidden,
        # For those who read it without us; the name says the same.
        **(one.place if one.hidden else {}),
        "declared": one.schema.declared,
        "columns": [{"name": c.name, "type": c.type and c.type.value} for c in one.schema.columns],
        "tuples": dict(one.tuples),
        "digest": one.digest,
        "file": one.file,
    }


def _collection(body: Mapping[str, Any]) -> Collection:
    columns = tuple(Column(c["name"], c["type"] and ColumnType(c["type"])) for c in body["columns"])
    tuples = {name: int(body["tuples"][name]) for name in ("all", "asserted", "derived")}
    schema = Schema(body["name"], columns, bool(body["declared"]))
    return Collection(schema, tuples, body.get("digest"), body["file"], bool(body.get("hidden")))


def member_of(name: str, number: int, *, hidden: bool) -> str:
    """The name of the member for a relation's facts: the relation's, if every system can have such a file."""
    plain = _PLAIN_NAME.fullmatch(name) is not None and not name.startswith("relation-")
    return f"{SOURCES if hidden else FACTS}/{name if plain else f'relation-{number}'}.parquet"


def comment(digest: str) -> bytes:
    """The zip's comment."""
    return _COMMENT_HEAD + digest.encode()


def told_digest(text: bytes) -> str | None:
    """The digest in a zip's comment; None if it is not the comment of a backup."""
    if len(text) != COMMENT_BYTES or not text.startswith(_COMMENT_HEAD):
        return None
    return text[len(_COMMENT_HEAD) :].decode("ascii", errors="replace")


def differences(
    expected: Sequence[Collection], found: Mapping[str, tuple[Mapping[str, int], str | None]]
) -> list[dict[str, Any]]:
    """Where a database differs from what a backup says: for each relation that does, and for each that a source asserts
    facts of (with the source), both numbers of tuples, and both digests where the two have one. `found`: (tuples,
    digest) by name."""
    differing = []
    for one in expected:
        tuples, digest = found.get(one.name, ({}, None))
        same_digest = one.digest is None or digest is None or one.digest == digest
        now = {name: tuples.get(name, 0) for name in one.tuples}
        if now != dict(one.tuples) or not same_digest:
            entry = {**one.place, "backup": dict(one.tuples), "now": now}
            differing.append(entry if same_digest else {**entry, "digests": [one.digest, digest]})
    return differing


README_TEXT = """\
This is a backup of the Zedlog database "{database}": epoch {epoch}, written by version {version}.
Zedlog is an incremental Datalog service; `zedlog restore FILE` puts a backup into an empty database.

The file is a plain zip, and everything in it can be read with common tools:

  manifest.json         what is in the backup: relations with columns, types and numbers of tuples, and for each file
                        its size and SHA-256
  program.dl            declarations and rules, as Datalog text
  rules.json            the same rules: id, text, and weight (how many times the rule was added)
  facts/NAME.parquet    the facts of one relation, as Apache Parquet. The last column is the weight: how many times the
                        fact was asserted. The others are the relation's columns, in order: symbol = UTF-8 string,
                        number = 64-bit integer, float = 64-bit IEEE number, bool
  sources/NAME.parquet  of these facts, what one named source asserts of one relation; "source" and "relation" in
                        manifest.json say which. They are among the facts of facts/ already

Tuples that rules derive are not in it: they follow from facts and rules. manifest.json says how many there were.

In Python: zipfile.ZipFile("backup.zip").extractall("folder"), then pandas.read_parquet("folder/facts/NAME.parquet").
The zip's comment is the SHA-256 of all bytes before it.
"""
