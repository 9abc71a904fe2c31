"""The axioms of an ontology as Datalog rules over triple(s, p, o): OWL 2 RL, compiled.

In: a graph. Out: `Compiled`: rules, each under the axiom that it comes from, and the axioms that give no rule. Always:
a rule derives what the rules of the OWL 2 RL profile (W3C, OWL 2 Profiles, section 4.3, tables 4 to 7) derive about
named individuals from that axiom. Equality, disjointness and cardinality are not covered; such axioms are listed.

An expression becomes part of a body or a head instead of a class of its own: `Chair = Person and headOf some
Department` is one rule with four atoms, and no individual gets an unnamed class as its type. So a condition is joined
where it is used, and only membership in named classes is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from engine.language.constants import write_constant
from engine.language.schema import ColumnType
from engine.ontology import vocabulary as v
from engine.ontology.expressions import (
    AllValues,
    Class,
    Defined,
    Graph,
    HasValue,
    Intersection,
    Named,
    OneOf,
    Other,
    Property,
    SomeValues,
    Union,
)
from engine.ontology.vocabulary import local_name


@dataclass(slots=True)
class Compiled:
    """`clauses` are (axiom in words, the text of its rules and facts); `not_covered` names axioms that have none, each
    once; `ambiguous` are blank nodes that have several definitions."""

    clauses: list[tuple[str, list[str]]] = field(default_factory=list)
    not_covered: dict[str, None] = field(default_factory=dict)
    ambiguous: list[str] = field(default_factory=list)


class NoRule(Exception):
    """OWL 2 RL has no rule for an expression in this place; the message names it."""


def compile_axioms(graph: Graph) -> Compiled:
    """All axioms, in the order of the graph's triples.

    Raises:
        InvalidRequestError: the triples of a list or of an expression are broken.
    """
    return _Compiler(graph).compiled()


def _quoted(term: str) -> str:
    return write_constant(term, ColumnType.SYMBOL)


def _triple(s: str, p: str, o: str) -> str:
    """An atom; `s` and `o` are variables or quoted, `p` is a term."""
    return f"triple({s}, {_quoted(p)}, {o})"


def _edge(prop: Property, x: str, y: str) -> str:
    return _triple(y, prop.iri, x) if prop.inverted else _triple(x, prop.iri, y)


class _Compiler:
    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._result = Compiled()
        self._seen: set[str] = set()

    def compiled(self) -> Compiled:
        defined: set[str] = set()
        for s, p, o in self._graph.triples:
            if not s.startswith("_:") and p in (v.INTERSECTION, v.UNION, v.ONE_OF, v.ON_PROPERTY):
                # A name with a definition of its own; all of it at once.
                if s not in defined:
                    defined.add(s)
                    for expression in self._graph.definitions(s):
                        self._equivalent(Named(s), expression)
            elif p == v.SUB_CLASS:
                self._sub_class(self._graph.class_of(s), self._graph.class_of(o), "SubClassOf")
            elif p == v.EQUIVALENT_CLASS:
                self._equivalent(self._graph.class_of(s), self._graph.class_of(o))
            elif p == v.TYPE:
                self._typed(s, o)
            elif p in v.NOT_COVERED_PREDICATES and not s.startswith("_:"):
                self._result.not_covered[f"{local_name(s)} {local_name(p)} {local_name(o)}"] = None
            else:
                self._property_axiom(s, p, o)
        self._result.ambiguous = sorted(self._graph.ambiguous)
        return self._result

    # ---- properties

    def _typed(self, s: str, o: str) -> None:
        if o == v.TRANSITIVE:
            prop = self._graph.property(s)
            self._add(
                f"{prop} is transitive",
                [f"{_edge(prop, 'x', 'z')} :- {_edge(prop, 'x', 'y')}, {_edge(prop, 'y', 'z')}."],
            )
        elif o == v.SYMMETRIC:
            prop = self._graph.property(s)
            self._add(f"{prop} is symmetric", [f"{_edge(prop, 'y', 'x')} :- {_edge(prop, 'x', 'y')}."])
        elif o in v.NOT_COVERED_TYPES:
            self._result.not_covered[f"{local_name(s)} is a {local_name(o)}"] = None

    def _property_axiom(self, s: str, p: str, o: str) -> None:
        if p == v.SUB_PROPERTY:
            self._sub_property(s, o, "SubPropertyOf")
        elif p == v.EQUIVALENT_PROPERTY:
            self._sub_property(s, o, "EquivalentTo")
            self._sub_property(o, s, "EquivalentTo")
        elif p == v.INVERSE and not s.startswith("_:"):
            # A blank subject is an expression, not an axiom.
            one, other = self._graph.property(s), self._graph.property(o)
            self._add(
                f"{one} InverseOf {other}",
                [
                    f"{_edge(other, 'y', 'x')} :- {_edge(one, 'x', 'y')}.",
                    f"{_edge(one, 'y', 'x')} :- {_edge(other, 'x', 'y')}.",
                ],
            )
        elif p in (v.DOMAIN, v.RANGE):
            self._domain_or_range(self._graph.property(s), p, self._graph.class_of(o))
        elif p == v.CHAIN:
            for items in self._graph.lists(o):
                self._chain(self._graph.property(s), [self._graph.property(item) for item in items])

    def _sub_property(self, sub: str, super_: str, word: str) -> None:
        one, other = self._graph.property(sub), self._graph.property(super_)
        self._add(f"{one} {word} {other}", [f"{_edge(other, 'x', 'y')} :- {_edge(one, 'x', 'y')}."])

    def _domain_or_range(self, prop: Property, p: str, target: Class) -> None:
        axiom = f"{prop} {local_name(p)} {target}"
        subject, body = ("x", _edge(prop, "x", "y")) if p == v.DOMAIN else ("y", _edge(prop, "x", "y"))
        self._conclude(axiom, subject, [body], target)

    def _chain(self, prop: Property, links: Sequence[Property]) -> None:
        axiom = f"{' o '.join(map(str, links))} SubPropertyOf {prop}"
        if not links:
            self._result.not_covered[axiom] = None
            return
        body = [_edge(link, f"x{i}", f"x{i + 1}") for i, link in enumerate(links)]
        self._add(axiom, [f"{_edge(prop, 'x0', f'x{len(links)}')} :- {', '.join(body)}."])

    # ---- classes

    def _equivalent(self, one: Class, other: Class) -> None:
        self._sub_class(one, other, "EquivalentTo")
        self._sub_class(other, one, "EquivalentTo")

    def _sub_class(self, sub: Class, super_: Class, word: str) -> None:
        axiom = f"{sub} {word} {super_}"
        if isinstance(sub, OneOf):
            self._members(axiom, sub, super_)
            return
        try:
            body = _Bodies().condition(sub, "x")
        except NoRule as reason:
            self._result.not_covered[f"{axiom}: {reason}"] = None
            return
        self._conclude(axiom, "x", [body], super_)

    def _members(self, axiom: str, sub: OneOf, super_: Class) -> None:
        """The members of an enumeration are known: they become facts, or rules without a variable for the member."""
        for value in sub.values:
            self._conclude(axiom, _quoted(value), [], super_)

    def _conclude(self, axiom: str, subject: str, body: list[str], target: Class) -> None:
        """Add what follows for `subject`, a variable or a quoted term, where the body holds."""
        clauses = []
        for result in _heads(subject, body, target, count(1)):
            if isinstance(result, NoRule):
                self._result.not_covered[f"{axiom}: {result}"] = None
            else:
                head, conditions = result
                if [head] != conditions:
                    clauses.append(f"{head} :-\n    {', '.join(conditions)}." if conditions else f"{head}.")
        self._add(axiom, clauses)

    def _add(self, axiom: str, clauses: list[str]) -> None:
        new = [clause for clause in dict.fromkeys(clauses) if clause not in self._seen]
        self._seen.update(new)
        if not new:
            return
        if self._result.clauses and self._result.clauses[-1][0] == axiom:
            self._result.clauses[-1][1].extend(new)
        else:
            self._result.clauses.append((axiom, new))


class _Bodies:
    """Class expressions as conditions on a variable; further variables are y1, y2, ..."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def condition(self, expression: Class, x: str) -> str:
        """The condition as text of a body.

        Raises:
            NoRule: the expression is not allowed on the left side of an inclusion.
        """
        match expression:
            case Named(v.THING):
                raise NoRule("owl:Thing as a condition would hold for everything")
            case Named(iri):
                return _triple(x, v.TYPE, _quoted(iri))
            case Intersection(()) | Union(()):
                raise NoRule("an empty list of classes")
            case Intersection(parts):
                # owl:Thing adds nothing to a conjunction.
                real = [part for part in parts if part != Named(v.THING)] or list(parts)
                return ", ".join(self.condition(part, x) for part in real)
            case Union(parts) | Defined(parts):
                return f"({'; '.join(self.condition(part, x) for part in parts)})"
            case SomeValues(prop, Named(v.THING)):
                return _edge(prop, x, "_")
            case SomeValues(prop, OneOf(values)) if values:
                return f"({'; '.join(_edge(prop, x, _quoted(value)) for value in values)})"
            case SomeValues(prop, filler):
                y = f"y{next(self._numbers)}"
                return f"{_edge(prop, x, y)}, {self.condition(filler, y)}"
            case HasValue(prop, value):
                return _edge(prop, x, _quoted(value))
            case AllValues() | OneOf() | Other():
                raise NoRule(f"{expression} as a condition")


def _heads(
    x: str, body: list[str], target: Class, numbers: Iterator[int]
) -> Iterator[tuple[str, list[str]] | NoRule]:
    """(head, body) of each rule that makes `x` a member of `target`, or why there is none."""
    match target:
        case Named(v.THING):
            # True of everything, so not worth a triple.
            return
        case Named(iri):
            yield _triple(x, v.TYPE, _quoted(iri)), body
        case Intersection(parts) | Defined(parts):
            for part in parts:
                yield from _heads(x, body, part, numbers)
        case HasValue(prop, value):
            yield _edge(prop, x, _quoted(value)), body
        case AllValues(prop, filler):
            z = f"z{next(numbers)}"
            yield from _heads(z, [*body, _edge(prop, x, z)], filler, numbers)
        case SomeValues() | Union() | OneOf() | Other():
            yield NoRule(f"{target} as a conclusion")
