"""Bindings for which a literal has no value: collected while plans run, and judged when the epoch's state is complete.

In: from a plan, the bindings that it dropped. Out, at the end: an `EvaluationError` if one of them is a binding of the
whole rule over the final state (engine/circuit/undefined.py says when). Always: whether an epoch is refused depends
only on the facts and rules that it leads to. This costs nothing while every value exists; otherwise it costs one small
join for each rule with such a binding, and the indexes that this join needs and the circuit does not have, which are
dropped again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

import numpy as np
import numpy.typing as npt

from engine.circuit.normal import CoreRule
from engine.circuit.plan import Absent, Let
from engine.circuit.undefined import UNDEFINED, Last, Question, ask
from engine.expressions import compile_condition, compile_term
from engine.language.syntax import Constant, names_of
from engine.maintenance.placement import Encode
from engine.resident.bound import BoundPlan, bind_rule
from engine.resident.folds import distinct_rows
from engine.resident.layout import I32, I64, NONE
from engine.resident.relation import ONE, Relation
from engine.resident.steps import Batch, Runner, Target

_GROUND = np.zeros(1, np.int32)
_MANY = 64

Mask = npt.NDArray[np.bool_]


class Undefined:
    """The bindings without a value in one epoch."""

    def __init__(self) -> None:
        # By rule and variables, the values int64[n, variables] for which some literal of the rule has no value.
        self._met: dict[tuple[str, tuple[str, ...]], tuple[CoreRule, list[I64]]] = {}

    def from_plan(
        self, plan: BoundPlan, literal: int, variables: tuple[str, ...], columns: Mapping[str, I64]
    ) -> None:
        """A literal of the plan's rule has no value where its variables have these values, int64[n] each."""
        rule = plan.rule.rule
        names = tuple(sorted(set(variables)))
        rows = np.column_stack([columns[name] for name in names]) if names else np.empty((1, 0), np.int64)
        _, met = self._met.setdefault((rule.id, names), (rule, []))
        met.append(rows)
        if len(met) >= _MANY:
            met[:] = [distinct_rows(np.concatenate(met))]

    def judge(
        self,
        rules: Container[str],
        relations: Mapping[str, Relation],
        runner: Runner,
        charge: Callable[[int], None],
        encode: Encode,
    ) -> None:
        """Check, over the final state, all collected bindings whose rule is still among `rules`.

        Raises:
            EvaluationError: of the first rule, by its id, that has such a binding.
        """
        for (id_, names), (rule, met) in sorted(self._met.items(), key=lambda item: item[0]):
            if id_ not in rules:
                continue
            question = ask(rule, names)
            rows = distinct_rows(np.concatenate(met))
            bindings = _bindings(question, rows, relations, runner, charge, encode)
            columns = {name: bindings[:, i] for i, name in enumerate(question.variables)}
            found = _marked(question, columns, len(bindings), relations, encode)
            if len(found):
                first = {name: column[found[:1]] for name, column in columns.items()}
                raise question.refusal(first, encode.symbols)


def _bindings(
    question: Question,
    rows: I64,
    relations: Mapping[str, Relation],
    runner: Runner,
    charge: Callable[[int], None],
    encode: Encode,
) -> I64:
    """The bindings of all that always has a value: int64[n, variables of the question], in ascending order."""
    arities = {name: relation.arity for name, relation in relations.items()}
    arities[UNDEFINED] = rows.shape[1]
    plan = bind_rule(question.sure, arities, encode)[0]
    missing = [d for d in plan.plan.demands if d.columns not in relations[d.relation].indexes]
    parts = [np.empty((0, len(question.variables)), np.int64)]
    weights = [np.empty(0, np.int64)]

    def emit(_: BoundPlan, codes: I64, heights: I32, counts: I64) -> None:
        parts.append(codes)
        weights.append(np.broadcast_to(counts, len(codes)))

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
        for demand in missing:
            relations[demand.relation].indexes.pop(demand.columns, None)
    # A tuple of a signed stratum has several entries, which sum up to whether it is there.
    every = np.concatenate(parts)
    # With a column more, for numpy finds no distinct rows among rows of no columns.
    codes, place = np.unique(np.c_[every, every[:, :0].sum(axis=1)], axis=0, return_inverse=True)
    net = np.zeros(len(codes), np.int64)
    np.add.at(net, place.reshape(-1), np.concatenate(weights))
    return codes[net > 0, : every.shape[1]]


def _marked(
    question: Question,
    columns: Mapping[str, I64],
    n: int,
    relations: Mapping[str, Relation],
    encode: Encode,
) -> npt.NDArray[np.intp]:
    """The numbers of the n bindings that no literal excludes and for which some literal has no value."""
    types = dict(question.rule.types)
    known = dict(columns)
    defined = {name: np.ones(n, np.bool_) for name in known}
    kept, marked = np.ones(n, np.bool_), np.zeros(n, np.bool_)
    for step in question.last:
        names = _names(step)
        whole = np.logical_and.reduce([kept, *(defined[name] for name in names)])
        rows = np.flatnonzero(whole)
        used = {name: known[name][rows] for name in names}
        if isinstance(step, Absent):
            key = np.empty((len(rows), len(step.key)), np.int64)
            for column, source in step.key:
                key[:, column] = encode(source) if isinstance(source, Constant) else used[source]
            kept[rows] &= ~_is_there(relations[step.relation], key)
            continue
        expression = (
            compile_term(step.term, types)
            if isinstance(step, Let)
            else compile_condition(step.condition, types)
        )
        values, some = expression.where_defined(used, len(rows), encode.symbols)
        valued = rows if some is None else rows[some]
        has_value = np.zeros(n, np.bool_)
        has_value[valued] = True
        marked |= kept & ~has_value
        if isinstance(step, Let):
            known[step.name] = np.zeros(n, np.int64)
            known[step.name][valued] = values
            defined[step.name] = has_value
        else:
            kept[valued] = values
    return np.flatnonzero(kept & marked)


def _is_there(relation: Relation, key: I64) -> Mask:
    """Whether each tuple is present."""
    there = np.zeros(len(key), np.bool_)
    rows = relation.rows_of(key)
    known = np.flatnonzero(rows != NONE)
    there[known] = relation.describe(rows[known])[2] > 0
    return there


def _names(step: Last) -> list[str]:
    """The variables that a step uses."""
    if isinstance(step, Absent):
        return [source for _, source in step.key if isinstance(source, str)]
    return sorted(names_of(step.term if isinstance(step, Let) else step.condition))
