"""Canonical text: one for each rule, whatever its variables are called and however it is laid out."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.language.canonical import canonical_text, format_declaration, format_rule, rule_id
from engine.language.constants import write_constant
from engine.language.parser import parse_declarations, parse_rules
from engine.language.schema import ColumnType
from engine.language.syntax import Atom, Constant, Rule, Variable
from tests.language.strategies import rules, symbols


def only(text: str) -> Rule:
    (rule,) = parse_rules(text)
    return rule


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("tc(x,z):-tc(x,y),edge(y,z).", "tc(v0, v1) :- tc(v0, v2), edge(v2, v1)."),
        ("p(?a) :- q(?a, _, _).", "p(v0) :- q(v0, _, _)."),
        ("p(v1) :- q(v1, v0).", "p(v0) :- q(v0, v1)."),
        ("p(x) :- q(x, 0x10, 0b11, -007).", "p(v0) :- q(v0, 16, 3, -7)."),
        ("p(x) :- q(x, 1.50, -0.0, 1e3, true).", "p(v0) :- q(v0, 1.5, -0.0, 1000.0, true)."),
        (r"""p(x) :- q(x, "\t'\'\"\\").""", r"""p(v0) :- q(v0, "\t''\"\\")."""),
        ("/* a */ p(x) // b\n :- (((q(x)))).", "p(v0) :- q(v0)."),
        ("p(x) :- !!q(x), !(x = 1), !contains(x, y).", "p(v0) :- q(v0), v0 != 1, !contains(v0, v1)."),
        ("p((x + (y * 2)) - -z) :- q(x).", "p(v0 + v1 * 2 - -v2) :- q(v0)."),
        ("p((x + y) * 2 ^ 3 ^ z) :- q(x).", "p((v0 + v1) * 2 ^ 3 ^ v2) :- q(v0)."),
        ("p((2 ^ 3) ^ -x ^ 2) :- q(x).", "p((2 ^ 3) ^ (-v0 ^ 2)) :- q(v0)."),
        ("p(-2 ^ 2, (-2) ^ 2, - 5) :- q(x).", "p(-2 ^ 2, (-2) ^ 2, -5) :- q(v0)."),
        ("p(x land 1 lor y band 2) :- q(x, y).", "p(v0 land 1 lor v1 band 2) :- q(v0, v1)."),
        (
            "p((x lor y) land lnot z bor 1) :- q(x, y, z).",
            "p((v0 lor v1) land lnot v2 bor 1) :- q(v0, v1, v2).",
        ),
        ("p(x, 0x1F, 0b101) :- q(x), true, !false.", "p(v0, 31, 5) :- q(v0), true = true, true != false."),
        ("p(x) :- q(x), (false).", "p(v0) :- q(v0), true = false."),
        ("p(x band 1 bor bnot y bshl 2) :- q(x).", "p(v0 band 1 bor bnot v1 bshl 2) :- q(v0)."),
        ("p(n) :- n = count : q(x, _).", "p(v0) :- v0 = count : { q(v1, _) }."),
        ("p(n) :- n=sum x*2:{q(x),x>1}.", "p(v0) :- v0 = sum v1 * 2 : { q(v1), v1 > 1 }."),
        ("sp(y,min(d+c)):-sp(x,d),arc(x,y,c).", "sp(v0, min(v1 + v2)) :- sp(v3, v1), arc(v3, v0, v2)."),
        ("p(min(x,y,3)) :- q(x,y).", "p(min(v0, v1, 3)) :- q(v0, v1)."),
        ("p(min (x) + 1 : { q(x) }) :- r(1).", "p(min v0 + 1 : { q(v0) }) :- r(1)."),
    ],
)
def test_canonical_text(text: str, canonical: str) -> None:
    assert canonical_text(only(text)) == canonical


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("p(x) :- q(x), r(x).", "p(x) :- r(x), q(x)."),
        ("p(x) :- q(x, 1).", "p(x) :- q(x, 1.0)."),
        ("p(x) :- q(x, 1).", 'p(x) :- q(x, "1").'),
        ("p(x) :- q(x, y), r(y).", "p(x) :- q(x, y), r(z)."),
        ("p(x) :- q(x, y).", "p(x) :- q(x, _)."),
        ("p(1 - (2 - x)) :- q(x).", "p(1 - 2 - x) :- q(x)."),
    ],
)
def test_different_rules_have_different_ids(one: str, other: str) -> None:
    assert rule_id(only(one)) != rule_id(only(other))


def test_rule_id_is_the_hash_of_the_canonical_text() -> None:
    digest = hashlib.sha256(b"tc(v0, v1) :- edge(v0, v1).").hexdigest()
    assert rule_id(only("tc(a, b) :- edge(a, b).")) == "r" + digest[:12]


@given(rules)
def test_canonical_text_is_a_fixed_point_of_parsing(rule: Rule) -> None:
    canonical = canonical_text(rule)
    again = only(canonical)
    assert canonical_text(again) == canonical
    assert rule_id(again) == rule_id(rule)


@given(rules)
def test_formatted_rule_parses_to_the_same_tree(rule: Rule) -> None:
    assert only(format_rule(rule)) == rule


@given(rules, st.permutations([f"w{i}" for i in range(9)]))
def test_renaming_the_variables_keeps_the_identity(rule: Rule, fresh: list[str]) -> None:
    names: dict[str, str] = {}
    # One more than there are variables: it is looked up also for a name that is known.
    renamed = _renamed(rule, lambda name: names.setdefault(name, fresh[len(names)]))
    assert rule_id(renamed) == rule_id(rule)
    assert canonical_text(renamed) == canonical_text(rule)


def _renamed(node: Any, rename: Callable[[str], str]) -> Any:
    """The tree with every variable renamed, whatever the classes of its nodes are."""
    if isinstance(node, Variable):
        return Variable(rename(node.name))
    if isinstance(node, tuple):
        return tuple(_renamed(part, rename) for part in node)
    if not dataclasses.is_dataclass(node):
        return node
    fields = [field.name for field in dataclasses.fields(node) if field.compare]
    node_class: Any = type(node)
    return node_class(**{name: _renamed(getattr(node, name), rename) for name in fields})


@given(symbols)
def test_every_symbol_survives(symbol: str) -> None:
    rule = only(f"p(x) :- q(x, {write_constant(symbol, ColumnType.SYMBOL)}).")
    (atom,) = rule.body
    assert isinstance(atom, Atom)
    assert atom.terms[1] == Constant(symbol, ColumnType.SYMBOL)


def test_declaration_text() -> None:
    (declaration,) = parse_declarations(".type Id<:number .decl e ( x:Id,y : symbol )brie")
    assert format_declaration(declaration) == ".decl e(x: number, y: symbol) brie"
    assert parse_declarations(format_declaration(declaration)) == (declaration,)
