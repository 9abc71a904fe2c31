"""What an operation of the language is to the evaluator: a name and a function over columns of codes.

In: columns of codes, all of one length, or of length 1 for a constant. Out: a column as long as the longest.
Always: a function looks at each row by itself, so a row's result does not depend on the rows around it; with
that, what one epoch adds a later one can take away. Rows without a result raise `NoResult`, which says which they
are and the reason for the first; expression.py makes it an error with the values, or goes on with the others.
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

    `reason` is that of the first one; it continues a sentence that starts with the operation.
    """

    def __init__(self, reason: str, rows: Mask) -> None:
        super().__init__(reason)
        self.reason, self.rows = reason, rows


def refuse(*checks: tuple[Mask, str]) -> None:
    """Raise a `NoResult` for the rows that are set in some mask; its reason stands beside the mask of the first row."""
    found = [(int(mask.argmax()), reason) for mask, reason in checks if mask.any()]
    if found:
        _, reason = min(found, key=lambda one: one[0])
        raise NoResult(reason, reduce(np.logical_or, (mask for mask, _ in checks)))
