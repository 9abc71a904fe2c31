"""Schemas: the arity, column names and column types of every relation that a program mentions.

In: the relations that hold facts, the declarations in force, the rules, and the schemas of the last epoch.
Out: a schema for each relation that any of the first three mentions, or an error that points at the fault.
Always: the result depends on nothing else, and no input is changed; a column whose type nothing fixes has type None.
Types flow through the variables of rules (unification.py). Costs a few microseconds a literal.

`update_schemas` gives the same result from the previous schemas and what has changed since. If nothing was removed, it
follows the new information from rule to rule. Otherwise it looks again at all rules that a type may have flowed
through: those that can be reached from the changed relations without passing through a relation that is declared or
holds facts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.errors import ArityError, DeclarationError, TypeMismatchError
from engine.language.schema import Column, ColumnType, Schema
from engine.language.syntax import Atom, Declaration, Rule, Variable, depth_of, walk
from engine.language.unification import ColumnNames, TypeGraph


@dataclass(slots=True)
class _Relation:
    """What is known about a relation: `why` says where its arity comes from; `names` is empty while they are
    unknown."""

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

    `stored` are the relations that hold facts; their types are fixed. Column names come from the first of these that
    gives any: the declaration; `previous`, if the arity is the same; the head of the first rule that defines the
    relation, if its arguments are distinct variables; the first body atom whose arguments are distinct variables.
    Otherwise they are c0, c1, ....

    Raises:
        ArityError: an atom or a declaration does not have as many columns as the relation.
        TypeMismatchError: a column would hold values of two types.
        DeclarationError: a relation is declared in two different ways.
    """
    return _infer(declarations, stored, {}, rules, previous)


class Basis(Protocol):
    """What schemas are inferred from. users: for each relation the ids of the rules that mention it."""

    @property
    def declarations(self) -> Mapping[str, Declaration]: ...

    @property
    def stored(self) -> Mapping[str, Schema]: ...

    @property
    def users(self) -> Mapping[str, Mapping[str, None]]: ...

    def tree(self, id_: str) -> Rule | None:
        """The rule with this id, if it is there."""

    def in_order(self, ids: Collection[str]) -> list[Rule]:
        """The rules with these ids, in the order in which they were added."""


def update_schemas(
    schemas: Mapping[str, Schema],
    before: Basis,
    after: Basis,
    rules: Collection[str],
    relations: Collection[str],
    parsed: Sequence[Declaration] = (),
) -> tuple[dict[str, Schema], frozenset[str]]:
    """What `infer_schemas` gives for `after`, computed from the `schemas` of `before`; and the relations whose schema
    is a new object. All other schemas stay the same objects.

    rules: ids of the rules that are in only one of the two. relations: those whose declaration, or whose facts' types,
    differ between the two. parsed: the new declarations, including those that contradict earlier ones.

    Raises:
        ArityError, TypeMismatchError, DeclarationError: as `infer_schemas`.
    """
    came = {id_: rule for id_ in rules if (rule := after.tree(id_)) is not None}
    went = [rule for id_ in rules if id_ not in came and (rule := before.tree(id_)) is not None]
    if not went and all(_pinned(before, name) in (None, _pinned(after, name)) for name in relations):
        return _grown(schemas, after, after.in_order(came.keys()), relations, parsed)

    def is_open(relation: str) -> bool:
        pinned = _pinned(after, relation)
        return pinned is None or pinned != _pinned(before, relation)

    reached = dict(came)
    scope: dict[str, bool] = {}
    todo = [*relations, *(relation for rule in (*went, *came.values()) for relation in relations_of(rule))]
    while todo:
        relation = todo.pop()
        if relation in scope:
            continue
        scope[relation] = is_open(relation)
        for id_ in after.users.get(relation, ()) if scope[relation] else ():
            if id_ not in reached and (rule := after.tree(id_)) is not None:
                reached[id_] = rule
                todo += relations_of(rule)
    found = _infer_part(after, {}, scope, after.in_order(reached.keys()), schemas, parsed)
    result = dict(schemas)
    for name, opened in scope.items():
        if name not in found:
            result.pop(name, None)
        elif (opened or name in relations) and found[name] != result.get(name):
            result[name] = found[name]
    return result, frozenset(name for name in scope if result.get(name) is not schemas.get(name))


