"""Turns files into rows of text in Spark, with one reader for each format.

In: a session, files, and the request's settings for them. Out: `RawRows`, a lazy DataFrame with a column `f0 ..` for
each field, and further columns that locate a bad row:

    raw       string  the row as it stands in the file
    reason    string  why it is no row; null where it is one
    file      string  the file
    block     long    where the part of the file begins that one task reads
    place     long    grows by one from row to row of a part

Always: every row of a file is in the frame, also a row that cannot be read; only the lines that the format ignores are
not (blank lines and comments of N-Triples, blank lines of CSV and JSON lines, header lines). Nothing is read yet,
except for the first line if the number or the names of the columns have to be known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.bulk.headers import read_header
from engine.bulk.request import AVRO, FACTS, JSONL, ORC, PARQUET, TYPED, ImportRequest
from engine.bulk.typed import NUMBER, SHOWN, converted, finite, is_exact, looks_like
from engine.data.arrow import columns as arrow_columns
from engine.errors import ArityError, HeaderMismatchError, InvalidRequestError, TypeMismatchError, shown
from engine.language.schema import ColumnType, Schema

RAW, REASON, FILE, BLOCK, PLACE = "raw", "reason", "file", "block", "place"
MARKS: Final = (RAW, REASON, FILE, BLOCK, PLACE)
WEIGHT_FIELD = "fw"
VALUE, _CORRUPT = "value", "_corrupt"
OPEN: Final = "open"
"""The reason of a row that waits for a second look."""
_NUMBERED = "monotonically_increasing_id()"
_LATIN = "ISO-8859-1"
_PARQUET_TYPES: Final = {
    "string": ColumnType.SYMBOL,
    "tinyint": ColumnType.NUMBER,
    "smallint": ColumnType.NUMBER,
    "int": ColumnType.NUMBER,
    "bigint": ColumnType.NUMBER,
    "float": ColumnType.FLOAT,
    "double": ColumnType.FLOAT,
    "boolean": ColumnType.BOOL,
}
_MOMENTS: Final = ("date", "timestamp", "timestamp_ntz")
"""Types of Spark whose values are read as texts, where `types` asks for symbols."""
_WHOLE_DECIMAL: Final = re.compile(r"decimal\([0-9]+,0\)")


@dataclass(frozen=True, slots=True)
class RawRows:
    """See the module. names: of the fields, if the files give them. types: of the fields, if the format gives them;
    then the fields are typed already, and null is a missing value. said: the types that a header gives; the fields are
    nevertheless texts. lines: whether PLACE counts lines, including blank ones. again: the second look at rows whose
    reason is OPEN, from RAW, FILE, BLOCK and PLACE to a frame like this one; it is for work that is rare and slow, and
    that would slow all rows down if the query that reads them did it. every: FILE, BLOCK and PLACE of all rows, where
    the files' lines are not the rows. PLACE is null where nobody knows it. messages: BLOCK and PLACE are partition and
    offset of a topic, FILE its name. table: FILE is the name of a table, and PLACE is null.
    """

    frame: DataFrame
    width: int
    names: tuple[str, ...] | None = None
    types: tuple[ColumnType, ...] | None = None
    said: tuple[ColumnType, ...] | None = None
    lines: bool = False
    again: Callable[[DataFrame], DataFrame] | None = None
    every: Callable[[], DataFrame] | None = None
    messages: bool = False
    table: bool = False


def field(i: int) -> str:
    return f"f{i}"


def read(
    session: SparkSession, files: Sequence[str], request: ImportRequest, schema: Schema | None
) -> RawRows:
    """The rows of files that all have the request's format, which is none of RDF (rdf.py).

    schema: the relation's, or None where it is new.

    Raises:
        HeaderMismatchError: a file's columns are not the expected ones.
    """
    wanted = None if schema is None else [column.name for column in schema.columns]
    if request.format == FACTS:
        return _facts(session, files, len(wanted or ()))
    if request.format == JSONL:
        return _json(session, files, request, wanted)
    if request.format in (PARQUET, ORC, AVRO):
        rows = session.read.format(request.format).load(list(files))
        place = "_metadata.row_index" if request.format == PARQUET else _NUMBERED
        return typed_rows(rows, request, wanted, schema, _marks(place))
    return _delimited(session, files, request, wanted)


def text_lines(session: SparkSession, files: Sequence[str], format_: str, *more: Column) -> DataFrame:
    """The lines of text files, numbered; the same numbers whenever the same files are read. more: further columns."""
    reader = session.read
    if format_ == FACTS:
        reader = reader.option("lineSep", "\n")
    return reader.text(list(files)).select(VALUE, *more, *map(F.expr, _marks(_NUMBERED)))


def _marks(place: str) -> list[str]:
    """FILE, BLOCK and PLACE in SQL."""
    return [f"_metadata.file_path AS {FILE}", f"_metadata.file_block_start AS {BLOCK}", f"{place} AS {PLACE}"]


def shaped(
    frame: DataFrame, fields: Sequence[Column], raw: Column, reason: Column, weight: Column | None
) -> DataFrame:
    extra = [] if weight is None else [weight.alias(WEIGHT_FIELD)]
    named = [column.alias(field(i)) for i, column in enumerate(fields)]
    return frame.select(*named, *extra, raw.alias(RAW), reason.alias(REASON), FILE, BLOCK, PLACE)


def _facts(session: SparkSession, files: Sequence[str], arity: int) -> RawRows:
    """Souffle's format: fields between tabs, without quotes; a carriage return before the line feed does not belong to
    the line.
    """
    line = F.regexp_replace(VALUE, r"\r\z", "")
    fields = F.split(line, "\t", -1)
    split = text_lines(session, files, FACTS).withColumn("fields", fields)
    size = F.size("fields")
    reason = F.when(~F.is_valid_utf8(F.col(VALUE)), F.lit("not UTF-8")).when(
        size != arity, F.concat(size.cast("string"), F.lit(f" fields between tabs, not {arity}"))
    )
    columns = [F.get("fields", F.lit(i)) for i in range(arity)]
    return RawRows(shaped(split, columns, F.col(VALUE), reason, None), arity, lines=True)


def _delimited(
    session: SparkSession, files: Sequence[str], request: ImportRequest, wanted: Sequence[str] | None
) -> RawRows:
    """CSV and TSV with the quotes of RFC 4180.

    Files are read as Latin-1, in which every byte is a character, and turned into UTF-8 afterwards: reading them as
    UTF-8, Spark would silently put replacement characters for invalid bytes.
    """
    options: dict[str, Any] = {
        "sep": request.separator,
        "quote": '"',
        "escape": '"',
        "multiLine": request.multiline,
        "encoding": _LATIN,
        "enforceSchema": False,
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "maxCharsPerColumn": -1,
    }
    first = session.read.options(**{**options, "header": request.header}).csv(list(files)).columns
    said: tuple[ColumnType, ...] | None = None
    in_file: Sequence[str] = [field(i) for i in range(len(first))]
    if request.header:
        in_file, said = read_header([_utf8_text(name) for name in first])
    elif not request.types:
        line = session.read.options(**{**options, "header": True}).csv(list(files)).columns
        if read_header([_utf8_text(name) for name in line])[1] is not None:
            raise HeaderMismatchError(
                "the first line of the files names columns with their types; set 'header', or give 'types'",
                columns=[_utf8_text(name) for name in line],
            )
    places, weight = placed(in_file, request, wanted)
    if not first:
        empty = session.range(0).select(F.lit(None).cast("string").alias(VALUE), *_no_marks())
        nothing = [F.col(VALUE)] * len(wanted or request.types or request.columns)
        return RawRows(shaped(empty, nothing, F.col(VALUE), F.col(VALUE), None), len(nothing))
    schema = ", ".join(f"`{name.replace('`', '``')}` string" for name in first)
    rows = (
        session.read.options(**{**options, "header": request.header})
        .schema(f"{schema}, {_CORRUPT} string")
        .csv(list(files))
    )
    rows = rows.selectExpr("*", *_marks(_NUMBERED))
    columns = [_utf8(F.coalesce(rows[f"`{name.replace('`', '``')}`"], F.lit(""))) for name in first]
    raw = F.coalesce(_utf8(F.col(_CORRUPT)), F.concat_ws(request.separator, *columns))
    reason = F.when(F.col(_CORRUPT).isNotNull(), F.lit(f"not {len(first)} fields")).when(
        ~F.is_valid_utf8(raw), F.lit("not UTF-8")
    )
    found = shaped(
        rows, [columns[i] for i in places], raw, reason, None if weight is None else columns[weight]
    )
    names = tuple(in_file[i] for i in places) if request.header else None
    return RawRows(found, len(places), names, said=said and tuple(said[i] for i in places))


def _utf8(latin: Column) -> Column:
    return F.encode(latin, _LATIN).cast("string")


def _utf8_text(latin: str) -> str:
    return latin.encode(_LATIN).decode(errors="replace").removeprefix("\ufeff")


def _no_marks() -> list[Column]:
    return [
        F.lit(None).cast("string").alias(FILE),
        F.lit(0).cast("long").alias(BLOCK),
        F.lit(0).cast("long").alias(PLACE),
    ]


def placed(
    in_file: Sequence[str], request: ImportRequest, wanted: Sequence[str] | None
) -> tuple[list[int], int | None]:
    """Which fields of a file are the relation's columns, in their order, and which one is the weight.

    By `columns`, if the request has them; else by name, where the file and the relation have the same names; else by
    position, where one of them has no names of its own.
    """
    named = request.header or request.format in (JSONL, *TYPED)
    if len(set(in_file)) != len(in_file):
        raise HeaderMismatchError("a column name occurs twice in the header", columns=list(in_file))

    def place(column: str | int) -> int:
        if isinstance(column, int):
            if not in_file or column <= len(in_file):
                return column - 1
        elif column in in_file:
            return in_file.index(column)
        raise HeaderMismatchError(
            f"there is no column {shown(column)} in the files; they have {_listed(in_file, named)}",
            columns=list(in_file) if named else len(in_file),
            wanted=column,
        )

    weight = None if request.weight_column is None else place(request.weight_column)
    if request.columns:
        return [place(column) for column in request.columns], weight
    rest = [i for i in range(len(in_file)) if i != weight]
    if wanted is None or not in_file:
        return rest, weight
    names = [in_file[i] for i in rest]
    if named and sorted(names) == sorted(wanted):
        return [in_file.index(name) for name in wanted], weight
    nameless = all(name == f"c{i}" for i, name in enumerate(wanted))
    if len(names) != len(wanted) or (named and not nameless):
        raise HeaderMismatchError(
            f"the files have {_listed(names, named)}, but the relation has {_listed(wanted, True)}; "
            "give 'columns' to say which field goes into which column",
            columns=names if named else len(names),
            wanted=list(wanted),
        )
    return rest, weight


def _listed(names: Sequence[str], named: bool) -> str:
    if named and names:
        return f"the columns {', '.join(names)}"
    return "1 column" if len(names) == 1 else f"{len(names)} columns"


def _json(
    session: SparkSession, files: Sequence[str], request: ImportRequest, wanted: Sequence[str] | None
) -> RawRows:
    """Lines that are objects with a field for each column, or arrays of the values in the relation's order."""
    lines = text_lines(session, files, JSONL).filter(F.trim(F.col(VALUE)) != "")
    return json_rows(lines, request, wanted)


