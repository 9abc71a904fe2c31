"""Files of RDF into rows of terms, in Spark.

In: files in N-Triples, N-Quads, Turtle, TriG, RDF/XML or JSON-LD, and the request. Out: `RawRows` of subject, predicate
and object, and where the request asks for it the graph, which is empty for the default graph. Always: equal terms are
equal symbols, whatever the format.

The two formats of lines are read by Spark itself. A document is turned into lines of N-Quads by a Python task of Spark
(engine/rdf/statements.py), beside the engine and not in its process, and these lines then go the same way. The first
error of a document is one bad row, and what stands behind it is not read; such a row always makes an import fail.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.bulk import ntriples
from engine.bulk.reading import BLOCK, FILE, OPEN, PLACE, RAW, VALUE, RawRows, shaped, text_lines
from engine.bulk.request import APART, KEEP, ImportRequest, format_of
from engine.bulk.sources import Source
from engine.errors import SourceUnreadableError, SparkUnavailableError
from engine.language.schema import ColumnType
from engine.rdf.formats import DOCUMENTS, FORMATS, LINES, NQUADS, NTRIPLES, RDF
from engine.rdf.statements import Wrong, scope_of, statements
from engine.spark.session.tasks import can_map, map_in_arrow

_MARKED, _PLAIN, _TERMS, _GIVEN = "marked", "plain", "terms", "given"
_OUT = f"{VALUE} string, {_GIVEN} string, {FILE} string, {BLOCK} long, {PLACE} long"
_IN = "url string, path string, scope string, format string, keep boolean"
_NAMES = ("s", "p", "o", "g")
_UNFIT = (
    "a triple inside a triple, or an IRI with a control character, < or >, which Zedlog's triples cannot hold"
)


def read(session: SparkSession, sources: Sequence[Source], request: ImportRequest) -> RawRows:
    """The statements of the files.

    Raises:
        SourceUnreadableError: a name does not say the format, or a document is not a file of this machine.
        SparkUnavailableError: this Spark runs no Python tasks.
    """
    by_format: dict[str, list[Source]] = {}
    for source in sources:
        by_format.setdefault(_format_of(source, request), []).append(source)
    documents = [(s, kind) for kind, found in by_format.items() if kind in DOCUMENTS for s in found]
    frames, places = [], []
    for kind in LINES:
        urls = [source.url for source in by_format.get(kind, ())]
        if urls:
            line = ntriples.marked(F.col(VALUE), quads=kind == NQUADS).alias(_MARKED)
            # In the projection that numbers the lines, which no condition passes: so the expression is evaluated once.
            lines = text_lines(session, urls, kind, line, F.lit(None).cast("string").alias(_GIVEN))
            frames.append(_rows(lines, request, quads=kind == NQUADS, lines=True))
            places.append(functools.partial(text_lines, session, urls, kind))
    if documents:
        made = _converted(session, documents, request)
        made = made.withColumn(_MARKED, ntriples.marked(F.col(VALUE), quads=True))
        frames.append(_rows(made, request, quads=True, lines=False))
        places.append(functools.partial(_beginnings, session, [source.url for source, _ in documents]))

    def every_row() -> DataFrame:
        return functools.reduce(
            DataFrame.unionByName, (place().select(FILE, BLOCK, PLACE) for place in places)
        )

    width = 4 if request.graphs else 3
    only = next(iter(by_format)) if len(by_format) == 1 else None
    return RawRows(
        functools.reduce(DataFrame.unionByName, frames),
        width,
        _NAMES[:width],
        (ColumnType.SYMBOL,) * width,
        lines=True,
        again=functools.partial(_again, request=request, only=only),
        every=every_row,
    )


def _format_of(source: Source, request: ImportRequest) -> str:
    if request.format != RDF:
        return request.format
    kind = format_of(source.name)
    if kind not in FORMATS:
        raise SourceUnreadableError(
            f"the name {source.name} does not say which format of RDF it has; import it separately, with a format",
            file=source.name,
        )
    return kind


def _rows(frame: DataFrame, request: ImportRequest, *, quads: bool, lines: bool) -> DataFrame:
    """Lines with what `marked` makes of them: those that are plain are cut, others wait for a second look."""
    line = F.col(VALUE)
    looked = frame.selectExpr("*", f"{ntriples.is_plain(VALUE, _MARKED)} AS {_PLAIN}")
    if lines:
        looked = looked.filter(F.col(_PLAIN) | ~ntriples.is_blank(line))
    cut = looked.selectExpr("*", f"if({_PLAIN}, {ntriples.plain_terms(_MARKED)}, null) AS {_TERMS}")
    reason = F.expr(f"if({_PLAIN}, null, coalesce({_GIVEN}, '{OPEN}'))")
    return shaped(cut, _fields(request, quads=quads, lines=lines), line, reason, None)


def _fields(request: ImportRequest, *, quads: bool, lines: bool) -> list[Column]:
    fields = ntriples.terms(F.col(_TERMS), quads=quads)
    if request.graphs and not quads:
        fields.append(F.when(fields[0].isNotNull(), F.lit("")))
    fields = fields if request.graphs else fields[:3]
    if lines and request.blank_nodes == APART:
        scope = F.concat(F.lit("_:f"), F.left(F.sha2(F.col(FILE), 256), F.lit(10)), F.lit("_"))
        return [
            F.when(term.startswith("_:"), F.concat(scope, F.substring(term, 3, 2**31 - 1))).otherwise(term)
            for term in fields
        ]
    return fields


def _again(lines: DataFrame, *, request: ImportRequest, only: str | None) -> DataFrame:
    """Lines that are not plain: with escapes, with control characters, or no statements. only: the format of all files;
    None if their names say it.
    """
    if only is not None:
        return _looked(lines, request, only)
    kind = F.lower(F.col(FILE))
    triples, quads = (kind.rlike(rf"\.{suffix}(\.gz|\.bz2)?\z") for suffix in ("nt", "nq"))
    parts = {NTRIPLES: triples, NQUADS: quads, RDF: ~triples & ~quads}
    return functools.reduce(
        DataFrame.unionByName, (_looked(lines.filter(which), request, part) for part, which in parts.items())
    )


def _looked(lines: DataFrame, request: ImportRequest, kind: str) -> DataFrame:
    line, quads = F.col(RAW), kind != NTRIPLES
    cut = lines.select("*", ntriples.cut(line, quads=quads).alias("cut"))
    normal = cut.select("*", ntriples.normalised(F.col("cut")).alias(_TERMS))
    found = ntriples.terms(F.col(_TERMS), quads=quads)
    whole = functools.reduce(Column.__and__, (term.isNotNull() for term in found))
    wrong = {NTRIPLES: "not a triple of N-Triples", NQUADS: "not a quad of N-Quads"}.get(kind, _UNFIT)
    reason = F.when(~F.is_valid_utf8(line), F.lit("not UTF-8")).when(~whole, F.lit(wrong))
    fields = _fields(request, quads=quads, lines=kind in LINES)
    return shaped(normal, fields, line, reason, None)


def _converted(
    session: SparkSession, documents: Sequence[tuple[Source, str]], request: ImportRequest
) -> DataFrame:
    keep = request.blank_nodes == KEEP
    rows = []
    for source, kind in documents:
        if source.path is None:
            raise SourceUnreadableError(
                f"{source.name} is not a file of the engine's machine, and only N-Triples and N-Quads are read from "
                "elsewhere; copy it below the import root",
                file=source.name,
            )
        rows.append((source.url, str(source.path), scope_of(source.name), kind, keep))
    files = session.createDataFrame(rows, _IN).repartition(len(rows))
    if not can_map(files):
        raise SparkUnavailableError(
            "this Spark session runs no Python tasks, which documents of RDF need; convert them to N-Triples, or "
            "install pandas"
        )
    return map_in_arrow(files, _convert, _OUT)


def _convert(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: files to lines, and to what is wrong with a file."""
    for batch in batches:
        for file in batch.to_pylist():
            for found in statements(Path(file["path"]), file["format"], file["scope"], keep=file["keep"]):
                yield _wrong(file, found) if isinstance(found, Wrong) else _lines(file, found)


