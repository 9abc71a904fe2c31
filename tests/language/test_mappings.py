"""`.rdf`: which rules a mapping is short for, and how it is refused."""

from __future__ import annotations

import pytest

from engine.errors import (
    DeclarationError,
    ProgramError,
    ProgramSyntaxError,
    UnknownPrefixError,
    UnsafeRuleError,
)
from engine.language.canonical import canonical_text, format_rule, rule_id
from engine.language.check import check_rule
from engine.language.parser import expanded, parse_declarations, parse_program, parse_rules
from engine.language.prefixes import ANY_PREFIX

TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
EX = {"ex": "http://example.org/", "xsd": "http://www.w3.org/2001/XMLSchema#"}
MAPPING = """
.rdf person(id, name, boss, "active", _)
    <http://example.org/person/{id}> a ex:Person, <http://example.org/{name}/{id}#x>;
    ex:name name, name@en-GB, name^^xsd:token, cat(name, "!");   // a comment
    ex:n 7, 0.5, true, "text";
    <http://example.org/{name}> <{boss}>.
"""
SUBJECT = 'rdf_iri("http://example.org/person/{}", id)'
PAIRS = [
    f'"{TYPE}", "<http://example.org/Person>"',
    f'"{TYPE}", rdf_iri("http://example.org/{{}}/{{}}#x", name, id)',
    '"<http://example.org/name>", rdf_literal(name)',
    '"<http://example.org/name>", rdf_literal(name, "@en-GB")',
    '"<http://example.org/name>", rdf_literal(name, "<http://www.w3.org/2001/XMLSchema#token>")',
    '"<http://example.org/name>", rdf_literal(cat(name, "!"))',
    *(f'"<http://example.org/n>", rdf_literal({value})' for value in ("7", "0.5", "true", '"text"')),
    'rdf_iri("http://example.org/{}", name), rdf_iri(boss)',
]
RULES = [f'triple({SUBJECT}, {pair}) :- person(id, name, boss, "active", _).' for pair in PAIRS]


def test_a_mapping_is_short_for_rules() -> None:
    for found in (parse_program(MAPPING, EX).rules, parse_rules(MAPPING, EX)):
        assert [format_rule(rule) for rule in found] == RULES
        assert [rule_id(rule) for rule in found] == [
            rule_id(rule) for text in RULES for rule in parse_rules(text)
        ]
        for rule in found:
            check_rule(rule)


def test_expanded_it_is_one_clause_of_ordinary_language() -> None:
    text = f'p(x) :- q(x, ex:a).{MAPPING}p(".rdf").'
    whole = expanded(text, EX)
    assert whole.startswith('p(x) :- q(x, "<http://example.org/a>").\ntriple(')
    assert whole.endswith('.\np(".rdf").')
    (clause,) = [line for line in whole.splitlines() if line.startswith("triple(")]
    assert [canonical_text(r) for r in parse_rules(clause)] == [
        canonical_text(*parse_rules(t)) for t in RULES
    ]
    assert expanded(whole, {}) == whole
    # Without a prefixed name, too.
    plain = ".rdf p(x) <urn:{x}> <urn:p> x."
    assert expanded(plain, {}) == 'triple(rdf_iri("urn:{}", x), "<urn:p>", rdf_literal(x)) :- p(x).'


def test_names_that_the_form_uses_can_still_be_names() -> None:
    (one, two) = parse_rules(".rdf a(a, b) <urn:{a}> <urn:p> a; a b.")
    assert format_rule(one) == 'triple(rdf_iri("urn:{}", a), "<urn:p>", rdf_literal(a)) :- a(a, b).'
    assert format_rule(two) == f'triple(rdf_iri("urn:{{}}", a), "{TYPE}", rdf_literal(b)) :- a(a, b).'
    (rule,) = parse_rules(".rdf hr.staff(?x) <urn:{?x}> ex:p ?x.", EX)
    assert format_rule(rule).endswith("rdf_literal(?x)) :- hr.staff(?x).")
    # What begins like a template elsewhere is still a comparison.
    (rule,) = parse_rules("p(n) :- q(n), n<5, count : r(_)<n, -5<n.")
    assert format_rule(rule) == "p(n) :- q(n), n < 5, count : { r(_) } < n, -5 < n."


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (".rdf p(x) <p/{x}> a <urn:C>.", DeclarationError, "absolute IRIs"),
        (".rdf p(x) <{x}:y> a <urn:C>.", DeclarationError, "absolute IRIs"),
        (".rdf p(x) <{x}{x}> a <urn:C>.", DeclarationError, "absolute IRIs"),
        (".rdf p(x) <urn:{x}> a <C>.", DeclarationError, "absolute IRIs"),
        (".rdf p(x) <urn:{x}> foaf:name x.", UnknownPrefixError, "foaf: is not declared"),
        (".rdf p(x) <urn:{x> a <urn:C>.", ProgramSyntaxError, "an IRI such as"),
        (".rdf p(x) <urn:a b> a <urn:C>.", ProgramSyntaxError, "an IRI such as"),
        (".rdf p(x) x a <urn:C>.", ProgramSyntaxError, "an IRI such as"),
        (".rdf p(x) <urn:{x}> name x.", ProgramSyntaxError, "expected 'a' or an IRI"),
        (".rdf p(x) <urn:{x}>.", ProgramSyntaxError, "expected 'a' or an IRI"),
        (".rdf p(x) <urn:{x}> <urn:p> x p(x).", ProgramSyntaxError, "did you forget the '.'"),
        (".rdf p(x) <urn:{x}> <urn:p> x", ProgramSyntaxError, "the text ends"),
        (".rdf p(x) <urn:{x}> <urn:p> x@12.", ProgramSyntaxError, "expected"),
        (".rdf p(x) <urn:{x}> <urn:p> x^^y.", ProgramSyntaxError, "an IRI such as"),
        (".rdf p(x) <urn:{x}> <urn:p> 9223372036854775808.", ProgramSyntaxError, "does not fit into 64 bits"),
        (".rdf p(x), q(x) <urn:{x}> <urn:p> x.", ProgramSyntaxError, "an IRI such as"),
    ],
)
def test_what_is_not_a_mapping(text: str, error: type[ProgramError], message: str) -> None:
    with pytest.raises(error, match=message) as refused:
        parse_program(text)
    assert refused.value.detail["column"] >= 10
    with pytest.raises(error, match=message):
        parse_rules(text)


def test_a_column_that_is_not_there_is_shown_where_it_stands() -> None:
    (rule,) = parse_rules(".rdf p(x)\n <urn:{y}> <urn:p> x.")
    with pytest.raises(UnsafeRuleError, match="the variable y in the head is not bound") as refused:
        check_rule(rule)
    assert (refused.value.detail["line"], refused.value.detail["column"]) == (2, 8)
    with pytest.raises(ProgramSyntaxError, match="has a language"):
        check_rule(
            *parse_rules(
                ".rdf p(x) <urn:{x}> <urn:p> x^^<http://www.w3.org/1999/02/22-rdf-syntax-ns#langString>."
            )
        )


def test_a_mapping_is_a_clause_and_not_a_declaration() -> None:
    with pytest.raises(ProgramSyntaxError, match="but this is a clause"):
        parse_declarations(".rdf p(x) <urn:{x}> <urn:p> x.")
    with pytest.raises(ProgramSyntaxError, match="a second clause starts here"):
        parse_rules(MAPPING * 2, ANY_PREFIX)
