"""The iteration by heights, by its definition: every relation's content at each height, supports and entries.

In: a circuit's core rules and folds, and facts. Out: the model, supports and entries; or `NotReachedError`. Nothing is
incremental: each height applies every rule of the stratum to the whole of what the height before holds.

    count(0) = the facts; count(k) = the facts and the derivations from what is present at k - 1
    present(k) = what has a count; of a fold in place the extreme of each group alone
    a fold over sources: the value held at k, over the sources present at k, those of lower strata from k = 1 on
    support[k] = count(k) - count(k - 1), entry[k] = present(k) - present(k - 1)

until two heights are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from engine.circuit.circuit import Circuit, Stratum, is_internal
from engine.circuit.normal import UNIT, CoreRule, Fold
from engine.language.syntax import Fixpoint
from tests.oracle.rules import Facts, Model, Row, Value
from tests.oracle.stratified import DivergesError, _Evaluation, fold, names_outside

ByHeight = dict[str, dict[Row, dict[int, int]]]
Counts = dict[str, Counter[Row]]


class NotReachedError(DivergesError):
    """A folded value still changes after its `max_height`; the arguments are the relation and the height."""


class Iterated(NamedTuple):
    model: Model
    supports: ByHeight
    entries: ByHeight
    heights: int


def iterated(circuit: Circuit, facts: Facts, heights: int = 300, budget: int = 2_000_000) -> Iterated:
    """The definition above, over the relations that a text can name."""
    result = Iterated({UNIT: {()}}, {}, {}, 0)
    for stratum in circuit.strata:
        if stratum.relations != (UNIT,):
            result = _Stratum(stratum, facts, result, heights, budget).run()
    model, supports, entries = (
        {name: held for name, held in part.items() if held and not is_internal(name)}
        for part in (result.model, result.supports, result.entries)
    )
    return Iterated(model, supports, entries, result.heights)  # type: ignore[arg-type]  # the three in their order


class _Stratum:
    def __init__(self, stratum: Stratum, facts: Facts, below: Iterated, heights: int, budget: int) -> None:
        self._stratum = stratum
        self._folds = {fold_.target: fold_ for fold_ in stratum.folds}
        self._facts: Counts = {
            name: Counter({row: w for row, w in facts.get(name, {}).items() if w > 0})
            for name in stratum.relations
        }
        self._below = below
        self._limit = heights
        self._budget = budget
        self._held: dict[str, dict[Row, Value]] = {name: {} for name in self._folds}

    def run(self) -> Iterated:
        names = self._stratum.relations
        counts: list[Counts] = [self._facts]
        present: list[Model] = [{name: self._present(name, self._facts[name]) for name in names}]
        while len(present) < 3 or present[-1] != present[-2]:
            if len(present) > self._limit:
                raise DivergesError(f"{names} goes on after {self._limit} heights")
            height = len(present)
            now = self._derived(present[-1])
            shown = {name: self._present(name, now[name]) for name in names}
            for name, fold_ in self._folds.items():
                if fold_.sources:
                    now[name] = Counter(self._folded(fold_, shown, height))
                    shown[name] = set(now[name])
            counts.append(now)
            present.append(shown)
        model = {**self._below.model, **present[-1]}
        supports, entries = dict(self._below.supports), dict(self._below.entries)
        for name in names:
            supports[name] = _differences([by[name] for by in counts])
            entries[name] = _differences([Counter(by[name]) for by in present])
        return Iterated(model, supports, entries, max(self._below.heights, len(present) - 2))

    def _derived(self, present: Model) -> Counts:
        """The facts, and the derivations from what is present and what is below."""
        evaluation = _Evaluation({**self._below.model, **present}, self._budget)
        counts = {name: Counter(rows) for name, rows in self._facts.items()}
        for rule in self._stratum.rules:
            counts[rule.head].update(_heads(rule.rule, evaluation))
        return counts

    def _present(self, name: str, counts: Counter[Row]) -> set[Row]:
        rows = set(counts)
        fold_ = self._folds.get(name)
        if fold_ is None or fold_.sources:
            return rows
        groups: dict[Row, list[Row]] = {}
        for row in rows:
            groups.setdefault(tuple(row[c] for c in fold_.group), []).append(row)
        best = max if fold_.function == "max" else min
        return {best(members, key=lambda row: row[fold_.place]) for members in groups.values()}

    def _folded(self, fold_: Fold, present: Model, height: int) -> list[Row]:
        """The tuples that the fold holds at this height."""
        size = len(fold_.group)
        groups: dict[Row, list[Value]] = {}
        for source in fold_.sources:
            rows = present[source] if source in present else self._below.model.get(source, set())
            for row in rows:
                groups.setdefault(row[:size], []).append(row[size])
        limit = fold_.fixpoint or Fixpoint(0.0, 10**9)
        before = self._held[fold_.target]
        held: dict[Row, Value] = {}
        for group, values in groups.items():
            value = fold(fold_.function, values)
            if group in before and abs(value - before[group]) <= limit.tolerance:  # type: ignore[operator]  # numbers
                value = before[group]
            held[group] = value
        if held != before and height > limit.max_height:
            raise NotReachedError(fold_.target, height)
        self._held[fold_.target] = held
        return [(*g[: fold_.place], value, *g[fold_.place :]) for g, value in held.items()]


def _heads(rule: CoreRule, evaluation: _Evaluation) -> list[Row]:
    """The head of every derivation."""
    scope = names_outside((rule.head, *rule.body))
    return [
        tuple(evaluation.value(term, binding, scope) for term in rule.head.terms)
        for binding in evaluation.solutions(rule.body, {}, scope)
    ]


def _differences(counts: list[Counter[Row]]) -> dict[Row, dict[int, int]]:
    """What changes from height to height, for each tuple of which anything does."""
    found: dict[Row, dict[int, int]] = {}
    before: Mapping[Row, int] = {}
    for height, now in enumerate(counts):
        for row in before.keys() | now.keys():
            change = now.get(row, 0) - before.get(row, 0)
            if change:
                found.setdefault(row, {})[height] = change
        before = now
    return found
