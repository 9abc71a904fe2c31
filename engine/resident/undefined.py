"""Bindings for which a literal has no value: met while plans run, judged when the epoch's state is complete.

In: from a plan, the literal and the bindings that it dropped. Out, at the end: an `EvaluationError` if one of them is a
binding of the whole rule over the final state (engine/circuit/undefined.py says when). Always: which epochs are refused
depends on the facts and rules that they lead to alone. Costs nothing while every value exists; else one small join for
each rule that met one, and the indexes that this join needs and the circuit does not have, which are dropped again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from engine.circuit.normal import CoreRule
from engine.circuit.plan import equation
from engine.circuit.undefined import UNDEFINED, Question, ask
from engine.errors import EvaluationError
from engine.expressions import compile_condition, compile_term
from engine.language.canonical import format_rule
from engine.maintenance.placement import Encode
from engine.resident.bound import BoundPlan, bind_rule
from engine.resident.folds import distinct_rows
from engine.resident.layout import I32, I64
from engine.resident.relation import ONE, Relation
from engine.resident.steps import Batch, Runner, Target

_GROUND = np.zeros(1, np.int32)
_MANY = 64


@dataclass(slots=True)
class _Met:
    """The values of `variables` for which the literals `failed` of a rule have no value."""

    rule: CoreRule
    failed: frozenset[int]
    variables: tuple[str, ...]
    rows: list[I64]

    def add(self, rows: I64) -> None:
        self.rows.append(rows)
        if len(self.rows) >= _MANY:
            self.rows = [self.distinct()]

    def distinct(self) -> I64:
        return distinct_rows(np.concatenate(self.rows))


class Undefined:
    """What one epoch met."""

    def __init__(self) -> None:
        self._met: dict[tuple[str, frozenset[int], tuple[str, ...]], _Met] = {}

    def __len__(self) -> int:
        return len(self._met)

    def meet(
        self, rule: CoreRule, failed: frozenset[int], variables: Iterable[str], columns: Mapping[str, I64]
    ) -> None:
        """The literals `failed` have no value where the variables have these values, int64[n] each."""
        names = tuple(sorted(set(variables)))
        rows = np.column_stack([columns[name] for name in names]) if names else np.empty((1, 0), np.int64)
        met = self._met.setdefault((rule.id, failed, names), _Met(rule, failed, names, []))
        met.add(rows)

    def from_plan(
        self, plan: BoundPlan, literal: int, variables: tuple[str, ...], columns: Mapping[str, I64]
    ) -> None:
        """A plan of a rule of the program met it."""
        self.meet(plan.rule.rule, frozenset({literal}), variables, columns)

    def judge(
        self,
        rules: Container[str],
        relations: Mapping[str, Relation],
        runner: Runner,
        charge: Callable[[int], None],
        encode: Encode,
    ) -> None:
        """Ask about all that was met and whose rule is still among `rules`, over the final state.

        Raises:
            EvaluationError: of the first rule, by its id, that has such a binding.
        """
        while self._met:
            first = min(self._met, key=lambda key: (key[0], sorted(key[1]), key[2]))
            met = self._met.pop(first)
            if met.rule.id in rules:
                question = ask(met.rule, met.failed, met.variables)
                found = self._bindings(question, met.distinct(), relations, runner, charge, encode)
                if len(found):
                    raise _error(question, found[0], encode)

    def _bindings(
        self,
        question: Question,
        rows: I64,
        relations: Mapping[str, Relation],
        runner: Runner,
        charge: Callable[[int], None],
        encode: Encode,
    ) -> I64:
        """The answer: bindings, int64[n, variables of the question's head], in ascending order."""
        arities = {name: relation.arity for name, relation in relations.items()}
        arities[UNDEFINED] = rows.shape[1]
        plan = bind_rule(question.asked, arities, encode)[0]
        missing = [d for d in plan.plan.demands if d.columns not in relations[d.relation].indexes]
        parts = [np.empty((0, len(question.binding)), np.int64)]
        weights = [np.empty(0, np.int64)]

        def emit(_: BoundPlan, codes: I64, heights: I32, counts: I64) -> None:
            parts.append(codes)
            weights.append(np.broadcast_to(counts, len(codes)))

        def meet(_: BoundPlan, literal: int, variables: tuple[str, ...], columns: Mapping[str, I64]) -> None:
            failed = question.failed | {question.places[literal]}
            self.meet(question.rule, failed, (*question.variables, *variables), columns)

        kept, runner.meet = runner.meet, meet
        try:
            for demand in missing:
                relations[demand.relation].add_index(demand.columns)
            runner.run(
                plan,
                Batch(rows, _GROUND, ONE),
                lambda step: [Target.main(relations[step.relation], step.columns, False)],
                charge,
                emit,
            )
        finally:
            runner.meet = kept
            for demand in missing:
                relations[demand.relation].indexes.pop(demand.columns, None)
        # A tuple of a signed stratum has several entries, which sum up to whether it is there.
        every = np.concatenate(parts)
        # With a column more, for numpy finds no distinct rows among rows of no columns.
        codes, place = np.unique(np.c_[every, every[:, :0].sum(axis=1)], axis=0, return_inverse=True)
        net = np.zeros(len(codes), np.int64)
        np.add.at(net, place.reshape(-1), np.concatenate(weights))
        return codes[net > 0, : every.shape[1]]


def _error(question: Question, row: I64, encode: Encode) -> EvaluationError:
    """The error for a binding, as the evaluation of the literal gives it."""
    literal = question.first_failed
    columns = {name: row[i : i + 1] for i, name in enumerate(question.binding)}
    types = dict(question.rule.types)
    bound = equation(literal, set(columns))
    expression = compile_condition(literal, types) if bound is None else compile_term(bound[1], types)
    try:
        expression.evaluate(columns, 1, encode.symbols)
    except EvaluationError as error:
        error.detail["rule"] = format_rule(question.rule.origin)
        return error
    raise AssertionError("it has no value")
