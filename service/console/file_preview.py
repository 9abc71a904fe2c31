"""The first rows of a file, before anything is imported: format, columns, types.

In: a file's name, and its first bytes. Out: a `Preview`. Always: it says what the import will be asked for, and nothing
of the rows that were not looked at; whether those fit, the import finds. Reads what `zedlog load` reads, by the same
code.
"""

from __future__ import annotations

import bz2
import csv
import json
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, Final

from engine.bulk.request import CSV, DELIMITED, JSONL, PACKED, PARQUET, STATEMENTS, guess_format
from engine.errors import InvalidRequestError
from engine.language.schema import ColumnType
from service.delimited import BadFile, FileColumns, first_line, header_types, rows, survey

HEAD_BYTES: Final = 64 * 1024
# What bzip2 packs cannot be read before a whole block is there, which has up to 900,000 bytes.
_PACKED_BYTES: Final = 1_000_000
ROWS: Final = 10
_WIDEST: Final = 200
"""Characters of a value that are shown."""


@dataclass(frozen=True, slots=True)
class Preview:
    """format: None if the name does not say it. names: of the columns, if the file has them. typed: the header includes
    the types. problem: why there are no rows to show."""

    format: str | None
    names: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    rows: tuple[tuple[Any, ...], ...] = field(default=())
    header: bool = False
    typed: bool = False
    problem: str = ""


async def head_of(portions: AsyncIterator[bytes], name: str) -> tuple[bytes, bool]:
    """The first bytes of a file, unpacked, and whether they are all of it."""
    raw, most, lower = b"", HEAD_BYTES, name.lower()
    enough = _PACKED_BYTES if lower.endswith(PACKED) else most
    whole = True
    async for portion in portions:
        raw += portion
        if len(raw) > enough:
            whole = False
            break
    try:
        if lower.endswith(".gz"):
            unpacking = zlib.decompressobj(wbits=31)
            raw = unpacking.decompress(raw, most)
            whole = whole and unpacking.eof
        elif lower.endswith(".bz2"):
            reading = bz2.BZ2Decompressor()
            raw = reading.decompress(raw, most)
            whole = whole and reading.eof
    except (OSError, zlib.error):
        return b"", True
    return raw[:most], whole and len(raw) <= most


def preview(name: str, head: bytes, whole: bool, header: bool | None = None) -> Preview:
    """What the file looks like. header: whether its first line names the columns; None: it is guessed."""
    try:
        kind = guess_format([name])
    except InvalidRequestError as error:
        return Preview(None, problem=error.message)
    if not head:
        return Preview(kind, problem="The file is empty, or is not packed as its name says.")
    if not whole:
        # The last line is cut off.
        head = head[: head.rfind(b"\n") + 1] or head
    if kind == PARQUET:
        return Preview(
            kind, problem="A Parquet file has its own names and types; it is not shown before the import."
        )
    if kind == JSONL:
        return _json_lines(head)
    if kind in STATEMENTS:
        lines = head.decode("utf-8", "replace").splitlines()
        return Preview(kind, rows=tuple((line[:_WIDEST],) for line in lines[:ROWS] if line.strip()))
    return _delimited(kind, head, header)


def _delimited(kind: str, head: bytes, header: bool | None) -> Preview:
    delimiter = "," if kind == CSV else "\t"
    file = BytesIO(head)
    line = first_line(file)
    typed = header_types(line, delimiter) is not None if kind in DELIMITED else False
    if header is None:
        header = typed or (kind in DELIMITED and _looks_like_header(head, line, delimiter))
    try:
        layout = FileColumns(delimiter, header, (), typed and header)
        given = header_types(line, delimiter) if layout.typed else None
        found = survey(file, layout, given)
        first = []
        for row in rows(file, layout, found.types):
            first.append(tuple(value[:_WIDEST] if isinstance(value, str) else value for value in row))
            if len(first) == ROWS:
                break
    except BadFile as error:
        cells = csv.reader(head.decode("utf-8", "replace").splitlines()[:ROWS], delimiter=delimiter)
        shown = tuple(tuple(cell[:_WIDEST] for cell in row) for row in cells)
        return Preview(kind, rows=shown, header=header, problem=str(error))
    return Preview(
        kind, found.names, tuple(one.value for one in found.types), tuple(first), header, typed and header
    )


def _looks_like_header(head: bytes, line: str, delimiter: str) -> bool:
    """Whether the first line has other types than the rest: only a name is no number."""
    of_all, of_others = _types(head, delimiter, False), _types(head, delimiter, True)
    if not of_others:
        return False
    fields = next(csv.reader([line], delimiter=delimiter), [])
    named = all(one.strip().isidentifier() for one in fields) and len(set(fields)) == len(fields)
    return named and of_all != of_others


def _types(head: bytes, delimiter: str, header: bool) -> Sequence[ColumnType]:
    try:
        return survey(BytesIO(head), FileColumns(delimiter, header)).types
    except BadFile:
        return ()


def _json_lines(head: bytes) -> Preview:
    found: list[Any] = []
    for number, line in enumerate(head.splitlines(), 1):
        if not line.strip():
            continue
        try:
            found.append(json.loads(line))
        except ValueError as error:
            return Preview(JSONL, problem=f"line {number}: {error}")
        if len(found) == ROWS:
            break
    if not found:
        return Preview(JSONL, problem="The file has no lines.")
    first = found[0]
    if isinstance(first, dict):
        names = tuple(first)
        values = [tuple(row.get(name) for name in names) for row in found if isinstance(row, dict)]
    elif isinstance(first, list):
        names, values = (), [tuple(row) for row in found if isinstance(row, list)]
    else:
        return Preview(JSONL, problem="line 1: a line must be an object or a list")
    types = tuple(
        _type_of([row[place] for row in values if place < len(row)]) for place in range(len(values[0]))
    )
    return Preview(JSONL, names, types, tuple(values))


def _type_of(values: Sequence[Any]) -> str:
    kinds = {type(value) for value in values}
    known = {bool: ColumnType.BOOL, int: ColumnType.NUMBER, float: ColumnType.FLOAT}
    if kinds <= {int, float} and float in kinds:
        return ColumnType.FLOAT.value
    return known.get(kinds.pop(), ColumnType.SYMBOL).value if len(kinds) == 1 else ColumnType.SYMBOL.value
