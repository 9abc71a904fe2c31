"""Bodies of rules as alternatives: `;` concatenates, `,` multiplies out, `!` follows De Morgan.

In: literals, and bodies in parentheses. Out: `Alternatives`, the disjunctive normal form.
Always: at most `MAX_ALTERNATIVES` alternatives and `MAX_DEPTH` nested groups; a text that exceeds either is refused.
The work is linear in the size of the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.errors import ProgramSyntaxError, Span
from engine.language import operators
from engine.language.parts import Fault, join
from engine.language.syntax import MAX_DEPTH, Atom, Comparison, Literal, Negation

MAX_ALTERNATIVES = 1_000
MAX_LITERALS = 1_000_000


class Alternatives(NamedTuple):
    """A body as a disjunction of conjunctions; `depth` is how many groups and negations are nested in it."""

    bodies: list[list[Literal]]
    depth: int


def negate(part: Literal | Alternatives, span: Span) -> Literal | Alternatives:
    """`!part`; `span` is the place of the `!`."""
    if not isinstance(part, Alternatives):
        return _negated(part, span)
    negated = [Alternatives([[_negated(literal, span)] for literal in body], 0) for body in part.bodies]
    return Alternatives(conjoin(negated).bodies, deeper(part.depth, span))


def conjoin(parts: Sequence[Literal | Alternatives]) -> Alternatives:
    """The conjunction of literals and groups, multiplied out.

    Raises:
        Fault: there would be too many alternatives.
    """
    bodies: list[list[Literal]] = [[]]
    depth = 0
    for part in parts:
        if not isinstance(part, Alternatives):
            for body in bodies:
                body.append(part)
            continue
        depth = max(depth, part.depth)
        if len(part.bodies) == 1:
            for body in bodies:
                body.extend(part.bodies[0])
            continue
        check_size(len(bodies) * len(part.bodies), len(parts), part.bodies[0][0].span)
        bodies = [body + alternative for body in bodies for alternative in part.bodies]
    return Alternatives(bodies, depth)


def disjoin(parts: Sequence[Alternatives]) -> Alternatives:
    """The disjunction of bodies.

    Raises:
        Fault: there would be too many alternatives.
    """
    if len(parts) == 1:
        return parts[0]
    bodies = [body for alternative in parts for body in alternative.bodies]
    check_size(len(bodies), 1, bodies[-1][0].span)
    return Alternatives(bodies, max(alternative.depth for alternative in parts))


def check_size(alternatives: int, literals: int, span: Span) -> None:
    """Refuse a clause that expands to too many rules, with `literals` literals each.

    Raises:
        Fault: there are too many.
    """
    if alternatives > MAX_ALTERNATIVES or alternatives * literals > MAX_LITERALS:
        message = f"the alternatives (;) of this clause multiply out to more than {MAX_ALTERNATIVES} rules"
        raise Fault(ProgramSyntaxError, f"{message}; move some of them into a relation of their own", span)


def deeper(depth: int, span: Span) -> int:
    """The depth of a group around something of depth `depth`.

    Raises:
        Fault: the nesting is too deep.
    """
    if depth >= MAX_DEPTH:
        raise Fault(ProgramSyntaxError, f"the body is nested more than {MAX_DEPTH} groups deep", span)
    return depth + 1


def _negated(literal: Literal, span: Span) -> Literal:
    match literal:
        case Atom():
            return Negation(literal, join(span, literal.span))
        case Negation():
            return literal.atom
        case Comparison():
            opposite = operators.NEGATED[literal.operator]
            return Comparison(opposite, literal.left, literal.right, join(span, literal.span))
