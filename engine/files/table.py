"""The tuples of one relation as columns: the form in which facts come from a file and results go into one.

Always: all columns have the table's length, and each value has its column's type. A column of numbers or floats is a
numpy array, one of symbols or bools a list, so that a file of numbers never becomes Python objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from engine.data.delimited import Values
from engine.data.values import Tuple
from engine.language.schema import ColumnType

Column: TypeAlias = Values


@dataclass(frozen=True, slots=True)
class FactTable:
    """`length` tuples; even a relation without columns has a length."""

    types: Sequence[ColumnType]
    columns: Sequence[Column]
    length: int

    def numbers(self) -> npt.NDArray[np.int64] | None:
        """int64[length, arity] if every column is of numbers."""
        if not self.types or any(kind is not ColumnType.NUMBER for kind in self.types):
            return None
        return np.column_stack(self.columns)

    def tuples(self) -> Iterator[Tuple]:
        """The tuples one by one."""
        if not self.types:
            return iter([()] * self.length)
        columns = [c.tolist() if isinstance(c, np.ndarray) else c for c in self.columns]
        return zip(*columns, strict=True)
