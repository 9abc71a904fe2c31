"""Operations of the language as the evaluator sees them: a name and a function over columns of codes.

In: columns of codes, all of one length, or of length 1 for a constant. Out: a column as long as the longest.
Always: a function treats each row by itself, so that a row's result does not depend on the other rows; therefore a
later epoch can retract exactly what an earlier one added. Rows without a result raise `NoResult`, which says which rows
they are and gives the reason for the first; expression.py turns it into an error with the values, or goes on with the
other rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from engine.data.codes import Codes
from engine.expressions.texts import Texts

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Result = TypeVar("Result", Codes, Mask)


@dataclass(frozen=True, slots=True)
class Operation(Generic[Result]):
    """`name` is the operator or the functor as it is written; `apply` gets one column for each argument."""

    name: str
    apply: Callable[..., Result]

    def __call__(self, texts: Texts, *operands: Codes) -> Result:
        return self.apply(texts, *operands)


class NoResult(Exception):
    """The operation has no result in the rows that are set in `rows`, bool[n] or bool[1] for constants.

    `reason` is that of the first row; it continues a sentence that starts with the operation.
    """

    def __init__(self, reason: str, rows: Mask) -> None:
        super().__init__(reason)
        self.reason, self.rows = reason, rows


def refuse(*checks: tuple[Mask, str]) -> None:
    """Raise a `NoResult` for the rows that are set in any mask, with the reason that belongs to the first row's
    mask."""
    found = [(int(mask.argmax()), reason) for mask, reason in checks if mask.any()]
    if found:
        _, reason = min(found, key=lambda one: one[0])
        raise NoResult(reason, reduce(np.logical_or, (mask for mask, _ in checks)))
