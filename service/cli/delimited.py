"""Delimited text (CSV, TSV, Souffle's `.facts`) as tuples of one relation.

In: a seekable binary file and a `Layout`. Out of the first pass (`survey`): the file's digest, its number
of rows and the type of each column. Out of the second (`rows`): tuples with values of these types, line by
line.

Two passes, because nothing may be sent before the whole file is known to be good: a type is only what every
row agrees to, a bad row in the last line is found before the first batch is sent, and the digest names the
batches, so that a load which is run again sends the same ones. Memory is bounded by one row; the first pass
costs about a microsecond a value.

Nothing is converted silently: a column of numbers in which one does not fit into 64 bits is an error that names its
line and column, and so is one of floats with an integer that no float is equal to. A header may say the types
(engine/bulk/headers.py); such a file is quoted as in RFC 4180, whatever its delimiter.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

from engine.bulk.headers import read_header
from engine.data.values import Value
from engine.language.constants import read_decimal, shortened
from engine.language.schema import ColumnType

# Leading zeros and plus signs are not numbers: they are identifiers that a number would not give back as
# written.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?\Z")
_PATTERNS = {ColumnType.NUMBER: _NUMBER, ColumnType.FLOAT: _FLOAT}
_BOOLS = {"true": True, "false": False}
_NAMED_DELIMITERS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}
_CHUNK = 1 << 20

# A field can be as long as a document; Python's default of 128 kB is too little.
csv.field_size_limit(1 << 30)


class BadFile(Exception):
    """The file is not what the layout says; the message names the line."""


class MisfitError(Exception):
    """A field is written as a value of a type, but is too large for it, or too precise."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How to read a file. `columns` are positions to keep, from 0; empty means all, in order. `typed`: the header says
    the types."""

    delimiter: str
    header: bool = False
    columns: tuple[int, ...] = ()
    typed: bool = False

    @property
    def quoted(self) -> bool:
        """Comma and semicolon files quote, and what has types in its header; in a `.facts` file a quote is a character
        like any other."""
        return self.delimiter in ",;" or self.typed


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
    """For each column and type the first field that does not fit, in words: of consequence if it becomes the type."""


def delimiter_named(text: str) -> str:
    """The character that `--delimiter` means.

    Raises:
        ValueError: it is not one character nor a known name.
    """
    delimiter = _NAMED_DELIMITERS.get(text.lower(), text)
    if len(delimiter) != 1 or delimiter in '\n\r"':
        known = ", ".join(name for name in _NAMED_DELIMITERS if name.isalpha())
        raise ValueError(f"a delimiter is one character or one of {known}; not {text!r}")
    return delimiter


def guess_delimiter(name: str, first_line: str) -> str:
    """By the file's name, else the first of tab, comma, semicolon, pipe, space that its first line holds."""
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
    """The types that a file's first line says, if it is a header that says them."""
    fields = next(csv.reader([line], delimiter=delimiter), [])
    return read_header(fields)[1]


def survey(file: BinaryIO, layout: Layout, types: Sequence[ColumnType] | None = None) -> Survey:
    """Read the whole file once. With `types`, check every value against them instead of detecting.

    Raises:
        BadFile: a row has another number of fields than the first, a value is not of its column's type, a
            column that is asked for is not there, or the text is not UTF-8.
    """
    found = Survey()
    found.digest, found.size = _digest(file)
    width = None
    for line, row in _records(file, layout):
        if width is None:
            width = len(row)
            _check_columns(layout, width, line)
            if types is not None and len(types) != _arity(layout, width):
                raise BadFile(
                    f"line {line}: {_arity(layout, width)} columns, but {len(types)} types: "
                    f"{', '.join(t.value for t in types)}"
                )
            found._possible = [set(ColumnType) for _ in range(_arity(layout, width))]
            found._misfits = [{} for _ in found._possible]
            if layout.header:
                names = read_header(row)[0] if layout.typed else row
                found.names = tuple(_picked(names, layout))
                continue
        if len(row) != width:
            raise BadFile(f"line {line}: the number of fields is {len(row)}, but {width} in the first line")
        values = _picked(row, layout)
        if types is None:
            _narrow(found, values, line, layout)
        else:
            for position, (value, kind) in enumerate(zip(values, types, strict=True)):
                _check(value, kind, _place(line, position, layout))
        found.rows += 1
    found.types = tuple(types) if types is not None else tuple(map(_narrowest, found._possible))
    for kind, misfits in zip(found.types, found._misfits, strict=False):
        if kind in misfits:
            raise BadFile(
                f"{misfits[kind]}; to keep the column as it is written, give --types with symbol for it"
            )
    return found


