"""Delimited text (CSV, TSV, Souffle's facts) as columns of text, and columns of text as columns of values.

In: a seekable binary file in UTF-8 and a `Form`. Out of a `Reader`: the header, and blocks of rows as columns, with the
line of each row; out of `typed`: a column of values. Always: the result is that of the careful way, which goes line by
line (`_records`) and value by value (`value_of`, which also says what is wrong); pyarrow takes over only where the
result is certain to be the same. One block of the file is in memory at a time.

A line ends with a line feed; one carriage return before it is dropped. At the first block that pyarrow might split
differently, the reader changes to the careful way for the rest of the file, because a quoted field may continue in the
next block.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from engine.data.arrow import integers, numbers
from engine.data.written import (
    BOOLS,
    FLOAT,
    LONG_INTEGER,
    NOT_ZERO,
    NUMBER,
    PLAIN_FLOAT,
    PLAIN_NUMBER,
    NotAValueError,
    for_re2,
    value_of,
)
from engine.language.schema import ColumnType

Values: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float64] | list[Any]"
"""A column of values: numbers and floats as an array, symbols and bools as a list."""

BLOCK_BYTES = 256 << 10
_ROWS = 10_000
_BOM = b"\xef\xbb\xbf"
# Far more than any field, far less than memory; Python's default of 128 kB is too little for a document.
_LONGEST_FIELD = 1 << 30
_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_NUMBER, _FLOAT, _LONG = for_re2(NUMBER), for_re2(FLOAT), for_re2(LONG_INTEGER)
_PLAIN = {ColumnType.NUMBER: for_re2(PLAIN_NUMBER), ColumnType.FLOAT: for_re2(PLAIN_FLOAT)}


@dataclass(frozen=True, slots=True)
class Form:
    """How rows are written in a text.

    quoted: a field may be in double quotes, as in RFC 4180. blank: a blank line is a row of one empty field; otherwise
    it is skipped. carriage: a carriage return without a line feed ends a line, too. columns: the fields to take,
    counted from 0; empty means all. ragged: a row may have more fields than are taken.
    """

    delimiter: str
    quoted: bool = False
    blank: bool = False
    carriage: bool = False
    columns: tuple[int, ...] = ()
    ragged: bool = False


@dataclass(frozen=True, slots=True)
class Block:
    """Rows as columns of strings, and the line in which each begins."""

    lines: Sequence[int]
    columns: list[pa.Array]


class TextFault(Exception):
    """The text does not have its form; `line` says where."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


class WidthFault(TextFault):
    """A row has the wrong number of fields: `fields`."""

    def __init__(self, line: int, fields: int) -> None:
        super().__init__(line, f"the number of fields is {fields}")
        self.fields = fields


