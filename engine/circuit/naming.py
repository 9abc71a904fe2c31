"""Names in the circuit: there, a relation is identified by its name and the types of its columns.

In: a relation's columns when the circuit was last compiled, and now. Out: the key by which the circuit knows the
relation. Always: the meaning of a stored code never changes in place. If the type of a column changes, the relation
continues under another key: the old one empties and the new one fills, each with its own codes, and whatever reads the
relation sees both changes, as if they were changes of two relations. A rule over the new key is a new rule for the
circuit, so what was derived from the old codes is retracted.

A key is the relation's name, or the name and a prime; the two alternate, because the old one is empty when the epoch
ends. Nearly every relation keeps its name for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from engine.errors import ZedlogError
from engine.language.schema import ColumnType
from engine.language.syntax import Atom, Literal, Rule, Term, rebuilt

PRIME = "\N{PRIME}"
"""Follows the name of a relation under its other key; no program text can contain it."""

Types = Sequence[ColumnType | None]
_Node = TypeVar("_Node", bound=Literal | Term)


def name_of(key: str) -> str:
    """The relation that a key denotes."""
    return key.removesuffix(PRIME)


def other_key(key: str) -> str:
    """The key under which a relation continues when its types change."""
    return name_of(key) if key.endswith(PRIME) else key + PRIME


def may_stay(before: Types, after: Types) -> bool:
    """Whether tuples of the types before mean the same afterwards: a type that was unknown had no tuples."""
    return len(before) == len(after) and all(
        old in (None, new) for old, new in zip(before, after, strict=True)
    )


def renamed(rule: Rule, keys: Mapping[str, str]) -> Rule:
    """The rule with every relation under its key; the rule itself if all keys are the names."""
    if not keys:
        return rule
    head, body = _renamed(rule.head, keys), tuple(_renamed(literal, keys) for literal in rule.body)
    return rule if (head, body) == (rule.head, rule.body) else replace(rule, head=head, body=body)


def named(error: ZedlogError, names: Mapping[str, str]) -> ZedlogError:
    """The error in the user's terms: keys of relations, and ids of rules over them, become the names and ids that users
    know."""
    for key, name in names.items():
        error.message = error.message.replace(key, name)
        error.detail = {field: _named(value, key, name) for field, value in error.detail.items()}
    error.args = (error.message,)
    return error


def _named(value: Any, key: str, name: str) -> Any:
    if isinstance(value, list | tuple):
        return [_named(part, key, name) for part in value]
    return value.replace(key, name) if isinstance(value, str) else value


def _renamed(node: _Node, keys: Mapping[str, str]) -> _Node:
    below = rebuilt(node, lambda part: _renamed(part, keys))
    return (
        replace(below, relation=keys.get(below.relation, below.relation))
        if isinstance(below, Atom)
        else below
    )
