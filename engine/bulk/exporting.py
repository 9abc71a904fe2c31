"""An export: tuples of one pinned epoch, through Spark, into files.

In: a request, a pinned snapshot, a session. Out: a file or a folder of files, and counts. Always: what appears under
the target's name is whole and of one epoch; it appears in one step; and what was there before stays unless the request
says `overwrite`. Importing an export again gives the same tuples, for every type and format (N-Triples: for relations
of terms).

The blocks of the snapshot become Arrow columns, with each distinct string decoded once, and Spark writes them. The
tuples are in the engine's memory while that lasts.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.arrow import column
from engine.batches import WEIGHT, sync_folder, synced, unwritable
from engine.bulk import ntriples
from engine.bulk.request import CSV, JSONL, NTRIPLES, ExportRequest, suffixes
from engine.errors import InvalidRequestError, TargetExistsError, TypeMismatchError
from engine.language.parser import parse_query
from engine.language.schema import Column, ColumnType
from engine.placement import Budget
from engine.query import evaluate, prepare
from engine.spark.frames import from_driver
from engine.storage.snapshot import Domain, Snapshot
from engine.symbols import SymbolTable

Codes = npt.NDArray[np.int64]
NOT_A_TRIPLE = "not a triple of N-Triples"


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

    rows: int
    files: int
    bytes: int


async def tuples_of(
    request: ExportRequest, snapshot: Snapshot, cancelled: Callable[[], bool]
) -> tuple[pa.Table, list[Column]]:
    """The tuples that are asked for, as columns `c0 ..`, and what the columns are called; with `weights` a last one.

    Raises:
        UnknownRelationError, ProgramError: there is no such relation, or the query is wrong.
        EpochNotRetainedError: the epoch's snapshot has been removed meanwhile.
    """
    if request.query is not None:
        query = prepare(parse_query(request.query), snapshot.schemas)
        facts = {
            relation: [await snapshot.codes(relation, bound) for bound in bindings]
            for relation, bindings in query.reads.items()
        }
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
                f"{request.relation} has a column called {WEIGHT} already, so weights cannot be exported too",
                field="weights",
            )
        table = table.append_column(column(len(columns)), pa.array(np.ascontiguousarray(found.asserted)))
        columns.append(Column(WEIGHT, ColumnType.NUMBER))
    return table, columns


def arrow_of(codes: Codes, columns: Sequence[Column], symbols: SymbolTable) -> pa.Table:
    """int64[n, arity] as columns `c0 ..` of natural types.

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
        TargetExistsError: there is something, and `overwrite` is not set, or it is no earlier export.
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
            f"{request.path} is a folder that does not only hold an earlier export, so it is not replaced",
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
) -> Exported:
    """Write the tuples and put them under the target's name.

    Raises:
        TargetExistsError, BulkStorageError, TypeMismatchError.
    """
    frame = from_driver(session, table)
    if request.one_file:
        frame = frame.coalesce(1)
    if isinstance(target, str):
        _write(frame, columns, request, target, "overwrite" if request.overwrite else "error")
        return Exported(table.num_rows, 0, 0)
    scratch = target.parent / f".zedlog-export-{job}"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(scratch, ignore_errors=True)
        _write(frame, columns, request, f"file://{scratch}", "error")
        return _publish(scratch, target, request, table.num_rows)
    except OSError as error:
        raise unwritable(target.parent, error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _write(frame: DataFrame, columns: Sequence[Column], request: ExportRequest, url: str, mode: str) -> None:
    fields = [F.col(column(i)) for i in range(len(columns))]
    named = [field.alias(about.name) for field, about in zip(fields, columns, strict=True)]
    if request.format == CSV:
        options: dict[str, Any] = {
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
    elif request.format == NTRIPLES:
        frame.select(_triple(fields, columns)).write.mode(mode).text(url)
    else:
        frame.select(*named).write.mode(mode).parquet(url)


def _triple(fields: Sequence[SparkColumn], columns: Sequence[Column]) -> SparkColumn:
    """The line of N-Triples; what is no triple ends the query."""
    if [c.type for c in columns] != [ColumnType.SYMBOL] * 3:
        raise TypeMismatchError(
            "N-Triples holds three symbols: subject, predicate, object",
            expected="symbol, symbol, symbol",
            got=", ".join(c.type.value if c.type else "?" for c in columns),
        )
    patterns = (ntriples.NODE, ntriples.IRI, ntriples.TERM)
    right = fields[0].rlike(patterns[0]) & fields[1].rlike(patterns[1]) & fields[2].rlike(patterns[2])
    line = F.concat_ws(" ", *fields, F.lit("."))
    return F.when(right, line).otherwise(
        F.raise_error(F.concat(F.lit(f"{NOT_A_TRIPLE}: "), F.left(line, F.lit(200)))).cast("string")
    )


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
