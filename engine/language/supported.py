"""Which features of the language the evaluator supports; this is the only place where one is switched on.

The parser accepts the whole dialect; a rule that uses a feature that is not in `SUPPORTED` is refused with an error
that names the feature and points at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from engine.errors import Span, UnsupportedFeatureError
from engine.language.syntax import (
    Aggregate,
    BinaryOperation,
    Comparison,
    FunctorCall,
    HeadAggregate,
    Negation,
    Rule,
    UnaryOperation,
    walk,
)


class Feature(StrEnum):
    """A part of the language that an evaluator may lack; the value is its name in an error."""

    NEGATION = "negation"
    COMPARISON = "comparison"
    ARITHMETIC = "arithmetic"
    FUNCTOR = "calling a functor"
    AGGREGATE = "aggregation"
    HEAD_AGGREGATE = "aggregation in a head"


_FEATURES: dict[type, Feature] = {
    Negation: Feature.NEGATION,
    Comparison: Feature.COMPARISON,
    BinaryOperation: Feature.ARITHMETIC,
    UnaryOperation: Feature.ARITHMETIC,
    FunctorCall: Feature.FUNCTOR,
    Aggregate: Feature.AGGREGATE,
    HeadAggregate: Feature.HEAD_AGGREGATE,
}

SUPPORTED: frozenset[Feature] = frozenset(Feature)


def check_supported(rule: Rule, supported: frozenset[Feature] = SUPPORTED) -> None:
    """Refuse a rule that this version cannot evaluate.

    Raises:
        UnsupportedFeatureError: names the first unsupported feature in the text.
    """
    for feature, span in features_of(rule):
        if feature not in supported:
            message = f"{feature.value} is not supported yet by this version"
            raise UnsupportedFeatureError(message, text=rule.text, span=span, feature=feature.name.lower())


def features_of(rule: Rule) -> Iterator[tuple[Feature, Span]]:
    """Every use of a feature, in the order of the text."""
    for literal in (rule.head, *rule.body):
        for node in walk(literal):
            feature = _FEATURES.get(type(node))
            if feature is not None:
                yield feature, node.span
