"""The shapes of bulk imports, exports and jobs (see models.py)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, StrictBool, StrictInt, StrictStr

from engine.bulk.outside import Outside
from engine.bulk.request import (
    EXPORT_FORMATS,
    ExportRequest,
    ImportRequest,
    check_upload,
    guess_format,
)
from engine.data.sources import MAX_SOURCE
from engine.data.transaction import MAX_MESSAGE
from engine.errors import InvalidRequestError
from engine.language.schema import ColumnType
from service.models import ColumnTypeName, Problem, Strict, Weight
from service.validation import must

Name = Annotated[StrictStr, Field(min_length=1)]
ColumnRef = Annotated[Name | Annotated[StrictInt, Field(ge=1)], must("be a name, or a number of at least 1")]


class ImportOptions(Strict):
    """How something is read that is not a file: a topic of Kafka, a table of a database, of Delta or of Iceberg."""

    connection: Annotated[
        Name | None,
        Field(description="A file of the engine's --connections folder, with user, password and options."),
    ] = None
    table: Annotated[Name | None, Field(description="jdbc: the table.", examples=["EDGES"])] = None
    query: Annotated[Name | None, Field(description="jdbc: in place of a table, a SELECT.")] = None
    partition_column: Annotated[
        Name | None,
        Field(
            description="jdbc: a column of numbers, dates or times by which several tasks share the table."
        ),
    ] = None
    lower_bound: Name | None = None
    upper_bound: Name | None = None
    partitions: Annotated[
        StrictInt | None, Field(ge=1, le=10_000, description="jdbc: how many tasks share the table.")
    ] = None
    version_as_of: Annotated[
        Name | None, Field(description="delta: a version; iceberg: the id of a snapshot.", examples=["3"])
    ] = None
    timestamp_as_of: Annotated[
        Name | None,
        Field(description="delta: a time such as 2026-01-31 12:00:00; iceberg: milliseconds since 1970."),
    ] = None
    stream: Annotated[
        Name | None,
        Field(max_length=249, description="kafka: the name of the position; by default the topic's."),
    ] = None
    starting: Annotated[
        Literal["earliest", "latest"] | None,
        Field(description="kafka: where a stream begins that has no position; by default `earliest`."),
    ] = None
    max_messages: Annotated[
        StrictInt | None, Field(ge=1, description="kafka: the most messages of one transaction.")
    ] = None
    weight_header: Annotated[
        Name | None, Field(description="kafka: the header of a message that holds its weight, such as -1.")
    ] = None


class ImportBody(Strict):
    """Import files, a topic or a table as facts, in one transaction. Give exactly one of `path`, `paths` and
    `upload`."""

    path: Annotated[
        Name | None,
        Field(
            description="A path below the engine's import root, an absolute path, or a URL, also one of the form "
            "kafka://host:port/topic or jdbc:..."
        ),
    ] = None
    paths: Annotated[list[Name] | None, Field(min_length=1, fail_fast=True)] = None
    upload: Annotated[
        Annotated[Name, AfterValidator(check_upload)] | None,
        Field(description="The `upload` that `POST /v1/uploads` returned."),
    ] = None
    format: Annotated[
        Literal[
            "csv",
            "tsv",
            "jsonl",
            "parquet",
            "orc",
            "avro",
            "delta",
            "iceberg",
            "ntriples",
            "nquads",
            "turtle",
            "trig",
            "rdfxml",
            "jsonld",
            "rdf",
            "facts",
        ]
        | None,
        Field(
            description="By default, the ending of the file's name decides. `rdf`: files in several formats of RDF, "
            "each according to its name."
        ),
    ] = None
    relation: Annotated[
        Name | None,
        Field(
            description="By default, `triple` for RDF (`quad` with `graphs`), and the file's name for `.facts`."
        ),
    ] = None
    columns: Annotated[
        list[ColumnRef] | None,
        Field(
            fail_fast=True,
            description="Fields of the file (names, or numbers from 1) in the order of the relation's columns.",
        ),
    ] = None
    types: Annotated[list[ColumnTypeName] | None, Field(fail_fast=True)] = None
    header: StrictBool = False
    delimiter: Annotated[
        StrictStr | None,
        Field(min_length=1, max_length=1),
        must("be one ASCII character other than a double quote or a line break"),
    ] = None
    multiline: Annotated[StrictBool, Field(description="Whether a quoted field may contain line breaks.")] = (
        True
    )
    weight: Weight = 1
    weight_column: Annotated[
        ColumnRef | None, Field(description="The field that holds each row's weight.")
    ] = None
    mode: Literal["zset", "set"] = "zset"
    on_error: Annotated[
        Literal["fail", "skip"],
        Field(description="Fail the import at a row that cannot be read, or skip the row."),
    ] = "fail"
    dry_run: StrictBool = False
    message: Annotated[
        StrictStr | None,
        Field(min_length=1, max_length=MAX_MESSAGE, description="Why it is done: kept with the transaction."),
    ] = None
    source: Annotated[
        StrictStr | None,
        Field(min_length=1, max_length=MAX_SOURCE, description="The facts count for this source."),
    ] = None
    graphs: Annotated[
        StrictBool,
        Field(description="RDF only: the name of the graph is a fourth column; empty for the default graph."),
    ] = False
    blank_nodes: Annotated[
        Literal["keep", "apart"] | None,
        Field(
            description="RDF only: `keep` the labels of blank nodes, so that files share them, or keep those of "
            "different files `apart`. By default `keep` for N-Triples and N-Quads, and `apart` for other formats."
        ),
    ] = None
    rules: Annotated[
        Literal["rdfs", "owl-rl"] | None,
        Field(
            description="RDF only: add the rules of RDFS, or those of OWL 2 RL for the axioms in the files, in the "
            "same transaction; with a negative weight, take them away."
        ),
    ] = None

    replace: Annotated[
        StrictBool,
        Field(description="What the `source` asserts of the relation becomes exactly the rows."),
    ] = False
    allow_empty: Annotated[
        StrictBool, Field(description="With `replace`: also if there are no rows, so all of it goes.")
    ] = False
    options: ImportOptions = ImportOptions()

    def request(self) -> ImportRequest:
        """The request for the job.

        Raises:
            InvalidRequestError, InvalidWeightError: fields contradict each other, or one has no effect.
        """
        named = {
            "path": self.path and [self.path],
            "paths": self.paths,
            "upload": self.upload and [self.upload],
        }
        given = [(name, paths) for name, paths in named.items() if paths]
        if len(given) != 1:
            raise InvalidRequestError(
                'an import needs exactly one of "path", "paths" and "upload"', field="path"
            )
        ((source, paths),) = given
        fields = self.model_dump(exclude={"path", "paths", "upload", "format", "columns", "types", "options"})
        return ImportRequest(
            paths=tuple(paths),
            format=self.format or guess_format(paths),
            columns=tuple(self.columns or ()),
            types=tuple(map(ColumnType, self.types or ())),
            uploaded=source == "upload",
            options=Outside(**self.options.model_dump()),
            **fields,
        )


class ExportBody(Strict):
    """Export a relation, or the answers of a query, at one epoch to files. Give exactly one of `relation` and
    `query`."""

    path: Annotated[Name, Field(description="A path below the engine's export root.")]
    relation: Name | None = None
    query: Name | None = None
    format: Annotated[
        Literal[
            "parquet",
            "csv",
            "tsv",
            "jsonl",
            "ntriples",
            "nquads",
            "turtle",
            "trig",
            "rdfxml",
            "jsonld",
        ]
        | None,
        Field(description="By default, the path's ending decides."),
    ] = None
    domain: Literal["all", "asserted", "derived"] = "all"
    weights: Annotated[StrictBool, Field(description="Add a last column with the facts' weights.")] = False
    epoch: Annotated[StrictInt | None, Field(ge=0, le=2**63 - 1), must("be the number of an epoch")] = None
    header: StrictBool = True
    types: Annotated[
        StrictBool, Field(description="Whether the header of CSV and TSV includes the types: `name:symbol`.")
    ] = True
    strict: Annotated[
        StrictBool,
        Field(
            description="Refuse triples that RDF cannot represent, instead of leaving them out and counting "
            "them (`left_out`)."
        ),
    ] = False
    overwrite: StrictBool = False
    prefixes: Annotated[
        StrictBool,
        Field(
            description="Turtle, TriG and RDF/XML only: shorten IRIs with the prefixes that the database declares."
        ),
    ] = False

    def request(self) -> ExportRequest:
        """The request for the job.

        Raises:
            InvalidRequestError: fields contradict each other, or one has no effect.
        """
        fields = self.model_dump(exclude={"format"})
        return ExportRequest(format=self.format or guess_format([self.path], EXPORT_FORMATS), **fields)


class Upload(BaseModel):
    """A file that an import can name as its `upload`; it is kept for a day."""

    upload: str
    bytes: int
    sha256: str


class Stage(BaseModel):
    """A part of a job's work: how much of it is done, and the seconds that it took."""

    name: str
    fraction: float
    seconds: float


class Job(BaseModel):
    """A job. It has `result` if it succeeded, `problem` if it failed or was cancelled. Times are seconds since 1970."""

    job: Annotated[str, Field(examples=["j1f0a2b3c4d5e6f70"])]
    kind: Literal["import", "export", "restore"]
    status: Literal["queued", "running", "succeeded", "failed", "cancelled"]
    cancelling: bool
    request: dict[str, Any]
    created: float
    started: float | None
    finished: float | None
    stages: list[Stage]
    transaction: str | None
    result: dict[str, Any] | None
    problem: Problem | None
    status_url: str
    events_url: str


class Jobs(BaseModel):
    """The newest jobs first."""

    jobs: list[Job]
