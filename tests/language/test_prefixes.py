"""Prefixes in program text: what a prefixed name stands for, and that texts without one parse as they did before."""

from __future__ import annotations

import random
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from lark import Lark
from lark.exceptions import LarkError

from engine.errors import DeclarationError, ProgramError, ProgramSyntaxError, UnknownPrefixError
from engine.language.builder import TreeBuilder
from engine.language.canonical import canonical_text, format_rule, rule_id
from engine.language.parser import (
    expanded,
    expanded_query,
    parse_declarations,
    parse_goal,
    parse_prefixes,
    parse_program,
    parse_query,
    parse_rules,
)
from engine.language.parts import Fault
from engine.language.prefixes import ANY_PREFIX, NO_PREFIXES, WELL_KNOWN, Shortener, may_use_prefixes, reading

ROOT = Path(__file__).parents[2]
RDF = WELL_KNOWN["rdf"]
EX = {"ex": "http://example.org/", "": "http://default.org#", "rdf": RDF}


def constants(text: str, prefixes: dict[str, str] = EX) -> list[Any]:
    return [getattr(term, "value", None) for term in parse_goal(text, prefixes).terms]


@pytest.mark.parametrize(
    ("name", "symbol"),
    [
        ("rdf:type", f"<{RDF}type>"),
        ("ex:a", "<http://example.org/a>"),
        (":a", "<http://default.org#a>"),
        ("ex:a-b", "<http://example.org/a-b>"),
        ("ex:a.b", "<http://example.org/a.b>"),
        ("ex:1_2", "<http://example.org/1_2>"),
        ("ex:%41b", "<http://example.org/%41b>"),
        ("ex:größe", "<http://example.org/größe>"),
        ("ex:count", "<http://example.org/count>"),
        ("ex:true", "<http://example.org/true>"),
    ],
)
def test_a_prefixed_name_is_the_symbol_that_an_import_stores(name: str, symbol: str) -> None:
    assert constants(f"t({name}, x)")[0] == symbol
    assert constants(f"t(x,{name})")[1] == symbol


def test_facts_rules_queries_and_goals() -> None:
    text = """
        .prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>
        .prefix : <http://x/>
        .decl triple(s: symbol, p: symbol, o: symbol)
        triple(:a, rdf:type, :C).
        in_c(x) :- triple(x, rdf:type, :C), x != :b, !triple(:a, :p, x), n = count:{ triple(_, rdf:type, :C) }.
    """
    plain = f"""
        .decl triple(s: symbol, p: symbol, o: symbol)
        triple("<http://x/a>", "<{RDF}type>", "<http://x/C>").
        in_c(x) :- triple(x, "<{RDF}type>", "<http://x/C>"), x != "<http://x/b>",
            !triple("<http://x/a>", "<http://x/p>", x), n = count:{{ triple(_, "<{RDF}type>", "<http://x/C>") }}.
    """
    program, same = parse_program(text), parse_program(plain)
    assert program.facts == same.facts
    assert [rule_id(rule) for rule in program.rules] == [rule_id(rule) for rule in same.rules]
    assert [canonical_text(rule) for rule in program.rules] == [canonical_text(rule) for rule in same.rules]
    assert [format_rule(rule) for rule in program.rules] == [format_rule(rule) for rule in same.rules]
    assert program.prefixes == {"rdf": RDF, "": "http://x/"}
    assert parse_query("t(x, rdf:type), x != ex:a", EX) == parse_query(
        f't(x, "<{RDF}type>"), x != "<http://example.org/a>"'
    )
    assert parse_query("q(x, ex:a) :- t(x)", EX) == parse_query('q(x, "<http://example.org/a>") :- t(x)')


def test_what_stands_in_an_aggregate_is_an_atom_and_not_a_prefixed_name() -> None:
    for text in (
        "p(n) :- n = count:e(_, _).",
        "p(n) :- n = sum x:e(x, _).",
        "p(n) :- n = sum x :e(x, _).",
        "p(n) :- n = max x:e.inner(x, _).",
        "p(n) :- n = min x:e /* of all */ (x, _).",
        "p(n) :- n = min x:e // of all\n (x, _).",
        "p(n) :- n = min a-b:e(a, b).",
        "p(n) :- n = count:{e(_, _)}.",
    ):
        assert parse_rules(text) == parse_rules(text.replace(":e", " : e").replace("  ", " "))
        assert not list(re.finditer("<", canonical_text(parse_rules(text, ANY_PREFIX)[0])))


