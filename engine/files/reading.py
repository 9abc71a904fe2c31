"""Fact files as Souffle reads them: bytes to typed columns.

In: the bytes of a file, the relation's schema, a `Layout`. Out: a `Table`, one column of values for each column of the
relation. Always: each line is a tuple (a blank one too, of one empty field), each value has the column's declared
type, and the first thing that is wrong is an error that names file, line and column.

A file of the regular form (one-byte delimiter, no quotes, no stray carriage returns) goes through pyarrow, column by
column: about 0.3 microseconds a field. Any other file, and any file in which something is wrong, goes line by line
through fields.py, which is some ten times slower and alone decides what is right.
"""

from __future__ import annotations

import gzip
import io
import zlib

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from engine.data.arrow import integers, numbers
from engine.errors import InvalidValueError
from engine.files.fields import BadField, Records, convert, records
from engine.files.layout import Layout
from engine.files.table import Column, Table
from engine.language.schema import ColumnType, Schema

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_NUMBER = r"^[+-]?[0-9]+$"
_FLOAT = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
# An integer that may have no float of its own, and what is not zero however small.
_LONG = r"^[+-]?[0-9]{16,}$"
_NOT_ZERO = r"^[^eE]*[1-9]"


def read_facts(data: bytes, name: str, schema: Schema, layout: Layout) -> Table:
    """All tuples of a fact file, in the order of its lines. `name` is what messages call the file.

    Raises:
        InvalidValueError: a row has the wrong number of fields, a value is not of its column's type, the text is
            not UTF-8 or not quoted as RFC 4180 says. `detail` has file, line and column (a field's number, from 1).
    """
    data = _plain(data, name).removeprefix(_BOM)
    types = _types(schema)
    if schema.arity and _regular(data, layout, schema.arity):
        body = data.partition(b"\n")[2] if layout.headers else data
        columns = _fast(body, types, layout)
        if columns is not None:
            return Table(types, columns, len(columns[0]))
    found = records(data, name, schema, layout)
    return Table(
        types, [_slow(found, i, kind, name, schema) for i, kind in enumerate(types)], len(found.lines)
    )


def _plain(data: bytes, name: str) -> bytes:
    """The data, unpacked if it is a gzip file."""
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidValueError(f"{name} begins as a gzip file but is none: {error}", file=name) from error


def _types(schema: Schema) -> list[ColumnType]:
    types = [column.type for column in schema.columns]
    assert None not in types, "declared columns have types"
    return [kind for kind in types if kind is not None]


def _regular(data: bytes, layout: Layout, arity: int) -> bool:
    """Whether pyarrow splits the text into the fields that Souffle would."""
    if len(layout.delimiter.encode()) != 1 or (layout.rfc4180 and b'"' in data):
        return False
    # Each carriage return must end its line; pyarrow takes a lonely one for a line's end.
    if data.count(b"\r") != data.count(b"\r\n"):
        return False
    # Of a blank line pyarrow makes as many empty fields as there are columns.
    blank = data.startswith((b"\n", b"\r\n")) or b"\n\n" in data or b"\n\r\n" in data
    return arity == 1 or layout.columns != () or not blank


def _fast(data: bytes, types: list[ColumnType], layout: Layout) -> list[Column] | None:
    """The columns, or None where something may be wrong."""
    if not data:
        return [_column(pa.array([], pa.string()), kind) for kind in types]  # type: ignore[misc]
    width = len(types)
    if layout.columns:
        first = data[: data.find(b"\n") + 1] or data
        width = first.count(layout.delimiter.encode()) + 1
        if max(layout.columns) >= width:
            return None
    names = [f"f{i}" for i in range(width)]
    chosen = [names[i] for i in layout.columns] or names
    try:
        table = pa.csv.read_csv(
            io.BytesIO(data),
            read_options=pa.csv.ReadOptions(column_names=names),
            parse_options=pa.csv.ParseOptions(
                delimiter=layout.delimiter, quote_char=False, escape_char=False, ignore_empty_lines=False
            ),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=False,
                include_columns=chosen,
            ),
        )
    except pa.ArrowInvalid:
        return None
    columns = [
        _column(table.column(name).combine_chunks(), kind) for name, kind in zip(chosen, types, strict=True)
    ]
    return None if any(column is None for column in columns) else [c for c in columns if c is not None]


def _column(texts: pa.Array, kind: ColumnType) -> Column | None:
    """Fields as values, or None where one of them is not of the plainest form."""
    if kind is ColumnType.SYMBOL:
        return list(texts.to_pylist())
    if kind is ColumnType.BOOL:
        true, false = pc.equal(texts, "true"), pc.equal(texts, "false")
        if pc.all(pc.or_(true, false)).as_py() is False:
            return None
        return list(true.to_pylist())
    number = kind is ColumnType.NUMBER
    if pc.all(pc.match_substring_regex(texts, _NUMBER if number else _FLOAT)).as_py() is False:
        return None
    try:
        values = numbers(pc.cast(texts, pa.int64() if number else pa.float64()))
    except pa.ArrowInvalid:
        return None
    return values if number or _exact(texts, values) else None


def _exact(texts: pa.Array, floats: npt.NDArray[np.float64]) -> bool:
    """Whether each text has a float that may stand for it, without a closer look."""
    if not np.isfinite(floats).all() or pc.any(pc.match_substring_regex(texts, _LONG)).as_py():
        return False
    zeros = texts.take(integers(np.flatnonzero(floats == 0)))
    return not pc.any(pc.match_substring_regex(zeros, _NOT_ZERO)).as_py()


def _slow(found: Records, position: int, kind: ColumnType, name: str, schema: Schema) -> Column:
    """One column of the records, value by value."""
    values = []
    for line, fields in zip(found.lines, found.fields, strict=True):
        try:
            values.append(convert(fields[position], kind))
        except BadField as bad:
            column = schema.columns[position]
            place = found.places[position] + 1
            raise InvalidValueError(
                f"{name}, line {line}, column {place} ({column.name}): {bad}",
                file=name,
                line=line,
                column=place,
                relation=schema.relation,
                column_name=column.name,
            ) from None
    if kind is ColumnType.NUMBER:
        return np.array(values, np.int64)
    return np.array(values, np.float64) if kind is ColumnType.FLOAT else values
