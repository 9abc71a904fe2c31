"""A client's request for a bulk job, checked: an `ImportRequest` or an `ExportRequest`.

In: fields of the right types, which the service reads from JSON (service/bulk_models.py). Out: frozen data, and to JSON
and back (`as_json`), the form in which a job keeps it. Always: a field that would have no effect with the format is an
error. Files and schemas are not looked at; that is the job's work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from engine.bulk.outside import JDBC, KAFKA, NOTHING, TABLES, Outside, kind_of
from engine.data.sources import check_source
from engine.data.transaction import check_weight
from engine.errors import InvalidRequestError, shown
from engine.language.operators import check_relation_name
from engine.language.schema import ColumnType
from engine.rdf import formats
from engine.rdf.formats import RDF

CSV, TSV, JSONL, PARQUET, FACTS = "csv", "tsv", "jsonl", "parquet", "facts"
ORC, AVRO = "orc", "avro"
TYPED: Final = (PARQUET, ORC, AVRO, JDBC, *TABLES)
"""Formats whose columns have names and types."""
IMPORT_FORMATS: Final = (CSV, TSV, JSONL, PARQUET, ORC, AVRO, *TABLES, *formats.FORMATS, RDF, FACTS)
EXPORT_FORMATS: Final = (PARQUET, CSV, TSV, JSONL, *formats.FORMATS)
STATEMENTS: Final = (*formats.FORMATS, RDF)
"""Formats of an import whose rows are the statements of RDF."""
DELIMITED: Final = (CSV, TSV)
_SUFFIXES: Final = {
    ".csv": CSV,
    ".tsv": TSV,
    ".jsonl": JSONL,
    ".ndjson": JSONL,
    ".parquet": PARQUET,
    ".orc": ORC,
    ".avro": AVRO,
    ".facts": FACTS,
    **formats.SUFFIXES,
}
PACKED: Final = (".gz", ".bz2")
FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
"""The names that an uploaded file may have."""
_UPLOAD = re.compile(rf"[0-9a-f]{{64}}/{FILE_NAME.pattern}", re.ASCII)
FAIL, SKIP = "fail", "skip"
_SAID_ONLY: Final = (
    "author",
    "message",
    "source",
    "graphs",
    "blank_nodes",
    "rules",
    "replace",
    "allow_empty",
)
TRIPLE: Final = "triple"
"""The default relation of triples: that of programs/rdfs.dl and of `zedlog owl`."""
QUAD: Final = "quad"
"""The default relation of triples with the name of their graph."""
KEEP, APART = "keep", "apart"
"""What becomes of the labels of blank nodes: they stay, or get a part that is the file's own."""


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Files into facts.

    paths: below the import root, absolute, or with a scheme. relation: None means `triple` (or `quad`) for RDF, and the
    files' names for Souffle's format. columns: the fields of a file (names, or numbers from 1) in the order of the
    relation's columns; empty: all of them. types: of the columns, if the relation does not give them. weight: of each
    row; weight_column: the field that has the weight instead. on_error: `fail` because of rows that cannot be read, or
    `skip` them. multiline: whether a quoted field may hold line breaks. uploaded: the paths are files that the service
    has received. author, message, source: of the transaction. graphs: of RDF, whether the name of the graph is a fourth
    column. blank_nodes: what becomes of their labels; None: in N-Triples and N-Quads they stay, and in the other
    formats each file has its own. rules: what is added with the triples. replace: what the source asserts of the
    relation becomes exactly the rows. allow_empty: with it, also if there are none. options: how something is read that
    is not a file.
    """

    paths: tuple[str, ...]
    format: str
    relation: str | None = None
    columns: tuple[str | int, ...] = ()
    types: tuple[ColumnType, ...] = ()
    header: bool = False
    delimiter: str | None = None
    multiline: bool = True
    weight: int = 1
    weight_column: str | int | None = None
    mode: str = "zset"
    on_error: str = FAIL
    dry_run: bool = False
    uploaded: bool = False
    author: str | None = None
    message: str | None = None
    source: str | None = None
    graphs: bool = False
    blank_nodes: str | None = None
    rules: str | None = None
    replace: bool = False
    allow_empty: bool = False
    options: Outside = NOTHING

    @property
    def kind(self) -> str | None:
        """What is read, if it is not files."""
        return kind_of(self.paths, self.format)

    @property
    def weighed(self) -> bool:
        """Whether each row has a weight of its own."""
        return self.weight_column is not None or self.options.weight_header is not None

    @property
    def target(self) -> str | None:
        """The relation of all rows; None where each file has its own."""
        if self.relation is not None or self.format == FACTS:
            return self.relation
        return QUAD if self.graphs else TRIPLE

    @property
    def separator(self) -> str:
        """What separates the fields of a delimited file."""
        return self.delimiter or ("\t" if self.format == TSV else ",")

    def as_json(self) -> dict[str, Any]:
        whole = {**asdict(self), "types": [kind.value for kind in self.types]}
        whole["options"] = self.options.as_json() or None
        # What is not said is not written, as in a transaction: a job's key knows its request by its text.
        return {n: v for n, v in whole.items() if v not in (None, False) or n not in (*_SAID_ONLY, "options")}

    @classmethod
    def restore(cls, body: Mapping[str, Any]) -> ImportRequest:
        """The inverse of `as_json`; a missing field has its default."""
        lists = {name: tuple(body.get(name, ())) for name in ("paths", "columns")}
        outside = Outside(**body.get("options") or {})
        types = tuple(map(ColumnType, body.get("types", ())))
        return cls(**{**body, **lists, "types": types, "options": outside})

    def __post_init__(self) -> None:
        """Check names, and that the fields agree with one another.

        Raises:
            InvalidRequestError, InvalidWeightError: fields contradict each other, or one has no effect.
        """
        check_weight(self.weight, "weight")
        _check_paths(self.paths, "paths")
        if self.relation is not None:
            check_relation_name(self.relation)
        if self.source is not None:
            check_source(self.source)
        if len(set(self.columns)) != len(self.columns):
            raise InvalidRequestError('a column is given twice in "columns"', field="columns")
        if self.delimiter is not None and (self.delimiter in '"\n\r\0' or not self.delimiter.isascii()):
            raise InvalidRequestError(
                "delimiter must be one ASCII character other than a double quote or a line break, not "
                f"{shown(self.delimiter)}",
                field="delimiter",
            )
        self._check_outside()
        delimited = self.format in DELIMITED
        without: list[tuple[str, bool]] = [
            ("header", self.header and not delimited),
            ("delimiter", self.delimiter is not None and not delimited),
            ("multiline", not self.multiline and not delimited),
            ("columns", bool(self.columns) and self.format in (*STATEMENTS, FACTS)),
            ("types", bool(self.types) and self.format in (*STATEMENTS, FACTS)),
            ("weight_column", self.weight_column is not None and self.format in (*STATEMENTS, FACTS)),
            ("graphs", self.graphs and self.format not in STATEMENTS),
            ("blank_nodes", self.blank_nodes is not None and self.format not in STATEMENTS),
            ("rules", self.rules is not None and self.format not in STATEMENTS),
            ("on_error", self.on_error == SKIP and self.format in formats.DOCUMENTS),
        ]
        for name, useless in without:
            if useless:
                raise InvalidRequestError(
                    f"{shown(name)} has no effect on files of the format {self.format}", field=name
                )
        if self.rules is not None and (self.target != TRIPLE or self.graphs):
            raise InvalidRequestError(
                f"the rules {self.rules} are about the relation {TRIPLE}(s, p, o), so 'relation' and 'graphs' cannot "
                "be given with them",
                field="rules",
            )
        if self.relation is None and self.format not in (*STATEMENTS, FACTS):
            raise InvalidRequestError(
                'an import needs "relation": the relation that the rows go into', field="relation"
            )
        if self.relation is not None and self.format == FACTS:
            raise InvalidRequestError(
                'a file named r.facts goes into the relation r, so "relation" cannot be given for it',
                field="relation",
            )
        if self.weighed and (self.mode == "set" or self.weight != 1):
            name = "weight_column" if self.weight_column is not None else "weight_header"
            raise InvalidRequestError(
                f'"{name}" gives each row its own weight, so "weight" and the mode "set" cannot be given with it',
                field=name,
            )
        if self.columns and self.types and len(self.columns) != len(self.types):
            raise InvalidRequestError(
                f"there are {len(self.columns)} columns but {len(self.types)} types", field="types"
            )
        names = [c for c in (*self.columns, self.weight_column) if isinstance(c, str)]
        if names and delimited and not self.header:
            raise InvalidRequestError(
                f"the column {shown(names[0])} is given by name, but the file has no header; "
                'use numbers from 1, or set "header"',
                field="columns",
            )
        if self.format in (*TYPED, JSONL):
            numbers = [c for c in (*self.columns, self.weight_column) if isinstance(c, int)]
            if numbers:
                raise InvalidRequestError(
                    f"the columns of the format {self.format} have names; use one instead of the number {numbers[0]}",
                    field="columns",
                )

    def _check_outside(self) -> None:
        kind = self.kind
        self.options.check(kind)
        if kind is not None and self.uploaded:
            raise InvalidRequestError(f"an upload is a file, and not of the kind {kind}", field="upload")
        if (kind == JDBC) != (self.format == JDBC):
            raise InvalidRequestError(
                "a database has a format of its own, so none can be given for it"
                if kind == JDBC
                else 'the format jdbc needs a path that begins with "jdbc:"',
                field="format",
            )
        if kind == KAFKA:
            if self.format not in (CSV, TSV, JSONL):
                raise InvalidRequestError(
                    f"the messages of a topic are csv, tsv or jsonl, not {self.format}", field="format"
                )
            if self.mode == "set" or self.replace:
                raise InvalidRequestError(
                    'each message of a topic counts once, so the mode "set" and "replace" cannot be given for it',
                    field="mode",
                )
            for name, useless in (("header", self.header), ("multiline", not self.multiline)):
                if useless:
                    raise InvalidRequestError(f"{shown(name)} has no effect on messages", field=name)
            if self.weight_column is not None and self.options.weight_header is not None:
                raise InvalidRequestError(
                    'give one of "weight_column" and "weight_header"', field="weight_header"
                )
        if self.replace and (self.source is None or self.relation is None):
            raise InvalidRequestError(
                '"replace" needs the "source" whose facts are replaced, and the "relation"', field="replace"
            )
        if self.replace and (self.weighed or self.weight != 1):
            raise InvalidRequestError(
                "what replaces the facts of a source is there once, so it has no weights", field="replace"
            )
        if self.allow_empty and not self.replace:
            raise InvalidRequestError('"allow_empty" has an effect only with "replace"', field="allow_empty")


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A relation, or the answers of a query, into files.

    path: below the export root, absolute, or with a scheme `file:`; a name with the format's suffix is one file, any
    other a directory of several. epoch: None is the newest. weights: facts only, each with its weight in a last column.
    header: a first line of column names. types: whether it says the columns' types (headers.py), so that an import
    brings them back. strict: refuse generalised triples, which RDF cannot hold, instead of leaving them out. prefixes:
    whether IRIs are shortened with those that the database declares.
    """

    path: str
    format: str
    relation: str | None = None
    query: str | None = None
    domain: str = "all"
    weights: bool = False
    epoch: int | None = None
    header: bool = True
    types: bool = True
    strict: bool = False
    overwrite: bool = False
    prefixes: bool = False

    def as_json(self) -> dict[str, Any]:
        return {n: v for n, v in asdict(self).items() if v or n != "prefixes"}

    @property
    def one_file(self) -> bool:
        """Whether the result is a file, and not a directory."""
        return self.path.lower().endswith(suffixes(self.format))

    def __post_init__(self) -> None:
        """Check names, and that the fields agree with one another.

        Raises:
            InvalidRequestError: fields contradict each other, or one has no effect.
        """
        _check_paths([self.path], "path")
        if (self.query is None) == (self.relation is None):
            raise InvalidRequestError('an export needs exactly one of "relation" and "query"')
        if self.query is not None and not self.query.strip():
            raise InvalidRequestError('"query" must be the text of a query', field="query")
        if self.relation is not None:
            check_relation_name(self.relation)
        if self.query is not None and (self.domain != "all" or self.weights):
            raise InvalidRequestError(
                "the answers of a query have neither a domain nor weights", field="domain"
            )
        if self.weights and (self.domain != "asserted" or self.format in formats.FORMATS):
            raise InvalidRequestError(
                'weights need the domain "asserted", because only facts have them, and a format that is not one of RDF',
                field="weights",
            )
        without = [
            ("header", not self.header and self.format not in DELIMITED),
            ("types", not self.types and self.format not in DELIMITED),
            ("strict", self.strict and self.format not in formats.FORMATS),
            ("prefixes", self.prefixes and self.format not in (formats.TURTLE, formats.TRIG, formats.RDFXML)),
        ]
        for name, useless in without:
            if useless:
                raise InvalidRequestError(
                    f"{shown(name)} has no effect on files of the format {self.format}", field=name
                )


