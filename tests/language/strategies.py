"""Random syntax trees of the whole dialect, in the form in which the parser builds them."""

from __future__ import annotations

from hypothesis import strategies as st

from engine.language import operators
from engine.language.schema import ColumnType
from engine.language.syntax import (
    Aggregate,
    Atom,
    BinaryOperation,
    Comparison,
    Constant,
    FunctorCall,
    HeadAggregate,
    Literal,
    Negation,
    Rule,
    Term,
    UnaryOperation,
    Variable,
    Wildcard,
)

relations = st.sampled_from(["e", "edge", "p2", "_r", "lib.path", "ranges"])
variables = st.sampled_from(["x", "y", "?x", "z1", "_u", "V0", "v0", "v1"]).map(Variable)
symbols = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-3, 3))
floats = st.floats(allow_nan=False, allow_infinity=False)
constants = st.one_of(
    symbols.map(lambda value: Constant(value, ColumnType.SYMBOL)),
    numbers.map(lambda value: Constant(value, ColumnType.NUMBER)),
    floats.map(lambda value: Constant(value, ColumnType.FLOAT)),
    st.booleans().map(lambda value: Constant(value, ColumnType.BOOL)),
)
flat_terms: st.SearchStrategy[Term] = st.one_of(variables, constants, st.just(Wildcard()))


def _unary(operator: str, operand: Term) -> Term:
    # The parser makes a minus before a number a part of the number.
    if (
        operator == "-"
        and isinstance(operand, Constant)
        and operand.type in (ColumnType.NUMBER, ColumnType.FLOAT)
    ):
        return UnaryOperation("bnot", operand)
    return UnaryOperation(operator, operand)


def _calls(inner: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    def arguments(functor: str) -> st.SearchStrategy[Term]:
        least, most = operators.FUNCTORS[functor]
        return st.lists(inner, min_size=least, max_size=most or least + 2).map(
            lambda chosen: FunctorCall(functor, tuple(chosen))
        )

    return st.sampled_from(sorted(operators.FUNCTORS)).flatmap(arguments)


def _literals(inner: st.SearchStrategy[Term]) -> st.SearchStrategy[Literal]:
    atoms = st.builds(Atom, relations, st.lists(inner, max_size=3).map(tuple))
    comparisons = st.builds(Comparison, st.sampled_from(sorted(operators.NEGATED)), inner, inner)
    return st.one_of(atoms, atoms.map(Negation), comparisons)


def _compound(inner: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    bodies = st.lists(_literals(inner), min_size=1, max_size=2).map(tuple)
    return st.one_of(
        st.builds(BinaryOperation, st.sampled_from(sorted(operators.BINARY)), inner, inner),
        st.builds(_unary, st.sampled_from(operators.UNARY), inner),
        _calls(inner),
        st.builds(Aggregate, st.just("count"), st.none(), bodies),
        st.builds(Aggregate, st.sampled_from(["max", "mean", "min", "sum"]), inner, bodies),
    )


terms = st.recursive(flat_terms, _compound, max_leaves=6)
literals = _literals(terms)
heads = st.builds(
    Atom,
    relations,
    st.lists(
        st.one_of(terms, st.builds(HeadAggregate, st.sampled_from(operators.AGGREGATES), terms)), max_size=3
    ).map(tuple),
)
rules = st.builds(Rule, heads, st.lists(literals, min_size=1, max_size=4).map(tuple))
