"""The hash of a row of int64 codes: multiply and xor-shift for each column, all 64 bits mixed.

A hit in a table always compares the whole key, so the hash decides speed alone, never the result.
"""

from __future__ import annotations

import numba
import numpy as np

_SEED = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0xD6E8FEB86659FD93)
_SHIFT = np.uint64(32)


@numba.njit(inline="always")
def mix(h, code):
    """Fold one code into the hash `h`."""
    h = (h ^ np.uint64(code)) * _MULTIPLIER
    return h ^ (h >> _SHIFT)


@numba.njit(inline="always")
def seed():
    return _SEED


@numba.njit(inline="always")
def hash_row(table, i, columns):
    """The hash of the first `columns` codes of row i."""
    h = _SEED
    for c in range(columns):
        h = (h ^ np.uint64(table[i, c])) * _MULTIPLIER
        h = h ^ (h >> _SHIFT)
    return h
