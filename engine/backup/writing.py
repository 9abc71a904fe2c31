"""Writes a backup: the snapshot of one epoch, as the bytes of a zip.

In: a pinned snapshot. Out: bytes, portion by portion. Always: relation by relation and page by page, so that memory
holds one page of one relation, whatever the database holds; if something fails, the zip lacks its end and is refused by
every reader. The epoch must be held while this runs (engine/storage/holds.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import time
import zipfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from engine.backup import form
from engine.backup.form import BackupManifest, Collection, Member
from engine.data.facts import ARROW_TYPES
from engine.data.sources import is_hidden, relation_of
from engine.storage.snapshot import Page, Position, Snapshot

PAGE_ROWS = 65_536
_FIRST_YEAR = 1980
"""A zip cannot say an earlier time."""


async def backup(snapshot: Snapshot, database: str) -> AsyncIterator[bytes]:
    """The bytes of a backup.

    Raises:
        EpochNotRetainedError: the epoch was removed meanwhile. StorageUnavailableError: Redis cannot be reached.
    """
    whole = snapshot.with_hidden()
    written = time.time()
    archive = _Archive(written)
    collections: list[Collection] = []
    for number, (name, hidden) in enumerate(_names(whole)):
        # What a source asserts has the columns of its relation, but not their names.
        columns = whole.schemas[relation_of(name)].columns
        schema, counts = replace(whole.schemas[name], columns=columns), whole.counts(name)
        file = form.member_of(name, number, hidden=hidden) if counts.asserted else None
        tuples = {"all": counts.all, "asserted": counts.asserted, "derived": counts.derived}
        one = Collection(schema, tuples, whole.digest(name), file, hidden)
        collections.append(one)
        if file is not None:
            async for portion in _facts(whole, one, file, archive):
                yield portion
    archive.add(form.PROGRAM, _program(snapshot))
    rules = [{"id": rule.id, "text": rule.text, "weight": rule.weight} for rule in snapshot.rules]
    archive.add(form.RULES, orjson.dumps(rules, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    product = product_version()
    readme = form.README_TEXT.format(database=database, epoch=snapshot.epoch, version=product)
    archive.add(form.README, readme.encode())
    manifest = BackupManifest(
        version=product,
        database=database,
        epoch=snapshot.epoch,
        token=snapshot.token,
        time=snapshot.time,
        written=written,
        declarations=snapshot.declarations,
        rules=len(rules),
        collections=collections,
        files=archive.members,
    )
    archive.add(form.MANIFEST, manifest.encode())
    yield archive.end()


def product_version() -> str:
    """The version of Zedlog that runs."""
    try:
        return version("zedlog")
    except PackageNotFoundError:
        return "not installed"


def _names(snapshot: Snapshot) -> list[tuple[str, bool]]:
    """(name, whether it is hidden) of all relations, then of what sources assert. A hidden collection without facts
    says nothing, and a restore would not make it.
    """
    relations = [name for name in sorted(snapshot.schemas) if not is_hidden(name)]
    asserted = [name for name in snapshot.hidden if snapshot.counts(name).asserted]
    return [*((name, False) for name in relations), *((name, True) for name in asserted)]


def _program(snapshot: Snapshot) -> bytes:
    """Declarations and rules as text. A rule's text may be several lines."""
    rules = "\n".join(rule.text for rule in snapshot.rules)
    return f"{snapshot.declarations.strip()}\n\n{rules}\n".lstrip().encode()


async def _facts(snapshot: Snapshot, one: Collection, file: str, archive: _Archive) -> AsyncIterator[bytes]:
    """Writes the facts of one relation into the archive, which gives its bytes page by page."""
    types = [ARROW_TYPES[kind] for kind in one.types]
    schema = pa.schema(list(zip(one.field_names(), [*types, pa.int64()], strict=True)))
    rows = 0
    with archive.member(file) as member:
        with pq.ParquetWriter(pa.PythonFile(member, mode="w"), schema, compression="zstd") as writer:
            after: Position | None = None
            while True:
                page = await snapshot.facts(one.name, None, "asserted", PAGE_ROWS, after)
                await asyncio.to_thread(writer.write_table, _table(page, schema))
                rows += len(page.tuples)
                yield archive.take()
                after = page.next
                if after is None:
                    break
        archive.members.append(member.told(rows))
    yield archive.take()


def _table(page: Page, schema: pa.Schema) -> pa.Table:
    columns: Sequence[Sequence[Any]] = list(zip(*page.tuples, strict=True)) if page.tuples else []
    if len(columns) != len(schema) - 1:
        # A relation without columns, or no rows.
        columns = [()] * (len(schema) - 1)
    arrays = [
        pa.array(values, field.type) for values, field in zip([*columns, page.weights], schema, strict=True)
    ]
    return pa.table(arrays, schema=schema)


class _Archive:
    """A zip that is written from its beginning to its end, and gives up what it has."""

    def __init__(self, written: float) -> None:
        self._sink = _Sink()
        self._zip = zipfile.ZipFile(self._sink, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._digest = hashlib.sha256()
        moment = time.gmtime(written)
        self._moment = (max(moment.tm_year, _FIRST_YEAR), *moment[1:6])
        self.members: list[Member] = []

    def member(self, name: str) -> _MemberFile:
        """A file in the archive, to be written and closed before the next one."""
        entry = zipfile.ZipInfo(name, self._moment)
        entry.external_attr = 0o644 << 16
        return _MemberFile(name, self._zip.open(entry, "w", force_zip64=True))

    def add(self, name: str, content: bytes) -> None:
        with self.member(name) as file:
            file.write(content)
        self.members.append(file.told())

    def take(self) -> bytes:
        """What has been written since the last call."""
        portion = self._sink.take()
        self._digest.update(portion)
        return portion

    def end(self) -> bytes:
        """The rest, with the comment."""
        self._zip.comment = form.comment("0" * 64)
        self._zip.close()
        rest = self._sink.take()[: -form.COMMENT_BYTES]
        self._digest.update(rest)
        return rest + form.comment(self._digest.hexdigest())


class _Sink:
    """Where the zip is written to: a file that cannot seek."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: Any) -> int:
        self._written += data
        return len(data)

    def flush(self) -> None:
        """There is nothing behind it."""

    def close(self) -> None:
        """What it has is still to be taken."""

    def take(self) -> bytes:
        portion = bytes(self._written)
        self._written.clear()
        return portion


class _MemberFile(io.RawIOBase):
    """A member while it is written: its digest and size grow with it."""

    def __init__(self, name: str, file: Any) -> None:
        self._name, self._file = name, file
        self._digest, self._size = hashlib.sha256(), 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._digest.update(view)
        self._size += len(view)
        return len(view)

    def tell(self) -> int:
        return self._size

    def told(self, rows: int | None = None) -> Member:
        """The line of the manifest for what has been written."""
        return Member(self._name, self._size, self._digest.hexdigest(), rows)

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()
