"""The facts in a program's own text, as tables, checked against the declarations.

In: a `ProgramText`. Out: for each relation the schema that its facts fix, and a `FactTable`. Always: an error points at
the value in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from engine.data.values import takes
from engine.errors import ArityError, TypeMismatchError
from engine.files.table import Column, FactTable
from engine.language.schema import Column as SchemaColumn
from engine.language.schema import ColumnType, Schema
from engine.language.syntax import Atom, Constant, ProgramText


def stored_schemas(program: ProgramText) -> dict[str, Schema]:
    """The schema of each relation that has facts in the text: the declared one, otherwise that of its first fact.

    Raises:
        ArityError, TypeMismatchError: a fact does not fit the schema.
    """
    schemas = {d.relation: Schema(d.relation, d.columns, declared=True) for d in program.declarations}
    found: dict[str, Schema] = {}
    for fact in program.facts:
        schema = found.get(fact.relation) or schemas.get(fact.relation)
        if schema is None:
            columns = (SchemaColumn(f"c{i}", term.type) for i, term in enumerate(_constants(fact)))
            schema = Schema(fact.relation, tuple(columns))
        found[fact.relation] = schema
        _check(fact, schema, program.text)
    return found


def facts_of(program: ProgramText, schemas: Mapping[str, Schema]) -> Iterator[tuple[str, FactTable]]:
    """(relation, its facts in the text)."""
    groups: dict[str, list[Atom]] = {}
    for fact in program.facts:
        groups.setdefault(fact.relation, []).append(fact)
    for relation, facts in groups.items():
        types = [column.type or ColumnType.SYMBOL for column in schemas[relation].columns]
        rows = [[term.value for term in _constants(fact)] for fact in facts]
        columns: list[Column] = [list(column) for column in zip(*rows, strict=True)]
        for position, kind in enumerate(types):
            if kind is ColumnType.NUMBER:
                columns[position] = np.array(columns[position], np.int64)
            elif kind is ColumnType.FLOAT:
                columns[position] = np.array(columns[position], np.float64)
        yield relation, FactTable(types, columns, len(facts))


def _constants(fact: Atom) -> list[Constant]:
    return [term for term in fact.terms if isinstance(term, Constant)]


def _check(fact: Atom, schema: Schema, text: str) -> None:
    if fact.arity != schema.arity:
        raise ArityError(
            f"{schema} has {schema.arity} columns, but this fact has {fact.arity}",
            text=text,
            span=fact.span,
            relation=fact.relation,
            expected=schema.arity,
            got=fact.arity,
        )
    for position, (term, column) in enumerate(zip(_constants(fact), schema.columns, strict=True), 1):
        if column.type is not None and not takes(schema, column.type, term.value):
            raise TypeMismatchError(
                f"column {position} ({column.name}) of {fact.relation} holds {column.type.value}, "
                f"but this is a {term.type.value}",
                text=text,
                span=term.span,
                relation=fact.relation,
                column_name=column.name,
                expected=column.type.value,
                got=term.type.value,
            )
