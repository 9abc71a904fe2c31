"""Codes: every value is one int64 (engine/data/values.py), and a relation's tuples are the rows of a matrix of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int64]
"""int64[n, arity], n tuples; or int64[n], a column of them."""