def _grown(
    schemas: Mapping[str, Schema],
    after: Basis,
    came: Sequence[Rule],
    relations: Collection[str],
    parsed: Sequence[Declaration],
) -> tuple[dict[str, Schema], frozenset[str]]:
    """The same where nothing was removed, so that what is known stays known. Start with the new rules and the relations
    that are fixed now; whenever more becomes known about a relation, go on to the rules that mention it."""
    result, changed = dict(schemas), set[str]()
    rules, scope = came, dict.fromkeys([*relations, *(r for rule in came for r in relations_of(rule))])
    while scope:
        known = {name: result[name] for name in scope if name in result and _pinned(after, name) is None}
        found = _infer_part(after, known, scope, rules, schemas, parsed)
        more: dict[str, None] = {}
        for name in scope:
            old = result.get(name)
            if found[name] != old:
                result[name] = found[name]
                changed.add(name)
                if old is not None and _types(old) != _types(found[name]):
                    more.update(after.users.get(name, {}))
        rules, parsed = after.in_order(more.keys()), ()
        scope = dict.fromkeys(relation for rule in rules for relation in relations_of(rule))
    return result, frozenset(changed)


def _infer_part(
    after: Basis,
    known: Mapping[str, Schema],
    scope: Collection[str],
    rules: Sequence[Rule],
    previous: Mapping[str, Schema],
    parsed: Sequence[Declaration],
) -> dict[str, Schema]:
    """The schemas of the relations `scope` through `rules`, which mention no others."""
    declarations = [after.declarations[name] for name in scope if name in after.declarations]
    stored = {name: after.stored[name] for name in scope if name in after.stored}
    return _infer([*declarations, *parsed], stored, known, rules, previous)


def _types(schema: Schema | Declaration) -> tuple[ColumnType | None, ...]:
    return tuple(column.type for column in schema.columns)


def _pinned(basis: Basis, relation: str) -> tuple[ColumnType | None, ...] | None:
    """The types of a relation that is declared or holds facts."""
    fixed = basis.declarations.get(relation) or basis.stored.get(relation)
    return None if fixed is None else _types(fixed)


def _infer(
    declarations: Sequence[Declaration],
    stored: Mapping[str, Schema],
    known: Mapping[str, Schema],
    rules: Sequence[Rule],
    previous: Mapping[str, Schema],
) -> dict[str, Schema]:
    """See `infer_schemas`. known: relations whose types are fixed, for whatever reason."""
    relations = {
        name: _Relation(schema.arity, "by its first use", tuple(column.name for column in schema.columns))
        for name, schema in known.items()
    }
    relations |= {name: _Relation(schema.arity, "according to its facts") for name, schema in stored.items()}
    declared = _declared(declarations, stored, relations)
    atoms = [(rule, list(atoms_of(rule))) for rule in rules]
    _check_arities(atoms, relations)
    _name_columns(atoms, previous, relations)
    graph = TypeGraph()
    for name, relation in relations.items():
        graph.add_relation(
            name, ColumnNames(name, relation.names or _numbered(relation.arity), bool(relation.names))
        )
    for name, schema in (*known.items(), *stored.items()):
        if name not in declared:
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


def relations_of(rule: Rule) -> Iterable[str]:
    """The relations that a rule mentions, each once, in the order of the text."""
    return dict.fromkeys(atom.relation for atom in atoms_of(rule))


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
    """The arguments as names of columns, if all are distinct variables; otherwise none."""
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
