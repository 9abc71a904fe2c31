"""A query goal, checked against the schemas of one epoch, as a selection over one relation.

In: goal text such as `tc(x, "b")` and a snapshot's schemas. Out: a `Selection`: which columns are bound to which
values, which must be equal, and which are part of the answer. Always: the answer of `p(x, "b", x, _)` is the set of
distinct bindings of its named variables; its columns are the variables in the order of their first occurrence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.data.values import Tuple, Value
from engine.database.query import unknown_relation
from engine.errors import ArityError, TypeMismatchError, UnknownRelationError, did_you_mean, shown
from engine.language.schema import Column, ColumnType, Schema
from engine.language.syntax import Atom, Constant, Variable, Wildcard
from service.problems import near


@dataclass(frozen=True, slots=True)
class Selection:
    """`answer[i]` is the relation's column that the i-th variable denotes; `equal` are pairs of columns that hold the
    same variable; `drops` says whether some column is neither bound nor part of the answer."""

    relation: str
    bound: dict[int, Value]
    columns: tuple[Column, ...]
    answer: tuple[int, ...]
    equal: tuple[tuple[int, int], ...]
    drops: bool

    @property
    def needs_projection(self) -> bool:
        """Whether rows, or columns within a row, must be compared before the answer is known."""
        return bool(self.equal) or (self.drops and bool(self.answer))

    def project(self, rows: Iterable[Tuple]) -> Iterable[Tuple]:
        """The bindings of rows that have the bound values; the same binding may come more than once."""
        for row in rows:
            if all(row[a] == row[b] for a, b in self.equal):
                yield tuple(row[i] for i in self.answer)


def schema_of(schemas: Mapping[str, Schema], relation: str) -> Schema:
    """The relation's schema.

    Raises:
        UnknownRelationError: there is none; the error lists the nearest names.
    """
    schema = schemas.get(relation)
    if schema is None:
        names = near(relation, schemas)
        raise UnknownRelationError(
            f"there is no relation {shown(relation)}.{did_you_mean(names)}", relation=relation, near=names
        )
    return schema


def select(atom: Atom, text: str, schemas: Mapping[str, Schema]) -> Selection:
    """The selection that a goal asks for: an atom of constants, variables and `_`; `text` is its source.

    Raises:
        UnknownRelationError, ArityError, TypeMismatchError: it does not fit the existing relations.
    """
    schema = schemas.get(atom.relation)
    if schema is None:
        raise unknown_relation(atom, text, schemas)
    if len(atom.terms) != schema.arity:
        raise ArityError(
            f"the relation {schema} has {schema.arity} column{'' if schema.arity == 1 else 's'}, "
            f"but the goal has {len(atom.terms)}",
            text=text,
            span=atom.span,
            relation=atom.relation,
            expected=schema.arity,
            got=len(atom.terms),
        )
    return _selection(atom, schema, text)


def _selection(atom: Atom, schema: Schema, text: str) -> Selection:
    bound: dict[int, Value] = {}
    first: dict[str, int] = {}
    equal: list[tuple[int, int]] = []
    drops = False
    for position, (term, column) in enumerate(zip(atom.terms, schema.columns, strict=True)):
        match term:
            case Constant():
                _check_type(term, column, position, atom.relation, text)
                bound[position] = term.value
            case Variable():
                if term.name in first:
                    equal.append((first[term.name], position))
                else:
                    first[term.name] = position
            case _:
                assert isinstance(term, Wildcard), "a goal has no computed arguments"
                drops = True
    for a, b in equal:
        left, right = schema.columns[a], schema.columns[b]
        if left.type is not None and right.type is not None and left.type != right.type:
            raise TypeMismatchError(
                f"the same variable is used for column {a + 1} ({left.name}: {left.type.value}) and column {b + 1} "
                f"({right.name}: {right.type.value}) of {atom.relation}, whose values are never equal",
                text=text,
                span=atom.terms[b].span,
                relation=atom.relation,
            )
    columns = tuple(Column(name, schema.columns[i].type) for name, i in first.items())
    return Selection(atom.relation, bound, columns, tuple(first.values()), tuple(equal), drops)


def _check_type(constant: Constant, column: Column, position: int, relation: str, text: str) -> None:
    if column.type is None or constant.type == column.type:
        return
    known = column.type, constant.type
    hint = "; write it with a fraction, as in 2.0" if known == (ColumnType.FLOAT, ColumnType.NUMBER) else ""
    raise TypeMismatchError(
        f"column {position + 1} ({column.name}) of {relation} holds {column.type.value}s, "
        f"but {shown(constant.value)} is a {constant.type.value}{hint}",
        text=text,
        span=constant.span,
        relation=relation,
        column=column.name,
        expected=column.type.value,
        got=constant.type.value,
    )
