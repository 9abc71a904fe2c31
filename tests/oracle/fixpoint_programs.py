"""Random programs with count, sum and mean in recursion, and histories of changes to them, as hypothesis strategies.

Rules are drawn from templates that pull in every direction: counts and sums that feed each other through plain
relations, conditions that turn recursion round (those programs often oscillate, and must be refused), a min in the
same stratum, negation below it, aggregates in bodies whose groups depend on the recursion. Each history draws the
limits of its relations too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from engine.language.canonical import format_declaration
from engine.language.parser import parse_declarations
from engine.language.syntax import Fixpoint
from tests.oracle.rules import Row
from tests.oracle.stratified_programs import Change, distinct

BASE = {
    "e": ("number", "number"), "g": ("number",), "b": ("number",), "w": ("number", "number", "float"),
}  # fmt: skip
PLAIN = {"p": ("number",), "q": ("number", "number"), "sp": ("number", "number"), "top": ("number",)}
FOLDED = {
    "cnt": ("number", "number"), "tot": ("number", "number"), "rank": ("number", "float"),
    "avg": ("number", "float"), "all": ("number",), "two": ("number", "number", "number"),
}  # fmt: skip
COLUMNS = {**BASE, **PLAIN, **FOLDED}
STARTS = ("p(x) :- g(x).", "cnt(y, count(x)) :- p(x), e(x, y).", "rank(x, sum(k)) :- g(x), k = 0.25.")
ROUNDS = (
    "p(y) :- p(x), e(x, y).",
    "p(y) :- p(x), p(z), e(x, y), e(z, y), x < z.",
    "p(x) :- e(x, _), !b(x).",
    "cnt(y, count(x)) :- q(x, _), e(y, x).",
    "cnt(y, count(x)) :- e(x, y), b(y).",
    "p(y) :- cnt(y, n), n >= {n}.",
    "p(y) :- cnt(y, n), n <= {n}.",
    "q(x, n % 3) :- cnt(x, n).",
    "q(x, y) :- p(x), e(x, y), cnt(y, {n}).",
    "tot(x, sum(k)) :- q(x, k).",
    "tot(x, sum(k)) :- e(x, k), g(x).",
    "tot(y, sum(k)) :- tot(x, n), e(x, y), k = n / 2.",
    "tot(y, sum(k)) :- tot(x, k), e(x, y), x < y.",
    "p(x) :- tot(x, n), n > {n}.",
    "rank(y, sum(k)) :- rank(x, c), e(x, y), k = 0.3 * c.",
    "rank(y, sum(k)) :- rank(x, c), w(x, y, f), k = c * f.",
    "p(x) :- rank(x, r), r > 0.4.",
    "avg(y, mean(r)) :- rank(x, r), e(x, y).",
    "avg(y, mean(k)) :- avg(x, r), e(x, y), k = r / 2.0 + 0.1.",
    "rank(x, sum(k)) :- avg(x, r), k = r * 0.1.",
    "all(count(x)) :- p(x).",
    "p(x) :- all(n), e(x, n).",
    "top(x) :- p(x), !b(x).",
    "top(n) :- n = count : { p(x), x > 1 }.",
)
"""Of these a height is a round of the text: no relation of the circuit's own comes between."""
DEEPER = (
    "p(y) :- p(x), e(x, y), {n} <= count : { g(a), a < x }.",
    "q(x, n) :- p(x), n = sum a : { e(a, _), a <= x }.",
    "p(x) :- e(x, _), 1 <= count : { q(a, _), b(a), a != x }.",
    "p(x) :- p(x), 0 <= count : { g(a), a < x }.",
    "two(x, count(y), sum(k)) :- q(x, y), g(k).",
    "two(y, count(k), sum(k)) :- two(x, k, _), e(x, y).",
    "q(x, n % 3) :- two(x, _, n).",
    "sp(x, min(n)) :- cnt(x, n).",
    "sp(y, min(d)) :- sp(x, d), e(x, y).",
    "p(x) :- sp(x, d), d >= {n}.",
    "q(x, n % 4) :- p(x), n = max k : { q(_, k), k < x }.",
)


@dataclass(frozen=True)
class FixpointHistory:
    """`limits`: of each folded relation. `deeper`: whether rules of `DEEPER` are among its rules."""

    changes: tuple[Change, ...]
    limits: dict[str, Fixpoint] = field(hash=False)
    deeper: bool

    def declarations(self) -> str:
        texts = []
        for name, columns in COLUMNS.items():
            text = f".decl {name}({', '.join(f'c{i}: {kind}' for i, kind in enumerate(columns))})"
            declaration = parse_declarations(text)[0]
            limit = self.limits.get(name)
            texts.append(format_declaration(declaration) + (f" {_text(limit)}" if limit else ""))
        return "\n".join(texts)


def _text(limit: Fixpoint) -> str:
    return f"fixpoint(tolerance={limit.tolerance}, max_height={limit.max_height})"


@st.composite
def fixpoint_histories(draw: st.DrawFn, max_epochs: int = 4) -> FixpointHistory:
    deeper = draw(st.booleans())
    template = st.sampled_from((*ROUNDS, *DEEPER) if deeper else ROUNDS)
    drawn = draw(st.lists(st.tuples(template, st.integers(1, 3)), min_size=8, max_size=16))
    rules = distinct([*STARTS, *(text.replace("{n}", str(n)) for text, n in drawn)])
    facts = list(
        dict.fromkeys([("g", (0,)), ("e", (0, 1)), *draw(st.lists(_facts(), min_size=18, max_size=30))])
    )
    weights: dict[object, int] = {}
    changes = []
    for number in range(draw(st.integers(1, max_epochs))):
        changes.append(
            Change(
                tuple(_steps(draw, facts, weights, len(facts) - 4 if number == 0 else 1)),
                tuple(_steps(draw, rules, weights, len(rules) - 1 if number == 0 else 0)),
            )
        )
    tolerances = {
        "cnt": (0.0, 0.0, 1.0),
        "tot": (0.0, 0.0, 2.0),
        "rank": (1e-4, 1e-2, 0.1),
        "avg": (1e-3, 0.1),
    }
    limits = {
        name: Fixpoint(
            draw(st.sampled_from(tolerances.get(name, (0.0,)))), draw(st.sampled_from((3, 40, 40, 40)))
        )
        for name in FOLDED
    }
    used = {name for name in FOLDED if any(rule.startswith(f"{name}(") for rule in rules)}
    return FixpointHistory(tuple(changes), {name: limits[name] for name in sorted(used)}, deeper)


def _steps(draw: st.DrawFn, pool: list, weights: dict[object, int], least: int) -> list:  # type: ignore[type-arg]  # of facts, or of texts
    """Mostly additions at first, later as many retractions; never more than there is."""
    steps = []
    least = max(0, min(least, len(pool)))
    for key in draw(st.lists(st.sampled_from(pool), min_size=least, max_size=max(least, 5), unique=True)):
        held = weights.get(key, 0)
        step = -held if held and draw(st.booleans()) else 1
        weights[key] = held + step
        steps.append((key, step))
    return steps


@st.composite
def _facts(draw: st.DrawFn) -> tuple[str, Row]:
    name = draw(st.sampled_from(("e", "e", "e", "g", "g", "b", "w", "p", "q")))
    values = {"number": st.integers(0, 4), "float": st.sampled_from((0.1, 0.25, 0.4))}
    return name, tuple(draw(values[kind]) for kind in COLUMNS[name])
