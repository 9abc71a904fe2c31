"""Facts of constant expressions: `a(2 ^ 31 - 1). b(cat("x", "y")).`

In: a program as it was parsed. Out: the same, in which every fact is an atom of constants. Always: what a fact holds
depends on its text alone. Facts of plain constants, which nearly all are, cost nothing.
"""

from __future__ import annotations

from dataclasses import replace

from engine.data.symbols import SymbolTable
from engine.data.values import decode_column
from engine.errors import EvaluationError, ProgramSyntaxError, UnsupportedFeatureError
from engine.expressions.expression import compile_term
from engine.language.inference import infer_schemas
from engine.language.syntax import Atom, Constant, FunctorCall, ProgramText, Rule, Term, walk

_OF_A_DATABASE = {
    "ord": "gives a symbol's number, which differs from database to database",
    "range": "gives several values",
}


def with_constant_facts(program: ProgramText) -> ProgramText:
    """The program with every fact as an atom of constants; see the module.

    Raises:
        TypeMismatchError: an operation is on values of the wrong type.
        ProgramSyntaxError: an expression has no value.
        UnsupportedFeatureError: an expression is not a constant one.
    """
    if all(isinstance(term, Constant) for fact in program.facts for term in fact.terms):
        return program
    return replace(program, facts=tuple(_constant(fact, program.text) for fact in program.facts))


def _constant(fact: Atom, text: str) -> Atom:
    if all(isinstance(term, Constant) for term in fact.terms):
        return fact
    # By itself: whether the values fit the relation is seen when it meets the others.
    infer_schemas([], {}, [Rule(fact, (), fact.span, text)], {})
    return replace(fact, terms=tuple(_value(term, text) for term in fact.terms))


def _value(term: Term, text: str) -> Term:
    if isinstance(term, Constant):
        return term
    for part in walk(term):
        if isinstance(part, FunctorCall) and part.functor in _OF_A_DATABASE:
            raise UnsupportedFeatureError(
                f"{part.functor} {_OF_A_DATABASE[part.functor]}, so it cannot be used in a fact; write a rule",
                text=text,
                span=part.span,
            )
    symbols = SymbolTable()
    expression = compile_term(term, {})
    assert expression.type is not None, "a constant expression has a type"
    try:
        codes = expression.evaluate({}, 1, symbols)
    except EvaluationError as error:
        raise ProgramSyntaxError(error.message, text=text, span=term.span) from None
    return Constant(decode_column(codes, expression.type, symbols)[0], expression.type, term.span)
