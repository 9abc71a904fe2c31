"""The words of RDF, RDFS and OWL that axioms are written in, as terms in the syntax of N-Triples."""

from __future__ import annotations


def _rdf(name: str) -> str:
    return f"<http://www.w3.org/1999/02/22-rdf-syntax-ns#{name}>"


def _rdfs(name: str) -> str:
    return f"<http://www.w3.org/2000/01/rdf-schema#{name}>"


def owl(name: str) -> str:
    """An OWL term by its local name."""
    return f"<http://www.w3.org/2002/07/owl#{name}>"


TYPE, FIRST, REST, NIL = _rdf("type"), _rdf("first"), _rdf("rest"), _rdf("nil")
SUB_CLASS, SUB_PROPERTY = _rdfs("subClassOf"), _rdfs("subPropertyOf")
DOMAIN, RANGE = _rdfs("domain"), _rdfs("range")
EQUIVALENT_CLASS, EQUIVALENT_PROPERTY = owl("equivalentClass"), owl("equivalentProperty")
INVERSE, CHAIN = owl("inverseOf"), owl("propertyChainAxiom")
TRANSITIVE, SYMMETRIC = owl("TransitiveProperty"), owl("SymmetricProperty")
THING = owl("Thing")
INTERSECTION, UNION, ONE_OF = owl("intersectionOf"), owl("unionOf"), owl("oneOf")
ON_PROPERTY = owl("onProperty")
SOME, ALL, HAS_VALUE = owl("someValuesFrom"), owl("allValuesFrom"), owl("hasValue")

# Axioms of OWL 2 RL that say when things are equal, different or contradictory. They are named and passed over.
NOT_COVERED_PREDICATES = frozenset(
    map(
        owl,
        [
            "disjointWith",
            "propertyDisjointWith",
            "hasKey",
            "sameAs",
            "differentFrom",
            "disjointUnionOf",
            "complementOf",
        ],
    )
)
NOT_COVERED_TYPES = frozenset(
    map(
        owl,
        [
            "FunctionalProperty",
            "InverseFunctionalProperty",
            "AsymmetricProperty",
            "IrreflexiveProperty",
            "ReflexiveProperty",
            "AllDisjointClasses",
            "AllDisjointProperties",
            "AllDifferent",
            "NegativePropertyAssertion",
        ],
    )
)


def local_name(term: str) -> str:
    """The part of an IRI after its last `#` or `/`; other terms unchanged."""
    if not term.startswith("<"):
        return term
    name = term[1:-1]
    return name[max(name.rfind("#"), name.rfind("/")) + 1 :] or name or term