def suffixes(format_: str) -> tuple[str, ...]:
    """The endings of the names of files of a format."""
    if format_ == RDF:
        return tuple(formats.SUFFIXES)
    return tuple(suffix for suffix, known in _SUFFIXES.items() if known == format_)


def guess_format(paths: Sequence[str], known: Sequence[str] = IMPORT_FORMATS) -> str:
    """The format that follows from the first path's name; `rdf` if the names say several formats of RDF. known: those
    that are possible.

    Raises:
        InvalidRequestError: the name does not have the ending of any format.
    """
    scheme = paths[0].partition(":")[0].lower()
    found = {JDBC: JDBC, KAFKA: JSONL}.get(scheme) or format_of(paths[0])
    if RDF in known and found in formats.FORMATS and {format_of(path) for path in paths} - {found, None}:
        return RDF
    if found is None:
        raise InvalidRequestError(
            f'the name {shown(paths[0])} does not say the format; give "format", which is one of {", ".join(known)}',
            field="format",
        )
    return found


def format_of(path: str) -> str | None:
    """The format that a name says."""
    name = path.lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    return next((known for suffix, known in _SUFFIXES.items() if name.endswith(suffix)), None)


def check_upload(text: str) -> str:
    """Return the text, if it names an upload.

    Raises:
        InvalidRequestError: it is not the name of an upload.
    """
    if not _UPLOAD.fullmatch(text):
        raise InvalidRequestError(
            f'{shown(text)} is not an upload; use the "upload" that POST /v1/uploads answered with',
            field="upload",
        )
    return text


def _check_paths(paths: Sequence[str], field: str) -> None:
    for path in paths:
        if not path or "\0" in path:
            raise InvalidRequestError(f"{shown(path)} cannot be the path of a file", field=field)
