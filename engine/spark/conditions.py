"""Conditions of rules as columns: comparisons of two variables or constants, on their codes.

Equal values have equal codes, whatever their type. Numbers and bools are ordered as their codes; so are floats once the
codes of negative ones are turned round (IEEE 754 is ordered as sign and magnitude). The order of symbols is that of
their texts, which are not on the executors; nor is any other value computed here yet. `check_supported` says so before
anything is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from engine.circuit.circuit import Circuit
from engine.circuit.normal import CoreRule
from engine.circuit.plan import Let, Where
from engine.errors import UnsupportedFeatureError
from engine.language.schema import ColumnType
from engine.language.syntax import Comparison, Constant, Term, Variable
from engine.spark.frames import long

Types = Mapping[str, ColumnType | None]

_MAX = 2**63 - 1
_EQUAL: dict[str, Callable[[Column, Column], Column]] = {"=": lambda a, b: a == b, "!=": lambda a, b: a != b}
_ORDER: dict[str, Callable[[Column, Column], Column]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def condition(
    comparison: Comparison,
    types: Types,
    variable: Callable[[str], str],
    encode: Callable[[Constant], int],
) -> Column:
    """The condition on bindings whose columns `variable` names."""

    def code(term: Term) -> Column:
        if isinstance(term, Variable):
            return F.col(variable(term.name))
        assert isinstance(term, Constant), "check_supported refuses computed terms"
        return long(encode(term))

    left, right = code(comparison.left), code(comparison.right)
    if comparison.operator in _EQUAL:
        return _EQUAL[comparison.operator](left, right)
    if ColumnType.FLOAT in (_type(comparison.left, types), _type(comparison.right, types)):
        left, right = _ordered(left), _ordered(right)
    return _ORDER[comparison.operator](left, right)


def check_supported(circuit: Circuit) -> None:
    """Refuse what this placement cannot evaluate yet, by its name.

    Raises:
        UnsupportedFeatureError: for the first such feature.
    """
    for stratum in circuit.strata:
        for fold in stratum.folds:
            name = fold.target.split("@")[0]
            if fold in stratum.clocked:
                raise _unsupported(
                    f"a recursive {fold.function}, which rules of {name} use,", fold.function, None
                )
            raise _unsupported(f"{fold.function}, which rules of {name} use,", fold.function, None)
        for rule in stratum.rules:
            for plan in rule.plans:
                for step in plan.steps:
                    if isinstance(step, Let) and not isinstance(step.term, Variable | Constant):
                        raise _unsupported("a computed value", "arithmetic", rule.rule)
                    if isinstance(step, Where):
                        _check_condition(step.condition, rule.rule)


def _check_condition(comparison: Comparison, rule: CoreRule) -> None:
    types = dict(rule.types)
    for term in (comparison.left, comparison.right):
        if not isinstance(term, Variable | Constant):
            raise _unsupported("a computed value", "arithmetic", rule)
        if comparison.operator in _ORDER and _type(term, types) is ColumnType.SYMBOL:
            raise _unsupported("the order of symbols", "comparison", rule)
    if comparison.operator not in _EQUAL and comparison.operator not in _ORDER:
        raise _unsupported(f"the condition {comparison.operator}", comparison.operator, rule)


def _unsupported(what: str, feature: str, rule: CoreRule | None) -> UnsupportedFeatureError:
    origin = rule.origin if rule is not None else None
    return UnsupportedFeatureError(
        f"{what} is not supported yet by the Spark placement; the resident placement evaluates it",
        text=origin.text if origin else None,
        span=origin.span if origin else None,
        feature=feature,
    )


def _type(term: Term, types: Types) -> ColumnType | None:
    if isinstance(term, Constant):
        return term.type
    return types.get(term.name) if isinstance(term, Variable) else None


def _ordered(code: Column) -> Column:
    return F.when(code < 0, code.bitwiseXOR(long(_MAX))).otherwise(code)
