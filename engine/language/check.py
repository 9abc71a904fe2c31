"""Safety: whether a rule says where the values of all its variables come from.

In: a rule. Out: nothing, or an error that points at the variable. A variable is *bound* by standing in a
positive atom of the body, or by an equation whose other side is bound; every variable of the head, of a
negated atom and of a condition must be. Variables of an aggregate's body that stand nowhere else are its own,
and are bound there. Linear in the size of the rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.errors import ProgramError, UnsafeRuleError
from engine.language.inference import infer_schemas
from engine.language.supported import check_supported
from engine.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    Literal,
    Negation,
    Rule,
    Term,
    Variable,
    Wildcard,
    children,
    terms_of,
    walk,
)
from engine.language.witnesses import without_witnesses

__all__ = ["check_rule", "check_safety", "infer_schemas"]


def check_rule(rule: Rule) -> None:
    """Refuse a rule that is unsafe, or that this version cannot evaluate.

    Raises:
        UnsupportedFeatureError: the rule uses what the evaluator lacks.
        UnsafeRuleError: a variable is not bound, or `_` stands where a value is needed.
    """
    check_supported(rule)
    check_safety(rule)


def check_safety(rule: Rule) -> None:
    """Refuse an unsafe rule.

    Raises:
        UnsafeRuleError: a variable is not bound, or `_` stands where a value is needed.
    """
    rule = explicit(rule)
    outer = {
        variable.name
        for literal in (rule.head, *rule.body)
        for term in terms_of(literal)
        for variable in _variables(term)
    }
    bound = _bound(rule.body, set(), outer)
    for literal in rule.body:
        _check_literal(literal, bound, outer, rule)
    for term in rule.head.terms:
        if isinstance(term, Wildcard):
            message = "'_' cannot be used in the head of a rule: it has no value"
            raise _unsafe(rule, message, term)
        _check_aggregates(term, bound, outer, rule)
        _check_term(term, bound, "in the head", rule)


def explicit(rule: Rule) -> Rule:
    """The rule with its witnesses bound by atoms (witnesses.py)."""
    return without_witnesses(rule, lambda body, given: _bound(body, given, set()))


def _bound(body: Sequence[Literal], given: set[str], outer: set[str]) -> set[str]:
    """The variables that the body binds, when those in `given` are bound already."""
    bound = set(given)
    for literal in body:
        if isinstance(literal, Atom):
            bound.update(term.name for term in literal.terms if isinstance(term, Variable))
    # Each equation waits for the variables of one side to bind the other: Kahn's count, in linear time.
    waiting: dict[str, list[int]] = {}
    targets: list[str] = []
    missing: list[int] = []
    for target, source in _directed_equations(body):
        needed = {v.name for v in _variables(source) + _shared_variables(source, outer)} - bound
        for name in needed:
            waiting.setdefault(name, []).append(len(targets))
        targets.append(target)
        missing.append(len(needed))
    ready = [target for target, count in zip(targets, missing, strict=True) if count == 0]
    while ready:
        name = ready.pop()
        if name in bound:
            continue
        bound.add(name)
        for equation in waiting.get(name, ()):
            missing[equation] -= 1
            if missing[equation] == 0:
                ready.append(targets[equation])
    return bound


def _directed_equations(body: Sequence[Literal]) -> Iterator[tuple[str, Term]]:
    """Each variable that an equation gives, with the term that it would get."""
    for literal in body:
        if isinstance(literal, Comparison) and literal.operator == "=":
            for target, source in ((literal.left, literal.right), (literal.right, literal.left)):
                if isinstance(target, Variable) and not isinstance(source, Wildcard):
                    yield target.name, source


def _check_literal(literal: Literal, bound: set[str], outer: set[str], rule: Rule) -> None:
    match literal:
        case Negation():
            where = "in a negated atom"
        case Comparison():
            where = "in a condition"
        case Atom():
            where = "in a computed argument"
    for term in terms_of(literal):
        # First, because a variable that an aggregate leaves unbound is the cause of others.
        _check_aggregates(term, bound, outer, rule)
    for term in terms_of(literal):
        if isinstance(term, Wildcard) and isinstance(literal, Comparison):
            raise _unsafe(rule, "'_' cannot be compared: it has no value", term)
        _check_term(term, bound, where, rule)


def _check_term(term: Term, bound: set[str], where: str, rule: Rule) -> None:
    for variable in _variables(term):
        if variable.name not in bound:
            message = f"the variable {variable.name} {where} is not bound by any positive atom of the body"
            raise _unsafe(rule, message, variable)
    if not isinstance(term, Wildcard):
        for inner in _own(term):
            if isinstance(inner, Wildcard):
                raise _unsafe(rule, "'_' cannot be used in a computation: it has no value", inner)


def _check_aggregates(term: Term, bound: set[str], outer: set[str], rule: Rule) -> None:
    for aggregate in _own(term):
        if not isinstance(aggregate, Aggregate):
            continue
        for variable in _shared_variables(aggregate, outer):
            if variable.name not in bound:
                name = variable.name
                message = (
                    f"the variable {name} stands outside of the {aggregate.function} too, but is bound only in it; "
                    "only a min or max has witnesses"
                )
                raise _unsafe(rule, message, variable)
        own = outer | {v.name for literal in aggregate.body for t in terms_of(literal) for v in _variables(t)}
        inside = _bound(aggregate.body, bound & outer, own)
        for literal in aggregate.body:
            _check_literal(literal, inside, own, rule)
        argument = aggregate.argument
        if isinstance(argument, Wildcard):
            raise _unsafe(rule, "'_' cannot be aggregated: it has no value", argument)
        if argument is not None:
            _check_aggregates(argument, inside, own, rule)
            _check_term(argument, inside, "in the argument of an aggregate", rule)


def _own(term: Literal | Term) -> list[Literal | Term]:
    """The term and its subterms, but nothing from the inside of aggregates."""
    below = [term]
    if not isinstance(term, Aggregate):
        for child in children(term):
            below += _own(child)
    return below


def _variables(term: Term) -> list[Variable]:
    """The variables of a term that are not inside of an aggregate."""
    return [inner for inner in _own(term) if isinstance(inner, Variable)]


def _shared_variables(term: Term, outer: set[str]) -> list[Variable]:
    """The variables inside of the term's aggregates that stand outside of them, too."""
    return [
        node
        for inner in _own(term)
        if isinstance(inner, Aggregate)
        for node in walk(inner)
        if isinstance(node, Variable) and node.name in outer
    ]


def _unsafe(rule: Rule, message: str, term: Term) -> ProgramError:
    return UnsafeRuleError(message, text=rule.text, span=term.span)
