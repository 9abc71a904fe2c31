"""The kernel under the digests of relations: the sum, modulo 2**128, of one 128-bit hash for each row.

A row's hash begins with a seed (of its relation) and takes in one 64-bit word after the other: for each column the two
halves of the hash of a symbol's text, or a value's code and a mark of its type; then the asserted weight and
the flags. Each step is a bijection of the state for a given word, and multiplies and shifts in between, so that
values which change places, or the sums of two rows and of two others, do not cancel out as they would in a linear hash.
It is for damage and for mistakes, not against forgery.

A row with neither weight nor derivation is not there, and counts 0. The sum wraps around; that is its modulus.
"""

from __future__ import annotations

import numba
import numpy as np
from numba import types

from engine.resident.kernels import kernel

# What is hashed may be strided or read-only: columns of a block, arrays that came from Arrow.
_I64_2 = types.Array(types.int64, 2, "A", readonly=True)
_I64_1 = types.Array(types.int64, 1, "A", readonly=True)
_I8_1 = types.Array(types.int8, 1, "A", readonly=True)
_BOOL_1 = types.Array(types.boolean, 1, "A", readonly=True)
_U64_2, _U64_1, _U8_1 = types.uint64[:, ::1], types.uint64[::1], types.uint8[::1]

SYMBOL = 1
"""The mark of a column of symbols; the marks of the other types are other small numbers."""

_A = np.uint64(0x9E3779B97F4A7C15)
_B = np.uint64(0xC2B2AE3D27D4EB4F)
_C = np.uint64(0xFF51AFD7ED558CCD)
_D = np.uint64(0xC4CEB9FE1A85EC53)
_29, _31, _32, _33 = np.uint64(29), np.uint64(31), np.uint64(32), np.uint64(33)


@numba.njit(inline="always")
def _take_in(a, b, word):
    a = (a ^ word) * _A
    a ^= a >> _32
    b = ((b ^ ((word << _31) | (word >> _33))) + a) * _B
    b ^= b >> _29
    return a + b, b


@numba.njit(inline="always")
def _end(a, b):
    a = (a ^ (a >> _33)) * _C
    a ^= a >> _33
    b = ((b + a) ^ ((b + a) >> _33)) * _D
    b ^= b >> _33
    return a + b, b


@numba.njit(inline="always")
def _state(a, b, weight, flags):
    a, b = _take_in(a, b, np.uint64(weight))
    a, b = _take_in(a, b, flags)
    return _end(a, b)


@numba.njit(inline="always")
def _flags(derived, hidden):
    return np.uint64(derived) | (np.uint64(hidden) << np.uint64(1))


@kernel(types.void(_I64_2, _U8_1, _U64_2, _U64_1, _I64_1, _BOOL_1, _BOOL_1, _I8_1, _I64_1, _BOOL_1, _U64_1))
def sum_rows(codes, kinds, texts, seed, weights, derived, hidden, present, was_weights, was_derived, total):
    """Add the hashes of the rows as they are, and subtract those of the rows as they were (of none, if `was_weights` is
    empty), to and from `total`: its low and its high 64 bits.

    codes[n, arity]; kinds[arity]; texts[codes, 2]: the hashes of the symbols; seed[2]; the others as in
    `RelationChange`. hidden: empty if no row is.
    """
    low, high = total[0], total[1]
    one = np.uint64(1)
    changed = was_weights.size > 0
    for i in range(codes.shape[0]):
        a, b = seed[0], seed[1]
        for c in range(kinds.size):
            code = codes[i, c]
            if kinds[c] == SYMBOL:
                a, b = _take_in(a, b, texts[code, 0])
                a, b = _take_in(a, b, texts[code, 1])
            else:
                a, b = _take_in(a, b, np.uint64(code))
                a, b = _take_in(a, b, np.uint64(kinds[c]))
        hides = hidden.size > 0 and hidden[i]
        there = weights[i] != 0 or derived[i]
        if there:
            x, y = _state(a, b, weights[i], _flags(derived[i], hides))
            low += x
            high += y
            if low < x:
                high += one
        if changed and (was_weights[i] != 0 or was_derived[i]):
            was_present = np.int64(there and not hides) - present[i] > 0
            hid = was_weights[i] != 0 and not was_present
            x, y = _state(a, b, was_weights[i], _flags(was_derived[i], hid))
            if low < x:
                high -= one
            low -= x
            high -= y
    total[0], total[1] = low, high
