"""Arithmetic on numbers: 64-bit integers; a result that is not exact is refused.

In: columns int64. Out: int64; `NoResult` where the exact result does not fit or does not exist.
Always: the result is that of mathematical integers. Division and remainder truncate toward zero as in C, so that
`a = (a / b) * b + a % b`; a shift uses the lowest six bits of its distance as Souffle does, drops what is shifted
out, and to the right keeps the sign.
Rows are not checked one by one at first: the smallest and the largest operand usually show that no row overflows, which
costs a fraction of the full check.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from engine.data.codes import Codes
from engine.expressions.operation import Mask, refuse
from engine.language.constants import MAX_NUMBER, MIN_NUMBER

TOO_LARGE = "is outside of the range of 64-bit numbers"
BY_ZERO = "divides by zero"
_SHIFT_MASK = 63


def add(a: Codes, b: Codes) -> Codes:
    total = a + b
    (low_a, high_a), (low_b, high_b) = _range(a), _range(b)
    if low_a + low_b < MIN_NUMBER or high_a + high_b > MAX_NUMBER:
        # It wrapped if both operands have the sign that the sum has not.
        refuse((((a ^ total) & (b ^ total)) < 0, TOO_LARGE))
    return total


def subtract(a: Codes, b: Codes) -> Codes:
    difference = a - b
    (low_a, high_a), (low_b, high_b) = _range(a), _range(b)
    if low_a - high_b < MIN_NUMBER or high_a - low_b > MAX_NUMBER:
        refuse((((a ^ b) & (a ^ difference)) < 0, TOO_LARGE))
    return difference


def multiply(a: Codes, b: Codes) -> Codes:
    product, wrapped = _product(a, b)
    if wrapped is not None:
        refuse((wrapped, TOO_LARGE))
    return product


def divide(a: Codes, b: Codes) -> Codes:
    refuse((b == 0, BY_ZERO), ((a == MIN_NUMBER) & (b == -1), TOO_LARGE))
    quotient: Codes = a // b
    # Rounded down so far: one more where it is not whole and the signs differ. The product may wrap; it is
    # less than 2**64 away from a, so the comparison stays right.
    quotient += (quotient * b != a) & ((a ^ b) < 0)
    return quotient


def remainder(a: Codes, b: Codes) -> Codes:
    refuse((b == 0, BY_ZERO))
    # The one quotient that overflows has the remainder 0, but numpy computes the quotient.
    return np.fmod(a, np.where(b == -1, 1, b))


def power(a: Codes, b: Codes) -> Codes:
    """a ^ b by squaring; 0 ^ 0 is 1."""
    base, exponent = np.broadcast_arrays(a, b)
    large = (base > 1) | (base < -1)
    negative, wrapped = exponent < 0, large & (exponent > 63)
    # Powers of -1, 0 and 1 repeat, so that six bits are enough for every exponent that has a result.
    exponent = np.where(large | (exponent == 0), exponent, 2 - (exponent & 1))
    exponent = np.where(negative | wrapped, 0, exponent)
    result = np.ones_like(base)
    while True:
        product, over = _product(result, base)
        odd = (exponent & 1) == 1
        result = np.where(odd, product, result)
        if over is not None:
            wrapped |= odd & over
        exponent = exponent >> 1
        needed = exponent > 0
        if not needed.any():
            break
        base = np.where(needed, base, 1)
        base, over = _product(base, base)
        if over is not None:
            wrapped |= over
    refuse((negative, "has a negative exponent"), (wrapped, TOO_LARGE))
    return result


def negate(a: Codes) -> Codes:
    refuse((a == MIN_NUMBER, TOO_LARGE))
    return -a


def complement(a: Codes) -> Codes:
    return ~a


def shift_left(a: Codes, b: Codes) -> Codes:
    return a << (b & _SHIFT_MASK)


def shift_right(a: Codes, b: Codes) -> Codes:
    return a >> (b & _SHIFT_MASK)


def both(a: Codes, b: Codes) -> Codes:
    """As in C, every number except 0 counts as true, and the result true is 1."""
    return np.where((a != 0) & (b != 0), np.int64(1), np.int64(0))


def either(a: Codes, b: Codes) -> Codes:
    return np.where((a != 0) | (b != 0), np.int64(1), np.int64(0))


def one_of_two(a: Codes, b: Codes) -> Codes:
    return np.where((a != 0) ^ (b != 0), np.int64(1), np.int64(0))


def is_zero(a: Codes) -> Codes:
    return np.where(a == 0, np.int64(1), np.int64(0))


BINARY: dict[str, Callable[[Codes, Codes], Codes]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": remainder,
    "^": power,
    "band": operator.and_,
    "bor": operator.or_,
    "bxor": operator.xor,
    "bshl": shift_left,
    "bshr": shift_right,
    "land": both,
    "lor": either,
    "lxor": one_of_two,
}
UNARY: dict[str, Callable[[Codes], Codes]] = {"-": negate, "bnot": complement, "lnot": is_zero}


def _range(a: Codes) -> tuple[int, int]:
    return int(a.min()), int(a.max())


def _product(a: Codes, b: Codes) -> tuple[Codes, Mask | None]:
    """a * b modulo 2**64, and which rows wrapped around; None if none could."""
    product = a * b
    corners = [x * y for x in _range(a) for y in _range(b)]
    if min(corners) >= MIN_NUMBER and max(corners) <= MAX_NUMBER:
        return product, None
    # A wrapped product is at least 2**64 away from the true one, hence its quotient by a is not b.
    divisor = np.where((a == 0) | (a == -1), 1, a)
    wrapped = (a != 0) & np.where(a == -1, b == MIN_NUMBER, product // divisor != b)
    return product, wrapped
