"""Class and property expressions of OWL, read from the triples that describe them.

In: a graph. Out: a tree for each node that denotes a class. Always: the tree is finite (a node that is part of itself
is an error); an expression for which OWL 2 RL has no rule becomes `Other`, which says what it is.

Graphs that were merged carelessly (LUBM's own file is one) use one blank node for several things: a list has two first
members, a restriction two properties. The rules of OWL 2 RL hold for each reading, so all are taken: `Defined`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from engine.errors import InvalidRequestError
from engine.ontology import vocabulary as v
from engine.ontology.triples import Triple
from engine.ontology.vocabulary import local_name


@dataclass(frozen=True, slots=True)
class Property:
    """A property, or the inverse of one."""

    iri: str
    inverted: bool = False

    def __str__(self) -> str:
        return f"inverse({local_name(self.iri)})" if self.inverted else local_name(self.iri)


@dataclass(frozen=True, slots=True)
class Named:
    """A class by its IRI."""

    iri: str

    def __str__(self) -> str:
        return local_name(self.iri)


@dataclass(frozen=True, slots=True)
class Intersection:
    parts: tuple[Class, ...]

    def __str__(self) -> str:
        return f"({' and '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Union:
    parts: tuple[Class, ...]

    def __str__(self) -> str:
        return f"({' or '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class SomeValues:
    property: Property
    filler: Class

    def __str__(self) -> str:
        return f"({self.property} some {self.filler})"


@dataclass(frozen=True, slots=True)
class AllValues:
    property: Property
    filler: Class

    def __str__(self) -> str:
        return f"({self.property} only {self.filler})"


@dataclass(frozen=True, slots=True)
class HasValue:
    property: Property
    value: str

    def __str__(self) -> str:
        return f"({self.property} value {local_name(self.value)})"


@dataclass(frozen=True, slots=True)
class OneOf:
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{{{', '.join(map(local_name, self.values))}}}"


@dataclass(frozen=True, slots=True)
class Defined:
    """A node with several definitions: each of them makes a member, and a member has all of them."""

    parts: tuple[Class, ...]

    def __str__(self) -> str:
        return f"<{' | '.join(dict.fromkeys(map(str, self.parts)))}>"


@dataclass(frozen=True, slots=True)
class Other:
    """An expression without a rule; `kind` names it."""

    kind: str

    def __str__(self) -> str:
        return self.kind


Class: TypeAlias = Named | Intersection | Union | SomeValues | AllValues | HasValue | OneOf | Defined | Other

_READINGS = 1000
"""The most readings of one list. More are a mistake, and their number would grow exponentially."""


class Graph:
    """The triples of an ontology by subject and predicate. `ambiguous` are blank nodes that turned out to have several
    definitions at once."""

    def __init__(self, triples: Iterable[Triple]) -> None:
        self.ambiguous: set[str] = set()
        self.triples = list(dict.fromkeys(triples))
        self._objects: dict[tuple[str, str], list[str]] = {}
        self._predicates: dict[str, list[str]] = {}
        for s, p, o in self.triples:
            self._objects.setdefault((s, p), []).append(o)
            self._predicates.setdefault(s, []).append(p)

    def objects(self, subject: str, predicate: str) -> list[str]:
        return self._objects.get((subject, predicate), [])

    def lists(self, head: str) -> list[tuple[str, ...]]:
        """The members of an RDF list, in every reading.

        Raises:
            InvalidRequestError: a cell lacks its member or its rest, or the list is circular or has too many readings.
        """
        done: list[tuple[str, ...]] = []
        # (members so far, the next cell, the cells so far)
        open_: list[tuple[tuple[str, ...], str, frozenset[str]]] = [((), head, frozenset())]
        while open_:
            items, node, seen = open_.pop()
            if node == v.NIL:
                done.append(items)
                continue
            firsts, rests = self.objects(node, v.FIRST), self.objects(node, v.REST)
            if not firsts or not rests or node in seen:
                reason = "is circular" if node in seen else f"lacks rdf:first or rdf:rest at {node}"
                raise InvalidRequestError(f"the list {head} in the ontology {reason}")
            self.ambiguous.update([node] if len(firsts) * len(rests) > 1 else [])
            open_ += [((*items, f), r, seen | {node}) for r in reversed(rests) for f in reversed(firsts)]
            if len(open_) + len(done) > _READINGS:
                raise InvalidRequestError(
                    f"the list {head} in the ontology has more than {_READINGS} readings"
                )
        return done

    def property(self, node: str) -> Property:
        """The property that a node denotes; a blank node is the inverse of another property.

        Raises:
            InvalidRequestError: the node is blank and not the inverse of a property.
        """
        if not node.startswith("_:"):
            return Property(node)
        inverse = self.objects(node, v.INVERSE)
        if len(inverse) != 1 or inverse[0].startswith("_:"):
            raise InvalidRequestError(
                f"the ontology uses {node} as a property, but it is not the inverse of any property"
            )
        return Property(inverse[0], inverted=True)

    def class_of(self, node: str) -> Class:
        """The class that a node denotes: itself if it has a name, otherwise what its triples define."""
        return self._class_of(node, ())

    def definitions(self, node: str) -> list[Class]:
        """What the triples of a node define it to be, named or not."""
        return self._definitions(node, (node,))

    def _class_of(self, node: str, above: tuple[str, ...]) -> Class:
        if not node.startswith("_:"):
            return Named(node)
        if node in above:
            raise InvalidRequestError(f"the class {node} in the ontology is part of its own definition")
        found = self._definitions(node, (*above, node))
        if len(found) == 1:
            return found[0]
        if not found:
            return Other(self._kind(node))
        self.ambiguous.add(node)
        return Defined(tuple(found))

    def _definitions(self, node: str, above: tuple[str, ...]) -> list[Class]:
        found: list[Class] = []
        for predicate, kind in ((v.INTERSECTION, Intersection), (v.UNION, Union)):
            for head in self.objects(node, predicate):
                for items in self.lists(head):
                    found.append(kind(tuple(self._class_of(item, above) for item in items)))
        found += [OneOf(items) for o in self.objects(node, v.ONE_OF) for items in self.lists(o)]
        for on in self.objects(node, v.ON_PROPERTY):
            on_property = self.property(on)
            found += [SomeValues(on_property, self._class_of(o, above)) for o in self.objects(node, v.SOME)]
            found += [AllValues(on_property, self._class_of(o, above)) for o in self.objects(node, v.ALL)]
            found += [HasValue(on_property, o) for o in self.objects(node, v.HAS_VALUE)]
        return list(dict.fromkeys(found))

    def _kind(self, node: str) -> str:
        """A description of a blank class that is none of the above."""
        known = (v.TYPE, v.ON_PROPERTY, v.SUB_CLASS, v.EQUIVALENT_CLASS)
        words = [local_name(p) for p in self._predicates.get(node, []) if p not in known]
        return f"({', '.join(dict.fromkeys(words)) or 'a class without a definition'})"
