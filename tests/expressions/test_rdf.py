"""`rdf_iri` and `rdf_literal`: by hand, and by difference from pyoxigraph, rdflib and the specification."""

from __future__ import annotations

import re
import unicodedata
from decimal import Decimal
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode, RdfFormat, parse
from rdflib import Literal as RdflibLiteral

from engine.circuit.undefined import can_fail
from engine.data.values import Value
from engine.database.sharing import _may_have_no_value
from engine.errors import EvaluationError, ProgramSyntaxError, TypeMismatchError
from engine.language import rdf_terms
from engine.language.check import check_rule
from engine.language.parser import parse_rules
from engine.language.syntax import Comparison
from service.sparql.terms import stored
from tests.expressions.evaluation import INT_MAX, INT_MIN, parsed, term
from zedlog import Reasoner

XSD = "http://www.w3.org/2001/XMLSchema#"
# pyoxigraph escapes two characters that imports, and therefore these functors, leave as they are.
NOT_ESCAPED = "\ufffe\uffff"
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters=NOT_ESCAPED), max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
EVERY = [chr(code) for code in range(0x11000) if not 0xD800 <= code < 0xE000]


@pytest.mark.parametrize(
    ("text", "symbol"),
    [
        ('rdf_iri("http://e/{}", 42)', "<http://e/42>"),
        ('rdf_iri("http://e/{}", -1.5)', "<http://e/-1.5E0>"),
        ('rdf_iri("http://e/{}", true)', "<http://e/true>"),
        ('rdf_iri("urn:x:{}:{}#y", "a", "b")', "<urn:x:a:b#y>"),
        ('rdf_iri("http://e/x")', "<http://e/x>"),
        ('rdf_iri(cat("http://", "e/x"))', "<http://e/x>"),
        # The examples of R2RML, section 7.3.
        ('rdf_iri("http://e/{}", "Hello World!")', "<http://e/Hello%20World%21>"),
        ('rdf_iri("http://e/{}", "2011-08-23T22:17:00Z")', "<http://e/2011-08-23T22%3A17%3A00Z>"),
        ('rdf_iri("http://e/{}", "~A_17.1-2")', "<http://e/~A_17.1-2>"),
        ('rdf_iri("http://e/{}", "葉篤義")', "<http://e/葉篤義>"),
        ('rdf_iri("http://e/{}", "100%/<b>\\"{}\\"?#")', "<http://e/100%25%2F%3Cb%3E%22%7B%7D%22%3F%23>"),
        ('rdf_iri("http://e/{}", "\ue000")', "<http://e/%EE%80%80>"),
        ('rdf_literal("")', '""'),
        ('rdf_literal("a\\n\\t\\"\\\\é😀")', '"a\\n\\t\\"\\\\é😀"'),
        ("rdf_literal(7)", f'"7"^^<{XSD}integer>'),
        (f"rdf_literal({INT_MIN})", f'"{INT_MIN}"^^<{XSD}integer>'),
        (f"rdf_literal({INT_MAX})", f'"{INT_MAX}"^^<{XSD}integer>'),
        ("rdf_literal(false)", f'"false"^^<{XSD}boolean>'),
        ("rdf_literal(0.0)", f'"0.0E0"^^<{XSD}double>'),
        ("rdf_literal(100.0)", f'"1.0E2"^^<{XSD}double>'),
        ("rdf_literal(-0.00125)", f'"-1.25E-3"^^<{XSD}double>'),
        ('rdf_literal("hi", "@EN-gb")', '"hi"@en-gb'),
        (f'rdf_literal("2001-02-03", "<{XSD}date>")', f'"2001-02-03"^^<{XSD}date>'),
        (f'rdf_literal("x", "<{XSD}string>")', '"x"'),
        (f'rdf_literal(7, "<{XSD}int>")', f'"7"^^<{XSD}int>'),
        (f'rdf_literal(100.0, "<{XSD}decimal>")', f'"100"^^<{XSD}decimal>'),
        (f'rdf_literal(1e-7, "<{XSD}decimal>")', f'"0.0000001"^^<{XSD}decimal>'),
    ],
)
def test_by_hand(text: str, symbol: str) -> None:
    assert term(text) == [symbol]


