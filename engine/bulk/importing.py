"""An import's work in Spark: turns files into batch files, and reports the rows that could not be read.

In: a request, the schemas of the database, a session. Out: an `Imported`: for each relation a `FactFiles` of durable
Parquet files with typed columns and weights, the declarations of new relations, counts, and the bad rows. Always: equal
rows become one row whose weight is the sum; every row of the files is either in a batch or among the bad rows; and when
this raises, nothing refers to the files in the import's folder.

One Spark query for each relation reads, parses, types, sums up and writes, and the bad rows travel with the good ones
through the same exchange, so that nothing is read twice in the normal case. Types that have to be inferred, bad rows,
and rows that need a second look (in N-Triples: lines with escapes) cost further passes.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.bulk import rdf, reading
from engine.bulk.batches import WEIGHT, BatchStore
from engine.bulk.outside import EARLIEST, KAFKA, OFFSETS, Connection
from engine.bulk.reading import (
    BLOCK,
    FILE,
    MARKS,
    OPEN,
    PLACE,
    RAW,
    REASON,
    WEIGHT_FIELD,
    RawRows,
    as_type,
    may_be,
    text_lines,
)
from engine.bulk.rejects import PLACES, Rejected, summary, write_rejects
from engine.bulk.request import FACTS, FAIL, JSONL, SKIP, STATEMENTS, ImportRequest, format_of
from engine.bulk.rules import Added, added_rules
from engine.bulk.sources import Source
from engine.bulk.streams import DECLARATION, Portion, Topic, portion
from engine.bulk.tables import is_table, read_table
from engine.bulk.typed import ORDER, TOO_HEAVY, mismatch
from engine.data.arrow import columns
from engine.data.transaction import MAX_WEIGHT, FactChange, FactFiles, Transaction
from engine.errors import (
    ArityError,
    BadRowsError,
    InvalidRequestError,
    SourceUnreadableError,
    TypeMismatchError,
    UnknownRelationError,
    ZedlogError,
)
from engine.language.parser import parse_declarations
from engine.language.schema import ColumnType, Schema
from engine.rdf.formats import DOCUMENTS, RDF

ROWS = "rows"
"""The column of a batch file with the number of rows of the files that a tuple stands for."""
_MARKS = "marks"
_SMALL_WEIGHT = 1 << 31
"""No files have so many rows that their weights would not fit into 64 bits."""
_BAD_WEIGHT = f"the weight is not an integer between {-MAX_WEIGHT} and {MAX_WEIGHT}"
NO_CONNECTION: Final = Connection()
Step = Callable[[str], None]


@dataclass(slots=True)
class Imported:
    """See the module. rows: read from the files, good and bad. tuples: distinct ones. weight: of all of them. moved:
    facts that go with the rows, such as the position in a topic. stream: what is reported of it."""

    batches: list[FactFiles] = field(default_factory=list)
    declarations: list[str] = field(default_factory=list)
    rows: int = 0
    tuples: int = 0
    weight: int = 0
    rejected: Rejected = field(default_factory=Rejected)
    added: Added | None = None
    moved: tuple[FactChange, ...] = ()
    stream: dict[str, Any] | None = None

    def transaction(self, request: ImportRequest) -> Transaction:
        """The transaction for the log."""
        return Transaction(
            declarations="\n".join(self.declarations),
            mode="set" if request.mode == "set" else "zset",
            dry_run=request.dry_run,
            batches=tuple(self.batches),
            rules=self.added.rules if self.added else (),
            facts=(*(self.added.facts if self.added else ()), *self.moved),
        ).told(
            request.author,
            request.message,
            request.source if self.batches or self.moved else None,
            "relations" if request.replace else None,
        )

    @property
    def changes_something(self) -> bool:
        """Whether there is anything to apply."""
        return bool(self.batches or self.added or self.moved)


class Importer:
    """One import. folder: its name in the batch store; rejects: the file for bad rows. known: how something outside of
    files is reached; kept: the position in a topic."""

    def __init__(
        self,
        session: SparkSession,
        store: BatchStore,
        folder: str,
        rejects: Path,
        step: Step = lambda _: None,
        known: Connection = NO_CONNECTION,
        kept: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self._session = session
        self._store = store
        self._folder = folder
        self._rejects = rejects
        self._step = step
        self._known = known
        self._topic: Topic | None = None
        self._kept = kept

    def run(
        self, request: ImportRequest, sources: Sequence[Source], schemas: Mapping[str, Schema]
    ) -> Imported:
        """Read everything and write the batches.

        Raises:
            BadRowsError: there are bad rows, and the request does not say to skip them.
            HeaderMismatchError, TypeMismatchError, ArityError, UnknownRelationError: files and relation do not fit.
            BulkStorageError: the batch directory cannot be written.
        """
        self._store.folder(self._folder)
        self._rejects.unlink(missing_ok=True)
        result = Imported()
        bad = 0
        what = self._portion(request, result)
        nothing_new = what is not None and not what.messages
        by_relation = {} if nothing_new else _by_relation(request, sources)
        for relation, files in by_relation.items():
            bad += self._relation(relation, files, request, schemas.get(relation), result, what)
        if bad:
            result.rejected = summary(self._rejects, bad)
            if request.on_error == FAIL or (request.format == RDF and _is_broken(self._rejects)):
                raise _bad_rows(result)
        if request.replace and not result.batches:
            _check_may_be_empty(request)
            result.moved = (FactChange(request.relation or "", ()),)
        if what is not None:
            assert self._topic is not None, "it has told the portion"
            result.moved = what.moved(self._topic.stream, request.target or "")
            if result.moved and OFFSETS not in schemas:
                result.declarations.append(DECLARATION)
        if request.rules is not None:
            self._step("rules")
            result.added = added_rules(request, self._store, result.batches)
        return result

    def _portion(self, request: ImportRequest, result: Imported) -> Portion | None:
        """What to read of a topic; None where something else is read."""
        if request.kind != KAFKA:
            return None
        self._step("position")
        self._topic = Topic(self._session, request, self._known)
        how = request.options
        broker = self._topic.offsets()
        what = portion(self._topic.topic, self._kept, broker, how.starting or EARLIEST, how.max_messages)
        result.stream = self._topic.report(what)
        return what

    def _rows(
        self, sources: Sequence[Source], request: ImportRequest, schema: Schema | None, what: Portion | None
    ) -> RawRows:
        if what is not None:
            assert self._topic is not None, "it has told the portion"
            return self._topic.read(what, schema)
        if is_table(request):
            return read_table(self._session, sources[0], request, schema, self._known)
        if request.format in STATEMENTS:
            return rdf.read(self._session, sources, request)
        return reading.read(self._session, [source.url for source in sources], request, schema)

    def _relation(
        self,
        relation: str,
        sources: Sequence[Source],
        request: ImportRequest,
        schema: Schema | None,
        result: Imported,
        what: Portion | None = None,
    ) -> int:
        """Import one relation's files into `result`; returns how many rows are bad."""
        if request.format == FACTS and schema is None:
            raise UnknownRelationError(
                f"{sources[0].name} holds facts of {relation}, but there is no relation of this name; declare it first",
                relation=relation,
            )
        if schema is not None and schema.arity == 0:
            raise InvalidRequestError(f"{relation} has no columns, so a file of rows cannot hold facts of it")
        names = None if schema is None else [c.name for c in schema.columns]
        urls = [source.url for source in sources]
        self._step("look")
        rows = self._rows(sources, request, schema, what)
        types = self._types(relation, rows, request, schema)
        if not rows.width:
            return 0
        self._step("read")
        given = names or [*(rows.names or columns(rows.width))]
        scratch = self._store.root / self._folder / f".{relation}"
        written = _write(_summed(_keyed(rows, types, given, request), rows.width, request), scratch)
        bad = _bad(written)
        if bad and rows.again is not None:
            self._step("again")
            first, scratch = scratch, scratch.with_name(scratch.name + "-again")
            written = _write(self._looked_again(first, rows, types, given, request), scratch)
            bad = _bad(written)
        if bad:
            result.rows += bad if request.on_error == SKIP else _rows_of(written)
            written = self._without_bad(scratch, rows, urls, sources, request)
        batch = self._store.keep(self._folder, relation, types, written)
        for leftover in scratch.parent.glob(f".{relation}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        self._count(batch, result)
        if batch.files:
            result.batches.append(batch)
            if schema is None:
                result.declarations.append(_declaration(relation, rows.names, types))
        return bad

    def _types(
        self, relation: str, rows: RawRows, request: ImportRequest, schema: Schema | None
    ) -> tuple[ColumnType, ...]:
        """The types of the relation, of the request or of the format; otherwise the types that all rows agree on."""
        known: list[ColumnType | None] = [None] * rows.width
        if schema is not None:
            known = [c.type for c in schema.columns]
        if len(known) != rows.width:
            raise ArityError(
                f"{schema} has {len(known)} columns, but the files have {rows.width}",
                relation=relation,
                expected=len(known),
                got=rows.width,
            )
        for kinds in (request.types or rows.said or (), rows.types or ()):
            if kinds and len(kinds) != rows.width:
                raise ArityError(
                    f"there are {len(kinds)} types, but {rows.width} columns",
                    relation=relation,
                    expected=rows.width,
                    got=len(kinds),
                )
            for i, kind in enumerate(kinds):
                if known[i] not in (None, kind):
                    assert schema is not None, "only a schema or the request before it says a type"
                    raise TypeMismatchError(
                        f"column {i + 1} ({schema.columns[i].name}) of {relation} holds {known[i]}, "
                        f"but the import has {kind}",
                        relation=relation,
                        column_name=schema.columns[i].name,
                        expected=str(known[i]),
                        got=str(kind),
                    )
                known[i] = kind
        if any(kind is None for kind in known):
            self._step("types")
            known = _agreed(rows, known, request)
        return tuple(kind or ColumnType.SYMBOL for kind in known)

    def _looked_again(
        self,
        first: Path,
        rows: RawRows,
        types: Sequence[ColumnType],
        names: Sequence[str],
        request: ImportRequest,
    ) -> DataFrame:
        """The rows written to `first`, with a second look at those that have a reason."""
        assert rows.again is not None, "there is a second look"
        written = self._session.read.parquet(f"file://{first}")
        open_ = written.filter(F.col(REASON) == OPEN)
        looked = replace(rows, frame=rows.again(open_.select(RAW, FILE, BLOCK, PLACE)))
        found = _keyed(looked, types, names, request)
        settled = written.filter(F.coalesce(F.col(REASON) != OPEN, F.lit(True)))
        marks = F.when(F.col(REASON).isNotNull(), F.struct(*MARKS)).cast(found.schema[_MARKS].dataType)
        done = settled.select(*columns(rows.width), WEIGHT, ROWS, marks.alias(_MARKS))
        return _summed(done.unionByName(found), rows.width, request)

    def _without_bad(
        self, scratch: Path, rows: RawRows, urls: list[str], sources: Sequence[Source], request: ImportRequest
    ) -> list[Path]:
        """Write the rejects, and the good rows alone; returns their files."""
        self._step("rejects")
        all_rows = self._session.read.parquet(f"file://{scratch}")

        def every_row() -> DataFrame:
            if rows.every is not None:
                return rows.every()
            if rows.lines:
                return text_lines(self._session, urls, request.format)
            return rows.frame.select(FILE, BLOCK, PLACE)

        write_rejects(all_rows.filter(F.col(REASON).isNotNull()), rows, every_row, sources, self._rejects)
        if request.on_error == FAIL:
            return []
        good = scratch.with_name(scratch.name + "-good")
        kept = all_rows.filter(F.col(REASON).isNull()).drop(*MARKS)
        return _write(kept, good)

    def _count(self, batch: FactFiles, result: Imported) -> None:
        for file in batch.files:
            counts = pq.read_table(self._store.root / file.path, columns=[ROWS, WEIGHT])
            result.rows += pc.sum(counts.column(ROWS)).as_py() or 0
            result.weight += _exact_sum(counts.column(WEIGHT))
            result.tuples += counts.num_rows


def _write(frame: DataFrame, folder: Path) -> list[Path]:
    """Write a folder of Parquet files; its files."""
    frame.write.mode("overwrite").parquet(f"file://{folder}")
    return sorted(folder.glob("part-*.parquet"))


def _rows_of(files: Sequence[Path]) -> int:
    """How many rows of the imported files stand in written files."""
    return sum(pc.sum(pq.read_table(file, columns=[ROWS]).column(ROWS)).as_py() or 0 for file in files)


def _exact_sum(weights: pa.ChunkedArray) -> int:
    values = np.asarray(weights.to_numpy(), np.int64)
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _by_relation(request: ImportRequest, sources: Sequence[Source]) -> dict[str, list[Source]]:
    if request.format != FACTS:
        assert request.target is not None, "only Souffle's files have relations of their own"
        return {request.target: list(sources)}
    found: dict[str, list[Source]] = {}
    for source in sources:
        found.setdefault(source.stem, []).append(source)
    return found


def _keyed(
    rows: RawRows, types: Sequence[ColumnType], names: Sequence[str], request: ImportRequest
) -> DataFrame:
    """(c0 .., weight, rows, marks): typed rows without marks, and bad rows with marks alone."""
    texts = [F.col(reading.field(i)) for i in range(rows.width)]
    if rows.types is None:
        values = [as_type(text, kind, request.format) for text, kind in zip(texts, types, strict=True)]
    else:
        values = texts
    weight = _weight(rows, request)
    wrong = []
    # A format that cannot fail but as a whole says itself what is wrong.
    if not (rows.lines and rows.types):
        shown = [F.to_json(text) if request.format == JSONL else text.cast("string") for text in texts]
        wrong = [
            F.when(value.isNull(), mismatch(name, i, kind, text))
            for i, (name, kind, text, value) in enumerate(zip(names, types, shown, values, strict=True))
        ]
        if request.weighed:
            fits = weight.between(-MAX_WEIGHT, MAX_WEIGHT)
            wrong.append(F.when(~F.coalesce(fits, F.lit(False)), F.lit(_BAD_WEIGHT)))
    reason = F.coalesce(F.col(REASON), *wrong)
    typed = rows.frame.select(
        *[value.alias(name) for name, value in zip(columns(rows.width), values, strict=True)],
        weight.alias(WEIGHT),
        F.left(reason, F.lit(300)).alias(REASON),
        RAW,
        FILE,
        BLOCK,
        PLACE,
    )
    bad = f"{REASON} IS NOT NULL"
    # One key for all marks: most rows have none, and every key of a row is copied and hashed several times.
    return typed.selectExpr(
        *[f"if({bad}, null, {name}) AS {name}" for name in columns(rows.width)],
        f"if({bad}, 0L, {WEIGHT}) AS {WEIGHT}",
        f"1L AS {ROWS}",
        f"if({bad}, struct({', '.join(MARKS)}), null) AS {_MARKS}",
    )


def _summed(keyed: DataFrame, width: int, request: ImportRequest) -> DataFrame:
    """Distinct rows with ROWS and WEIGHT, and each bad row with its marks and without values.

    Most rows of a file are distinct, so they are not summed up before they are exchanged: Spark merges the two halves
    of an aggregation where its rows are partitioned already.
    """
    key = [*columns(width), _MARKS]
    counted = (
        keyed.repartition(*key)
        .groupBy(*key)
        .agg(_total(request, width).alias(WEIGHT), F.sum(ROWS).alias(ROWS))
    )
    return counted.select(*columns(width), WEIGHT, ROWS, f"{_MARKS}.*")


def _weight(rows: RawRows, request: ImportRequest) -> Column:
    if not request.weighed:
        return F.lit(request.weight).cast("long")
    given = F.col(WEIGHT_FIELD)
    return as_type(given, ColumnType.NUMBER, request.format) if rows.types is None else given.cast("long")


def _total(request: ImportRequest, width: int) -> Column:
    """In the mode `set` a tuple counts once, however often it occurs in the files. Weights of both signs are added up
    exactly, so that their order does not decide whether the sum fits into 64 bits.
    """
    if request.mode == "set":
        return F.max(WEIGHT) if request.weight > 0 else F.min(WEIGHT)
    if not request.weighed and abs(request.weight) < _SMALL_WEIGHT:
        return F.sum(WEIGHT)
    total = F.sum(F.col(WEIGHT).cast("decimal(20,0)"))
    shown = F.to_json(F.struct(*columns(width)))
    return F.when(total.between(-MAX_WEIGHT, MAX_WEIGHT), total.cast("bigint")).otherwise(
        F.raise_error(F.concat(F.lit(f"{TOO_HEAVY}: "), shown)).cast("bigint")
    )


def _agreed(
    rows: RawRows, known: Sequence[ColumnType | None], request: ImportRequest
) -> list[ColumnType | None]:
    """The narrowest type in whose form every row of a column is written: bool, number, float, or otherwise symbol. A
    row that is written as a number but does not fit into 64 bits is then a bad row, not a reason to choose another
    type.
    """
    tests: list[Column] = []
    for i, kind in enumerate(known):
        if kind is None:
            value = F.col(reading.field(i))
            for candidate in ORDER:
                fits = may_be(value, candidate, request.format)
                tests.append(F.bool_and(F.coalesce(fits, F.lit(False))).alias(f"{candidate.value}{i}"))
    found = rows.frame.filter(F.col(REASON).isNull()).agg(*tests).collect()[0]
    return [
        kind or next((candidate for candidate in ORDER if found[f"{candidate.value}{i}"]), ColumnType.SYMBOL)
        for i, kind in enumerate(known)
    ]


def _bad(files: Sequence[Path]) -> int:
    """The number of bad rows in written files, taken from the files' own statistics."""
    return sum(_bad_in(file) for file in files)


def _bad_in(file: Path) -> int:
    about = pq.read_metadata(file)
    place = about.schema.names.index(REASON)
    groups = [about.row_group(i) for i in range(about.num_row_groups)]
    statistics = [group.column(place).statistics for group in groups]
    if all(known is not None and known.has_null_count for known in statistics):
        return sum(group.num_rows - known.null_count for group, known in zip(groups, statistics, strict=True))
    # A writer may leave the statistics of long texts out.
    reasons = pq.read_table(file, columns=[REASON]).column(REASON)
    return int(len(reasons) - reasons.null_count)


def _declaration(relation: str, names: Sequence[str] | None, types: Sequence[ColumnType]) -> str:
    """`.decl` for a new relation, with the files' column names if these can be names of columns."""
    cleaned = [re.sub(r"[^A-Za-z0-9_]", "_", name) for name in names or ()]
    if len(set(cleaned)) != len(types):
        cleaned = columns(len(types))

    def text(of: Sequence[str]) -> str:
        return f".decl {relation}({', '.join(f'{n}: {t.value}' for n, t in zip(of, types, strict=True))})"

    try:
        parse_declarations(text(cleaned))
    except ZedlogError:
        return text(columns(len(types)))
    return text(cleaned)


def _check_may_be_empty(request: ImportRequest) -> None:
    if not request.allow_empty:
        raise SourceUnreadableError(
            f'{request.paths[0]} holds no rows; with "allow_empty", all that {request.source} asserts of '
            f"{request.relation} is taken back",
            file=request.paths[0],
        )


def _is_broken(rejects: Path) -> bool:
    """Whether there is something wrong with a document of RDF, of which no part can be left out."""
    with rejects.open("rb") as lines:
        return any(format_of(orjson.loads(line)["file"]) in DOCUMENTS for line in lines)


def _bad_rows(result: Imported) -> BadRowsError:
    rejected = result.rejected
    first = rejected.samples[0]
    place = "".join(f", {name} {first[name]}" for name in PLACES if name in first)
    number = "1 row" if rejected.number == 1 else f"{rejected.number:,} rows"
    return BadRowsError(
        f"{number} of {result.rows:,} cannot be imported; the first is in {first['file']}{place}: {first['reason']}",
        rejected=rejected.number,
        rows=result.rows,
        samples=rejected.samples,
        file=rejected.file,
    )