def test_a_name_may_end_a_clause() -> None:
    rules = parse_program(
        ".prefix ex: <http://e/>\np(x) :- q(x), x = ex:a.\np(x) :- q(x), x = ex:b. p(ex:c)."
    )
    assert [rule.body[1].right.value for rule in rules.rules] == ["<http://e/a>", "<http://e/b>"]  # type: ignore[union-attr]
    assert rules.facts[0].terms[0].value == "<http://e/c>"  # type: ignore[union-attr]


def test_errors_say_where_and_what_to_do() -> None:
    with pytest.raises(UnknownPrefixError) as unknown:
        parse_query("t(x),\n x = rdf:type")
    assert "declare it with .prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#>" in str(unknown.value)
    assert (unknown.value.detail["line"], unknown.value.detail["column"]) == (2, 6)
    with pytest.raises(UnknownPrefixError, match="did you mean ex2:"):
        parse_query("t(ex1:a)", {"ex2": "http://e/"})
    with pytest.raises(DeclarationError, match="declared twice"):
        parse_program(".prefix a: <http://x/>\n.prefix a: <http://y/>")
    with pytest.raises(DeclarationError, match="absolute IRI"):
        parse_program(".prefix a: <x>")
    with pytest.raises(UnknownPrefixError):
        parse_program("p(a:b).\n.prefix a: <http://x/>")
    with pytest.raises(ProgramSyntaxError, match="an IRI such as"):
        parse_program('.prefix a: "http://x/"')
    with pytest.raises(ProgramSyntaxError, match="a prefix such as"):
        parse_program(".prefix <http://x/>")


def test_declarations_may_hold_prefixes() -> None:
    text = ".prefix a: <http://x/>\n.decl p(x: symbol)"
    assert [d.relation for d in parse_declarations(text)] == ["p"]
    assert parse_prefixes(text) == {"a": "http://x/"}
    assert parse_prefixes(".decl p(x: symbol)") == {}


@pytest.mark.parametrize(
    "text",
    [
        'p(x) :- q(x, ex:a, "ex:b"). // ex:c',
        "p(x) :- q(x), x != ex:a ; r(ex:b, x).",
        "p(x) :- /* ex:a */ q(x, ex:a-b.c).",
        "p(x) :- q(x), x<ex:a, x!=:b, x< :c, x>:d.",
    ],
)
def test_expanded_text_says_the_same_without_prefixes_and_shortens_to_itself(text: str) -> None:
    whole = expanded(text, EX)
    assert parse_rules(whole) == parse_rules(text, EX)
    assert 'ex:b"' in whole or 'ex:b"' not in text
    assert Shortener(EX).text(whole) == text


def test_a_shortened_text_can_be_parsed_where_an_empty_prefix_would_join_what_stands_before_it() -> None:
    text = 'p(x) :- q(x), x<"<http://default.org#a>".'
    assert Shortener(EX).text(text) == text
    assert Shortener(EX).text(text.replace("x<", "x>")) == "p(x) :- q(x), x>:a."


def test_text_without_names_is_not_touched() -> None:
    text = 'p(x) :- q(x, "a:b"), n = sum y:q(y).'
    assert expanded(text, NO_PREFIXES) is text
    assert expanded_query("q(x)", NO_PREFIXES) == "q(x)"
    assert not may_use_prefixes("p(x) :- q(x).")


def test_shortened_symbols() -> None:
    short = Shortener({"a": "http://x/", "ab": "http://x/b#", "xsd": WELL_KNOWN["xsd"]})
    assert short.symbol("<http://x/y>") == "a:y"
    assert short.symbol("<http://x/b#y>") == "ab:y"
    assert short.symbol("<http://x/b/y>") == "<http://x/b/y>"
    assert short.symbol("<http://x/>") == "<http://x/>"
    assert short.symbol("<http://x/y.>") == "<http://x/y.>"
    assert short.symbol(f'"1"^^<{WELL_KNOWN["xsd"]}integer>') == '"1"^^xsd:integer'
    assert short.symbol('"<http://x/y>"') == '"<http://x/y>"'
    assert short.symbol('"a"@en') == '"a"@en'
    assert short.row(("<http://x/y>", 1, True)) == ("a:y", 1, True)


