"""`zedlog load RELATION FILE`: a delimited file into one relation, batch by batch, with a progress bar.

The file is read twice (see delimited.py): first to find its types and its digest, then to send it. Each batch is a
transaction of its own with an Idempotency-Key made from the digest, everything that shapes the batch, and its number.
So a load that broke off can simply be run again: what is already there is recognised, and nothing is added twice.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO, cast

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from engine.errors import IdempotencyConflictError
from engine.language.schema import ColumnType
from service.cli import options
from service.cli.client import Json, Refused, ServiceClient
from service.cli.output import counted, err, fail, note, out
from service.delimited import (
    BadFile,
    FileColumns,
    Survey,
    delimiter_named,
    first_line,
    guess_delimiter,
    header_types,
    rows,
    survey,
)

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True, slots=True)
class LoadJob:
    """One load: which file goes into which relation, and how."""

    relation: str
    layout: FileColumns
    found: Survey
    weight: int
    mode: str
    batch: int
    salt: str
    message: str | None = None
    source: str | None = None

    def key(self, number: int) -> str:
        """The Idempotency-Key of batch `number`; the same for the same batch of the same load only. Another message
        does not make another load: then the service refuses what it has.
        """
        parts = (
            self.found.digest,
            self.relation,
            *(t.value for t in self.found.types),
            self.layout.delimiter,
            str(self.layout.header),
            str(self.layout.columns),
            str(self.weight),
            self.mode,
            str(self.batch),
            self.salt,
            *(() if self.source is None else (self.source,)),
        )
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return f"load-{digest[:32]}-{number}"


@dataclass(frozen=True, slots=True)
class Reading:
    """How files are to be read, as the options of a command say."""

    delimiter: str | None
    header: bool
    columns: tuple[int, ...]
    types: tuple[ColumnType, ...] | None

    @classmethod
    def of(cls, delimiter: str | None, header: bool, columns: str | None, types: str | None) -> Reading:
        """From the texts of the options; wrong usage if one of them is wrong."""
        try:
            given = delimiter_named(delimiter) if delimiter is not None else None
        except ValueError as error:
            raise typer.BadParameter(str(error), param_hint="--delimiter") from error
        return cls(given, header, _columns(columns), _types(types))

    def examine(
        self, client: ServiceClient, relation: str, file: Path, stream: BinaryIO
    ) -> tuple[FileColumns, Survey, str]:
        """Read the whole file once: its layout, what is in it, and the declaration that a new relation gets from its
        header. Exits with a message if it is not good.
        """
        line = first_line(stream)
        separator = self.delimiter or guess_delimiter(file.name, line)
        known = self.types or _schema_types(client, relation)
        try:
            said = header_types(line, separator)
            if said is not None and not self.header and self.types is None:
                raise BadFile("the first line names columns with their types: add --header")
            layout = FileColumns(separator, self.header, self.columns, typed=self.header and said is not None)
            said = _picked_types(said, layout)
            if self.types is None and said is not None:
                _check_types(relation, known, said)
            found = survey(stream, layout, known or said)
        except BadFile as error:
            fail(f"{file}: {error}")
            note("Nothing was sent.")
            raise typer.Exit(1) from error
        return layout, found, "" if known else _declaration(relation, found)


@dataclass(slots=True)
class Tally:
    """What has been sent so far."""

    tuples: int = 0
    replayed: int = 0
    batches: int = 0
    epochs: tuple[int, int] = (0, 0)


def load(
    relation: Annotated[str, typer.Argument(help="The relation to load into; it does not have to exist.")],
    file: Annotated[Path, typer.Argument(help="CSV or TSV text in UTF-8; '-' is standard input.")],
    url: options.Url = options.URL,
    delimiter: options.Delimiter = None,
    header: options.Header = False,
    columns: options.Columns = None,
    types: options.Types = None,
    weight: Annotated[
        int, typer.Option(help="Added to each tuple's weight; -1 retracts the file's tuples.")
    ] = 1,
    as_set: Annotated[
        bool,
        typer.Option("--set", help="Adding what is there, or retracting what is not there, changes nothing."),
    ] = False,
    batch: Annotated[int, typer.Option(min=1, max=100_000, help="Tuples in one transaction.")] = 10_000,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Send the file even if the same load ran before (weights are added once more)."
        ),
    ] = False,
    message: options.Message = None,
    source: options.Source = None,
) -> None:
    """Load a CSV or TSV file into one relation.

    Nothing is sent before the whole file has been checked. A load that broke off can be run again: batches that are
    already there are recognised and not added twice. With `--source hr` the rows are added to what hr asserts; 'zedlog
    sync hr' replaces it.

    Examples:

    - `zedlog load edge edges.csv`
    - `zedlog load edge edges.tsv --header --types symbol,symbol`
    - `zedlog load edge graph.txt --delimiter space --columns 1,2`
    - `zedlog load edge edges.csv --weight -1`: retract them again
    - `gzip -dc edges.csv.gz | zedlog load edge -`
    """
    if weight == 0:
        raise typer.BadParameter("a weight of 0 changes nothing", param_hint="--weight")
    how = Reading.of(delimiter, header, columns, types)
    with opened(file) as stream, ServiceClient(url) as client:
        layout, found, declaration = how.examine(client, relation, file, stream)
        if found.rows == 0:
            note(f"{file} holds no rows; nothing was sent.")
            return
        if declaration:
            # A transaction of its own: the batches must be the same when the relation is there already.
            client.transaction({"declarations": declaration, **_told(message=message)})
        salt = secrets.token_hex(8) if again else ""
        mode = "set" if as_set else "zset"
        job = LoadJob(relation, layout, found, weight, mode, batch, salt, message, source)
        _send(client, job, stream, str(file))


def _send(client: ServiceClient, job: LoadJob, stream: BinaryIO, name: str) -> None:
    """All batches, in order; prints what was done, also when one is refused."""
    tally, started = Tally(), time.monotonic()
    try:
        with _progress() as progress:
            task = progress.add_task(job.relation, total=job.found.size, rate="")
            for batch in _batches(rows(stream, job.layout, job.found.types), job.batch):
                _post(client, job, batch, tally)
                _advance(progress, task, stream, tally, started)
            progress.update(task, completed=job.found.size)
    except Refused:
        if tally.batches:
            done = counted(tally.batches, "batch", "batches")
            note(
                f"the failure came after {done} of {job.batch:,} tuples; "
                "run the same command again to go on from there."
            )
        raise
    _report(job, tally, time.monotonic() - started, name)


def _report(job: LoadJob, tally: Tally, seconds: float, name: str) -> None:
    verb, where = ("loaded", "into") if job.weight > 0 else ("retracted", "from")
    if tally.tuples:
        first, last = tally.epochs
        span = f"epoch {first}" if first == last else f"epochs {first} to {last}"
        rate = tally.tuples / max(seconds, 1e-9)
        out.print(
            f"{verb} {counted(tally.tuples, 'tuple')} {where} [bold]{escape(job.relation)}[/] "
            f"in {seconds:.1f} s ({rate:,.0f} tuples/s), {span}"
        )
    if tally.replayed:
        what = f"{counted(tally.replayed, 'batch', 'batches')} of" if tally.tuples else "all of"
        note(
            f"[yellow]{what} {escape(name)} had been loaded before and changed nothing now; "
            "--again sends it once more.[/]"
        )


def _post(client: ServiceClient, job: LoadJob, batch: list[tuple[Any, ...]], tally: Tally) -> None:
    facts = [{"relation": job.relation, "tuples": batch, "weight": job.weight}]
    body = {"facts": facts, "mode": job.mode, **_told(message=job.message, source=job.source)}
    answer = _answered(client, body, job.key(tally.batches))
    tally.batches += 1
    if answer["replayed"]:
        tally.replayed += 1
        return
    tally.tuples += len(batch)
    epoch = int(answer["epoch"])
    tally.epochs = (tally.epochs[0] or epoch, max(tally.epochs[1], epoch))


def _answered(client: ServiceClient, body: Json, key: str) -> Json:
    """The batch's outcome. A key whose transaction was refused before cannot be used again, so try the next one."""
    for attempt in count():
        try:
            return client.transaction(body, key=key if attempt == 0 else f"{key}.{attempt}")
        except Refused as refusal:
            if refusal.code == IdempotencyConflictError.code:
                note(
                    "The same rows were loaded before with another --message, or with another token; give the same "
                    "ones to go on where that load stopped, or load them once more with --again."
                )
            if not refusal.replayed:
                raise
    raise AssertionError("count() does not end")