def json_rows(
    lines: DataFrame,
    request: ImportRequest,
    wanted: Sequence[str] | None,
    header: Column | None = None,
    *,
    messages: bool = False,
) -> RawRows:
    """The same of texts with FILE, BLOCK and PLACE. header: the weight, as a variant, where no field has it."""
    line = F.col(VALUE)
    parsed = lines.withColumn("json", F.try_parse_json(line))
    kind = F.schema_of_variant(F.col("json"))
    names = [str(c) for c in request.columns] or list(wanted or ())
    if not names:
        names = _fields_of(parsed, request) or arrow_columns(len(request.types))
    if not names and parsed.limit(1).count():
        raise InvalidRequestError(
            "the rows are not objects, so the number of columns is unknown; give 'types'", field="types"
        )
    weight = None if request.weight_column is None else str(request.weight_column)
    every = [*names, *([weight] if weight is not None else [])]
    is_array = kind.startswith("ARRAY")
    values = [
        F.when(is_array, F.try_variant_get("json", f"$[{i}]", "variant")).otherwise(
            F.try_variant_get("json", f"$[{_quoted(name)}]", "variant")
        )
        for i, name in enumerate(every)
    ]
    keys = F.json_object_keys(line)
    size = F.size(F.try_variant_get("json", "$", "array<variant>"))
    reason = (
        F.when(line.isNull(), F.lit("a message without a value"))
        .when(~F.is_valid_utf8(line), F.lit("not UTF-8"))
        .when(F.col("json").isNull(), F.lit("not JSON"))
        .when(
            is_array & (size != len(every)),
            F.concat(size.cast("string"), F.lit(f" values, not {len(every)}")),
        )
        .when(~is_array & ~kind.startswith("OBJECT"), F.lit("neither an object nor an array"))
    )
    if not request.columns:
        strange = F.array_except(keys, F.array(*map(F.lit, every)))
        reason = F.coalesce(
            reason,
            F.when(
                ~is_array & (F.size(strange) > 0),
                F.concat(
                    F.lit("the field "), F.get(strange, F.lit(0)), F.lit(" is not a column of the relation")
                ),
            ),
        )
    found = parsed.select("*", *(value.alias(field(i)) for i, value in enumerate(values)))
    too_long = [_too_long(line, F.col(field(i)), is_array, i, name) for i, name in enumerate(every)]
    reason = F.coalesce(reason, *too_long)
    columns = [F.col(field(i)) for i in range(len(names))]
    given = F.col(field(len(names))) if weight is not None else header
    frame = shaped(found, columns, line, reason, given)
    return RawRows(frame, len(names), tuple(names), lines=not messages, messages=messages)