def rows(file: BinaryIO, layout: Layout, types: Sequence[ColumnType]) -> Iterator[tuple[Value, ...]]:
    """The tuples of a file that `survey` found good."""
    records = _records(file, layout)
    if layout.header:
        next(records, None)
    for line, row in records:
        picked = enumerate(zip(_picked(row, layout), types, strict=True))
        yield tuple(_check(text, kind, _place(line, position, layout)) for position, (text, kind) in picked)


def _place(line: int, position: int, layout: Layout) -> str:
    column = layout.columns[position] if layout.columns else position
    return f"line {line}, column {column + 1}"


def _check(text: str, kind: ColumnType, place: str) -> Value:
    """The value that a field stands for.

    Raises:
        BadFile: there is none.
    """
    try:
        value = convert(text, kind)
    except MisfitError as error:
        raise BadFile(f"{place}: {error}") from None
    if value is None:
        raise BadFile(f"{place}: {text!r} is not a {kind.value}")
    return value


def convert(text: str, kind: ColumnType) -> Value | None:
    """The value that a field stands for, or None when it is not of that type.

    Raises:
        MisfitError: it is written as one, but no value of the type is equal to it.
    """
    if kind is ColumnType.SYMBOL:
        return text
    if kind is ColumnType.NUMBER:
        return _number(text)
    if kind is ColumnType.FLOAT:
        return _float(text)
    return _BOOLS.get(text)


def _number(text: str) -> int | None:
    if not _NUMBER.match(text):
        return None
    if len(text) > 20 or not -(2**63) <= int(text) < 2**63:
        raise MisfitError(f"the number {shortened(text)} does not fit into 64 bits")
    return int(text)


def _float(text: str) -> float | None:
    if not _FLOAT.match(text):
        return None
    try:
        return read_decimal(text)
    except ValueError as error:
        raise MisfitError(str(error)) from None


def _narrow(found: Survey, values: Sequence[str], line: int, layout: Layout) -> None:
    """Strike out the types that this row's values are not of, and note what would not fit the others."""
    for position, (types, value) in enumerate(zip(found._possible, values, strict=True)):
        if len(types) == 1:
            continue
        misfits = found._misfits[position]
        for kind in tuple(types):
            if kind in misfits and _PATTERNS[kind].match(value):
                continue
            try:
                if convert(value, kind) is None:
                    types.remove(kind)
            except MisfitError as error:
                misfits.setdefault(kind, f"{_place(line, position, layout)}: {error}")


def _narrowest(types: set[ColumnType]) -> ColumnType:
    """Bool and number before float before symbol. A column without any row is of symbols."""
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


def _records(file: BinaryIO, layout: Layout) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of each row; empty lines are skipped. Leaves the file open."""
    file.seek(0)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="")
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if layout.quoted else csv.QUOTE_NONE
    reader = csv.reader(text, delimiter=layout.delimiter, quoting=quoting, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except UnicodeDecodeError as error:
        raise BadFile(f"after line {reader.line_num}: not UTF-8 text ({error.reason})") from error
    except csv.Error as error:
        raise BadFile(f"line {reader.line_num}: {error}") from error
    finally:
        text.detach()


def _check_columns(layout: Layout, width: int, line: int) -> None:
    for position in layout.columns:
        if position >= width:
            raise BadFile(f"line {line}: there is no column {position + 1}, only {width}")


def _arity(layout: Layout, width: int) -> int:
    return len(layout.columns) or width


def _picked(row: Sequence[str], layout: Layout) -> list[str]:
    return [row[i] for i in layout.columns] if layout.columns else list(row)
