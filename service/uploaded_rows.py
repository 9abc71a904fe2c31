"""The rows of a file in a request's body, CSV, TSV or NDJSON, as tuples of one relation.

In: bytes, and what is known of the relation. Out: tuples whose values have the types of its columns. Always: the whole
file is good, or an error names the line. How text becomes values: engine/data/delimited.py, engine/data/written.py.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any, Final

from engine.errors import BadRowsError, InvalidRequestError, shown
from engine.language.schema import ColumnType, Schema
from service.body import decode_json
from service.delimited import BadFile, FileColumns, first_line, header_types, rows, survey

CSV: Final = "text/csv"
TSV: Final = "text/tab-separated-values"
NDJSON: Final = "application/x-ndjson"
FILE_TYPES: Final = (CSV, TSV, NDJSON)
_DELIMITERS = {CSV: ",", TSV: "\t"}


def read_rows(kind: str, body: bytes, schema: Schema | None, header: bool) -> list[Sequence[Any]]:
    """The tuples in a body of the media type `kind`. header: the first line of a delimited file names the columns, and
    may include their types.

    Raises:
        BadRowsError: a row cannot be read. InvalidRequestError: an option does not fit the file.
    """
    if kind == NDJSON:
        if header:
            raise InvalidRequestError('"header" has no effect on NDJSON', field="header")
        return list(_json_rows(body, schema))
    file = io.BytesIO(body)
    delimiter = _DELIMITERS[kind]
    said = header_types(first_line(file), delimiter)
    if said is not None and not header:
        raise InvalidRequestError(
            "the first line names columns with their types: add header=true", field="header"
        )
    types = _types(schema) or said
    layout = FileColumns(delimiter, header, typed=said is not None)
    try:
        found = survey(file, layout, types)
        return list(rows(file, layout, found.types)) if found.rows else []
    except BadFile as error:
        raise BadRowsError(f"the file cannot be read: {error}") from error


def _types(schema: Schema | None) -> tuple[ColumnType, ...] | None:
    """The types of the relation's columns, if all are known."""
    if schema is None or any(column.type is None for column in schema.columns):
        return None
    return tuple(column.type for column in schema.columns if column.type is not None)


def _json_rows(body: bytes, schema: Schema | None) -> Iterator[list[Any]]:
    """Each line is a list of values, or an object whose fields are the relation's columns; of a relation that does not
    exist yet, the fields of the first object, in their order.
    """
    names = None if schema is None else [column.name for column in schema.columns]
    for number, line in enumerate(body.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = decode_json(line)
        except InvalidRequestError as error:
            raise BadRowsError(f"the file cannot be read: line {number}: {error.message}") from error
        if isinstance(row, dict):
            names = names or list(row)
            if row.keys() != set(names):
                raise BadRowsError(
                    f"the file cannot be read: line {number} has the fields {', '.join(map(shown, row))}, "
                    f"but the columns are {', '.join(map(shown, names))}"
                )
            row = [row[name] for name in names]
        if not isinstance(row, list):
            raise BadRowsError(
                f"the file cannot be read: line {number} is neither a list of values nor an object"
            )
        yield row
