"""What a client asks of a bulk job, checked: an `ImportRequest` or an `ExportRequest`.

In: decoded JSON. Out: frozen data, and back to JSON (`as_json`), the form in which a job keeps it. Always: a field that
is not known is an error, and so is one that would have no effect with the format. Files, schemas and weights are not
looked at; that is the job's work.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from engine.data.transaction import check_weight
from engine.errors import InvalidRequestError, shown
from engine.language.operators import check_relation_name
from engine.language.schema import ColumnType

CSV, TSV, JSONL, PARQUET, NTRIPLES, FACTS = "csv", "tsv", "jsonl", "parquet", "ntriples", "facts"
IMPORT_FORMATS: Final = (CSV, TSV, JSONL, PARQUET, NTRIPLES, FACTS)
EXPORT_FORMATS: Final = (PARQUET, CSV, TSV, JSONL, NTRIPLES)
DELIMITED: Final = (CSV, TSV)
_SUFFIXES: Final = {
    ".csv": CSV,
    ".tsv": TSV,
    ".jsonl": JSONL,
    ".ndjson": JSONL,
    ".parquet": PARQUET,
    ".nt": NTRIPLES,
    ".facts": FACTS,
}
PACKED: Final = (".gz", ".bz2")
FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", re.ASCII)
"""What an uploaded file may be called."""
_UPLOAD = re.compile(rf"[0-9a-f]{{64}}/{FILE_NAME.pattern}", re.ASCII)
FAIL, SKIP = "fail", "skip"
TRIPLE: Final = "triple"
"""The relation of triples where none is named: that of programs/rdfs.dl and of `zedlog owl`."""


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Files into facts.

    paths: below the import root, absolute, or with a scheme. relation: None means `triple` for N-Triples, the files'
    names for Souffle's. columns: the fields of a file (names, or numbers from 1) in the order of the relation's
    columns; empty: all of them. types: of the columns, where the relation does not say. weight: of each row;
    weight_column: the field that has it instead. on_error: `fail` or `skip` rows that cannot be read. multiline:
    whether a quoted field may hold line breaks. uploaded: the paths are files that the service has received.
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

    @property
    def separator(self) -> str:
        """What separates the fields of a delimited file."""
        return self.delimiter or ("\t" if self.format == TSV else ",")

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "types": [kind.value for kind in self.types]}

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> ImportRequest:
        """Check decoded JSON.

        Raises:
            InvalidRequestError, InvalidWeightError: a field is unknown, of another type, or without effect.
        """
        _known(body, [name for name in cls.__slots__ if name != "uploaded"] + ["path", "upload"])
        paths = _paths(body)
        format_ = body.get("format") or guess_format(paths)
        request = cls(
            paths=paths,
            format=_one_of(format_, "format", IMPORT_FORMATS),
            relation=_relation(body.get("relation")),
            columns=_columns(body.get("columns")),
            types=_types(body.get("types")),
            header=_flag(body, "header"),
            delimiter=_delimiter(body.get("delimiter")),
            multiline=_flag(body, "multiline", True),
            weight=check_weight(body.get("weight", 1), "weight"),
            weight_column=_column(body["weight_column"]) if body.get("weight_column") is not None else None,
            mode=_one_of(body.get("mode", "zset"), "mode", ("zset", "set")),
            on_error=_one_of(body.get("on_error", FAIL), "on_error", (FAIL, SKIP)),
            dry_run=_flag(body, "dry_run"),
            uploaded="upload" in body,
        )
        request._check()
        return request

    @classmethod
    def restore(cls, body: Mapping[str, Any]) -> ImportRequest:
        """The inverse of `as_json`."""
        given = {name: value for name, value in body.items() if name not in ("paths", "uploaded")}
        source = {"upload": body["paths"][0]} if body["uploaded"] else {"paths": body["paths"]}
        return cls.parse({**given, **source})

    def _check(self) -> None:
        delimited = self.format in DELIMITED
        without: list[tuple[str, bool]] = [
            ("header", self.header and not delimited),
            ("delimiter", self.delimiter is not None and not delimited),
            ("multiline", not self.multiline and not delimited),
            ("columns", bool(self.columns) and self.format in (NTRIPLES, FACTS)),
            ("types", bool(self.types) and self.format in (NTRIPLES, FACTS)),
            ("weight_column", self.weight_column is not None and self.format in (NTRIPLES, FACTS)),
        ]
        for name, useless in without:
            if useless:
                raise InvalidRequestError(
                    f"{shown(name)} has no effect on files of the format {self.format}", field=name
                )
        if self.relation is None and self.format not in (NTRIPLES, FACTS):
            raise InvalidRequestError(
                'an import needs "relation": the relation that the rows go into', field="relation"
            )
        if self.relation is not None and self.format == FACTS:
            raise InvalidRequestError(
                'a file r.facts goes into the relation r, so "relation" cannot be given for it',
                field="relation",
            )
        if self.weight_column is not None and (self.mode == "set" or self.weight != 1):
            raise InvalidRequestError(
                '"weight_column" gives each row its own weight, so "weight" and the mode "set" cannot be given with it',
                field="weight_column",
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
        if self.format == PARQUET or self.format == JSONL:
            numbers = [c for c in (*self.columns, self.weight_column) if isinstance(c, int)]
            if numbers:
                raise InvalidRequestError(
                    f"the columns of {self.format} files have names; use one instead of the number {numbers[0]}",
                    field="columns",
                )


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """A relation, or the answers of a query, into files.

    path: below the export root, absolute, or with a scheme `file:`; a name with the format's suffix is one file, any
    other a directory of several. epoch: None is the newest. weights: facts only, each with its weight in a last column.
    header: a first line of column names. types: whether it says the columns' types (headers.py), so that an import
    brings them back. strict: refuse generalised triples, which N-Triples cannot hold, and not only leave them out.
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

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def one_file(self) -> bool:
        """Whether the result is a file, and not a directory."""
        return self.path.lower().endswith(suffixes(self.format))

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> ExportRequest:
        """Check decoded JSON.

        Raises:
            InvalidRequestError: a field is unknown, of another type, or without effect.
        """
        _known(body, cls.__slots__)
        path = _text(body, "path")
        query, relation = body.get("query"), body.get("relation")
        if (query is None) == (relation is None):
            raise InvalidRequestError('an export needs exactly one of "relation" and "query"')
        if query is not None and (not isinstance(query, str) or not query.strip()):
            raise InvalidRequestError('"query" must be the text of a query', field="query")
        format_ = _one_of(
            body.get("format") or guess_format([path], EXPORT_FORMATS), "format", EXPORT_FORMATS
        )
        epoch = body.get("epoch")
        if epoch is not None and (type(epoch) is not int or not 0 <= epoch < 2**63):
            raise InvalidRequestError(
                f'"epoch" must be the number of an epoch, not {shown(epoch)}', field="epoch"
            )
        request = cls(
            path=path,
            format=format_,
            relation=_relation(relation),
            query=query,
            domain=_one_of(body.get("domain", "all"), "domain", ("all", "asserted", "derived")),
            weights=_flag(body, "weights"),
            epoch=epoch,
            header=_flag(body, "header", True),
            types=_flag(body, "types", True),
            strict=_flag(body, "strict"),
            overwrite=_flag(body, "overwrite"),
        )
        if query is not None and (request.domain != "all" or request.weights):
            raise InvalidRequestError(
                "the answers of a query have neither a domain nor weights", field="domain"
            )
        if request.weights and (request.domain != "asserted" or format_ == NTRIPLES):
            raise InvalidRequestError(
                'weights need the domain "asserted", because only facts have them, and a format other than N-Triples',
                field="weights",
            )
        without = [
            ("header", not request.header and format_ not in DELIMITED),
            ("types", not request.types and format_ not in DELIMITED),
            ("strict", request.strict and format_ != NTRIPLES),
        ]
        for name, useless in without:
            if useless:
                raise InvalidRequestError(
                    f"{shown(name)} has no effect on files of the format {format_}", field=name
                )
        return request