def _quoted(name: str) -> str:
    if '"' in name or "\\" in name:
        raise InvalidRequestError(
            f"a field of JSON lines cannot be called {shown(name)} here", field="columns"
        )
    return f'"{name}"'


def _fields_of(parsed: DataFrame, request: ImportRequest) -> list[str]:
    """The names of all fields of all objects, in alphabetical order; costs a pass over the files."""
    keys = parsed.select(F.explode(F.json_object_keys(F.col(VALUE))).alias("key")).distinct()
    names = sorted(str(row["key"]) for row in keys.collect())
    return [name for name in names if name != request.weight_column]


def variant_as(value: Column, kind: ColumnType) -> Column:
    """A field of JSON as a value of a type; null if it is of another type. An integer may stand for the float that is
    equal to it.
    """
    shape = F.schema_of_variant(value)
    if kind is ColumnType.SYMBOL:
        return F.when(shape == "STRING", F.try_variant_get(value, "$", "string"))
    number = F.when(shape == "BIGINT", F.try_variant_get(value, "$", "bigint"))
    if kind is ColumnType.NUMBER:
        return number
    if kind is ColumnType.BOOL:
        return F.when(shape == "BOOLEAN", F.try_variant_get(value, "$", "boolean"))
    return F.when(_is_fraction(shape) | is_exact(number), finite(F.try_variant_get(value, "$", "double")))


