"""Random programs of the whole language and histories of changes to them, as hypothesis strategies.

Relations are declared, and stand in levels. A rule reads its own level and those below it monotonically; it negates
and aggregates lower levels only, except now and then, which makes a program that must be refused. What is computed
stays small (sums of a few small numbers; in recursion modulo 5), so that no evaluation is refused for a number; the
rules in `FAULTY` are for that. Facts and rules come from pools drawn once per history, as in `programs`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from engine.language.canonical import canonical_text
from engine.language.parser import parse_rules
from engine.language.syntax import Rule
from tests.oracle.rules import Row, Value, value_text

T = TypeVar("T")
Fact = tuple[str, Row]

# Level 0 holds what is only asserted. `n`: number, `s`: symbol, `f`: float.
BASE = {"e": "nn", "g": "nn", "w": "nnn", "l": "ns", "m": "nf"}
PLAIN = {"p1": "nn", "q1": "n", "t1": "ns", "p2": "nn", "q2": "n", "p3": "nn", "r3": "s"}
# name: columns, function, the column that is folded
FOLDED = {
    "sp1": ("nn", "min", 1),
    "mx1": ("nn", "max", 1),
    "c2": ("nn", "count", 1),
    "s2": ("nn", "sum", 1),
    "a2": ("fn", "mean", 0),
    "f2": ("nf", "sum", 1),
    "lo2": ("n", "min", 0),
    "c3": ("nn", "count", 1),
}
# name: columns, the columns that are folded with their functions
SEVERAL = {
    "d2": ("nnn", {1: "count", 2: "max"}),
    "d3": ("fnn", {0: "mean", 1: "sum"}),
    "x3": ("nnf", {0: "min", 2: "sum"}),
}
WITNESSES = {
    "p2": (
        "p2(x, d) :- d = max b : { e(x, b) }.",
        "p2(x, y) :- g(y, _), d = min b : { w(x, b, _), b >= y }, d != 3.",
    ),
    "q2": (
        "q2(x) :- d = max b + 1 : { p1(x, b), !q1(b) }, d > 1.",
        "q2(d) :- d = max b : { e(x, b) }, q1(x).",
    ),
    "p3": ("p3(x, n) :- d = min b : { p2(x, b) }, n = count : { e(_, d) }.",),
}
"""Rules with variables that a min or max alone binds, by head."""
TAKE_FACTS = [name for name, (_, function, _) in FOLDED.items() if function in ("min", "max")]
"""Folded relations whose facts are contributions."""
COLUMNS = {
    **BASE,
    **PLAIN,
    **{name: columns for name, (columns, _, _) in FOLDED.items()},
    **{name: columns for name, (columns, _) in SEVERAL.items()},
}
LEVEL = {name: int(name[-1]) if name[-1].isdigit() else 0 for name in COLUMNS}
TYPES = {"n": "number", "s": "symbol", "f": "float"}
VALUES: dict[str, tuple[Value, ...]] = {
    "n": (0, 1, 2, 3, 4),
    "s": ("a", "b", "ab", "", "c"),
    "f": (0.5, 0.1, 2.0, -1.25),
}
# Each asks for a value that there is not for some facts, whatever the order of evaluation.
FAULTY = (
    "p1(x, z) :- e(x, y), z = 3 / y.",
    "q1(z) :- g(x, y), z = x % y.",
    "q1(x) :- w(x, y, z), 4611686018427387904 * z > y.",
    "c2(x, count(z)) :- e(x, y), z = 2 ^ (y - 2).",
    "s2(x, sum(9223372036854775807)) :- g(x, _).",
    "q2(x) :- l(x, t), to_number(cat(to_string(x), t)) > 2.",
    "f2(x, sum(1e308)) :- e(_, x), g(x, _), x != 0.",
    "q3f(n) :- n = sum 9223372036854775807 : { e(_, _) }.",
)


def declarations(texts: Iterable[str]) -> str:
    """Declarations of the relations that stand in the texts: they have types also while they are empty."""
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    return "\n".join(
        f".decl {name}({', '.join(f'c{i}: {TYPES[kind]}' for i, kind in enumerate(columns))})"
        for name, columns in sorted(COLUMNS.items())
        if name in words
    )


@dataclass(frozen=True)
class Change:
    """One transaction. Rules are texts; no two texts of a history are alpha-variants."""

    facts: tuple[tuple[Fact, int], ...]
    rules: tuple[tuple[str, int], ...]

    def arguments(self) -> dict[str, Any]:
        """In the form that `Reasoner.apply` takes."""
        facts: dict[str, list[tuple[Row, int]]] = {}
        for (name, row), weight in self.facts:
            facts.setdefault(name, []).append((row, weight))
        return {"facts": facts, "rules": list(self.rules)}


@dataclass(frozen=True)
class DialectHistory:
    changes: tuple[Change, ...]

    def declarations(self) -> str:
        rules = [text for change in self.changes for text, _ in change.rules]
        return declarations([*rules, *(name for change in self.changes for (name, _), _ in change.facts)])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        lines = []
        for number, change in enumerate(self.changes):
            lines.append(f"epoch {number}")
            for (name, row), weight in change.facts:
                lines.append(f"  {weight:+} {name}({', '.join(map(value_text, row))}).")
            lines += [f"  {weight:+} {text}" for text, weight in change.rules]
        printer.text("\n" + "\n".join(lines) + "\n")


@dataclass
class Totals:
    """The weights so far."""

    facts: Counter[Fact] = field(default_factory=Counter)
    rules: Counter[str] = field(default_factory=Counter)

    def with_(self, change: Change) -> Totals:
        after = Totals(Counter(self.facts), Counter(self.rules))
        for fact, weight in change.facts:
            after.facts[fact] += weight
        for text, weight in change.rules:
            after.rules[text] += weight
        return after

    def fitting(self, change: Change) -> Change:
        """The change without retractions of what a refused epoch was to bring."""
        held: Counter[Any] = Counter()
        held.update(self.facts)
        held.update(self.rules)
        return Change(_fitting(change.facts, held), _fitting(change.rules, held))

    def trees(self) -> list[Rule]:
        return [tree(text) for text, weight in self.rules.items() if weight > 0]

    def by_relation(self) -> dict[str, dict[Row, int]]:
        found: dict[str, dict[Row, int]] = {}
        for (name, row), weight in self.facts.items():
            if weight:
                found.setdefault(name, {})[row] = weight
        return found

    def as_change(self) -> Change:
        return Change(
            tuple((fact, w) for fact, w in self.facts.items() if w),
            tuple((text, w) for text, w in self.rules.items() if w),
        )


def _fitting(steps: tuple[tuple[T, int], ...], held: Counter[Any]) -> tuple[tuple[T, int], ...]:
    kept = []
    for key, weight in steps:
        weight = max(weight, -held[key])
        if weight:
            held[key] += weight
            kept.append((key, weight))
    return tuple(kept)


@st.composite
def dialect_histories(draw: st.DrawFn, max_epochs: int = 5, faulty: bool = False) -> DialectHistory:
    pool = draw(st.lists(dialect_rules(), min_size=4, max_size=9))
    if faulty:
        pool += draw(st.lists(st.sampled_from(FAULTY), min_size=1, max_size=2))
    rules = distinct(pool)
    facts = list(dict.fromkeys(draw(st.lists(dialect_facts(), min_size=8, max_size=22))))
    weights: Counter[Any] = Counter()
    changes = []
    for number in range(draw(st.integers(1, max_epochs))):
        first = number == 0
        changes.append(
            Change(
                _steps(draw, facts, weights, 6 if first else 0, 12 if first else 6),
                _steps(draw, rules, weights, 3 if first else 0, len(rules) if first else 3),
            )
        )
    return DialectHistory(tuple(changes))


def distinct(texts: Iterable[str]) -> list[str]:
    """The texts without later alpha-variants."""
    return list({canonical_text(tree(text)): text for text in reversed(list(texts))}.values())[::-1]


@lru_cache(maxsize=10_000)
def tree(text: str) -> Rule:
    """The rule; one text stands in many epochs of a history."""
    return parse_rules(text)[0]


def _steps(
    draw: st.DrawFn, pool: Sequence[T], weights: Counter[Any], least: int, most: int
) -> tuple[tuple[T, int], ...]:
    """Changes that never retract more than there is."""
    drawn = draw(
        st.lists(
            st.tuples(st.sampled_from(pool), st.sampled_from([1, 1, 1, 2, -1, -1, -2])),
            min_size=least,
            max_size=max(least, most),
        )
    )
    steps = []
    for key, wanted in drawn:
        step = max(wanted, -weights[key]) or -wanted
        weights[key] += step
        steps.append((key, step))
    return tuple(steps)


@st.composite
def dialect_facts(draw: st.DrawFn) -> Fact:
    # Twice the base relations: those are what most rules read.
    name = draw(st.sampled_from([*BASE, *BASE, "e", "w", *PLAIN, *TAKE_FACTS]))
    return name, tuple(draw(st.sampled_from(VALUES[kind])) for kind in COLUMNS[name])


@st.composite
def dialect_rules(draw: st.DrawFn, stratified: bool = False) -> str:
    head = draw(st.sampled_from([*PLAIN, *PLAIN, *FOLDED, *SEVERAL]))
    return RuleText(draw, head, stratified).text()


class RuleText:
    """The text of one random safe rule for `head`, in the making: bound variables by type, literals."""

    def __init__(self, draw: st.DrawFn, head: str, stratified: bool) -> None:
        self._draw = draw
        self._head = head
        self._level = LEVEL[head]
        self._stratified = stratified
        self._bound: dict[str, list[str]] = {"n": [], "s": [], "f": []}
        self._literals: list[str] = []
        self._fresh = 0
        self._recursive = False

    def text(self) -> str:
        folded = FOLDED.get(self._head)
        if self._head in WITNESSES and self._chance(4):
            return self._pick(WITNESSES[self._head])
        if folded is not None and folded[1] in ("min", "max") and self._chance(3):
            return self._extreme_path(folded[1]) if self._head[-1] == "1" else self._simple_fold()
        for _ in range(self._pick([1, 1, 2, 2, 3])):
            self._atom()
        for _ in range(self._pick([0, 1, 1, 2])):
            self._pick([self._negation, self._comparison, self._equation, self._aggregate])()
        if self._head in SEVERAL:
            columns, places = SEVERAL[self._head]
            head = self._folded_head(columns, places)
        else:
            head = self._folded_head(folded[0], {folded[2]: folded[1]}) if folded else self._plain_head()
        return f"{head} :- {', '.join(self._literals)}."

    def _pick(self, choices: Sequence[T]) -> T:
        return self._draw(st.sampled_from(choices))

    def _chance(self, one_in: int) -> bool:
        return self._draw(st.integers(1, one_in)) == 1

    def _relation(self, below: bool) -> str:
        """One that the rule may read; `below`: only strictly lower levels, but for the odd program to refuse."""
        if below and not self._stratified and self._chance(25):
            return self._pick(list(PLAIN))
        # A relation that is folded is read from above only, except by its own rules in _extreme_path.
        folded = {*FOLDED, *SEVERAL}
        top = self._level - 1 if below or self._head in folded else self._level
        candidates = [r for r in COLUMNS if LEVEL[r] <= top and not (r in folded and LEVEL[r] == self._level)]
        return self._pick(candidates)

    # ---- literals

    def _atom(self) -> None:
        name = self._relation(below=False)
        self._recursive = self._recursive or LEVEL[name] == self._level
        terms = [self._atom_term(kind) for kind in COLUMNS[name]]
        self._literals.append(f"{name}({', '.join(terms)})")

    def _atom_term(self, kind: str, binds: bool = True) -> str:
        choice = self._draw(st.integers(0, 9))
        if choice == 9:
            return value_text(self._pick(VALUES[kind]))
        if choice == 8 or not binds:
            return "_"
        name = f"{kind}{choice % 3}"
        if name not in self._bound[kind]:
            self._bound[kind].append(name)
        return name

    def _bound_term(self, kind: str) -> str:
        """A bound variable, or a constant where there is none."""
        names = self._bound[kind]
        if names and not self._chance(5):
            return self._pick(names)
        return value_text(self._pick(VALUES[kind]))

    def _negation(self) -> None:
        name = self._relation(below=True)
        terms = ["_" if self._chance(3) else self._bound_term(kind) for kind in COLUMNS[name]]
        self._literals.append(f"!{name}({', '.join(terms)})")

    def _comparison(self) -> None:
        kind = self._pick("nnns") if self._bound["s"] else "n"
        operator = self._pick(["=", "!=", "<", "<=", ">", ">="])
        left, right = self._bound_term(kind), self._bound_term(kind)
        if kind == "s" and self._chance(2):
            self._literals.append(f"{self._pick(['', '!'])}contains({left}, {right})")
            return
        if kind == "n" and self._chance(3):
            right = self._expression()
        self._literals.append(f"{left} {operator} {right}")

    def _expression(self) -> str:
        a, b = self._bound_term("n"), self._bound_term("n")
        if self._recursive:
            return f"({a} + {b}) % 5"
        form = self._pick(
            ["{a} + {b}", "{a} - {b}", "{a} * 2 - {b}", "min({a}, {b})", "-{a}", "({a} + 7) / 3"]
        )
        form = self._pick(
            [
                form,
                form,
                "{a} band {b}",
                "{a} % 3",
                "max({a}, {b}, 2)",
                "({a} bxor {b}) + 1",
                "{a} land lnot {b}",
            ]
        )
        return form.format(a=a, b=b)

    def _equation(self) -> None:
        self._fresh += 1
        if self._bound["s"] and self._chance(3):
            text = self._bound_term("s")
            if self._chance(2):
                name, term = f"k{self._fresh}", f"strlen({text})"
                self._bound["n"].append(name)
            else:
                name, term = (
                    f"u{self._fresh}",
                    f"substr({text}, 0, 1)" if self._recursive else self._longer(text),
                )
                self._bound["s"].append(name)
        else:
            name, term = f"k{self._fresh}", self._expression()
            self._bound["n"].append(name)
        sides = (name, term) if self._chance(2) else (term, name)
        self._literals.append(" = ".join(sides))

    def _longer(self, text: str) -> str:
        return self._pick(
            [f'cat({text}, "x")', f'rdf_iri("urn:{{}}:{{}}", {text}, 7)', f'rdf_literal({text}, "@en")']
        )

    def _aggregate(self) -> None:
        """A count, sum, min or max over a lower relation, with outer variables, now and then of a condition."""
        name = self._relation(below=True)
        own: list[str] = []
        terms = []
        for i, kind in enumerate(COLUMNS[name]):
            form = self._draw(st.integers(0, 3))
            if form == 0 and self._bound[kind]:
                terms.append(self._pick(self._bound[kind]))
            elif form == 1:
                terms.append("_")
            else:
                terms.append(f"a{self._fresh}_{i}")
                own.append(f"{kind}{terms[-1]}")
        inside = [f"{name}({', '.join(terms)})"]
        numbers = [name[1:] for name in own if name[0] == "n"]
        # A variable that only conditions of the aggregate share gets its values from the atoms around it, also in
        # recursion. It cannot be the result of another aggregate: those rules are refused.
        from_atoms = [name for name in self._bound["n"] if name[0] == "n"]
        outer = self._pick(from_atoms) if from_atoms else "2"
        if numbers and self._chance(2):
            inside.append(f"{self._pick(numbers)} {self._pick(['<', '!=', '>='])} {outer}")
        if numbers and self._chance(5):
            inside.append(f"!g({self._pick(numbers)}, {self._pick(['_', outer])})")
        if numbers and self._chance(5):
            # An aggregate inside of it, also over nothing; its value is one of those that the outer one folds.
            nested = f"k{self._fresh}n"
            # In recursion without a variable from outside: those rules are refused.
            limit = "" if self._recursive else self._pick([f", b < {outer}", ""])
            inside.append(
                f"{nested} = {self._pick(['count', 'sum b'])} : {{ g({self._pick(numbers)}, b){limit} }}"
            )
            numbers.append(nested)
        function = self._pick(["count", "count", "sum", "min", "max"]) if numbers else "count"
        argument = "" if function == "count" else f" {self._pick(numbers)}"
        if argument and self._chance(4):
            argument += " + 1"
        aggregate = f"{function}{argument} : {{ {', '.join(inside)} }}"
        self._fresh += 1
        if self._chance(3):
            self._literals.append(f"{self._bound_term('n')} {self._pick(['<=', '=', '!='])} {aggregate}")
            return
        result = f"k{self._fresh}"
        self._literals.append(f"{result} = {aggregate}")
        if not self._recursive:
            self._bound["n"].append(result)

    # ---- heads

    def _plain_head(self) -> str:
        terms = []
        for kind in COLUMNS[self._head]:
            if kind == "n" and self._chance(6):
                terms.append(self._expression())
            else:
                # What a recursive rule computed is small; what an aggregate counted stays out of it (see _aggregate).
                terms.append(self._bound_term(kind))
        return f"{self._head}({', '.join(terms)})"

    def _folded_head(self, columns: str, places: dict[int, str]) -> str:
        terms = [self._bound_term(kind) for kind in columns]
        for place, function in places.items():
            if function == "mean":
                terms[place] = self._bound_term("n")
            elif columns[place] == "n" and function != "count" and self._chance(3):
                terms[place] = self._expression()
            terms[place] = f"{function}({terms[place]})"
        return f"{self._head}({', '.join(terms)})"

    def _simple_fold(self) -> str:
        return self._pick(["lo2(min(x)) :- e(x, _), !q1(x).", "lo2(min(x + y)) :- p1(x, y), x != y."])

    def _extreme_path(self, function: str) -> str:
        """A recursive min or max that comes to rest: non-negative lengths, or a bound."""
        if function == "min":
            return self._pick(
                [
                    "sp1(x, min(d)) :- g(_, x), d = 0.",
                    "sp1(y, min(d + c)) :- sp1(x, d), w(x, y, c).",
                    "sp1(y, min(d + 1)) :- sp1(x, d), e(x, y), x != y.",
                    "sp1(y, min(d)) :- sp1(x, d), e(x, y).",
                    "sp1(y, min(d + c)) :- sp1(x, d), sp1(y, c), g(x, y).",
                ]
            )
        return self._pick(
            [
                "mx1(x, max(d)) :- g(x, d).",
                "mx1(y, max(d)) :- mx1(x, d), e(x, y).",
                "mx1(y, max(min(d + c, 9))) :- mx1(x, d), w(x, y, c).",
            ]
        )