@given(rows=st.lists(texts, min_size=1, max_size=8))
def test_texts_are_what_pyoxigraph_writes(rows: list[str]) -> None:
    assert term("rdf_literal(s)", s=rows) == [str(Literal(text)) for text in rows]
    tagged = [str(Literal(text, language="de-at")) for text in rows]
    assert term('rdf_literal(s, "@de-AT")', s=rows) == tagged
    typed = [str(Literal(text, datatype=NamedNode("urn:t"))) for text in rows]
    assert term('rdf_literal(s, "<urn:t>")', s=rows) == typed


def test_every_character_of_the_first_planes() -> None:
    escaped = [f'"{char}"' if char in NOT_ESCAPED else str(Literal(char)) for char in EVERY]
    assert term("rdf_literal(s)", s=EVERY) == escaped
    symbols = term('rdf_iri("http://e/{}", s)', s=EVERY)
    for char, symbol in zip(EVERY, symbols, strict=True):
        part = symbol.removeprefix("<http://e/").removesuffix(">")
        assert unquote(part) == char
        assert part in (char, quote(char, safe=""))
        # Left as they are: letters and digits of ASCII and four signs; beyond ASCII all but controls and private use.
        kept = re.fullmatch("[A-Za-z0-9._~-]", char) or (
            ord(char) >= 0xA0 and unicodedata.category(char) != "Co"
        )
        noncharacter = 0xFDD0 <= ord(char) <= 0xFDEF or (ord(char) >= 0xFFF0 and ord(char) <= 0xFFFF)
        assert (part == char) == bool(kept and not noncharacter), hex(ord(char))


@given(rows=st.lists(st.tuples(texts, texts), min_size=1, max_size=6))
def test_iris_are_terms_that_can_be_read_back(rows: list[tuple[str, str]]) -> None:
    a, b = zip(*rows, strict=True)
    for symbol, (x, y) in zip(term('rdf_iri("http://e/{}/x/{}#z", a, b)', a=a, b=b), rows, strict=True):
        # Not lenient: the parser checks the IRI.
        (read,) = parse(f"<urn:s> <urn:p> {symbol} .", format=RdfFormat.N_TRIPLES)
        assert str(read.object) == symbol
        found = re.fullmatch(r"<http://e/([^/]*)/x/([^/#]*)#z>", symbol)
        assert found
        assert (unquote(found[1]), unquote(found[2])) == (x, y)
        assert stored(symbol) == symbol


@given(rows=st.lists(finite, min_size=1, max_size=8))
def test_floats_keep_their_value(rows: list[float]) -> None:
    rows = [x + 0.0 for x in rows]
    for symbol, value in zip(term("rdf_literal(x)", x=rows), rows, strict=True):
        found = re.fullmatch(rf'"(-?[0-9]\.[0-9]+E-?[0-9]+)"\^\^<{re.escape(XSD)}double>', symbol)
        assert found
        assert float(found[1]) == value
        assert RdflibLiteral(found[1], datatype=f"{XSD}double").value == value
        assert stored(symbol) is not None
    decimals = term(f'rdf_literal(x, "<{XSD}decimal>")', x=rows)
    for symbol, value in zip(decimals, rows, strict=True):
        found = re.fullmatch(rf'"(-?[0-9]+(?:\.[0-9]*[1-9])?)"\^\^<{re.escape(XSD)}decimal>', symbol)
        assert found
        assert Decimal(found[1]) == Decimal(repr(value))


def test_rows_with_types_of_their_own() -> None:
    kinds = ["@en", f"<{XSD}decimal>", f"<{XSD}double>"]
    found = term("rdf_literal(x, t)", x=[0.5, 0.5, 0.5], t=kinds)
    assert found == ['"5.0E-1"@en', f'"0.5"^^<{XSD}decimal>', f'"5.0E-1"^^<{XSD}double>']
    templates = ["http://a/{}", "http://b/{}"]
    assert term("rdf_iri(t, n)", t=templates, n=[1, 2]) == ["<http://a/1>", "<http://b/2>"]