def suffixes(format_: str) -> tuple[str, ...]:
    """How names of files of a format end."""
    return tuple(suffix for suffix, known in _SUFFIXES.items() if known == format_)


def guess_format(paths: Sequence[str], formats: Sequence[str] = IMPORT_FORMATS) -> str:
    """The format that the first path's name tells. formats: those that the error offers.

    Raises:
        InvalidRequestError: it tells none.
    """
    name = paths[0].lower()
    for packed in PACKED:
        name = name.removesuffix(packed)
    for suffix, format_ in _SUFFIXES.items():
        if name.endswith(suffix):
            return format_
    raise InvalidRequestError(
        f'the name {shown(paths[0])} does not tell the format; give "format": one of {", ".join(formats)}',
        field="format",
    )


def _paths(body: Mapping[str, Any]) -> tuple[str, ...]:
    """What is to be read: exactly one of `path`, `paths` and `upload`."""
    if sum(name in body for name in ("path", "paths", "upload")) != 1:
        raise InvalidRequestError('an import needs exactly one of "path", "paths" and "upload"', field="path")
    if "upload" in body:
        upload = _text(body, "upload")
        if not _UPLOAD.fullmatch(upload):
            raise InvalidRequestError(
                f"{shown(upload)} is not an upload; use what POST /v1/uploads answered", field="upload"
            )
        return (upload,)
    paths = _texts(body["paths"], "paths") if "paths" in body else (_text(body, "path"),)
    if not paths or not all(paths):
        raise InvalidRequestError("an import needs a path", field="paths")
    return paths


