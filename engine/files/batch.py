"""A whole program over files, once, as Souffle runs it: read the inputs, derive, write the outputs.

In: program text, the folders of facts and of results. Out: the files and the standard output that the directives ask
for. Always: the whole program is checked before a file is read, so that an error in it points into its own text; every
input is read and checked before anything is derived, and everything is derived before anything is written.

Facts of numbers go to the engine as arrays. Results are taken from the epoch's record, as codes, so that millions of
derived tuples reach a file without becoming Python objects.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, BinaryIO

import numpy as np
import numpy.typing as npt

from engine.circuit.compile import compile_circuit
from engine.data.values import Value
from engine.database.epoch import EpochResult
from engine.database.reasoner import Facts, Reasoner
from engine.errors import DeclarationError, InvalidRequestError, Span
from engine.expressions import with_constant_facts
from engine.files.facts import facts_of, stored_schemas
from engine.files.layout import STDIN, STDOUT, Layout, layout_of
from engine.files.reading import read_facts
from engine.files.table import FactTable
from engine.files.writing import SymbolTexts, write_tuples
from engine.language.canonical import format_declaration
from engine.language.check import check_rule, infer_schemas
from engine.language.parser import parse_program
from engine.language.prefixes import format_prefix
from engine.language.schema import Schema
from engine.language.syntax import Directive, ProgramText, fixpoints_of
from engine.maintenance.placement import Budget

_FILE_DIRECTIVES = ("input", "output", "printsize")
_RULE = "---------------\n"
_DOUBLE_RULE = "===============\n"


@dataclass(frozen=True, slots=True)
class FileRun:
    """A checked program with what its directives ask for; see `run`."""

    program: ProgramText
    schemas: dict[str, Schema]
    inputs: list[tuple[Directive, Layout]]
    outputs: list[tuple[Directive, Layout]]

    @classmethod
    def of(cls, text: str) -> FileRun:
        """Parse and check a whole program.

        Raises:
            ProgramError: with its place in the text.
        """
        program = with_constant_facts(parse_program(text))
        for rule in program.rules:
            check_rule(rule)
        stored = stored_schemas(program)
        schemas = infer_schemas(program.declarations, stored, program.rules, {})
        compile_circuit(program.rules, schemas, fixpoints=fixpoints_of(program.declarations))
        batch = cls(program, schemas, [], [])
        for directive in program.directives:
            if directive.kind in _FILE_DIRECTIVES:
                target = batch.inputs if directive.kind == "input" else batch.outputs
                target.append((directive, layout_of(directive, batch._schema(directive), text)))
        return batch

    def _schema(self, directive: Directive) -> Schema:
        schema = self.schemas.get(directive.relation)
        if schema is not None and (schema.declared or directive.kind != "input"):
            return schema
        raise DeclarationError(
            f"{directive.relation} is not declared; .{directive.kind} needs "
            f".decl {directive.relation}(column: type, ...)",
            text=self.program.text,
            span=directive.span,
            relation=directive.relation,
        )

    def run(
        self,
        fact_dir: Path,
        output_dir: Path | None,
        stdin: BinaryIO,
        stdout: IO[bytes],
        threads: int | None = None,
        progress: Callable[[str], None] = lambda stage: None,
        budget: Budget | None = None,
    ) -> EpochResult:
        """Read, derive and write. With `output_dir` None all results go to `stdout`, with the names of columns.
        `budget` limits the derivation.

        Raises:
            InvalidRequestError: a file cannot be read, or a result cannot be written.
            ZedlogError: a fact file is wrong, or the evaluation is refused.
        """
        facts = self._facts(fact_dir, stdin, progress)
        progress("deriving")
        result = self._derive(facts, threads, budget)
        self._write(result, output_dir, stdout, progress)
        return result

    # ---- reading

    def _facts(self, fact_dir: Path, stdin: BinaryIO, progress: Callable[[str], None]) -> Facts:
        tables: dict[str, list[FactTable]] = {}
        for relation, table in facts_of(self.program, self.schemas):
            tables.setdefault(relation, []).append(table)
        for directive, layout in self.inputs:
            progress(f"reading {directive.relation}")
            schema = self.schemas[directive.relation]
            if layout.channel == STDIN:
                name, data = "standard input", stdin.read()
            else:
                path = fact_dir / layout.filename
                name, data = str(path), _content(path, directive)
            tables.setdefault(directive.relation, []).append(read_facts(data, name, schema, layout))
        return {relation: _weighted(parts) for relation, parts in tables.items()}

    # ---- deriving

    def _derive(self, facts: Facts, threads: int | None, budget: Budget | None) -> EpochResult:
        lines = self.program.text.split("\n")
        clauses = dict.fromkeys(rule.span for rule in self.program.rules)
        return Reasoner("resident", budget, threads).apply(
            facts=facts,
            rules=[(_excerpt(lines, span), 1) for span in clauses],
            declarations=self._declarations(lines),
        )

    def _declarations(self, lines: Sequence[str]) -> str:
        """The declarations for the engine: the program's text without the directives that this module carries out."""
        texts = [format_prefix(label, iri) for label, iri in self.program.prefixes.items()]
        for declaration in self.program.declarations:
            kept = tuple(q for q in declaration.qualifiers if q not in _FILE_DIRECTIVES)
            texts.append(format_declaration(replace(declaration, qualifiers=kept)))
        for directive in self.program.directives:
            if directive.kind not in _FILE_DIRECTIVES:
                texts.append(_excerpt(lines, directive.span))
        return "\n".join(texts)

    # ---- writing

    def _write(
        self,
        result: EpochResult,
        output_dir: Path | None,
        stdout: IO[bytes],
        progress: Callable[[str], None],
    ) -> None:
        record = result.record
        symbols = SymbolTexts(record.symbols)
        assert record.first_symbol == 0, "a fresh reasoner's first epoch interns every symbol"
        for directive, layout in self.outputs:
            relation = directive.relation
            schema = record.schemas.get(relation, self.schemas[relation])
            told = record.relations.get(relation)
            change = None if told is None else told.here()
            # A fact that only contributes to a min or max is told too, but its tuple is not there.
            codes = (
                np.empty((0, schema.arity), np.int64) if change is None else change.codes[change.present > 0]
            )
            if directive.kind == "printsize":
                stdout.write(f"{relation}\t{len(codes)}\n".encode())
                continue
            progress(f"writing {relation}")
            if output_dir is None or layout.channel == STDOUT:
                named = replace(layout, headers=layout.headers or output_dir is None)
                stdout.write(f"{_RULE}{relation}\n".encode())
                # The names stand above the double rule, not below it.
                if named.headers:
                    stdout.writelines(write_tuples(codes[:0], schema, symbols, named))
                stdout.write(_DOUBLE_RULE.encode())
                stdout.writelines(write_tuples(codes, schema, symbols, replace(layout, headers=False)))
                stdout.write(_DOUBLE_RULE.encode())
            else:
                _save(output_dir / layout.filename, layout, write_tuples(codes, schema, symbols, layout))
        stdout.flush()


