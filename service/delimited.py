"""Delimited files (CSV, TSV and the like) as tuples of one relation, for `zedlog load` and for sources.

In: a seekable binary file and a `FileColumns`. Out of the first pass (`survey`): the file's digest, its number of rows
and the type of each column. Out of the second (`rows`): tuples with values of these types.

There are two passes because nothing may be sent before the whole file is known to be good: a column's type must fit
every row, a bad row in the last line must be found before the first batch is sent, and the digest is part of the names
of the batches, so that a load that is run again sends the same ones. Memory is bounded by a block of the file.

engine/data/delimited.py defines how rows are split, engine/data/written.py what a value is. Nothing is converted
silently: in a column of numbers, one that does not fit into 64 bits is an error that names its line and column; so is,
in a column of floats, an integer that no float equals. A header may include the types (engine/bulk/headers.py); such a
file is quoted as in RFC 4180, whatever its delimiter.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from engine.bulk.headers import read_header
from engine.data.delimited import (
    Block,
    Form,
    Reader,
    TextFault,
    ValueFault,
    Values,
    WidthFault,
    all_look_like,
    values_of,
)
from engine.data.values import Value
from engine.language.schema import ColumnType

_NAMED_DELIMITERS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}
_CHUNK = 1 << 20


class BadFile(Exception):
    """The file does not have the form that the layout describes; the message names the line."""


@dataclass(frozen=True, slots=True)
class FileColumns:
    """How to read a file. `columns` are the positions to keep, from 0; empty means all, in order. `typed`: the header
    includes the types."""

    delimiter: str
    header: bool = False
    columns: tuple[int, ...] = ()
    typed: bool = False

    @property
    def quoted(self) -> bool:
        """Whether fields may be quoted: in comma and semicolon files, and in files with types in the header. In a
        `.facts` file a quote is a character like any other."""
        return self.delimiter in ",;" or self.typed

    @property
    def form(self) -> Form:
        return Form(self.delimiter, self.quoted, carriage=True, columns=self.columns)


@dataclass(slots=True)
class Survey:
    """What the first pass found."""

    digest: str = ""
    size: int = 0
    rows: int = 0
    names: tuple[str, ...] = ()
    types: tuple[ColumnType, ...] = ()
    _possible: list[set[ColumnType]] = field(default_factory=list)
    _misfits: list[dict[ColumnType, str]] = field(default_factory=list)
    """For each column and type a message about the first field that does not fit; it matters if that becomes the
    type."""


def delimiter_named(text: str) -> str:
    """The character that the value of `--delimiter` denotes.

    Raises:
        ValueError: it is neither one character nor a known name.
    """
    delimiter = _NAMED_DELIMITERS.get(text.lower(), text)
    if len(delimiter) != 1 or delimiter in '\n\r"':
        known = ", ".join(name for name in _NAMED_DELIMITERS if name.isalpha())
        raise ValueError(f"a delimiter must be one character or one of {known}, not {text!r}")
    return delimiter


def guess_delimiter(name: str, first_line: str) -> str:
    """The delimiter by the file's name, else the first of tab, comma, semicolon, pipe, space that its first line
    contains."""
    suffix = name.lower().rpartition(".")[2]
    known = {"csv": ",", "tsv": "\t", "facts": "\t", "tab": "\t"}.get(suffix)
    if known is not None:
        return known
    return next((c for c in "\t,;| " if c in first_line), ",")


def first_line(file: BinaryIO) -> str:
    """The first line of the file; leaves the file at its start."""
    file.seek(0)
    line = file.readline(_CHUNK).decode("utf-8-sig", errors="replace")
    file.seek(0)
    return line.rstrip("\r\n")


def header_types(line: str, delimiter: str) -> tuple[ColumnType, ...] | None:
    """The types in a file's first line, if it is a header that includes them."""
    fields = next(csv.reader([line], delimiter=delimiter), [])
    return read_header(fields)[1]