def _lines(file: dict[str, Any], lines: list[bytes]) -> pa.RecordBatch:
    number = len(lines)
    texts = pa.array(lines, pa.string())
    none = pa.nulls(number, pa.string())
    url = pa.repeat(pa.scalar(file["url"], pa.string()), number)
    block = pa.repeat(pa.scalar(0, pa.int64()), number)
    return _batch([texts, none, url, block, pa.nulls(number, pa.int64())])


def _wrong(file: dict[str, Any], wrong: Wrong) -> pa.RecordBatch:
    where = "" if wrong.column is None else f"column {wrong.column}: "
    place = None if wrong.line is None else wrong.line - 1
    return _batch(
        [
            pa.nulls(1, pa.string()),
            pa.array([where + wrong.reason], pa.string()),
            pa.array([file["url"]], pa.string()),
            pa.array([0], pa.int64()),
            pa.array([place], pa.int64()),
        ]
    )


def _batch(arrays: list[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(arrays, names=[VALUE, _GIVEN, FILE, BLOCK, PLACE])


def _beginnings(session: SparkSession, urls: Sequence[str]) -> DataFrame:
    """The beginnings of documents, whose parser counts lines itself."""
    return session.createDataFrame(
        [(url, 0, 0) for url in urls], f"{FILE} string, {BLOCK} long, {PLACE} long"
    )
