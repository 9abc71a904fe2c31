"""Computed values and conditions of rules: terms and comparisons over columns of codes.

Read expression.py first; operation.py defines what an operation is, operations.py selects it, and numbers.py,
floats.py, strings.py and rdf.py hold the operations themselves.
"""

from engine.expressions.expression import Condition, Expression, compile_condition, compile_term
from engine.expressions.facts import with_constant_facts
from engine.expressions.locals import distinct_locals
from engine.expressions.variables import variable_types

__all__ = [
    "Condition",
    "Expression",
    "compile_condition",
    "compile_term",
    "distinct_locals",
    "variable_types",
    "with_constant_facts",
]