def _content(path: Path, directive: Directive) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidRequestError(
            f"cannot read the fact file {path}: {error.strerror} (.input {directive.relation}, "
            f"line {directive.span.line} of the program)",
            file=str(path),
            relation=directive.relation,
        ) from error


def _save(path: Path, layout: Layout, blocks: Iterable[bytes]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Without a time stamp in the archive two runs give the same file.
        with (
            open(path, "wb") as raw,
            gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0) if layout.compress else raw as file,
        ):
            file.writelines(blocks)
    except OSError as error:
        raise InvalidRequestError(
            f"cannot write the result {path}: {error.strerror}", file=str(path)
        ) from error


def _weighted(tables: Sequence[FactTable]) -> npt.NDArray[np.int64] | list[tuple[Sequence[Value], int]]:
    """The tables of one relation in the form that the engine takes: an array where all columns are numbers."""
    arrays = [table.numbers() for table in tables]
    found = [array for array in arrays if array is not None]
    if len(found) == len(tables):
        return found[0] if len(found) == 1 else np.concatenate(found)
    return [(row, 1) for table in tables for row in table.tuples()]


def _excerpt(lines: Sequence[str], span: Span) -> str:
    """The text that a span covers."""
    part = list(lines[span.line - 1 : span.end_line])
    part[-1] = part[-1][: span.end_column - 1]
    part[0] = part[0][span.column - 1 :]
    return "\n".join(part)
