"""Schemas: the arity, column names and column types of every relation that a program mentions.

In: the relations that hold facts, the declarations in force, the rules, and the schemas of the last epoch.
Out: a schema for each relation that any of the first three mentions, or an error that points at the fault.
Always: the result depends on nothing else, and no input is changed; a column whose type nothing fixes has
type None. Types flow through the variables of rules (unification.py). Costs a few microseconds a literal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from engine.errors import ArityError, DeclarationError, TypeMismatchError
from engine.language.schema import Column, ColumnType, Schema
from engine.language.syntax import Atom, Declaration, Rule, Variable, depth_of, walk
from engine.language.unification import ColumnNames, TypeGraph


@dataclass(slots=True)
class _Relation:
    """What is known of a relation: `why` says where its arity comes from, `names` is empty while unknown."""

    arity: int
    why: str
    names: tuple[str, ...] = ()
    declared: bool = False


_RulesWithAtoms = Sequence[tuple[Rule, Sequence[Atom]]]


def infer_schemas(
    declarations: Sequence[Declaration],
    stored: Mapping[str, Schema],
    rules: Sequence[Rule],
    previous: Mapping[str, Schema],
) -> dict[str, Schema]:
    """The schema of every relation that `declarations`, `stored` or `rules` mention.

    `stored` are the relations that hold facts; their types are fixed. Column names come from the declaration;
    else from `previous`, if the arity is the same; else from the head of the first rule that defines the
    relation, if its arguments are distinct variables; else from the first body atom whose arguments are; else
    they are c0, c1, ....

    Raises:
        ArityError: an atom or a declaration has another number of columns than the relation.
        TypeMismatchError: a column would hold values of two types.
        DeclarationError: a relation is declared in two different ways.
    """
    relations = {name: _Relation(schema.arity, "according to its facts") for name, schema in stored.items()}
    declared = _declared(declarations, stored, relations)
    atoms = [(rule, list(atoms_of(rule))) for rule in rules]
    _check_arities(atoms, relations)
    _name_columns(atoms, previous, relations)
    graph = TypeGraph()
    for name, relation in relations.items():
        graph.add_relation(
            name, ColumnNames(name, relation.names or _numbered(relation.arity), bool(relation.names))
        )
    for name, schema in stored.items():
        graph.fix(name, [column.type for column in schema.columns])
    for name, declaration in declared.items():
        graph.fix(name, [column.type for column in declaration.columns])
    for rule in rules:
        graph.add_rule(rule)
    graph.finish()
    return {
        name: Schema(name, _columns(relation, graph.types(name)), relation.declared)
        for name, relation in relations.items()
    }


def _declared(
    declarations: Sequence[Declaration], stored: Mapping[str, Schema], relations: dict[str, _Relation]
) -> dict[str, Declaration]:
    """Each relation's declaration; adds them to `relations`."""
    declared: dict[str, Declaration] = {}
    for declaration in declarations:
        name = declaration.relation
        earlier = declared.setdefault(name, declaration)
        if earlier.columns != declaration.columns:
            message = f"{name} is already declared, as {_signature(earlier)}"
            raise DeclarationError(message, text=declaration.text, span=declaration.span, relation=name)
        if name in stored:
            _check_against_facts(declaration, stored[name])
        relations[name] = _Relation(
            len(declaration.columns),
            "according to its declaration",
            tuple(column.name for column in declaration.columns),
            declared=True,
        )
    return declared


def _check_against_facts(declaration: Declaration, facts: Schema) -> None:
    name = declaration.relation
    if len(declaration.columns) != facts.arity:
        message = (
            f"{name} holds facts with {_count(facts.arity)}, but is declared with {len(declaration.columns)}"
        )
        raise ArityError(
            message,
            text=declaration.text,
            span=declaration.span,
            relation=name,
            expected=facts.arity,
            got=len(declaration.columns),
        )
    for i, (column, fact) in enumerate(zip(declaration.columns, facts.columns, strict=True)):
        if fact.type is not None and column.type is not None and fact.type is not column.type:
            spans = declaration.column_spans
            raise TypeMismatchError(
                f"column {i + 1} ({column.name}) of {name} holds {fact.type.value}s, "
                f"but is declared {column.type.value}",
                text=declaration.text,
                span=spans[i] if spans else declaration.span,
                relation=name,
                column_name=column.name,
                expected=fact.type.value,
                got=column.type.value,
            )


def _check_arities(rules: _RulesWithAtoms, relations: dict[str, _Relation]) -> None:
    """Add the relations that only rules mention, and check every atom."""
    for rule, atoms in rules:
        for atom in atoms:
            arity = len(atom.terms)
            relation = relations.get(atom.relation)
            if relation is None:
                relations[atom.relation] = _Relation(arity, "according to its first use")
            elif relation.arity != arity:
                raise ArityError(
                    f"{atom.relation} has {_count(relation.arity)} {relation.why}, but here it has {arity}",
                    text=rule.text,
                    span=atom.span,
                    relation=atom.relation,
                    expected=relation.arity,
                    got=arity,
                )


def atoms_of(rule: Rule) -> Iterator[Atom]:
    """Every atom of a rule in the order of the text: head, body, negated ones, and those in aggregates."""
    for literal in (rule.head, *rule.body):
        if isinstance(literal, Atom) and not any(map(depth_of, literal.terms)):
            yield literal
        else:
            yield from (node for node in walk(literal) if isinstance(node, Atom))


def _name_columns(
    rules: _RulesWithAtoms, previous: Mapping[str, Schema], relations: dict[str, _Relation]
) -> None:
    for name, relation in relations.items():
        before = previous.get(name)
        if not relation.names and before is not None and before.arity == relation.arity:
            relation.names = tuple(column.name for column in before.columns)
    defined: set[str] = set()
    for rule, _ in rules:
        head = rule.head
        if head.relation not in defined:
            defined.add(head.relation)
            relation = relations[head.relation]
            relation.names = relation.names or _variable_names(head)
    for rule, atoms in rules:
        for atom in atoms:
            relation = relations[atom.relation]
            if not relation.names and atom is not rule.head:
                relation.names = _variable_names(atom)


def _variable_names(atom: Atom) -> tuple[str, ...]:
    """The arguments as names of columns; none, unless all are distinct variables."""
    names = tuple(term.name.replace("?", "") for term in atom.terms if isinstance(term, Variable))
    distinct = len(set(names)) == len(names) == len(atom.terms) and all(names)
    return names if distinct else ()


def _numbered(arity: int) -> tuple[str, ...]:
    return tuple(f"c{i}" for i in range(arity))


def _columns(relation: _Relation, types: Sequence[ColumnType | None]) -> tuple[Column, ...]:
    names = relation.names or _numbered(relation.arity)
    return tuple(Column(name, type_) for name, type_ in zip(names, types, strict=True))


def _signature(declaration: Declaration) -> str:
    return str(Schema(declaration.relation, declaration.columns))


def _count(arity: int) -> str:
    return f"{arity} column{'' if arity == 1 else 's'}"
