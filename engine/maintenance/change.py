"""What an epoch changed in one relation, as a placement returns it.

`Change` says how much changed and can bring the tuples here. `RelationChange` has them as arrays in this process; the
change of a large relation on Spark stays on the executors (engine/spark/stored.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt


class Net(NamedTuple):
    """By how much the numbers of present, asserted and derived tuples grew."""

    present: int
    asserted: int
    derived: int


class Change(Protocol):
    """The tuples of one relation whose visible state an epoch changed, wherever they are."""

    @property
    def arity(self) -> int: ...

    @property
    def rows(self) -> int:
        """The number of changed tuples."""

    @property
    def inserted(self) -> int:
        """How many of them appeared."""

    @property
    def deleted(self) -> int:
        """How many of them disappeared."""

    @property
    def heaviest(self) -> int:
        """The largest asserted weight after the epoch; 0 if no changed tuple is asserted."""

    @property
    def net(self) -> Net: ...

    def here(self) -> RelationChange:
        """The tuples in this process; brought here first if they are elsewhere."""


@dataclass(frozen=True, slots=True)
class RelationChange:
    """The tuples of one relation whose visible state an epoch changed; n rows, each tuple once.

    codes: int64[n, arity], values as codes (see engine/data/values.py). asserted: int64[n], the facts' weights after
    the epoch. derived: bool[n], whether some rule derives the tuple after it. present: int8[n], +1 if the tuple
    appeared, -1 if it disappeared, 0 if only `asserted`, `derived` or `height` changed. was_asserted: int64[n],
    was_derived: bool[n], the same before the epoch. hidden: bool[n], whether the tuple is asserted after the epoch but
    not present, because the relation is folded by a `min` or `max` to which the fact only contributes; None: no tuple
    is hidden. height, was_height: int64[n], the height from which on the tuple is there, after the epoch and before it
    (0 where it is not there): it has a derivation from lower tuples of its stratum. None: all are 0.
    """

    codes: npt.NDArray[np.int64]
    asserted: npt.NDArray[np.int64]
    derived: npt.NDArray[np.bool_]
    present: npt.NDArray[np.int8]
    was_asserted: npt.NDArray[np.int64]
    was_derived: npt.NDArray[np.bool_]
    hidden: npt.NDArray[np.bool_] | None = None
    height: npt.NDArray[np.int64] | None = None
    was_height: npt.NDArray[np.int64] | None = None

    @property
    def arity(self) -> int:
        return int(self.codes.shape[1])

    @property
    def rows(self) -> int:
        return len(self.codes)

    @property
    def inserted(self) -> int:
        return int(np.count_nonzero(self.present > 0))

    @property
    def deleted(self) -> int:
        return int(np.count_nonzero(self.present < 0))

    @property
    def heaviest(self) -> int:
        return int(self.asserted.max(initial=0))

    @property
    def net(self) -> Net:
        return Net(
            int(self.present.sum(dtype=np.int64)),
            int(np.count_nonzero(self.asserted)) - int(np.count_nonzero(self.was_asserted)),
            int(np.count_nonzero(self.derived)) - int(np.count_nonzero(self.was_derived)),
        )

    def here(self) -> RelationChange:
        return self
