"""Safety: whether a rule says where the values of all its variables come from.

In: a rule. Out: nothing, or an error that points at the variable. A variable is *bound* when it occurs in a positive
atom of the body, or in an equation whose other side is bound. Every variable of the head, of a negated atom and of a
condition must be bound. Variables that occur only in the body of an aggregate are local to it, and must be bound there.
Linear in the size of the rule.
"""

from __future__ import annotations

from engine.errors import ProgramError, ProgramSyntaxError, UnsafeRuleError
from engine.language import rdf_terms
from engine.language.binding import bound_by, shared_variables
from engine.language.inference import infer_schemas
from engine.language.supported import check_supported
from engine.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    FunctorCall,
    Literal,
    Negation,
    Rule,
    Term,
    Variable,
    Wildcard,
    names_outside,
    terms_of,
    walk,
    walk_outside,
)
from engine.language.witnesses import without_witnesses

__all__ = ["check_rule", "check_safety", "infer_schemas"]


def check_rule(rule: Rule) -> None:
    """Refuse a rule that is unsafe, or that this version cannot evaluate.

    Raises:
        UnsupportedFeatureError: the rule uses a feature that the evaluator does not have.
        UnsafeRuleError: a variable is not bound, or `_` stands where a value is needed.
        ProgramSyntaxError: a constant argument of rdf_iri or rdf_literal is wrong, whatever the others are.
    """
    check_supported(rule)
    check_safety(rule)
    for literal in (rule.head, *rule.body):
        for node in walk(literal):
            if isinstance(node, FunctorCall) and (reason := rdf_terms.fault(node)):
                raise ProgramSyntaxError(f"{node.functor} {reason}", text=rule.text, span=node.span)


def check_safety(rule: Rule) -> None:
    """Refuse an unsafe rule.

    Raises:
        UnsafeRuleError: a variable is not bound, or `_` stands where a value is needed.
    """
    rule = without_witnesses(rule)
    outer = names_outside(rule.head, *rule.body)
    bound = bound_by(rule.body, outer=outer)
    for literal in rule.body:
        _check_literal(literal, bound, outer, rule)
    for term in rule.head.terms:
        if isinstance(term, Wildcard):
            message = "'_' cannot be used in the head of a rule: it has no value"
            raise _unsafe(rule, message, term)
        _check_aggregates(term, bound, outer, rule)
        _check_term(term, bound, "in the head", rule)


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
    for variable in walk_outside(term):
        if isinstance(variable, Variable) and variable.name not in bound:
            message = f"the variable {variable.name} {where} is not bound by any positive atom of the body"
            raise _unsafe(rule, message, variable)
    if not isinstance(term, Wildcard):
        for inner in walk_outside(term):
            if isinstance(inner, Wildcard):
                raise _unsafe(rule, "'_' cannot be used in a computation: it has no value", inner)


def _check_aggregates(term: Term, bound: set[str], outer: set[str], rule: Rule) -> None:
    for aggregate in walk_outside(term):
        if not isinstance(aggregate, Aggregate):
            continue
        for variable in shared_variables(aggregate, outer):
            if variable.name not in bound:
                name = variable.name
                message = (
                    f"the variable {name} is used outside of the {aggregate.function}, but is bound only inside it; "
                    "only min and max can pass a variable out (a witness)"
                )
                raise _unsafe(rule, message, variable)
        own = outer | names_outside(*aggregate.body)
        inside = bound_by(aggregate.body, bound & outer, own)
        for literal in aggregate.body:
            _check_literal(literal, inside, own, rule)
        argument = aggregate.argument
        if isinstance(argument, Wildcard):
            raise _unsafe(rule, "'_' cannot be aggregated: it has no value", argument)
        if argument is not None:
            _check_aggregates(argument, inside, own, rule)
            _check_term(argument, inside, "in the argument of an aggregate", rule)


def _unsafe(rule: Rule, message: str, term: Term) -> ProgramError:
    return UnsafeRuleError(message, text=rule.text, span=term.span)
