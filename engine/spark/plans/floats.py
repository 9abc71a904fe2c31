"""Codes of floats as doubles, and back: native expressions, exact for every float that there is.

A float's code is its 64 bits (engine/data/values.py). Spark has no function that reads a long as a double, so sign,
exponent and mantissa are taken apart and put together. Every step is exact: a power of two with a whole exponent is
(Java's `Math.pow`), and so is a product with one. Calling Java's own functions by reflection (`java_method`) takes five
times as long.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from engine.spark.frames import long

_MANTISSA = 52
_ONE = 1 << _MANTISSA
"""The bit in front of the mantissa, which is not written."""
_BIAS = 1023
_SMALLEST = -1022
"""The exponent of the smallest numbers with that bit, and of all without it."""
_INFINITE = 2047
_LOWEST = -(2**63)
_MAX = 2**63 - 1


def named(value: Column, use: Callable[[Column], Column]) -> Column:
    """`use` of a value, which stands in the expression once however often `use` does: a plan's size, and the time that
    Spark takes to read it, would be doubled by every use."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def to_double(code: Column) -> Column:
    """The float that a code stands for."""
    return named(code, _to_double)


def to_code(value: Column) -> Column:
    """The code of a double that is not NaN; of -0.0 that of 0.0."""
    return named(value, _to_code)


def finite(value: Column) -> Column:
    """The value if it is a finite number, else NULL. NaN is larger than everything to Spark."""
    return named(value, lambda v: F.when(F.abs(v) <= sys.float_info.max, v))


def ordered(code: Column) -> Column:
    """The code as a long that is ordered as the float: IEEE 754 is ordered as sign and magnitude."""
    return F.when(code < 0, code.bitwiseXOR(long(_MAX))).otherwise(code)


def _to_double(code: Column) -> Column:
    exponent = F.shiftright(code, _MANTISSA).bitwiseAND(long(_INFINITE))
    mantissa = code.bitwiseAND(long(_ONE - 1))
    size = (
        F.when(exponent == 0, mantissa.cast("double") * _power(F.lit(float(_SMALLEST - _MANTISSA))))
        .when(exponent == _INFINITE, F.lit(math.inf))
        .otherwise(
            (mantissa + long(_ONE)).cast("double") * _power((exponent - _BIAS - _MANTISSA).cast("double"))
        )
    )
    return size * F.when(code < 0, -1.0).otherwise(1.0)


def _to_code(value: Column) -> Column:
    code = named(F.abs(value), lambda size: named(_exponent(size), lambda e: _unsigned(size, e)))
    signed = code + F.when(value < 0, long(_LOWEST)).otherwise(long(0))
    return F.when(value == 0, long(0)).otherwise(signed)


def _exponent(size: Column) -> Column:
    """The exponent of a positive finite number, as a double."""

    def corrected(guess: Column) -> Column:
        # The logarithm is rounded, and may be one off beside a power of two.
        off = F.when(size >= _power(guess + 1), 1.0).when(size < _power(guess), -1.0).otherwise(0.0)
        return F.greatest(guess + off, F.lit(float(_SMALLEST)))

    # That of infinity is not used, but has to exist.
    guess = F.floor(F.least(F.log2(size), F.lit(float(_BIAS + 1))))
    return named(guess.cast("double"), corrected)


def _unsigned(size: Column, exponent: Column) -> Column:
    # With the bit in front; the numbers without it are those of the smallest exponent, less that bit.
    mantissa = (size / _power(exponent - _MANTISSA)).cast("long")
    code = (exponent - _SMALLEST).cast("long") * long(_ONE) + mantissa
    return F.when(size == math.inf, long(_INFINITE << _MANTISSA)).otherwise(code)


def _power(exponent: Column) -> Column:
    return F.pow(F.lit(2.0), exponent)
