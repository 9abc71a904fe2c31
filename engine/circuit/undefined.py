"""Values that do not exist: which question about a rule decides whether one refuses the epoch.

An epoch is refused if, in the state that it leads to, some binding fulfils a rule but for literals that have no value
(1 / 0, an overflow), and no other literal is false. Plans evaluate a literal as soon as they can, and on changes of one
relation after the other, so they also meet bindings that an atom to come excludes, or that are on their way out. These
must not decide: what is refused would depend on the order of changes. So a plan drops a binding without a value and
goes on; the placement remembers the literal and the binding's values, and asks here, at the end, for the rest of the
rule:

    p(z) :- q(x, y), z = x / y, ok(y).            met: no value of x / y for x, y = 7, 0
    @binding(x, y) :- @undefined(x, y), q(x, y), ok(y).

In: the rule, the literals without a value and the variables that were remembered. Out: a core rule over the final
collections, whose result is not empty where the epoch is to be refused. Literals that use what only a literal without a
value binds have no value either, and exclude nothing. Should the question meet another literal without a value, the
answer is another question, with that literal left out too; so there are as many as a rule has literals at the most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.circuit.normal import INTERNAL, CoreRule
from engine.circuit.plan import CompiledRule, compile_rule
from engine.language.binding import bound_by
from engine.language.syntax import Atom, Comparison, Variable, names_of

UNDEFINED = f"{INTERNAL}undefined"
"""The relation of the bindings that were met; the question's first atom."""
_BINDING = f"{INTERNAL}binding"


@dataclass(frozen=True, slots=True)
class Question:
    """Whether a rule has a binding over the final state for which its literals `failed` have no value.

    failed: places in the body of `rule`. variables: the columns of `UNDEFINED`. places: for each literal of the
    question's own body its place in that of `rule`; -1 for the first.
    """

    rule: CoreRule
    failed: frozenset[int]
    variables: tuple[str, ...]
    asked: CompiledRule
    places: tuple[int, ...]

    @property
    def binding(self) -> tuple[str, ...]:
        """The variables of a binding that the question finds."""
        return tuple(term.name for term in self.asked.rule.head.terms if isinstance(term, Variable))

    @property
    def first_failed(self) -> Comparison:
        """The literal that an error is about."""
        literal = self.rule.body[min(self.failed)]
        assert isinstance(literal, Comparison), "an atom always has a value"
        return literal


def ask(rule: CoreRule, failed: frozenset[int], variables: Sequence[str]) -> Question:
    """The question about the literals `failed` of a rule, whose variables are among `variables`."""
    left = [(place, literal) for place, literal in enumerate(rule.body) if place not in failed]
    bound = bound_by((literal for _, literal in left), variables)
    kept = [(place, literal) for place, literal in left if names_of(literal) <= bound]
    start = Atom(UNDEFINED, tuple(map(Variable, variables)))
    head = Atom(_BINDING, tuple(map(Variable, sorted(bound))))
    core = CoreRule(rule.id, head, (start, *(literal for _, literal in kept)), rule.types, rule.origin)
    places = (-1, *(place for place, _ in kept))
    return Question(rule, failed, tuple(variables), compile_rule(core), places)