def _known(body: Mapping[str, Any], names: Sequence[str]) -> None:
    if not isinstance(body, Mapping):
        raise InvalidRequestError("the body must be a JSON object")
    for name in body:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = (
                f"; did you mean {shown(near[0])}?" if near else f"; it may have {', '.join(sorted(names))}"
            )
            raise InvalidRequestError(f"the body has an unknown field {shown(name)}{hint}", field=name)


def _text(body: Mapping[str, Any], name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not value or "\0" in value:
        raise InvalidRequestError(f"{shown(name)} must be a string, not {shown(value)}", field=name)
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(v, str) and "\0" not in v for v in value):
        raise InvalidRequestError(f"{shown(name)} must be a list of strings, not {shown(value)}", field=name)
    return tuple(value)


def _flag(body: Mapping[str, Any], name: str, default: bool = False) -> bool:
    value = body.get(name, default)
    if not isinstance(value, bool):
        raise InvalidRequestError(f"{shown(name)} must be true or false, not {shown(value)}", field=name)
    return value


def _one_of(value: Any, name: str, known: Sequence[str]) -> str:
    if value not in known:
        raise InvalidRequestError(
            f"{shown(name)} must be one of {', '.join(known)}, not {shown(value)}", field=name
        )
    return str(value)


def _relation(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value:
        raise InvalidRequestError(f'"relation" must be a name, not {shown(value)}', field="relation")
    check_relation_name(value)
    return value


def _column(value: Any) -> str | int:
    if isinstance(value, str) and value:
        return value
    if type(value) is int and value > 0:
        return value
    raise InvalidRequestError(
        f"a column must be a name or a number from 1, not {shown(value)}", field="columns"
    )


def _columns(value: Any) -> tuple[str | int, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise InvalidRequestError(f'"columns" must be a list, not {shown(value)}', field="columns")
    columns = tuple(_column(v) for v in value)
    if len(set(columns)) != len(columns):
        raise InvalidRequestError('a column is given twice in "columns"', field="columns")
    return columns


def _types(value: Any) -> tuple[ColumnType, ...]:
    if value is None:
        return ()
    known = [kind.value for kind in ColumnType]
    if not isinstance(value, list | tuple) or any(v not in known for v in value):
        raise InvalidRequestError(
            f'"types" must be a list of {", ".join(known)}, not {shown(value)}', field="types"
        )
    return tuple(ColumnType(v) for v in value)


def _delimiter(value: Any) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or len(value) != 1 or value in '"\n\r\0' or not value.isascii():
        raise InvalidRequestError(
            f'"delimiter" must be one ASCII character other than a double quote or a line break, not {shown(value)}',
            field="delimiter",
        )
    return value
