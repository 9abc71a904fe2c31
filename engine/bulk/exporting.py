"""An export: writes tuples of one pinned epoch to files, through Spark.

In: a request, a pinned snapshot, a session. Out: a file or a folder of files, and counts. Always: what appears under
the target's name is whole and of one epoch; it appears in one step; and what was there before stays unless the request
says `overwrite`. Importing an export again gives the same tuples with the same types, for every type and format: a
delimited file gives its types in the header, unless the request asks for names only. The formats of RDF can hold only
its triples. The rules of RDFS and OWL also derive generalised triples, such as one whose subject is a literal; these
are left out and counted, or refused if the request is strict. Triples of symbols that are not RDF terms are always
refused.

The blocks of the snapshot become Arrow columns, with each distinct string decoded once, and Spark writes them. The
tuples are in the engine's memory while that lasts.
"""

from __future__ import annotations

import functools
import operator
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.bulk import ntriples
from engine.bulk.batches import WEIGHT, sync_folder, synced, unwritable
from engine.bulk.documents import write_documents
from engine.bulk.headers import typed_names
from engine.bulk.request import DELIMITED, JSONL, TSV, ExportRequest, suffixes
from engine.data.arrow import column
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.database.query import evaluate, prepare
from engine.database.reading import read
from engine.errors import InvalidRequestError, TargetExistsError, TypeMismatchError
from engine.language.parser import parse_query
from engine.language.prefixes import NO_PREFIXES, Prefixes
from engine.language.schema import Column, ColumnType
from engine.maintenance.placement import Budget
from engine.rdf.formats import DATASETS, DOCUMENTS, FORMATS
from engine.spark.frames import from_driver
from engine.storage.snapshot import Domain, Snapshot

