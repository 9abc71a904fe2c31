"""The stratified model by clingo, for the part of the language that its own language can express.

In: rules as the parser read them, facts. Out: the one answer set, or `NotExpressibleError`. clingo shares no line with
Zedlog and none with the naive evaluator; it has negation, integers of 32 bits with `+ - *`, comparisons, and #count,
#sum, #min, #max. It lacks floats, texts to compute with, means, nested aggregates, and a recursive min or max.

A distinct binding becomes a distinct tuple of an aggregate's elements, so that equal values from different bindings
all count. #min of nothing is #sup there, which is no value here, so a condition excludes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import clingo

from engine.language.syntax import (
    Aggregate,
    Atom,
    BinaryOperation,
    Comparison,
    Constant,
    HeadAggregate,
    Literal,
    Negation,
    Rule,
    Term,
    UnaryOperation,
    Variable,
    Wildcard,
    walk,
)
from engine.language.witnesses import without_witnesses
from tests.oracle.rules import Facts, Model, Value
from tests.oracle.stratified import dependencies, named_wildcards, names_outside

_LARGEST = 2**20
"""Of constants; far below 2**31, so that sums and products of small programs do not wrap."""
_COMPARE = frozenset({"=", "!=", "<", "<=", ">", ">="})
_ARITHMETIC = frozenset({"+", "-", "*"})


class NotExpressibleError(Exception):
    """clingo's language has no such thing."""


def solve_dialect(rules: Iterable[Rule], facts: Facts) -> Model:
    """The stratified model. Relations without a tuple are left out."""
    rules = list(rules)
    translation = _Translation()
    folded = {
        rule.head.relation for rule in rules if any(isinstance(t, HeadAggregate) for t in rule.head.terms)
    }
    if any(weight > 0 for name in folded & facts.keys() for weight in facts[name].values()):
        raise NotExpressibleError("facts that are folded")
    lines = [
        f"{translation.predicate(name)}({','.join(map(translation.constant, row))})."
        for name, rows in facts.items()
        for row, weight in rows.items()
        if weight > 0
    ]
    lines += translation.rules(rules)
    control = clingo.Control(["--warn=none"])
    control.add("base", [], "\n".join(lines))
    control.ground([("base", [])])
    model: Model = {}
    with control.solve(yield_=True) as handle:
        answers = 0
        for answer in handle:
            answers += 1
            for symbol in answer.symbols(atoms=True):
                name = translation.relation_of.get(symbol.name)
                if name is not None:
                    row = tuple(map(translation.value, symbol.arguments))
                    model.setdefault(name, set()).add(row)
    if answers != 1:
        raise AssertionError(f"a stratified program has one answer set, clingo found {answers}")
    return model


