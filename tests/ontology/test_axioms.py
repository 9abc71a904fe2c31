"""Each kind of axiom in a small ontology: what it derives, by hand, and that owlrl agrees."""

from __future__ import annotations

import pytest

from engine.errors import InvalidRequestError
from engine.ontology.program import compile_ontology
from tests.ontology.graphs import assertions, closure, owlrl_closure, turtle

EX = "http://example.org/"


def derived(text: str) -> set[str]:
    """The assertions that are not in the text, in short."""
    triples = turtle(text)
    found = assertions(closure(triples), EX)
    assert found == assertions(owlrl_closure(triples), EX), "owlrl derives something else"
    return {short(*t) for t in found - set(triples)}


def short(s: str, p: str, o: str) -> str:
    names = [t.removeprefix(f"<{EX}").removesuffix(">") for t in (s, p, o)]
    return " ".join("a" if "rdf-syntax-ns#type" in n else n for n in names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (":C rdfs:subClassOf :D . :D rdfs:subClassOf :E . :x a :C .", {"x a D", "x a E"}),
        (":C owl:equivalentClass :D . :x a :C . :y a :D .", {"x a D", "y a C"}),
        (":p rdfs:subPropertyOf :q . :x :p :y .", {"x q y"}),
        (":p owl:equivalentProperty :q . :x :p :y . :y :q :z .", {"x q y", "y p z"}),
        (":p owl:inverseOf :q . :x :p :y . :u :q :v .", {"y q x", "v p u"}),
        (":p a owl:TransitiveProperty . :x :p :y . :y :p :z . :z :p :w .", {"x p z", "y p w", "x p w"}),
        (":p a owl:SymmetricProperty . :x :p :y .", {"y p x"}),
        (":p rdfs:domain :C . :p rdfs:range :D . :x :p :y .", {"x a C", "y a D"}),
        (
            ":p owl:propertyChainAxiom ( :q [ owl:inverseOf :r ] ) . :x :q :y . :z :r :y .",
            {"x p z"},
        ),
        (
            ":C owl:equivalentClass [ owl:intersectionOf ( :D :E ) ] . :x a :C . :y a :D, :E . :z a :D .",
            {"x a D", "x a E", "y a C"},
        ),
        # As OWL 1 wrote it: the name itself has the list.
        (":C owl:intersectionOf ( :D :E ) . :x a :C . :y a :D, :E .", {"x a D", "x a E", "y a C"}),
        (":C owl:unionOf ( :D :E ) . :x a :C . :y a :D . :z a :E .", {"y a C", "z a C"}),
        (
            "[ owl:onProperty :p ; owl:someValuesFrom :D ] rdfs:subClassOf :C . :x :p :y . :y a :D . :z :p :x .",
            {"x a C"},
        ),
        ("[ owl:onProperty :p ; owl:someValuesFrom owl:Thing ] rdfs:subClassOf :C . :x :p :y .", {"x a C"}),
        (
            ":C owl:equivalentClass [ owl:onProperty :p ; owl:hasValue :v ] . :x a :C . :y :p :v . :z :p :w .",
            {"x p v", "y a C"},
        ),
        (
            ":C rdfs:subClassOf [ owl:onProperty :p ; owl:allValuesFrom :D ] . :x a :C ; :p :y . :z :p :w .",
            {"y a D"},
        ),
        (":C owl:oneOf ( :x :y ) . :C rdfs:subClassOf :D .", {"x a C", "y a C", "x a D", "y a D"}),
        (
            ":p rdfs:range [ owl:intersectionOf ( :C [ owl:onProperty :q ; owl:allValuesFrom :D ] ) ] ."
            " :x :p :y . :y :q :z .",
            {"y a C", "z a D"},
        ),
        (
            "[ owl:intersectionOf ( :A [ owl:onProperty :p ; owl:someValuesFrom [ owl:unionOf ( :B"
            " [ owl:onProperty :q ; owl:someValuesFrom :D ] ) ] ] ) ] rdfs:subClassOf :C ."
            " :x a :A ; :p :y . :y a :B . :u a :A ; :p :v . :v :q :w . :w a :D . :n a :A ; :p :w . :m :p :y .",
            {"x a C", "u a C"},
        ),
    ],
)
def test_axiom(text: str, expected: set[str]) -> None:
    assert derived(text) == expected