def _told(**fields: str | None) -> Json:
    """The fields of a transaction that are given."""
    return {name: value for name, value in fields.items() if value is not None}


def _advance(progress: Progress, task: TaskID, stream: BinaryIO, tally: Tally, started: float) -> None:
    rate = tally.tuples / max(time.monotonic() - started, 1e-9)
    text = f"{counted(tally.tuples, 'tuple')}, {rate:,.0f} tuples/s"
    progress.update(task, completed=stream.tell(), rate=text)


def _progress() -> Progress:
    return Progress(
        TextColumn("[bold]{task.description}[/]"),
        BarColumn(),
        DownloadColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        console=err,
        transient=True,
        # Where standard error is no terminal, the closing line says all there is to say.
        disable=not err.is_terminal,
    )


def _batches(tuples: Iterator[tuple[Any, ...]], size: int) -> Iterator[list[tuple[Any, ...]]]:
    while batch := list(islice(tuples, size)):
        yield batch


def _columns(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        wanted = tuple(int(part) - 1 for part in text.split(","))
    except ValueError:
        wanted = (-1,)
    if min(wanted) < 0:
        raise typer.BadParameter(
            f"{text!r} is not a list of column numbers such as 1,3", param_hint="--columns"
        )
    return wanted


def _types(text: str | None) -> tuple[ColumnType, ...] | None:
    if text is None:
        return None
    try:
        return tuple(ColumnType(part.strip()) for part in text.split(","))
    except ValueError as error:
        names = ", ".join(t.value for t in ColumnType)
        raise typer.BadParameter(f"{error}; the types are {names}", param_hint="--types") from error


def _picked_types(said: tuple[ColumnType, ...] | None, layout: FileColumns) -> tuple[ColumnType, ...] | None:
    """The types that the header gives for the columns that are asked for."""
    if said is None or not layout.typed:
        return None
    return tuple(said[i] for i in layout.columns if i < len(said)) if layout.columns else said


def _check_types(relation: str, known: tuple[ColumnType, ...] | None, said: tuple[ColumnType, ...]) -> None:
    """Check that a header's types are those of the relation, if it exists.

    Raises:
        BadFile: the types differ.
    """
    for position, (held, kind) in enumerate(zip(known or (), said, strict=False), 1):
        if held is not kind:
            raise BadFile(
                f"the header says that column {position} is a {kind.value}, but {relation} holds a {held.value} there; "
                "use --types to read it as another type"
            )


def _schema_types(client: ServiceClient, relation: str) -> tuple[ColumnType, ...] | None:
    """The types of a relation that exists and whose types are all known."""
    try:
        schema = client.get(f"/v1/relations/{relation}")
    except Refused as refusal:
        if refusal.code == "unknown_relation":
            return None
        raise
    types = [column["type"] for column in schema["columns"]]
    return tuple(map(ColumnType, types)) if all(types) else None


def _declaration(relation: str, found: Survey) -> str:
    """`.decl` for a new relation whose file names its columns; otherwise the service names them."""
    names = _identifiers(found.names)
    if not names:
        return ""
    columns = ", ".join(f"{n}: {t.value}" for n, t in zip(names, found.types, strict=True))
    return f".decl {relation}({columns})"


def _identifiers(names: Sequence[str]) -> list[str]:
    """Header names as identifiers: other characters become `_`, and a name that is already taken gets a number."""
    result: list[str] = []
    for position, name in enumerate(names, 1):
        cleaned = re.sub(r"[^A-Za-z0-9_]", "_", name.strip())
        if not _IDENTIFIER.match(cleaned) or not cleaned.strip("_"):
            cleaned = f"c{position}"
        while cleaned in result:
            cleaned = f"{cleaned}_{position}"
        result.append(cleaned)
    return result


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file, or a copy of standard input that can be read twice."""
    if str(path) != "-":
        try:
            with path.open("rb") as stream:
                yield stream
        except OSError as error:
            fail(f"{path}: {error.strerror}")
            raise typer.Exit(1) from error
        return
    with tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        yield cast(BinaryIO, copy)
