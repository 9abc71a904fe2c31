"""What an operation of the language is to the evaluator: a name and a function over columns of codes.

In: columns of codes, all of one length, or of length 1 for a constant. Out: a column as long as the longest.
Always: a function looks at each row by itself, so a row's result does not depend on the rows around it; with
that, what one epoch adds a later one can take away. A row without a result raises `Fault`, which says the
reason and the first such row; expression.py makes it an error with the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from engine.expressions.texts import Texts
from engine.values import Codes

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


class Fault(Exception):
    """The operation has no result in `row`. `reason` continues a sentence that starts with the operation."""

    def __init__(self, reason: str, row: int) -> None:
        super().__init__(reason, row)
        self.reason, self.row = reason, row


def refuse(*checks: tuple[Mask, str]) -> None:
    """Raise a `Fault` for the first row that is set in a mask, with the reason beside that mask."""
    rows = [(int(mask.argmax()), reason) for mask, reason in checks if mask.any()]
    if rows:
        row, reason = min(rows, key=lambda found: found[0])
        raise Fault(reason, row)