NOT_A_TRIPLE = "not a triple of RDF"


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote. left_out: generalised triples, which are in no file."""

    rows: int
    files: int
    bytes: int
    left_out: int = 0


async def tuples_of(
    request: ExportRequest, snapshot: Snapshot, cancelled: Callable[[], bool]
) -> tuple[pa.Table, list[Column]]:
    """The requested tuples, as columns `c0 ..`, and the names of the columns; `weights` adds a last column.

    Raises:
        UnknownRelationError, ProgramError: there is no such relation, or the query is wrong.
        EpochNotRetainedError: the epoch's snapshot has been removed meanwhile.
    """
    if request.query is not None:
        query = prepare(parse_query(request.query, snapshot.prefixes), snapshot.schemas)
        facts = await read(query, snapshot, None)
        symbols = await snapshot.symbols(query.constants, complete=True)
        codes = evaluate(query, facts, symbols, Budget(cancelled=cancelled))
        return arrow_of(codes, query.columns, symbols), list(query.columns)
    assert request.relation is not None, "an export is of a query or of a relation"
    found = await snapshot.rows(request.relation, None, cast(Domain, request.domain))
    symbols = await snapshot.symbols((), complete=True)
    columns = list(snapshot.schemas[request.relation].columns)
    table = arrow_of(found.codes, columns, symbols)
    if request.weights:
        if any(c.name == WEIGHT for c in columns):
            raise InvalidRequestError(
                f"{request.relation} already has a column called {WEIGHT}, so weights cannot be exported with it",
                field="weights",
            )
        table = table.append_column(column(len(columns)), pa.array(np.ascontiguousarray(found.asserted)))
        columns.append(Column(WEIGHT, ColumnType.NUMBER))
    return table, columns


def arrow_of(codes: Codes, columns: Sequence[Column], symbols: SymbolTable) -> pa.Table:
    """Converts int64[n, arity] to columns `c0 ..` of natural types.

    Raises:
        InvalidRequestError: there are no columns: a file of rows cannot say whether the tuple () is there.
    """
    if not columns:
        raise InvalidRequestError(
            "a relation or a query without columns cannot be exported; POST /v1/query says whether it holds"
        )
    arrays = []
    for i, about in enumerate(columns):
        values = np.ascontiguousarray(codes[:, i])
        if about.type is ColumnType.SYMBOL:
            distinct, places = np.unique(values, return_inverse=True)
            texts = pa.array(symbols.texts(distinct), pa.string())
            arrays.append(texts.take(pa.array(places)))
        elif about.type is ColumnType.FLOAT:
            arrays.append(pa.array(values.view(np.float64)))
        elif about.type is ColumnType.BOOL:
            arrays.append(pa.array(values.astype(np.bool_)))
        else:
            arrays.append(pa.array(values))
    return pa.table(arrays, names=[column(i) for i in range(len(columns))])


def check_target(target: Path | str, request: ExportRequest) -> None:
    """Refuse to write over what is there.

    Raises:
        TargetExistsError: something is there, and `overwrite` is not set, or it is not an earlier export.
    """
    if isinstance(target, str) or not target.exists():
        return
    if not request.overwrite:
        raise TargetExistsError(
            f'{request.path} exists already; "overwrite": true replaces it', path=request.path
        )
    parts = target.is_dir() and all(p.name.startswith("part-") and p.is_file() for p in target.iterdir())
    if target.is_dir() and (request.one_file or not parts):
        raise TargetExistsError(
            f"{request.path} is a folder that holds other files than those of an earlier export, so it is not "
            "replaced; choose another path",
            path=request.path,
        )
    if not target.is_dir() and not request.one_file:
        raise TargetExistsError(
            f"{request.path} is a file, but this export makes a folder; choose another path",
            path=request.path,
        )


def write(
    session: SparkSession,
    table: pa.Table,
    columns: Sequence[Column],
    request: ExportRequest,
    target: Path | str,
    job: str,
    prefixes: Prefixes = NO_PREFIXES,
) -> Exported:
    """Write the tuples and put them under the target's name. prefixes: for a format that shortens IRIs.

    Raises:
        TargetExistsError, BulkStorageError, TypeMismatchError.
    """
    frame = from_driver(session, table)
    left_out = 0
    document = request.format in DOCUMENTS
    if request.format in FORMATS:
        plain = _plain_triples(frame, columns, request)
        left_out = table.num_rows - plain.count()
        frame = plain
    rows = table.num_rows - left_out
    if request.one_file or document:
        frame = frame.coalesce(1)
    if document:
        if isinstance(target, str):
            raise InvalidRequestError(
                f"{request.format} is written to the engine's own files only; choose ntriples or nquads",
                field="format",
            )
        # What belongs together stands together: first the graph, then the subject.
        places = [*range(3, len(columns)), 0, 1, 2]
        frame = frame.sortWithinPartitions(*map(column, places))
    if isinstance(target, str):
        _write(frame, columns, request, target, "overwrite" if request.overwrite else "error")
        return Exported(rows, 0, 0, left_out)
    scratch = target.parent / f".zedlog-export-{job}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
        _write(frame, columns, request, f"file://{scratch}", "error")
        if document:
            write_documents(session, scratch, request, prefixes)
        return replace(_publish(scratch, target, request, rows), left_out=left_out)
    except OSError as error:
        raise unwritable(target.parent, error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write(frame: DataFrame, columns: Sequence[Column], request: ExportRequest, url: str, mode: str) -> None:
    fields = [F.col(column(i)) for i in range(len(columns))]
    delimited = request.format in DELIMITED
    names = typed_names(columns) if delimited and request.types else [about.name for about in columns]
    named = [field.alias(name) for field, name in zip(fields, names, strict=True)]
    if delimited:
        options: dict[str, Any] = {
            "sep": "\t" if request.format == TSV else ",",
            "header": request.header,
            "quoteAll": True,
            "escape": '"',
            "ignoreLeadingWhiteSpace": False,
            "ignoreTrailingWhiteSpace": False,
            "emptyValue": "",
        }
        frame.select(*named).write.mode(mode).options(**options).csv(url)
    elif request.format == JSONL:
        frame.select(F.to_json(F.struct(*named))).write.mode(mode).text(url)
    elif request.format in FORMATS:
        frame.select(_statement(fields)).write.mode(mode).text(url)
    else:
        frame.select(*named).write.mode(mode).parquet(url)


def _plain_triples(frame: DataFrame, columns: Sequence[Column], request: ExportRequest) -> DataFrame:
    """The statements that RDF can hold. One with a symbol that is not a term makes the query fail; if the request is
    strict, so does one with a term in a position that RDF does not allow.

    Raises:
        TypeMismatchError: the columns are not three symbols, or four where the format has named graphs.
    """
    width = 4 if request.format in DATASETS and len(columns) == 4 else 3
    if [c.type for c in columns] != [ColumnType.SYMBOL] * width:
        graph = ", and perhaps the graph" if request.format in DATASETS else ""
        raise TypeMismatchError(
            f"{request.format} holds three symbols: subject, predicate, object{graph}",
            expected="symbol, symbol, symbol",
            got=", ".join(c.type.value if c.type else "?" for c in columns),
        )
    fields = [F.col(column(i)) for i in range(width)]
    graph_term = rf"^(?:|{ntriples.NODE[1:-2]})\z"
    right = _all_match(fields, (ntriples.NODE, ntriples.IRI, ntriples.TERM, graph_term)[:width])
    anywhere = (ntriples.TERM, ntriples.TERM, ntriples.TERM, rf"^(?:|{ntriples.TERM[1:-2]})\z")[:width]
    terms = F.lit(False) if request.strict else _all_match(fields, anywhere)
    line = _statement(fields)
    wrong = F.raise_error(F.concat(F.lit(f"{NOT_A_TRIPLE}: "), F.left(line, F.lit(200)))).cast("boolean")
    return frame.where(F.when(right, F.lit(True)).when(terms, F.lit(False)).otherwise(wrong))


def _statement(fields: Sequence[SparkColumn]) -> SparkColumn:
    """A line of N-Triples, or of N-Quads, where the default graph is not named."""
    if len(fields) < 4:
        return F.concat_ws(" ", *fields, F.lit("."))
    return F.concat_ws(" ", *fields[:3], F.when(fields[3] != "", fields[3]), F.lit("."))


def _all_match(fields: Sequence[SparkColumn], patterns: Sequence[str]) -> SparkColumn:
    tests = [field.rlike(pattern) for field, pattern in zip(fields, patterns, strict=True)]
    return functools.reduce(operator.and_, tests)


def _publish(scratch: Path, target: Path, request: ExportRequest, rows: int) -> Exported:
    parts = sorted(scratch.glob("part-*"))
    size = 0
    if request.one_file:
        if not parts:
            (scratch / "part-00000").touch()
            parts = [scratch / "part-00000"]
        size = synced(parts[0])[1]
        check_target(target, request)
        os.replace(parts[0], target)
        sync_folder(target.parent)
        return Exported(rows, 1, size)
    for other in scratch.iterdir():
        if other not in parts:
            other.unlink()
    for number, part in enumerate(parts):
        size += synced(part)[1]
        part.rename(scratch / f"part-{number:05d}{suffixes(request.format)[0]}")
    sync_folder(scratch)
    check_target(target, request)
    old = scratch.with_name(scratch.name + "-old")
    if target.exists():
        target.rename(old)
    scratch.rename(target)
    shutil.rmtree(old, ignore_errors=True)
    sync_folder(target.parent)
    return Exported(rows, len(parts), size)
