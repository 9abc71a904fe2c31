"""The types of a rule's variables.

In: a rule that type inference accepted, and the schemas that it found. Out: a type for each variable, None where
nothing fixes it.
Always: the types are those of inference (the same unification runs, over this one rule). A variable that occurs only
inside an aggregate is local to it; two aggregates may use one name for two variables, to which `distinct_locals`
(locals.py) gives different names. Linear in the size of the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.errors import TypeMismatchError
from engine.language.schema import ColumnType, Schema
from engine.language.syntax import Atom, Literal, Rule, walk
from engine.language.unification import ColumnNames, Scope, TypeGraph


class _ScopedGraph(TypeGraph):
    """Keeps the scopes: that of the rule, then one for each aggregate, which includes the outer names."""

    def __init__(self) -> None:
        super().__init__()
        self.scopes: list[Scope] = []

    def _add_literal(self, literal: Literal, scope: Scope, rule: Rule) -> None:
        if not self.scopes or self.scopes[-1] is not scope:
            self.scopes.append(scope)
        super()._add_literal(literal, scope, rule)

    def variables(self) -> Iterator[tuple[str, ColumnType | None]]:
        for scope in self.scopes:
            for name, node in scope.items():
                yield name, self._type[self._root(node)]


def variable_types(rule: Rule, schemas: Mapping[str, Schema]) -> dict[str, ColumnType | None]:
    """The type of every variable of the rule, including those inside aggregates.

    `schemas` has every relation that the rule mentions.

    Raises:
        TypeMismatchError: two aggregates have variables of one name and different types; never after
            `distinct_locals`.
    """
    graph = _ScopedGraph()
    nodes = [node for literal in (rule.head, *rule.body) for node in walk(literal)]
    for relation in dict.fromkeys(node.relation for node in nodes if isinstance(node, Atom)):
        columns = schemas[relation].columns
        graph.add_relation(relation, ColumnNames(relation, tuple(c.name for c in columns), True))
        graph.fix(relation, [column.type for column in columns])
    graph.add_rule(rule)
    types: dict[str, ColumnType | None] = {}
    for name, found in graph.variables():
        known = types.get(name)
        if known is not None and found is not None and known is not found:
            raise TypeMismatchError(
                f"the variable {name} is a {known.value} in one aggregate and a {found.value} in another; "
                "give the two variables different names",
                text=rule.text,
                span=rule.span,
                expected=known.value,
                got=found.value,
            )
        types[name] = known or found
    return types
