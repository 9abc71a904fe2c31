"""A backup as text: a program and files of facts that Souffle, `zedlog run`, and people can read.

In: a checked backup. Out: a folder with `program.dl` and one `.facts` for each relation that has facts, or one program
with the facts as clauses; and remarks about what Souffle does not know. Always: `zedlog run` on it gives the relations
of the backup. A relation that has symbols with tabs or line breaks is written as RFC 4180 says, because Souffle's plain
files cannot hold those.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from engine.backup.form import WEIGHT, Collection, member_of
from engine.backup.reading import Backup
from engine.data.values import write_tuple
from engine.errors import BulkStorageError
from engine.language.canonical import format_declaration
from engine.language.parser import parse_declarations, parse_prefixes, parse_rules
from engine.language.prefixes import format_prefix
from engine.language.schema import ColumnType
from engine.language.syntax import CONSTRAINT, Declaration

PROGRAM = "program.dl"
_SPECIAL = "[\t\n\r\ufeff]"
"""Characters of a symbol that a plain file of facts would lose: those that separate, and a mark of the byte order."""


def dump_folder(backup: Backup, folder: Path) -> list[str]:
    """Write `program.dl` and the files of facts into an existing folder; returns the remarks.

    Raises:
        InvalidBackupError: a file of the backup is not what it should be. BulkStorageError: a file cannot be written.
    """
    inputs = []
    try:
        for number, one in enumerate(backup.manifest.collections):
            if one.hidden or one.file is None:
                continue
            name = (
                member_of(one.name, number, hidden=False).rpartition("/")[2].removesuffix(".parquet")
                + ".facts"
            )
            quoted = _needs_quotes(backup, one)
            with (folder / name).open("wb") as file:
                for table in backup.tables(one):
                    file.write(_lines(table, one.types, quoted=quoted))
            settings = [f'filename="{name}"'] if name != f"{one.name}.facts" else []
            settings += ["rfc4180=true"] if quoted else []
            inputs.append(f".input {one.name}" + (f"({', '.join(settings)})" if settings else ""))
        remarks = _remarks(backup)
        with (folder / PROGRAM).open("w", encoding="utf-8", newline="\n") as text:
            _write_program(backup, text, inputs, remarks)
    except OSError as error:
        raise BulkStorageError(
            f"cannot write to {folder}: {error.strerror or error}", path=str(folder)
        ) from error
    return remarks


def dump_program(backup: Backup, path: Path) -> list[str]:
    """Write one program with the facts as clauses; returns the remarks. Raises as `dump_folder` does."""
    remarks = _remarks(backup)
    try:
        with path.open("w", encoding="utf-8", newline="\n") as text:
            _write_program(backup, text, [], remarks)
            for one in backup.manifest.collections:
                if one.hidden or one.file is None:
                    continue
                text.write("\n")
                for table in backup.tables(one):
                    columns = [column.to_pylist() for column in table.drop_columns([WEIGHT]).columns]
                    rows = zip(*columns, strict=True) if columns else [()] * table.num_rows
                    text.writelines(f"{one.name}{write_tuple(row)}.\n" for row in rows)
    except OSError as error:
        raise BulkStorageError(f"cannot write {path}: {error.strerror or error}", path=str(path)) from error
    return remarks


def _write_program(backup: Backup, text: IO[str], inputs: list[str], remarks: list[str]) -> None:
    manifest = backup.manifest
    text.write(f"// A dump of the Zedlog database {manifest.database}, epoch {manifest.epoch}.\n")
    text.writelines(f"// Note: {remark}\n" for remark in remarks)
    for part in (_declarations(backup), inputs, _outputs(backup), [rule.text for rule in backup.rules]):
        if part:
            text.write("\n" + "\n".join(part) + "\n")


def _declarations(backup: Backup) -> list[str]:
    """A declaration for each relation: its own, else one that says what is known of its columns."""
    own: dict[str, list[Declaration]] = {}
    if backup.manifest.declarations:
        for declaration in parse_declarations(backup.manifest.declarations):
            own.setdefault(declaration.relation, []).append(declaration)
    texts: list[str] = []
    for one in backup.manifest.collections:
        if one.hidden:
            continue
        if one.name in own:
            texts += map(format_declaration, own.pop(one.name))
        elif _is_typed(one):
            columns = ", ".join(f"{c.name}: {c.type.value}" for c in one.schema.columns if c.type is not None)
            texts.append(f".decl {one.name}({columns})")
    prefixes = [format_prefix(*one) for one in parse_prefixes(backup.manifest.declarations).items()]
    return [*prefixes, *texts, *(format_declaration(d) for rest in own.values() for d in rest)]


def _outputs(backup: Backup) -> list[str]:
    """An `.output` for each relation that rules derive."""
    heads = {rule.head.relation for one in backup.rules for rule in parse_rules(one.text)}
    return [f".output {one.name}" for one in backup.manifest.collections if one.name in heads]


def _remarks(backup: Backup) -> list[str]:
    """What of the database Souffle does not know, or knows differently."""
    visible = [one for one in backup.manifest.collections if not one.hidden]
    kinds = {column.type for one in visible for column in one.schema.columns}
    own = parse_declarations(backup.manifest.declarations) if backup.manifest.declarations else ()
    found = {
        "Souffle has no type bool; the columns of this type have to be symbols there": ColumnType.BOOL
        in kinds,
        "numbers and floats have 64 bits here; Souffle must be built with SOUFFLE_DOMAIN_64BIT": bool(
            {ColumnType.NUMBER, ColumnType.FLOAT} & kinds
        ),
        "Souffle does not know fixpoint(...), nor recursion through count, sum and mean": any(
            d.fixpoint is not None for d in own
        ),
        "Souffle does not know .prefix; no rule needs it here": bool(
            parse_prefixes(backup.manifest.declarations)
        ),
        "Souffle does not know the qualifier constraint": any(CONSTRAINT in d.qualifiers for d in own),
        "Souffle does not allow a dot in the name of a relation": any("." in one.name for one in visible),
        "some relations without tuples have columns of unknown types, and so no .decl, which Souffle wants": any(
            not _is_typed(one) for one in visible
        ),
        "some rules were added more than once; here each stands once": any(
            r.weight > 1 for r in backup.rules
        ),
        "functions in rules are written as they are; a few of them are not Souffle's": bool(backup.rules),
        "some facts were asserted more than once; here each stands once (a backup keeps the weights)": any(
            one.file and _weighs(backup, one) for one in visible
        ),
        "which sources assert which facts is not expressed; here the facts count for no source (a backup keeps the "
        "sources)": len(visible) < len(backup.manifest.collections),
    }
    return [remark for remark, applies in found.items() if applies]


def _weighs(backup: Backup, one: Collection) -> bool:
    return any(bool(pc.any(pc.not_equal(table.column(WEIGHT), 1)).as_py()) for table in backup.tables(one))


def _is_typed(one: Collection) -> bool:
    return all(column.type is not None for column in one.schema.columns)


def _needs_quotes(backup: Backup, one: Collection) -> bool:
    """Whether a plain file would not give the symbols back."""
    return any(
        bool(pc.any(pc.match_substring_regex(table.column(i), _SPECIAL)).as_py())
        for table in backup.tables(one)
        for i, kind in enumerate(one.types)
        if kind is ColumnType.SYMBOL
    )


def _lines(table: pa.Table, types: list[ColumnType], *, quoted: bool) -> bytes:
    """The tuples as lines of a file of facts."""
    if not types:
        return b"()\n" if table.num_rows else b""
    columns = [list(_texts(table.column(i), kind, quoted=quoted)) for i, kind in enumerate(types)]
    separator = "," if quoted else "\t"
    return "".join(f"{separator.join(row)}\n" for row in zip(*columns, strict=True)).encode()


def _texts(column: pa.ChunkedArray, kind: ColumnType, *, quoted: bool) -> Iterator[str]:
    values = column.to_pylist()
    if kind is ColumnType.FLOAT:
        return (f"{value:.17g}" for value in values)
    if kind is ColumnType.BOOL:
        return ("true" if value else "false" for value in values)
    if kind is ColumnType.NUMBER:
        return map(str, values)
    if not quoted:
        return iter(values)
    doubled = (value.replace('"', '""') for value in values)
    return (f'"{value}"' for value in doubled)
