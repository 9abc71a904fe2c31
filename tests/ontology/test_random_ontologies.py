"""Random ontologies of the OWL 2 RL profile: the compiled rules derive what owlrl derives, no more, no less."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ontology.graphs import assertions, closure, owlrl_closure, turtle

EX = "http://example.org/"
CLASSES, PROPERTIES, INDIVIDUALS = [":A", ":B", ":C", ":D"], [":p", ":q", ":r"], [":x", ":y", ":z"]
CLASS, PROPERTY, INDIVIDUAL = map(st.sampled_from, (CLASSES, PROPERTIES, INDIVIDUALS))


def joined(word: str, parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(parts, min_size=2, max_size=3).map(lambda found: f"[ owl:{word} ( {' '.join(found)} ) ]")


def restriction(word: str, fillers: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(PROPERTY, fillers).map(
        lambda pair: f"[ owl:onProperty {pair[0]} ; owl:{word} {pair[1]} ]"
    )


# What the profile allows to the left and to the right of an inclusion.
LEFT = st.recursive(
    CLASS | restriction("hasValue", INDIVIDUAL),
    lambda inner: (
        joined("intersectionOf", inner) | joined("unionOf", inner) | restriction("someValuesFrom", inner)
    ),
    max_leaves=4,
)
RIGHT = st.recursive(
    CLASS | restriction("hasValue", INDIVIDUAL),
    lambda inner: joined("intersectionOf", inner) | restriction("allValuesFrom", inner),
    max_leaves=3,
)
BOTH = CLASS | restriction("hasValue", INDIVIDUAL) | joined("intersectionOf", CLASS)


def said(first: st.SearchStrategy[str], word: str, second: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(first, second).map(lambda pair: f"{pair[0]} {word} {pair[1]} .")


AXIOM = st.one_of(
    said(LEFT, "rdfs:subClassOf", RIGHT),
    said(BOTH, "owl:equivalentClass", BOTH),
    said(PROPERTY, "rdfs:subPropertyOf", PROPERTY),
    said(PROPERTY, "owl:equivalentProperty", PROPERTY),
    said(PROPERTY, "owl:inverseOf", PROPERTY),
    said(PROPERTY, "a", st.sampled_from(["owl:TransitiveProperty", "owl:SymmetricProperty"])),
    said(PROPERTY, "rdfs:domain", RIGHT),
    said(PROPERTY, "rdfs:range", RIGHT),
    said(
        PROPERTY, "owl:propertyChainAxiom", st.tuples(PROPERTY, PROPERTY).map(lambda p: f"( {p[0]} {p[1]} )")
    ),
)
ASSERTION = st.one_of(
    st.tuples(INDIVIDUAL, CLASS).map(lambda t: f"{t[0]} a {t[1]} ."),
    st.tuples(INDIVIDUAL, PROPERTY, INDIVIDUAL).map(lambda t: f"{' '.join(t)} ."),
)


@settings(max_examples=40)
@given(st.lists(AXIOM, min_size=1, max_size=6), st.lists(ASSERTION, min_size=1, max_size=5))
def test_oracle_owlrl_agrees(axioms: list[str], facts: list[str]) -> None:
    # Declared, so that owlrl takes each name for what it is.
    declared = [f"{c} a owl:Class ." for c in CLASSES] + [f"{p} a owl:ObjectProperty ." for p in PROPERTIES]
    triples = turtle("\n".join([*declared, *axioms, *facts]))

    def about_individuals(found: set[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
        named = {f"<{EX}{name[1:]}>" for name in INDIVIDUALS}
        return {t for t in assertions(found, EX) if t[0] in named}

    assert about_individuals(closure(triples)) == about_individuals(owlrl_closure(triples))