# ---- texts without prefixes parse as they did


@cache
def former() -> Lark:
    """The parser of a grammar without prefixes, and without mappings, which use them."""
    grammar = resources.files("engine.language").joinpath("grammar.lark").read_text(encoding="utf-8")
    grammar = grammar.replace("| declaration | prefix | mapping |", "| declaration |").replace(
        "STRING | PREFIXED |", "STRING |"
    )
    later = r"prefix:|PREFIX|IRI:"
    later += r"|(?:mapping|mapped|property|_subject|_predicate|_object|_node|literal):"
    later += r"|(?:RDF\.3|A|TEMPLATE|DATATYPE\.3|LANGUAGE):"
    lines = [line for line in grammar.split("\n") if not re.match(later, line)]
    assert len(lines) == grammar.count("\n") - 17
    return Lark(
        "\n".join(lines), parser="lalr", lexer="contextual", start=["program"], transformer=TreeBuilder()
    )


def parsed(parser: Lark, text: str) -> Any:
    try:
        with reading(ANY_PREFIX):
            return parser.parse(text, start="program")
    except (LarkError, Fault):
        return None


def programs() -> list[str]:
    found = [*(ROOT / "tests" / "programs").glob("*/program.dl"), *(ROOT / "programs").glob("*.dl")]
    assert len(found) > 20
    aggregates = [
        "p(n, x) :- q(x), n = sum y:e(x, y), m = count:e(x, _), k = min y+1 : { e(x, y), y > 2 }.",
        ".decl e(x:number, y:number) .decl f.g(x:symbol)\np(x) :- n=max y-x:f.g(y), q(n, x). p(x):-q(x);r(x).",
        '.type T = number .input e(IO="file", a=b, filename="a:b") p(mean(x)) :- e(x, y), x = mean y:e(y, _).',
    ]
    return [path.read_text(encoding="utf-8") for path in found] + aggregates * 10


PIECE = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*\n|/\*.*?\*/|\.?\w+|:-|<=|>=|!=|<:|\s+|.', re.DOTALL)


def respelled(text: str, rng: random.Random) -> str:
    """The text with other white space and comments, and perhaps with a piece less, twice, or from elsewhere."""
    pieces = PIECE.findall(text)
    for _ in range(rng.choice([0, 0, 0, 1, 2])):
        place = rng.randrange(len(pieces))
        pieces[place] = rng.choice(["", pieces[place] * 2, rng.choice(pieces), ":", "x:y", "("])
    gaps = rng.choice([["", " "], ["", "", "\n"], ["/* a:b */", "", "\t"]])
    return "".join(rng.choice(gaps) if piece.isspace() and rng.random() < 0.3 else piece for piece in pieces)


def test_fuzz_old_programs_parse_exactly_as_before() -> None:
    from engine.language.parser import _lark

    seed = random.randrange(2**32)
    rng = random.Random(seed)
    now, same = _lark(("program", "goal")), 0
    for text in programs():
        pieces = text if len(text) < 4_000 else text[:4_000].rpartition("\n\n")[0]
        for variant in (text, *(respelled(pieces, rng) for _ in range(8))):
            before = parsed(former(), variant)
            if before is not None:
                same += 1
                assert parsed(now, variant) == before, f"seed {seed}: {variant}"
    assert same > 150


def test_fuzz_any_text_is_a_program_or_an_error() -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    pieces = [
        "ex:a",
        ":a",
        "ex:",
        ":-",
        "p(",
        ")",
        ".",
        "x",
        " ",
        '"<a>"',
        "<http://x/>",
        ".prefix ",
        "sum x:",
        ",",
    ]
    for _ in range(2_000):
        text = "".join(rng.choices(pieces, k=rng.randrange(1, 12)))
        try:
            program = parse_program(text, EX)
        except ProgramError:
            continue
        assert parse_program(expanded(text, EX)).rules == program.rules, f"seed {seed}: {text}"