class Reader:
    """One pass over a file. width: the number of fields of each row; without it, that of the first row or of the
    header. block: about how many bytes are read at a time."""

    def __init__(
        self, file: BinaryIO, form: Form, width: int | None = None, block: int = BLOCK_BYTES
    ) -> None:
        self._file, self._form, self.width, self._block = file, form, width, block
        self._line = 1
        """The number of the next line."""
        self._pending: list[str] = []
        """Lines that have been read but not yet used."""
        file.seek(0)
        if file.read(len(_BOM)) != _BOM:
            file.seek(0)

    def skip_line(self) -> None:
        """Pass over a line, whatever is in it."""
        self._file.readline()
        self._line += 1

    def header(self) -> tuple[int, list[str]] | None:
        """(line, fields) of the first row, which the blocks then leave out; None if there is no row.

        Raises: as `blocks`.
        """
        row = next(self._careful_rows(), None)
        if row is not None:
            self._check_width(row[0], len(row[1]))
        return row

    def blocks(self) -> Iterator[Block]:
        """All rows.

        Raises:
            TextFault: the text is not UTF-8, or not quoted as RFC 4180 says.
            WidthFault: a row has the wrong number of fields.
        """
        while not self._pending:
            start = self._file.tell()
            data = self._file.read(self._block) + self._file.readline()
            if not data:
                return
            columns = self._split(data) if self._regular(data) else None
            if columns is None:
                self._file.seek(start)
                break
            lines = range(self._line, self._line + len(columns[0]))
            self._line = lines.stop
            yield Block(lines, columns)
        yield from self._careful()

    def _regular(self, data: bytes) -> bool:
        """Whether pyarrow splits the text into the fields that the careful way would."""
        if len(self._form.delimiter.encode()) != 1 or (self._form.quoted and b'"' in data):
            return False
        # Each carriage return must end its line; pyarrow takes a lonely one for a line's end.
        if data.count(b"\r") != data.count(b"\r\n"):
            return False
        # Of a blank line pyarrow makes as many empty fields as there are columns.
        blank = data.startswith((b"\n", b"\r\n")) or b"\n\n" in data or b"\n\r\n" in data
        return not blank or (self._form.blank and self.width == 1)

    def _split(self, data: bytes) -> list[pa.Array] | None:
        """The columns, or None if something may be wrong."""
        form = self._form
        if self.width is None or form.ragged:
            first = data[: data.find(b"\n") + 1] or data
            self.width = first.count(form.delimiter.encode()) + 1
        if any(place >= self.width for place in form.columns):
            return None
        names = [f"f{i}" for i in range(self.width)]
        chosen = [names[i] for i in form.columns] or names
        try:
            table = pa.csv.read_csv(
                io.BytesIO(data),
                read_options=pa.csv.ReadOptions(column_names=names),
                parse_options=pa.csv.ParseOptions(
                    delimiter=form.delimiter, quote_char=False, escape_char=False, ignore_empty_lines=False
                ),
                convert_options=pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()),
                    strings_can_be_null=False,
                    include_columns=list(dict.fromkeys(chosen)),
                ),
            )
        except pa.ArrowInvalid:
            return None
        return [table.column(name).combine_chunks() for name in chosen]

    def _careful(self) -> Iterator[Block]:
        rows, fault = self._careful_rows(), None
        while fault is None:
            batch: list[tuple[int, list[str]]] = []
            try:
                for line, fields in islice(rows, _ROWS):
                    self._check_width(line, len(fields))
                    batch.append((line, fields))
            except TextFault as found:
                # What comes before it may be wrong in another way, which is then the first thing that is wrong.
                fault = found
            if batch:
                places = self._form.columns or range(self.width or 0)
                columns = [pa.array([fields[i] for _, fields in batch], pa.string()) for i in places]
                yield Block([line for line, _ in batch], columns)
            elif fault is None:
                return
        raise fault

    def _check_width(self, line: int, fields: int) -> None:
        if self._form.ragged:
            good = fields > max(self._form.columns, default=-1)
        else:
            self.width = self.width or fields
            good = fields == self.width
        if not good or any(place >= fields for place in self._form.columns):
            raise WidthFault(line, fields)

    def _careful_rows(self) -> Iterator[tuple[int, list[str]]]:
        """(line, fields) of each row that is left."""
        form = self._form
        if form.quoted:
            yield from self._quoted_rows()
            return
        for text in self._lines():
            content = text.removesuffix("\n").removesuffix("\r")
            if content or form.blank:
                yield self._line - 1, content.split(form.delimiter)

    def _quoted_rows(self) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(self._lines(), delimiter=self._form.delimiter, strict=True)
        start = self._line
        with _long_fields():
            try:
                for row in reader:
                    if row or self._form.blank:
                        yield start, row or [""]
                    start = self._line
            except csv.Error as error:
                raise TextFault(self._line - 1, str(error)) from None

    def _lines(self) -> Iterator[str]:
        while self._pending or (data := self._file.readline()):
            if not self._pending:
                self._pending = self._decoded(data)
            self._line += 1
            yield self._pending.pop(0)

    def _decoded(self, data: bytes) -> list[str]:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            reason = f"byte {data[error.start]:#04x} is not UTF-8 text ({error.reason})"
            raise TextFault(self._line, reason) from None
        if self._form.carriage and "\r" in text:
            return _LINES.findall(text)
        return [text]


@contextmanager
def _long_fields() -> Iterator[None]:
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


# ---- texts to values


class ValueFault(Exception):
    """The text at `position` in its column is not a value of the type."""

    def __init__(self, position: int, cause: NotAValueError) -> None:
        super().__init__(str(cause))
        self.position = position


def values_of(texts: pa.Array, kind: ColumnType) -> Values:
    """A column of texts as values of a type.

    Raises:
        ValueFault: one of the texts is not a value of the type.
    """
    found = _typed(texts, kind)
    if found is not None:
        return found
    values = []
    for position, text in enumerate(texts.to_pylist()):
        try:
            values.append(value_of(text, kind))
        except NotAValueError as error:
            raise ValueFault(position, error) from None
    if kind is ColumnType.NUMBER:
        return np.array(values, np.int64)
    return np.array(values, np.float64) if kind is ColumnType.FLOAT else values


def all_look_like(texts: pa.Array, kind: ColumnType) -> bool:
    """Whether each of the texts looks like a value of the type, where no type is declared (`looks_like`)."""
    if kind in _PLAIN:
        return _all(pc.match_substring_regex(texts, _PLAIN[kind]))
    return kind is ColumnType.SYMBOL or _all(_is_bool(texts))


def _typed(texts: pa.Array, kind: ColumnType) -> Values | None:
    """The values, or None if one of the texts is not in the plainest form."""
    if kind is ColumnType.SYMBOL:
        return list(texts.to_pylist())
    if kind is ColumnType.BOOL:
        return list(pc.equal(texts, "true").to_pylist()) if _all(_is_bool(texts)) else None
    number = kind is ColumnType.NUMBER
    if not _all(pc.match_substring_regex(texts, _NUMBER if number else _FLOAT)):
        return None
    try:
        values = numbers(pc.cast(texts, pa.int64() if number else pa.float64()))
    except pa.ArrowInvalid:
        return None
    return values if number or _exact(texts, values) else None


def _exact(texts: pa.Array, floats: npt.NDArray[np.float64]) -> bool:
    """Whether each float is sure to be right for its text without a closer look."""
    if not np.isfinite(floats).all() or pc.any(pc.match_substring_regex(texts, _LONG)).as_py():
        return False
    zeros = texts.take(integers(np.flatnonzero(floats == 0)))
    return not pc.any(pc.match_substring_regex(zeros, NOT_ZERO)).as_py()


def _is_bool(texts: pa.Array) -> pa.Array:
    return pc.is_in(texts, pa.array(BOOLS))


def _all(held: pa.Array) -> bool:
    """Whether all are true; yes if there are none."""
    return pc.all(held).as_py() is not False
