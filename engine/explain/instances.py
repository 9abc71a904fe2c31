"""One binding of a rule: what fits its head, and how its parts look under the binding."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from engine.explain.joins import Bindings
from engine.explain.matching import Matcher
from engine.explain.nodes import Term
from engine.explain.program import IN_PLACE, Folds, Plan
from engine.language.syntax import Aggregate, Atom, Constant, Literal, Variable, walk, walk_outside


def recursive_aggregates(body: Iterable[Literal], stratum: Collection[str]) -> Iterable[Aggregate]:
    """The aggregates of a body that read a relation of the stratum, also inside of aggregates of their own."""
    for literal in body:
        for node in walk_outside(literal):
            if isinstance(node, Aggregate) and any(
                isinstance(part, Atom) and part.relation in stratum for part in walk(node)
            ):
                yield node


def takes_facts(way: Folds) -> bool:
    """Whether a fact of a relation that is folded so is a contribution."""
    return len(way) == 1 and way[0][1] in IN_PLACE


def unified(plan: Plan, codes: Sequence[int], matcher: Matcher, *, folded: bool) -> Bindings | None:
    """The variables of a rule's head as a tuple has them; None if it does not fit."""
    values: dict[str, int] = {}
    skipped = () if folded else tuple(column for column, _ in plan.folds)
    for column, (term, code) in enumerate(zip(plan.head.terms, codes, strict=True)):
        if column in skipped:
            continue
        if isinstance(term, Constant):
            if matcher.code(term) != code:
                return None
        elif isinstance(term, Variable) and values.setdefault(term.name, code) != code:
            return None
    return Bindings.of(values) if values else Bindings(1, {})


def shown_binding(plan: Plan, one: Bindings) -> tuple[tuple[str, Term], ...]:
    """The variables of the text with their values, in the order of the text."""
    return tuple(
        (name, (int(one.columns[name][0]), plan.types.get(name)))
        for name in plan.names
        if name in one.columns
    )


def known_values(plan: Plan, one: Bindings) -> tuple[tuple[str, Term], ...]:
    """All variables of one binding, also those that no text has."""
    return tuple((name, (code, plan.types.get(name))) for name, code in one.row(0).items())


def pattern(atom: Atom, one: Bindings, plan: Plan, matcher: Matcher) -> tuple[Term, ...]:
    """An atom's arguments under a binding; what has no value keeps its name."""
    found: list[Term] = []
    for term in atom.terms:
        if isinstance(term, Constant):
            found.append((matcher.code(term), term.type))
        elif isinstance(term, Variable) and term.name in one.columns:
            found.append((int(one.columns[term.name][0]), plan.types.get(term.name)))
        else:
            named = isinstance(term, Variable) and not term.name.startswith("@")
            found.append(term.name if named else "_")  # type: ignore[union-attr]  # it is a variable
    return tuple(found)
