"""Changes of asserted weights, as a placement gets them: as arrays, or as rows that are not in this process.

An import of many facts, or the facts of a restart, need not pass through the process that decides about them: a
placement that can (`TakesFar`) takes them from where they are and tells numbers only. Every other placement, and
whoever needs the tuples, asks for `here`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, TypeGuard, runtime_checkable

import numpy as np

from engine.data.codes import Codes
from engine.data.facts import FileFacts
from engine.data.far import FarTexts
from engine.data.symbols import SymbolTable

FactArrays: TypeAlias = tuple[Codes, Codes]
"""(codes, weights int64[n]): the changes to the asserted weights. A tuple may occur more than once."""


class FarFacts(Protocol):
    """The same, elsewhere. rows: none has the weight 0. added, gone: rows with a weight above and below 0. heaviest: no
    weight is larger. more: how many more tuples are asserted after the change, where that is known.
    """

    @property
    def arity(self) -> int: ...

    @property
    def rows(self) -> int: ...

    @property
    def added(self) -> int: ...

    @property
    def gone(self) -> int: ...

    @property
    def heaviest(self) -> int: ...

    @property
    def more(self) -> int | None: ...

    def here(self) -> FactArrays:
        """The rows as arrays."""


FactDelta: TypeAlias = FactArrays | FarFacts


@dataclass(frozen=True, slots=True)
class Wrong:
    """Tuples whose weights leave their range. kind: `unfit`, the sum of the changes does not fit into 64 bits; `heavy`,
    the weight after it does not; `negative`, it would be below 0. number: of all; the others are of the first ones, in
    the order of their codes.
    """

    SHOWN: ClassVar[int] = 10

    kind: str
    number: int
    codes: Codes
    now: Codes
    changes: Sequence[int]


@dataclass(frozen=True, slots=True)
class Net:
    """Changes summed up by tuple, or what is wrong with them."""

    facts: FarFacts | None
    wrong: Wrong | None


@runtime_checkable
class TakesFar(Protocol):
    """A placement that takes facts and symbols without their passing through this process as a whole."""

    def takes(self, rows: int, /) -> bool:
        """Whether an import of so many rows is better taken from its files."""

    def take(self, relation: str, files: FileFacts, symbols: SymbolTable, /) -> FarFacts:
        """The facts in files, in codes; new symbols are added to `symbols`.

        Raises:
            InvalidValueError: a float is NaN or infinite.
        """

    def put(self, arity: int, parts: Iterable[FactArrays], /) -> FarFacts:
        """Facts that come in parts."""

    def joined(self, arity: int, parts: Sequence[FactDelta], /) -> FarFacts:
        """Several changes as one."""

    def net(self, relation: str | None, facts: FarFacts, /) -> Net:
        """The sums by tuple, over the asserted weights of a relation; None: nothing is asserted."""

    def texts(self, parts: Iterable[tuple[int, Sequence[str | None]]], /) -> FarTexts:
        """The texts of symbols, taken in parts: (code of the first, texts), ascending."""

    def let_go(self) -> None:
        """Give back what facts took that are part of the state by now, or were refused."""


_KINDS: dict[type[object], bool] = {}
"""Classes of placements, and whether they take far facts."""


def takes_far(placement: object) -> TypeGuard[TakesFar]:
    """Whether a placement is one that `TakesFar`. It is asked in every epoch, and to compare all methods of an object
    with those of a protocol takes longer than much of what a small epoch does; so it is done once for each class.
    """
    kind = type(placement)
    if kind not in _KINDS:
        _KINDS[kind] = issubclass(kind, TakesFar)
    return _KINDS[kind]


def arrays(facts: FactDelta) -> FactArrays:
    """The rows in this process."""
    return facts if isinstance(facts, tuple) else facts.here()


def rows_of(facts: FactDelta) -> int:
    """The number of rows."""
    return len(facts[0]) if isinstance(facts, tuple) else facts.rows


def moved(facts: FactDelta) -> tuple[int, int]:
    """How many rows have a weight above and below 0."""
    if not isinstance(facts, tuple):
        return facts.added, facts.gone
    return int(np.count_nonzero(facts[1] > 0)), int(np.count_nonzero(facts[1] < 0))


def heaviest(facts: FactDelta) -> int:
    """The largest weight; 0 if there is none above it."""
    if not isinstance(facts, tuple):
        return facts.heaviest
    return max(0, int(facts[1].max())) if len(facts[1]) else 0


def largest(facts: FactDelta) -> int:
    """No sum of all or of some of the changes of a tuple is larger than this."""
    if not isinstance(facts, tuple):
        return facts.rows * facts.heaviest
    codes, weights = facts
    return len(codes) * max(abs(int(weights.min())), int(weights.max())) if len(codes) else 0
