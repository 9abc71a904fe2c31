"""The shapes of bulk imports, exports and jobs (see models.py)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, StrictBool, StrictInt, StrictStr

from engine.bulk.request import EXPORT_FORMATS, ExportRequest, ImportRequest, check_upload, guess_format
from engine.errors import InvalidRequestError
from engine.language.schema import ColumnType
from service.models import ColumnTypeName, Problem, Strict, Weight
from service.validation import must

Name = Annotated[StrictStr, Field(min_length=1)]
ColumnRef = Annotated[Name | Annotated[StrictInt, Field(ge=1)], must("be a name, or a number from 1")]


class ImportBody(Strict):
    """Files into facts, as one transaction. Exactly one of `path`, `paths` and `upload`."""

    path: Annotated[
        Name | None, Field(description="Below the import root of the engine, absolute, or a URL.")
    ] = None
    paths: Annotated[list[Name] | None, Field(min_length=1, fail_fast=True)] = None
    upload: Annotated[
        Annotated[Name, AfterValidator(check_upload)] | None,
        Field(description="What `POST /v1/uploads` answered."),
    ] = None
    format: Annotated[
        Literal["csv", "tsv", "jsonl", "parquet", "ntriples", "facts"] | None,
        Field(description="Told by the file's name where it is left out."),
    ] = None
    relation: Annotated[
        Name | None, Field(description="`triple` for N-Triples, the file's name for `.facts`.")
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
    multiline: Annotated[StrictBool, Field(description="Whether a quoted field may hold line breaks.")] = True
    weight: Weight = 1
    weight_column: Annotated[
        ColumnRef | None, Field(description="The field that holds each row's weight.")
    ] = None
    mode: Literal["zset", "set"] = "zset"
    on_error: Annotated[
        Literal["fail", "skip"], Field(description="What becomes of the import when a row cannot be read.")
    ] = "fail"
    dry_run: StrictBool = False

    def request(self) -> ImportRequest:
        """What the job is asked.

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
        fields = self.model_dump(exclude={"path", "paths", "upload", "format", "columns", "types"})
        return ImportRequest(
            paths=tuple(paths),
            format=self.format or guess_format(paths),
            columns=tuple(self.columns or ()),
            types=tuple(map(ColumnType, self.types or ())),
            uploaded=source == "upload",
            **fields,
        )


class ExportBody(Strict):
    """A relation, or the answers of a query, at one epoch, into files. Exactly one of `relation` and `query`."""

    path: Annotated[Name, Field(description="Below the export root of the engine.")]
    relation: Name | None = None
    query: Name | None = None
    format: Annotated[
        Literal["parquet", "csv", "tsv", "jsonl", "ntriples"] | None,
        Field(description="Told by the path where it is left out."),
    ] = None
    domain: Literal["all", "asserted", "derived"] = "all"
    weights: Annotated[StrictBool, Field(description="A last column with the weights of the facts.")] = False
    epoch: Annotated[StrictInt | None, Field(ge=0, le=2**63 - 1), must("be the number of an epoch")] = None
    header: StrictBool = True
    types: Annotated[
        StrictBool, Field(description="Whether the header of CSV and TSV says the types: `name:symbol`.")
    ] = True
    strict: Annotated[
        StrictBool,
        Field(
            description="Refuse what N-Triples cannot hold, which is else left out and counted (`left_out`)."
        ),
    ] = False
    overwrite: StrictBool = False

    def request(self) -> ExportRequest:
        """What the job is asked.

        Raises:
            InvalidRequestError: fields contradict each other, or one has no effect.
        """
        fields = self.model_dump(exclude={"format"})
        return ExportRequest(format=self.format or guess_format([self.path], EXPORT_FORMATS), **fields)


class Upload(BaseModel):
    """A file that an import can name as its `upload`, for a day."""

    upload: str
    bytes: int
    sha256: str


class Stage(BaseModel):
    """A part of a job's work: how much of it is done, and the seconds that it took."""

    name: str
    fraction: float
    seconds: float


class Job(BaseModel):
    """A job. `result` when it succeeded; `problem` when it failed or was cancelled. Times are seconds since 1970."""

    job: Annotated[str, Field(examples=["j1f0a2b3c4d5e6f70"])]
    kind: Literal["import", "export"]
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