def variant_looks_like(value: Column, kind: ColumnType) -> Column:
    """Whether a field of unknown type is written in the form of a value of `kind`, even if it is out of range."""
    shape = F.schema_of_variant(value)
    if kind is ColumnType.FLOAT:
        return (shape == "BIGINT") | _is_fraction(shape)
    return shape == ("BIGINT" if kind is ColumnType.NUMBER else "BOOLEAN")


def _is_fraction(shape: Column) -> Column:
    """Whether a field is a number other than an integer of 64 bits. shape: what `schema_of_variant` says of it."""
    return (shape == "DOUBLE") | shape.startswith("DECIMAL")


def _too_long(line: Column, value: Column, is_array: Column, position: int, name: str) -> Column:
    """Why a field is not a value of any type, if it is an integer of more than 64 bits. As a variant it is a decimal or
    a float, which does not keep the way it was written; so such a large number is looked up in the line once more.
    """
    member = f".{name}" if not set(name) & set(".[") else f"['{name}']"
    text = F.when(is_array, F.get_json_object(line, f"$[{position}]")).otherwise(
        F.get_json_object(line, f"${member}")
    )
    large = _is_fraction(F.schema_of_variant(value)) & (
        F.abs(F.try_variant_get(value, "$", "double")) >= 2.0**63
    )
    start = F.lit(f"column {position + 1} ({name}) holds '")
    why = F.concat(start, F.left(text, F.lit(SHOWN)), F.lit("', an integer that does not fit into 64 bits"))
    # Not one condition: Spark would look up the text, which stands in it twice, in every row.
    return F.when(large, F.when(text.rlike(NUMBER), why))