def test_literals_are_values_too() -> None:
    text = ':C owl:equivalentClass [ owl:onProperty :p ; owl:hasValue "say \\"hi\\""@en ] . :x :p "say \\"hi\\""@en .'
    assert derived(text) == {"x a C"}


def test_rules_stand_under_their_axioms() -> None:
    text, _ = compile_ontology(turtle(":C rdfs:subClassOf :D . :p owl:inverseOf :q ."), "onto.nt")
    lines = text.splitlines()
    assert lines[0] == "// OWL 2 RL rules of onto.nt: 2 axioms, 3 rules."
    start = lines.index("// C SubClassOf D")
    assert lines[start + 1 : start + 3] == [
        'triple(x, "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>", "<http://example.org/D>") :-',
        '    triple(x, "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>", "<http://example.org/C>").',
    ]
    assert "// p InverseOf q" in lines


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (":p a owl:FunctionalProperty .", "p is a FunctionalProperty"),
        (":C owl:disjointWith :D .", "C disjointWith D"),
        (":x owl:sameAs :y .", "x sameAs y"),
        (
            ":C rdfs:subClassOf [ owl:onProperty :p ; owl:someValuesFrom :D ] .",
            "C SubClassOf (p some D): (p some D) as a conclusion",
        ),
        (
            ":C rdfs:subClassOf [ owl:onProperty :p ; owl:maxCardinality 1 ] .",
            "C SubClassOf (maxCardinality): (maxCardinality) as a conclusion",
        ),
        (
            "[ owl:complementOf :C ] rdfs:subClassOf :D .",
            "(complementOf) SubClassOf D: (complementOf) as a condition",
        ),
        (
            "owl:Thing rdfs:subClassOf :D .",
            "Thing SubClassOf D: owl:Thing as a condition would hold for everything",
        ),
    ],
)
def test_an_axiom_without_a_rule_is_named(text: str, named: str) -> None:
    program, compiled = compile_ontology(turtle(text), "onto.nt")
    assert list(compiled.not_covered) == [named]
    assert compiled.clauses == []
    assert f"// - {named}\n" in program


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (":C owl:intersectionOf _:a . _:a rdf:first :D .", "lacks rdf:first or rdf:rest at _:a"),
        (":C owl:intersectionOf _:a . _:a rdf:first :D ; rdf:rest _:a .", "is circular"),
        (
            ":C rdfs:subClassOf _:a . _:a owl:onProperty :p ; owl:allValuesFrom _:a .",
            "the class _:a in the ontology is part of its own definition",
        ),
        ("_:p rdfs:domain :C .", "uses _:p as a property, but it is not the inverse of any"),
    ],
)
def test_a_broken_ontology_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        compile_ontology(turtle(text), "onto.nt")
    assert message in str(caught.value)


def test_a_blank_node_that_is_several_things_counts_in_every_reading() -> None:
    """As owlrl, too, applies the rules to a graph whose lists were merged."""
    text = """
    :C owl:intersectionOf _:l . _:l rdf:first :A, :B ; rdf:rest _:m . _:m rdf:first _:r ; rdf:rest () .
    _:r owl:onProperty :p, :q ; owl:someValuesFrom :D .
    :x a :A ; :p :d . :y a :B ; :q :d . :z a :C . :d a :D .
    """
    triples = turtle(text)
    found = {short(*t) for t in assertions(closure(triples), EX) - set(triples)}
    assert found == {"x a C", "y a C", "x a B", "y a A", "z a A", "z a B"}
    _, compiled = compile_ontology(triples, "onto.nt")
    assert compiled.ambiguous == sorted(
        node for node in {s for s, _, _ in triples} if node in ambiguous(triples)
    )


def ambiguous(triples: list[tuple[str, str, str]]) -> set[str]:
    """The cell with two members, and the restriction of two properties."""
    cells = [s for s, p, _ in triples if p.endswith(("#first>", "#onProperty>"))]
    return {s for s in cells if cells.count(s) > 1}


def test_a_term_cannot_leave_its_comment() -> None:
    from engine.language.parser import parse_program

    triples = [
        ("<http://e/a\u2028b>", "<http://www.w3.org/2000/01/rdf-schema#subClassOf>", '<http://e/"q*/c>')
    ]
    text, _ = compile_ontology(triples, "a\nb")
    (rule,) = parse_program(text).rules
    assert [str(t.value) for t in rule.head.terms if hasattr(t, "value")][1] == '<http://e/"q*/c>'