WRONG = [
    ("rdf_iri(s)", "x", "not an absolute IRI"),
    ("rdf_iri(s)", "http://e/a b", "not an absolute IRI"),
    ("rdf_iri(s)", "<http://e/>", "not an absolute IRI"),
    ("rdf_iri(s)", "http://e/{}", "has 1 {}, not 0"),
    ("rdf_iri(s, 1)", "http://e/", "has 0 {}, not 1"),
    ("rdf_iri(s, 1)", "{}:x", "not an absolute IRI"),
    ('rdf_literal("x", s)', "en", "neither an IRI"),
    ('rdf_literal("x", s)', "", "neither an IRI"),
    ('rdf_literal("x", s)', "@", "neither an IRI"),
    ('rdf_literal("x", s)', "@toolonglanguage", "neither an IRI"),
    ('rdf_literal("x", s)', "<date>", "neither an IRI"),
    ('rdf_literal("x", s)', "<http://www.w3.org/1999/02/22-rdf-syntax-ns#langString>", "has a language"),
]


@pytest.mark.parametrize(("text", "value", "reason"), WRONG)
def test_what_has_no_value(text: str, value: str, reason: str) -> None:
    with pytest.raises(EvaluationError, match=re.escape(reason)):
        term(text, s=[value])


@pytest.mark.parametrize(("text", "value", "reason"), WRONG)
def test_a_constant_that_is_wrong_is_refused_with_the_rule(text: str, value: str, reason: str) -> None:
    constant = text.replace("(s", f'("{value}"').replace(", s)", f', "{value}")')
    (rule,) = parse_rules(f"r() :- q(x), y = {constant}.")
    with pytest.raises(ProgramSyntaxError, match=re.escape(reason)) as refused:
        check_rule(rule)
    assert refused.value.detail["column"] == 18


def _comparison(text: str) -> Comparison:
    return parsed(f"x = {text}")


@pytest.mark.parametrize(
    ("text", "fallible"),
    [
        ("rdf_literal(s)", False),
        ('rdf_literal(s, "@en")', False),
        ("rdf_literal(s, t)", True),
        ('rdf_iri("http://e/{}", s)', False),
        ("rdf_iri(s)", True),
        ("rdf_iri(s, t)", True),
    ],
)
def test_what_may_refuse_an_epoch(text: str, fallible: bool) -> None:
    """Only what depends on values: transactions whose mapping cannot fail may share an epoch."""
    assert can_fail(_comparison(text)) == fallible
    assert _may_have_no_value(_comparison(text)) == fallible


def test_types() -> None:
    reasoner = Reasoner(threads=1)
    reasoner.apply(
        rules=[("t(rdf_iri(s, n), rdf_literal(n, d)) :- r(s, n, d).", 1)],
        facts={"r": [(("urn:{}", 1, "@en"), 1)]},
    )
    assert list(reasoner.facts("t")) == [("<urn:1>", '"1"@en')]
    with pytest.raises(TypeMismatchError, match="rdf_iri needs a symbol here, but 7 is a number"):
        reasoner.apply(rules=[("u(rdf_iri(7)) :- r(_, _, _).", 1)])
    with pytest.raises(TypeMismatchError, match="rdf_literal needs a symbol here, but true is a bool"):
        reasoner.apply(rules=[("u(rdf_literal(s, true)) :- r(s, _, _).", 1)])


def test_a_value_without_an_iri_refuses_the_transaction_and_changes_nothing() -> None:
    reasoner = Reasoner(threads=1)
    reasoner.apply(rules=[("t(rdf_iri(s)) :- r(s).", 1)], facts={"r": [(("http://e/",), 1)]})
    with pytest.raises(EvaluationError, match="not an absolute IRI"):
        reasoner.apply(facts={"r": [(("nowhere",), 1)]})
    assert list(reasoner.facts("t")) == [("<http://e/>",)]


def test_half_of_a_surrogate_pair_from_an_older_state() -> None:
    values: list[Value] = ["a\ud800"]
    assert term('rdf_iri("http://e/{}", s)', s=values) == ["<http://e/a%ED%A0%80>"]
    assert term("rdf_literal(s)", s=values) == ['"a\ud800"']
    with pytest.raises(ValueError, match="not an absolute IRI"):
        rdf_terms.iri("http://e/\ud800", ())