def typed_rows(
    rows: DataFrame,
    request: ImportRequest,
    wanted: Sequence[str] | None,
    schema: Schema | None,
    marks: Sequence[str],
) -> RawRows:
    """Typed columns; marks: FILE, BLOCK and PLACE in SQL. Integers of up to 64 bits without a sign, and decimals
    without a fraction, are numbers where they fit into 64 bits; all integers and decimals are symbols, digit for digit,
    where `types` or the relation says so."""
    in_file = rows.columns
    places, weight = placed(in_file, request, wanted)
    kinds = [rows.schema[i].dataType.simpleString() for i in range(len(in_file))]
    asked = request.types or (None,) * len(places)
    if len(asked) != len(places):
        raise ArityError(
            f"there are {len(asked)} types, but {len(places)} columns", expected=len(places), got=len(asked)
        )
    columns = [F.col(f"`{name.replace('`', '``')}`") for name in in_file]
    types, typed, reasons = [], [], []
    for position, (i, kind) in enumerate(zip(places, asked, strict=True)):
        held = schema.columns[position].type if schema is not None and position < schema.arity else None
        found = _parquet_type(in_file[i], kinds[i], kind, held)
        value = _parquet_value(columns[i], kinds[i], found)
        why = "is not finite" if found is ColumnType.FLOAT else "does not fit into 64 bits"
        start = F.lit(f"column {position + 1} ({in_file[i]}) holds {found.value}, but '")
        reasons.append(
            F.when(
                columns[i].isNotNull() & value.isNull(),
                F.concat(start, columns[i].cast("string"), F.lit(f"' {why}")),
            )
        )
        types.append(found)
        typed.append(value)
    given = None
    if weight is not None:
        if _natural(kinds[weight]) is not ColumnType.NUMBER:
            raise TypeMismatchError("a column of weights must hold integers", column_name=in_file[weight])
        given = columns[weight].try_cast("bigint")
    marked = rows.selectExpr("*", *marks)
    named = [column.alias(name) for column, name in zip(columns, in_file, strict=True)]
    raw = F.to_json(F.struct(*named), {"ignoreNullFields": "false"})
    frame = shaped(marked, typed, raw, F.coalesce(*reasons, F.lit(None).cast("string")), given)
    names = tuple(in_file[i] for i in places)
    return RawRows(frame, len(places), names, tuple(types))


def _natural(kind: str) -> ColumnType | None:
    """The type that holds a column of Parquet's; Spark reads integers of 64 bits without a sign as decimals."""
    return ColumnType.NUMBER if _WHOLE_DECIMAL.fullmatch(kind) else _PARQUET_TYPES.get(kind)


def _parquet_type(name: str, kind: str, asked: ColumnType | None, held: ColumnType | None) -> ColumnType:
    """The type as which a Parquet column is read. asked: the type in the request. held: the type of the relation.

    Raises:
        TypeMismatchError: it cannot be read as that type.
    """
    natural, decimal = _natural(kind), kind.startswith("decimal")
    as_text = decimal or natural is ColumnType.NUMBER or kind in _MOMENTS
    if as_text and (asked is ColumnType.SYMBOL or (decimal and asked is None and held is ColumnType.SYMBOL)):
        return ColumnType.SYMBOL
    if natural is None and decimal:
        raise TypeMismatchError(
            f"the column {name} of the files is of the type {kind}, which a float would round; give it the type symbol "
            "in 'types' to keep its digits",
            column_name=name,
        )
    if natural is None:
        raise TypeMismatchError(
            f"the column {name} of the files is of the type {kind}; "
            f"a relation can take {', '.join(_PARQUET_TYPES)} and decimal, and dates and times with the type symbol "
            "in 'types'",
            column_name=name,
        )
    if asked not in (None, natural):
        raise TypeMismatchError(
            f"the column {name} of the files is of the type {kind}, which is read as {natural.value}, "
            f"and not as {asked}",
            column_name=name,
            expected=str(asked),
            got=natural.value,
        )
    return natural


def _parquet_value(column: Column, kind: str, found: ColumnType) -> Column:
    if found is ColumnType.FLOAT:
        return finite(column.cast("double"))
    if found is ColumnType.NUMBER:
        return column.try_cast("bigint")
    return column if kind == "string" or found is ColumnType.BOOL else column.cast("string")


def as_type(value: Column, kind: ColumnType, format_: str) -> Column:
    """A field as a value, or null if it is not a value."""
    return variant_as(value, kind) if format_ == JSONL else converted(value, kind)


def may_be(value: Column, kind: ColumnType, format_: str) -> Column:
    """Whether a field of unknown type is written in the form of a value of `kind`, even if it is out of range."""
    return variant_looks_like(value, kind) if format_ == JSONL else looks_like(value, kind)
