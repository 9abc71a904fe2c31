"""Fact files as Souffle reads them: bytes to typed columns.

In: the bytes of a file, the relation's schema, a `Layout`. Out: a `FactTable`, one column of values for each column of
the relation. Always: each line is a tuple (a blank one too, of one empty field), each value has the column's declared
type, and the first thing that is wrong is an error that names file, line and column.

engine/data/delimited.py defines how lines are split and what a value is. These rules are Souffle's: a field may be in
double quotes only with `rfc4180`; white space is allowed before a number, not after it; the line of a relation without
columns is `()`. Unlike in Souffle, a line with more fields than the relation has columns is an error instead of being
cut short, and a quoted field may contain line breaks.
"""

from __future__ import annotations

import gzip
import io
import zlib

import pyarrow as pa
import pyarrow.compute as pc

from engine.data.delimited import Block, Form, Reader, TextFault, ValueFault, WidthFault, values_of
from engine.errors import InvalidValueError
from engine.files.layout import Layout
from engine.files.table import Column, FactTable
from engine.language.schema import ColumnType, Schema

_GZIP = b"\x1f\x8b"
# As C++'s stoll and stod pass over it.
_WHITE = " \t\n\r\f\v"


def read_facts(data: bytes, name: str, schema: Schema, layout: Layout) -> FactTable:
    """All tuples of a fact file, in the order of its lines. `name` is what messages call the file.

    Raises:
        InvalidValueError: a row has the wrong number of fields, a value is not of its column's type, the text is
            not UTF-8 or not quoted as RFC 4180 says. `detail` has file, line and column (a field's number, from 1).
    """
    blocks = _blocks(_plain(data, name), name, schema, layout)
    types = _types(schema)
    if not types:
        _check_nullary(blocks, name, schema)
        return FactTable(types, [], sum(len(block.lines) for block in blocks))
    columns = [_column(blocks, i, kind, name, schema, layout) for i, kind in enumerate(types)]
    return FactTable(types, columns, len(columns[0]))


def _plain(data: bytes, name: str) -> bytes:
    """The data, decompressed if it is a gzip file."""
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidValueError(
            f"{name} begins like a gzip file, but cannot be decompressed: {error}", file=name
        ) from error


def _types(schema: Schema) -> list[ColumnType]:
    types = [column.type for column in schema.columns]
    assert None not in types, "declared columns have types"
    return [kind for kind in types if kind is not None]


def _blocks(data: bytes, name: str, schema: Schema, layout: Layout) -> list[Block]:
    form = Form(layout.delimiter, layout.rfc4180, True, columns=layout.columns, ragged=bool(layout.columns))
    width = None if layout.columns else max(schema.arity, 1)
    reader = Reader(io.BytesIO(data), form, width, max(len(data), 1))
    if layout.headers:
        reader.skip_line()
    try:
        return list(reader.blocks())
    except WidthFault as fault:
        message = _NULLARY.format(schema.relation) if not schema.arity else _miscounted(fault, schema, layout)
        raise _wrong(message, name, fault.line, schema) from None
    except TextFault as fault:
        raise InvalidValueError(f"{name}, line {fault.line}: {fault}", file=name, line=fault.line) from None


_NULLARY = "{} has no columns, so each line must be ()"


def _check_nullary(blocks: list[Block], name: str, schema: Schema) -> None:
    for block in blocks:
        for line, text in zip(block.lines, block.columns[0].to_pylist(), strict=True):
            if text not in ("", "()"):
                raise _wrong(_NULLARY.format(schema.relation), name, line, schema)


def _miscounted(fault: WidthFault, schema: Schema, layout: Layout) -> str:
    number = "1 field" if fault.fields == 1 else f"{fault.fields} fields"
    if layout.columns:
        return f"{number}, but field {max(layout.columns)} (from 0) is asked for"
    by = {"\t": "tabs", " ": "spaces"}.get(layout.delimiter, repr(layout.delimiter))
    return f"{number} separated by {by}, but {schema} has {schema.arity}"


def _wrong(message: str, name: str, line: int, schema: Schema) -> InvalidValueError:
    return InvalidValueError(
        f"{name}, line {line}: {message}", file=name, line=line, relation=schema.relation
    )


def _column(
    blocks: list[Block], position: int, kind: ColumnType, name: str, schema: Schema, layout: Layout
) -> Column:
    texts = pa.chunked_array([block.columns[position] for block in blocks], pa.string()).combine_chunks()
    if kind in (ColumnType.NUMBER, ColumnType.FLOAT):
        texts = pc.utf8_ltrim(texts, characters=_WHITE)
    try:
        return values_of(texts, kind)
    except ValueFault as fault:
        line = [line for block in blocks for line in block.lines][fault.position]
        column, place = (
            schema.columns[position],
            (layout.columns[position] if layout.columns else position) + 1,
        )
        raise InvalidValueError(
            f"{name}, line {line}, column {place} ({column.name}): {fault}",
            file=name,
            line=line,
            column=place,
            relation=schema.relation,
            column_name=column.name,
        ) from None
