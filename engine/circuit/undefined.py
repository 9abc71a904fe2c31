"""Values that do not exist (1 / 0, an overflow): the question that decides whether one of them refuses the epoch.

An epoch is refused if, in the state that it leads to, some binding makes no literal of a rule false, but some literal
has no value. Plans evaluate a literal as soon as they can, and on the changes of one relation after the other, so they
also meet bindings that a later atom excludes, or that are about to be retracted. These must not decide, or else the
refusal would depend on the order of changes. So a plan drops a binding without a value and goes on; the placement
remembers the rule, and the binding's values if they are few, and asks at the end:

    p(z) :- q(x, y), z = x / y, ok(y), z > 2.                   met: no value of x / y for x, y = 7, 0
    sure: @binding(x, y) :- @undefined(x, y), q(x, y), ok(y).   last: z = x / y, z > 2

In: the rule and the variables whose values were remembered. Out: a core rule (`sure`) over the final collections, with
the literals that always have a value; and the steps (`last`) that may have none, together with those that wait for
their variables. Each binding of the rule is taken through the steps: a step that is false drops it, a step without a
value marks it, and a step that uses a variable without a value has no value either. The epoch is refused if a marked
binding reaches the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.circuit.normal import INTERNAL, CoreRule
from engine.circuit.plan import (
    Absent,
    CompiledRule,
    Let,
    Source,
    Where,
    compile_rule,
    equation,
)
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.errors import EvaluationError
from engine.expressions import compile_condition, compile_term
from engine.language import rdf_terms
from engine.language.canonical import format_rule
from engine.language.syntax import (
    Atom,
    BinaryOperation,
    Comparison,
    Constant,
    FunctorCall,
    Literal,
    Negation,
    Term,
    UnaryOperation,
    Variable,
    names_of,
    walk,
)

UNDEFINED = f"{INTERNAL}undefined"
"""The relation of the bindings that were remembered; the question's first atom."""
_BINDING = f"{INTERNAL}binding"
_FALLIBLE_OPERATORS = frozenset("+-*/%^")
_FALLIBLE_FUNCTORS = frozenset({"to_number", "to_float"})

Last = Let | Where | Absent


@dataclass(frozen=True, slots=True)
class Question:
    """Whether a rule has a binding over the final state for which a literal has no value; see the module.

    sure: the rule of the literals that always have a value; its head holds `variables`. last: the other steps, in an
    order in which they can be evaluated; `literal` is a place in the body of `rule`.
    """

    rule: CoreRule
    sure: CompiledRule
    variables: tuple[str, ...]
    last: tuple[Last, ...]

    def refusal(self, binding: Mapping[str, Codes], symbols: SymbolTable) -> EvaluationError:
        """The error for a binding (int64[1] for each variable) that reaches the end without a value: the one that
        evaluating its first literal without a value raises."""
        types = dict(self.rule.types)
        known = dict(binding)
        try:
            for step in self.last:
                if isinstance(step, Let):
                    known[step.name] = compile_term(step.term, types).evaluate(known, 1, symbols)
                elif isinstance(step, Where):
                    compile_condition(step.condition, types).evaluate(known, 1, symbols)
        except EvaluationError as error:
            error.detail["rule"] = format_rule(self.rule.origin)
            return error
        raise AssertionError("every literal has a value for this binding")


def ask(rule: CoreRule, remembered: Sequence[str] | None = None) -> Question:
    """The question about a rule, for bindings with the `remembered` variables in `UNDEFINED`, or for all bindings."""
    first: list[Literal] = [literal for literal in rule.body if isinstance(literal, Atom)]
    if remembered is not None:
        first.insert(0, Atom(UNDEFINED, tuple(map(Variable, remembered))))
    left = [place for place, literal in enumerate(rule.body) if not isinstance(literal, Atom)]
    known = {name for literal in first for name in names_of(literal)}

    def next_of(places: Iterable[int]) -> int | None:
        return next((place for place in places if _is_ready(rule.body[place], known)), None)

    while (place := next_of(place for place in left if not can_fail(rule.body[place]))) is not None:
        left.remove(place)
        first.append(rule.body[place])
        known |= names_of(rule.body[place])
    variables = tuple(sorted(known))
    head = Atom(_BINDING, tuple(map(Variable, variables)))
    sure = CoreRule(rule.id, head, tuple(first), rule.types, rule.origin)
    last: list[Last] = []
    while left:
        place = next_of(left)
        assert place is not None, "every variable of a rule can be bound"
        left.remove(place)
        last.append(_step(place, rule.body[place], known))
        known |= names_of(rule.body[place])
    return Question(rule, compile_rule(sure), variables, tuple(last))


def can_fail(node: Term | Literal) -> bool:
    """Whether the term or literal has no result for some values of its variables."""
    for part in walk(node):
        match part:
            case BinaryOperation() | UnaryOperation():
                if part.operator in _FALLIBLE_OPERATORS:
                    return True
            case FunctorCall():
                if part.functor in _FALLIBLE_FUNCTORS or rdf_terms.may_fail(part):
                    return True
            case Comparison():
                if part.operator.endswith("match"):
                    return True
    return False


def _step(place: int, literal: Literal, known: set[str]) -> Last:
    carry = tuple(sorted(known))
    if isinstance(literal, Negation):
        key = tuple((column, _source(term)) for column, term in enumerate(literal.atom.terms))
        return Absent(0, literal.atom.relation, False, key, carry)
    assert isinstance(literal, Comparison), "atoms come first"
    bound = equation(literal, known)
    return Where(place, literal, carry) if bound is None else Let(place, *bound, carry)


def _is_ready(literal: Literal, known: set[str]) -> bool:
    return names_of(literal) <= known or (
        isinstance(literal, Comparison) and equation(literal, known) is not None
    )


def _source(term: Term) -> Source:
    assert isinstance(term, Variable | Constant), "a negated atom has no other terms"
    return term.name if isinstance(term, Variable) else term
