"""Values of aggregates from the values of their contributions, as evaluation computes them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.circuit.normal import Fold
from engine.data.codes import Codes
from engine.expressions import compile_term
from engine.language.schema import ColumnType
from engine.language.syntax import Aggregate, Term, Variable, rebuilt


def result_type(
    aggregate: Aggregate, types: Mapping[str, ColumnType | None], *, folded: bool = False
) -> ColumnType | None:
    """The type of an aggregate's value, or of what it folds."""
    if aggregate.function == "count":
        return ColumnType.NUMBER
    if aggregate.function == "mean" and not folded:
        return ColumnType.FLOAT
    assert aggregate.argument is not None
    return term_type(aggregate.argument, types)


def term_type(term: Term, types: Mapping[str, ColumnType | None]) -> ColumnType | None:
    """The type of a term, which may contain aggregates."""
    made: dict[str, ColumnType | None] = dict(types)

    def change(node: Term) -> Term:
        if isinstance(node, Aggregate):
            name = f"@type{len(made)}"
            made[name] = result_type(node, types)
            return Variable(name)
        return rebuilt(node, change)

    return compile_term(change(term), made).type


def fold(function: str, values: Codes, kind: ColumnType | None) -> int | None:
    """The code of the folded value; None if there is none, as for the minimum of nothing."""
    if function == "count":
        return len(values)
    # Loaded here: it comes with the compiled kernels, which most explanations do without.
    from engine.resident.folds import fold_values, ordered

    if function in ("min", "max"):
        if not len(values):
            return None
        keys = ordered(values, kind)
        return int(values[keys.argmin() if function == "min" else keys.argmax()])
    if not len(values):
        return 0 if function == "sum" else None
    value = values[np.argsort(ordered(values, kind), kind="stable")]
    what = Fold("", 1, function, 0, kind)
    return int(fold_values(what, np.zeros(len(value), np.int64), value, np.array([len(value)]))[0])