def survey(file: BinaryIO, layout: FileColumns, types: Sequence[ColumnType] | None = None) -> Survey:
    """Read the whole file once. With `types`, check every value against them instead of detecting.

    Raises:
        BadFile: a row does not have as many fields as the first, a value does not have its column's type, a column
            that is asked for does not exist, or the text is not UTF-8.
    """
    found = Survey()
    found.digest, found.size = _digest(file)
    reader = Reader(file, layout.form)
    with _faults(reader, layout):
        if layout.header and (first := reader.header()) is not None:
            _begin(found, first[0], reader, layout, types)
            names = read_header(first[1])[0] if layout.typed else first[1]
            found.names = tuple(names[i] for i in layout.columns or range(len(names)))
        for block in reader.blocks():
            if not found._possible:
                _begin(found, block.lines[0], reader, layout, types)
            for position in range(len(block.columns)):
                if types is None:
                    _narrow(found, block, position, layout)
                else:
                    _values(block, position, types[position], layout)
            found.rows += len(block.lines)
    found.types = tuple(types) if types is not None else tuple(map(_narrowest, found._possible))
    for kind, misfits in zip(found.types, found._misfits, strict=False):
        if kind in misfits:
            raise BadFile(f"{misfits[kind]}; to keep the column as text, use --types with symbol for it")
    return found


def rows(file: BinaryIO, layout: FileColumns, types: Sequence[ColumnType]) -> Iterator[tuple[Value, ...]]:
    """The tuples of a file that `survey` found good."""
    reader = Reader(file, layout.form)
    with _faults(reader, layout):
        if layout.header:
            reader.header()
        for block in reader.blocks():
            columns = [_values(block, position, kind, layout) for position, kind in enumerate(types)]
            yield from zip(*(c.tolist() if isinstance(c, np.ndarray) else c for c in columns), strict=True)


@contextmanager
def _faults(reader: Reader, layout: FileColumns) -> Iterator[None]:
    """Turn faults of a text into errors in the terms of this command."""
    try:
        yield
    except WidthFault as fault:
        if fault.fields == reader.width:
            missing = next(i for i in layout.columns if i >= fault.fields)
            raise BadFile(
                f"line {fault.line}: there is no column {missing + 1}, only {fault.fields}"
            ) from None
        raise BadFile(f"line {fault.line}: {fault}, but it is {reader.width} in the first line") from None
    except TextFault as fault:
        raise BadFile(f"line {fault.line}: {fault}") from None


def _begin(
    found: Survey, line: int, reader: Reader, layout: FileColumns, types: Sequence[ColumnType] | None
) -> None:
    """Look at the width of the first row."""
    width = reader.width or 0
    arity = len(layout.columns) or width
    if types is not None and len(types) != arity:
        raise BadFile(
            f"line {line}: {arity} columns, but {len(types)} types: {', '.join(t.value for t in types)}"
        )
    found._possible = [set(ColumnType) for _ in range(arity)]
    found._misfits = [{} for _ in found._possible]


def _values(block: Block, position: int, kind: ColumnType, layout: FileColumns) -> Values:
    """A column of a block.

    Raises:
        BadFile: a field is not a value of its type.
    """
    try:
        return values_of(block.columns[position], kind)
    except ValueFault as fault:
        raise BadFile(f"{_place(block.lines[fault.position], position, layout)}: {fault}") from None


def _place(line: int, position: int, layout: FileColumns) -> str:
    column = layout.columns[position] if layout.columns else position
    return f"line {line}, column {column + 1}"


def _narrow(found: Survey, block: Block, position: int, layout: FileColumns) -> None:
    """Rule out the types that a column's values do not have, and note what would not fit the others."""
    types, misfits = found._possible[position], found._misfits[position]
    for kind in tuple(types - {ColumnType.SYMBOL}):
        if not all_look_like(block.columns[position], kind):
            types.remove(kind)
        elif kind not in misfits:
            try:
                _values(block, position, kind, layout)
            except BadFile as error:
                misfits[kind] = str(error)


def _narrowest(types: set[ColumnType]) -> ColumnType:
    """Bool and number are preferred to float, and float to symbol. A column without rows gets the type symbol."""
    if len(types) == len(ColumnType):
        return ColumnType.SYMBOL
    order = (ColumnType.BOOL, ColumnType.NUMBER, ColumnType.FLOAT, ColumnType.SYMBOL)
    return next(kind for kind in order if kind in types)


def _digest(file: BinaryIO) -> tuple[str, int]:
    file.seek(0)
    digest, size = hashlib.sha256(), 0
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size
