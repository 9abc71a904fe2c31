"""A fact file line by line: lines to fields, fields to values, and what is wrong with them in words.

In: the bytes of a file. Out: `Records`, or an error that names file, line and column. This is the reference that
reading.py falls back on. Lines, fields and numbers are Souffle's: a line ends with a line feed, before which one
carriage return is dropped; nothing is escaped; only with `rfc4180` a field may stand in double quotes. Unlike Souffle,
a line with more fields than the relation has columns is an error and not cut short, and a quoted field may hold line
breaks.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass

from engine.data.values import Value
from engine.errors import InvalidValueError
from engine.files.layout import Layout
from engine.language.constants import MAX_NUMBER, MIN_NUMBER, read_decimal, shortened
from engine.language.schema import ColumnType, Schema

# As C++'s stoll and stod read them: white space may come before, not after. No hexadecimal, no infinity.
_NUMBER = re.compile(r"\s*[+-]?[0-9]+\Z", re.ASCII)
_FLOAT = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z", re.ASCII)
_BOOLS = {"true": True, "false": False}
# Far more than any field, far less than memory; Python's default of 128 kB is too little for a document.
_LONGEST_FIELD = 1 << 30


class BadField(ValueError):
    """The field is no value of its column's type."""


@dataclass(frozen=True, slots=True)
class Records:
    """`fields[i]` are the fields of the tuple that begins in line `lines[i]`; `places` says which of the line's."""

    lines: list[int]
    fields: list[list[str]]
    places: tuple[int, ...]


def convert(text: str, kind: ColumnType) -> Value:
    """The value that a field stands for.

    Raises:
        BadField: there is none.
    """
    match kind:
        case ColumnType.SYMBOL:
            return text
        case ColumnType.NUMBER:
            # Longer ones are out of range, and Python refuses to convert very long ones.
            if _NUMBER.match(text):
                if len(text) < 1000 and MIN_NUMBER <= int(text) <= MAX_NUMBER:
                    return int(text)
                raise BadField(f"the number {shortened(text)} does not fit into 64 bits")
        case ColumnType.FLOAT:
            if _FLOAT.match(text):
                try:
                    return read_decimal(text)
                except ValueError as error:
                    raise BadField(str(error)) from None
        case ColumnType.BOOL:
            if text in _BOOLS:
                return _BOOLS[text]
            raise BadField(f"{shortened(text)!r} is no bool; write true or false")
    raise BadField(f"{shortened(text)!r} is no {kind.value}")


def records(data: bytes, name: str, schema: Schema, layout: Layout) -> Records:
    """Every line's fields.

    Raises:
        InvalidValueError: the text is not UTF-8, not quoted as RFC 4180 says, or a line has too few or too many fields.
    """
    text = _decoded(data, name)
    if layout.headers:
        text = text.partition("\n")[2]
    first = 2 if layout.headers else 1
    places = layout.columns or tuple(range(schema.arity))
    rows = _quoted(text, name, layout, first) if layout.rfc4180 else _plain(text, layout, first)
    found = Records([], [], places)
    for line, fields in rows:
        if schema.arity == 0:
            if fields not in ([""], ["()"]):
                raise _wrong(
                    f"{schema.relation} has no columns, so a line is () and nothing else", name, line, schema
                )
            fields = []
        elif (layout.columns and len(fields) <= max(places)) or (
            not layout.columns and len(fields) != schema.arity
        ):
            raise _wrong(_miscounted(fields, schema, layout), name, line, schema)
        found.lines.append(line)
        found.fields.append([fields[i] for i in places] if layout.columns else fields)
    return found


def _plain(text: str, layout: Layout, first: int) -> Iterator[tuple[int, list[str]]]:
    for line, content in enumerate(_lines(text), first):
        yield line, content.removesuffix("\r").split(layout.delimiter)


def _quoted(text: str, name: str, layout: Layout, first: int) -> Iterator[tuple[int, list[str]]]:
    limit = csv.field_size_limit(_LONGEST_FIELD)
    reader = csv.reader(
        (f"{line}\n" for line in _lines(text)), delimiter=layout.delimiter, doublequote=True, strict=True
    )
    try:
        start = first
        for row in reader:
            # A blank line is a tuple of one empty field, here as in the plain form.
            yield start, row or [""]
            start = first + reader.line_num
    except csv.Error as error:
        line = first + reader.line_num - 1
        raise InvalidValueError(f"{name}, line {line}: {error}", file=name, line=line) from None
    finally:
        csv.field_size_limit(limit)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    # The line feed at the end of the file ends the last line and begins none.
    return lines[:-1] if not lines[-1] else lines


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidValueError(
            f"{name}, line {line}: byte {data[error.start]:#04x} is not UTF-8 text ({error.reason})",
            file=name,
            line=line,
        ) from None


def _miscounted(fields: list[str], schema: Schema, layout: Layout) -> str:
    number = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
    if layout.columns:
        return f"{number}, but field {max(layout.columns)} (from 0) is asked for"
    by = {"\t": "tabs", " ": "spaces"}.get(layout.delimiter, repr(layout.delimiter))
    return f"{number} separated by {by}, but {schema} has {schema.arity}"


def _wrong(message: str, name: str, line: int, schema: Schema) -> InvalidValueError:
    return InvalidValueError(
        f"{name}, line {line}: {message}", file=name, line=line, relation=schema.relation
    )
