"""Opens a backup: checks everything in it before anything of it is used.

In: a file. Out: a `Backup`. Always: when `opened` returns, every byte of the file is the one that was written: each
member has the size and the SHA-256 of the manifest, nothing else is in the zip, and the bytes between the members have
the digest at its end. Nothing is unpacked: members are not compressed (their Parquet pages are), so they can be read
where they are, and a small file cannot become a large one. What is wrong is named by its member.
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from engine.backup import form
from engine.backup.form import BackupManifest, Collection, Member
from engine.data.arrow import columns
from engine.data.facts import ARROW_TYPES
from engine.errors import InvalidBackupError, NewerBackupError

END = "end of the zip"
"""What is named where the damage is not in a member: the zip's directory and what follows it."""
_PORTION = 1 << 20
_MOST_GROUP_BYTES = 4 << 30
_END_RECORD = struct.Struct("<4s4H2LH")
_END_MAGIC = b"PK\x05\x06"
# What `zipfile` raises for what is not as it should be.
_BROKEN = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    OSError,
    EOFError,
    OverflowError,
    struct.error,
    KeyError,
    IndexError,
)

Checked = Callable[[int, int], None]
"""Told while a file is checked: how many of how many bytes have been."""


@dataclass(frozen=True, slots=True)
class BackupRule:
    """A rule of a backup."""

    id: str
    text: str
    weight: int


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that has been checked. places: where each file of facts lies in the zip."""

    path: Path
    manifest: BackupManifest
    rules: tuple[BackupRule, ...]
    places: dict[str, tuple[int, int]]

    def tables(self, one: Collection) -> Iterator[pa.Table]:
        """The facts of a relation, some ten thousand rows at a time: columns `c0 ..` and `weight`, without nulls.

        Raises:
            InvalidBackupError: the file is not what the manifest says.
        """
        if one.file is None:
            return
        start, size = self.places[one.file]
        names = [*columns(len(one.types)), form.WEIGHT]
        types = [*(ARROW_TYPES[kind] for kind in one.types), pa.int64()]
        rows = 0
        try:
            with pa.memory_map(str(self.path)) as mapped:
                mapped.seek(start)
                file = pq.ParquetFile(pa.BufferReader(mapped.read_buffer(size)))
                if file.schema_arrow.types != types:
                    raise damaged(one.file, f"its columns are not those of {one.schema} and a weight")
                for group in range(file.num_row_groups):
                    if file.metadata.row_group(group).total_byte_size > _MOST_GROUP_BYTES:
                        raise damaged(one.file, "a row group of it is too large")
                    table = file.read_row_group(group).rename_columns(names)
                    if any(column.null_count for column in table.columns):
                        raise damaged(one.file, "it has nulls")
                    rows += table.num_rows
                    yield table
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
            raise damaged(one.file, f"it is not a Parquet file that can be read: {error}") from error
        if rows != one.tuples["asserted"]:
            raise damaged(one.file, f"it has {rows} rows, not {one.tuples['asserted']}")


def damaged(member: str, why: str) -> InvalidBackupError:
    """The error for a member that is not as it should be."""
    return InvalidBackupError(f"the backup is damaged: {member}: {why}", member=member)


def opened(path: Path, told: Checked = lambda done, whole: None) -> Backup:
    """The backup in a file, checked.

    Raises:
        InvalidBackupError: it is not a backup, or damaged; `detail` has the member, where there is one.
        NewerBackupError: a newer version of Zedlog has written it.
    """
    try:
        with path.open("rb") as file:
            return _opened(path, file, told)
    except OSError as error:
        raise InvalidBackupError(f"the backup {path} cannot be read: {error.strerror or error}") from error


def _opened(path: Path, file: BinaryIO, told: Checked) -> Backup:
    size = path.stat().st_size
    digest = _digest_at_end(file, size)
    intact = digest is not None and digest == _digest_of(file, size - form.COMMENT_BYTES, told)
    try:
        archive = zipfile.ZipFile(file)
    except _BROKEN as error:
        raise _not_a_zip(file, size, error) from None
    with archive:
        manifest = _manifest(archive, intact)
        places = _check_members(archive, manifest, size)
        if not intact:
            # All members are what they were: the damage is in the zip's own structure.
            raise damaged(
                END, "the bytes of the zip between and after its members are not those that were written"
            )
        rules = _rules(archive)
    if len(rules) != manifest.rules:
        raise damaged(form.RULES, f"it has {len(rules)} rules, not {manifest.rules}")
    return Backup(path, manifest, rules, places)


def _digest_at_end(file: BinaryIO, size: int) -> str | None:
    """The digest in the comment; None if the file does not end as a backup does."""
    length = _END_RECORD.size + form.COMMENT_BYTES
    if size < length:
        return None
    file.seek(size - length)
    end = file.read(length)
    magic, *_, comment_length = _END_RECORD.unpack_from(end)
    if magic != _END_MAGIC or comment_length != form.COMMENT_BYTES:
        return None
    return form.told_digest(end[_END_RECORD.size :])


def _digest_of(file: BinaryIO, length: int, told: Checked) -> str:
    digest, done = hashlib.sha256(), 0
    file.seek(0)
    while done < length:
        portion = file.read(min(_PORTION, length - done))
        if not portion:
            break
        digest.update(portion)
        done += len(portion)
        told(done, length)
    return digest.hexdigest()


def _not_a_zip(file: BinaryIO, size: int, error: Exception) -> InvalidBackupError:
    file.seek(0)
    if file.read(4) == b"PK\x03\x04":
        return damaged(
            END, f"the file is cut off, or its directory is damaged ({error}); it has {size:,} bytes"
        )
    return InvalidBackupError("this is not a backup of Zedlog, nor any other zip")


def _manifest(archive: zipfile.ZipFile, intact: bool) -> BackupManifest:
    names = [entry.filename for entry in archive.infolist()]
    if form.MANIFEST not in names:
        if intact or form.README in names or any(name.startswith(f"{form.FACTS}/") for name in names):
            raise damaged(form.MANIFEST, "it is missing")
        raise InvalidBackupError("this zip is not a backup of Zedlog: it has no manifest.json")
    try:
        body = orjson.loads(archive.read(_stored(archive, form.MANIFEST)))
    except _BROKEN as error:
        raise damaged(form.MANIFEST, str(error)) from error
    if not isinstance(body, dict) or body.get("product") != form.PRODUCT:
        if intact:
            raise damaged(form.MANIFEST, "it does not say that it is of a backup of Zedlog")
        raise InvalidBackupError("this zip is not a backup of Zedlog: its manifest.json is of something else")
    number = body.get("format")
    if not isinstance(number, int) or number < 1:
        raise damaged(form.MANIFEST, "it does not say which format the backup has")
    if number > form.FORMAT:
        raise NewerBackupError(
            f"the backup has format {number}, written by Zedlog {body.get('version')}; this version reads formats up "
            f"to {form.FORMAT}. Restore it with that version or a later one",
            format=number,
            known=form.FORMAT,
        )
    try:
        return BackupManifest.decode(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(form.MANIFEST, f"a field is missing or wrong: {error!r}") from error


def _check_members(
    archive: zipfile.ZipFile, manifest: BackupManifest, size: int
) -> dict[str, tuple[int, int]]:
    """Where each member lies. All are there, once, and have the content that the manifest says."""
    entries: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        name = entry.filename
        if not form.MEMBER_NAME.fullmatch(name):
            raise damaged(name[:200], "no member of a backup has such a name")
        if name in entries:
            raise damaged(name, "it is there twice")
        entries[name] = entry
    listed = {member.name: member for member in manifest.files}
    for name in entries.keys() - listed.keys() - {form.MANIFEST}:
        raise damaged(name, "the manifest does not list it")
    wanted = [*form.TEXTS, *(one.file for one in manifest.collections if one.file is not None)]
    for name in (*listed, *wanted):
        if name not in entries or name not in listed:
            raise damaged(name, "it is missing")
    return {name: _check_member(archive, member, size) for name, member in listed.items()}


def _check_member(archive: zipfile.ZipFile, member: Member, size: int) -> tuple[int, int]:
    """Where the member's content lies: (offset, size)."""
    entry = _stored(archive, member.name)
    if entry.file_size != member.bytes or member.bytes > size:
        raise damaged(member.name, f"it has {entry.file_size} bytes, not {member.bytes}")
    digest, done = hashlib.sha256(), 0
    try:
        with archive.open(entry) as stream:
            start = _start(archive, entry)
            while portion := stream.read(_PORTION):
                digest.update(portion)
                done += len(portion)
    except _BROKEN as error:
        raise damaged(member.name, str(error)) from error
    if done != member.bytes or digest.hexdigest() != member.sha256:
        raise damaged(member.name, "its SHA-256 is not that of the manifest")
    return start, member.bytes


def _stored(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    entry = archive.getinfo(name)
    if (
        entry.compress_type != zipfile.ZIP_STORED
        or entry.compress_size != entry.file_size
        or entry.flag_bits & 1
    ):
        raise damaged(name, "it is compressed or encrypted; the members of a backup are neither")
    return entry


def _start(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> int:
    """Where the content of a member begins: after its own header, with the name and the extra field."""
    file = archive.fp
    assert file is not None, "the archive is open"
    before = file.tell()
    file.seek(entry.header_offset + 26)
    name, extra = struct.unpack("<2H", file.read(4))
    file.seek(before)
    return entry.header_offset + 30 + int(name) + int(extra)


def _rules(archive: zipfile.ZipFile) -> tuple[BackupRule, ...]:
    try:
        body: Any = orjson.loads(archive.read(form.RULES))
        return tuple(BackupRule(str(r["id"]), str(r["text"]), int(r["weight"])) for r in body)
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
        raise damaged(form.RULES, f"it is not a list of rules: {error}") from error