class _Translation:
    def __init__(self) -> None:
        self.relation_of: dict[str, str] = {}
        self._predicates: dict[str, str] = {}
        self._values: dict[str, Value] = {}
        self._fresh = 0

    # ---- names and values

    def predicate(self, relation: str) -> str:
        if relation not in self._predicates:
            self._predicates[relation] = f"r{len(self._predicates)}"
            self.relation_of[self._predicates[relation]] = relation
        return self._predicates[relation]

    def constant(self, value: Value) -> str:
        if isinstance(value, int) and not isinstance(value, bool):
            if abs(value) > _LARGEST:
                raise NotExpressibleError(f"{value} is too large")
            return str(value)
        if isinstance(value, float):
            raise NotExpressibleError("floats")
        # Plain ASCII stands for itself, so that clingo's order of strings (by bytes) is that of such symbols.
        coded = f"{type(value).__name__}:{str(value).encode('unicode_escape').decode()}"
        self._values[coded] = value
        return '"' + coded.replace("\\", "\\\\").replace('"', '\\"') + '"'

    def value(self, symbol: clingo.Symbol) -> Value:
        return symbol.number if symbol.type is clingo.SymbolType.Number else self._values[symbol.string]

    def fresh(self) -> str:
        self._fresh += 1
        return f"F{self._fresh}"

    # ---- rules

    def rules(self, rules: Sequence[Rule]) -> list[str]:
        reach = dependencies(rules)
        lines = []
        folded: dict[str, list[Rule]] = {}
        for rule in rules:
            if without_witnesses(rule) != rule:
                raise NotExpressibleError("witnesses")
            if not any(isinstance(term, HeadAggregate) for term in rule.head.terms):
                head, conditions = self.head(rule.head.relation, rule.head.terms)
                lines.append(f"{head} :- {', '.join([*self.body(rule.body), *conditions])}.")
            elif any(isinstance(node, Aggregate) for literal in rule.body for node in walk(literal)):
                raise NotExpressibleError("an aggregate in an aggregate")
            elif sum(isinstance(term, HeadAggregate) for term in rule.head.terms) > 1:
                raise NotExpressibleError("several aggregates in one head")
            elif rule.head.relation in reach[rule.head.relation]:
                raise NotExpressibleError("a recursive aggregate")
            else:
                folded.setdefault(rule.head.relation, []).append(rule)
        for name, feeding in folded.items():
            lines += self.fold(name, feeding)
        return lines

    def head(self, relation: str, terms: Sequence[Term]) -> tuple[str, list[str]]:
        conditions: list[str] = []
        arguments = [self.term(term, conditions) for term in terms]
        return f"{self.predicate(relation)}({','.join(arguments)})", conditions

    def fold(self, relation: str, rules: Sequence[Rule]) -> list[str]:
        """The rules that feed one aggregate: the groups that there are, and the aggregate over all rules' bindings."""
        place = next(i for i, t in enumerate(rules[0].head.terms) if isinstance(t, HeadAggregate))
        term = rules[0].head.terms[place]
        assert isinstance(term, HeadAggregate)
        groups, lines, elements = f"g_{self.predicate(relation)}", [], []
        keys = [f"K{i}" for i in range(len(rules[0].head.terms) - 1)]
        for number, rule in enumerate(rules):
            literals = named_wildcards(rule.body)
            body = self.body(literals)
            others = [t for i, t in enumerate(rule.head.terms) if i != place]
            key_terms = [self.term(t, body) for t in others]
            lines.append(f"{groups}({','.join(key_terms)}) :- {', '.join(body)}.")
            folded = rule.head.terms[place]
            assert isinstance(folded, HeadAggregate)
            value = self.term(folded.argument, body)
            binding = [_variable(name) for name in sorted(names_outside(literals))]
            body += [f"{key}={t}" for key, t in zip(keys, key_terms, strict=True)]
            elements.append(
                f"{','.join([*_lead(term.function, value), str(number), *binding])} : {','.join(body)}"
            )
        aggregate = f"V = #{_function(term.function)} {{ {'; '.join(elements)} }}"
        row = [*keys[:place], "V", *keys[place:]]
        lines.append(
            f"{self.predicate(relation)}({','.join(row)}) :- {groups}({','.join(keys)}), {aggregate}."
        )
        return lines

    def body(self, literals: Sequence[Literal]) -> list[str]:
        parts: list[str] = []
        for literal in literals:
            match literal:
                case Atom():
                    parts.append(self.atom(literal, parts))
                case Negation():
                    negated = self.atom(literal.atom, parts)
                    parts.append(f"not {negated}")
                case Comparison():
                    self.comparison(literal, parts)
        return parts

    def atom(self, atom: Atom, parts: list[str]) -> str:
        arguments = ["_" if isinstance(t, Wildcard) else self.term(t, parts) for t in atom.terms]
        return f"{self.predicate(atom.relation)}({','.join(arguments)})"

    def comparison(self, literal: Comparison, parts: list[str]) -> None:
        if literal.operator not in _COMPARE:
            raise NotExpressibleError(literal.operator)
        left, right = self.term(literal.left, parts), self.term(literal.right, parts)
        parts.append(f"{left} {literal.operator} {right}")

    def term(self, term: Term, parts: list[str]) -> str:
        """The term; what it needs besides goes to `parts`."""
        match term:
            case Variable():
                return _variable(term.name)
            case Constant():
                return self.constant(term.value)
            case BinaryOperation() if term.operator in _ARITHMETIC:
                return f"({self.term(term.left, parts)}{term.operator}{self.term(term.right, parts)})"
            case UnaryOperation(operator="-"):
                return f"(-{self.term(term.operand, parts)})"
            case Aggregate():
                return self.aggregate(term, parts)
            case _:
                raise NotExpressibleError(getattr(term, "operator", getattr(term, "functor", str(term))))

    def aggregate(self, term: Aggregate, parts: list[str]) -> str:
        body = named_wildcards(term.body)
        if any(isinstance(node, Aggregate) for literal in body for node in walk(literal)):
            raise NotExpressibleError("an aggregate in an aggregate")
        inner = self.body(body)
        value = "0" if term.argument is None else self.term(term.argument, inner)
        binding = [_variable(name) for name in sorted(names_outside(body))]
        element = f"{','.join([*_lead(term.function, value), *binding])} : {', '.join(inner)}"
        result = self.fresh()
        parts.append(f"{result} = #{_function(term.function)} {{ {element} }}")
        if term.function in ("min", "max"):
            parts.append(f"{result} != #{'sup' if term.function == 'min' else 'inf'}")
        return result


def _function(function: str) -> str:
    if function == "mean":
        raise NotExpressibleError("mean")
    return function


def _lead(function: str, value: str) -> list[str]:
    """What stands first in an element: the value, or nothing where only their number counts."""
    return [] if function == "count" else [value]


def _variable(name: str) -> str:
    return "V" + "".join(c if c.isalnum() else f"_{ord(c)}_" for c in name)
