"""Arithmetic on floats: 64-bit IEEE numbers; a result that is not finite is refused.

In: columns float64 without NaN. Out: float64 without NaN and without -0.0, so that equal floats have equal codes.
Arithmetic never yields infinity, but `min`, `max` and a change of sign pass it on.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from engine.expressions.numbers import BY_ZERO
from engine.expressions.operation import Floats, Mask, refuse

TOO_LARGE = "is outside of the range of 64-bit floats"
NOT_REAL = "is not a real number"


def add(a: Floats, b: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return _finite(a + b)


def subtract(a: Floats, b: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return _finite(a - b)


def multiply(a: Floats, b: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return _finite(a * b)


def divide(a: Floats, b: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return _finite(a / b, b == 0)


def power(a: Floats, b: Floats) -> Floats:
    # numpy may have other code for columns that are not contiguous, and a row must not depend on that.
    with np.errstate(all="ignore"):
        result = np.power(np.ascontiguousarray(a), np.ascontiguousarray(b))
    return _finite(result, (a == 0) & (b < 0))


def negate(a: Floats) -> Floats:
    return -a + 0.0


BINARY: dict[str, Callable[[Floats, Floats], Floats]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "^": power,
}
UNARY: dict[str, Callable[[Floats], Floats]] = {"-": negate}


def _finite(result: Floats, by_zero: Mask | None = None) -> Floats:
    """The result, if all of it is finite; `by_zero` marks rows that divide by zero, for the reason in the error."""
    if not np.isfinite(result).all():
        zero = np.zeros(1, np.bool_) if by_zero is None else by_zero
        refuse((zero, BY_ZERO), (np.isnan(result), NOT_REAL), (np.isinf(result), TOO_LARGE))
    # -0.0 + 0.0 is 0.0.
    return result + 0.0
