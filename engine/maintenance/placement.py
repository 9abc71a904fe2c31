"""The interface of a placement: it holds a circuit's state and brings it through one epoch.

The reasoner owns the program and the symbols, and decides what an epoch contains; a placement owns the arranged
collections. An epoch is `execute`, then exactly one of `commit` and `rollback`; between the two the state is the new
one. Codes are int64 (engine/data/values.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from engine.circuit.circuit import Circuit, Stratum
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.language.syntax import Constant
from engine.maintenance.change import Change
from engine.maintenance.facts import FactDelta
from engine.maintenance.policy import Policy, Switched
from engine.maintenance.repair import Repaired

DEFAULT = Policy()
MAX_HEIGHT = 1_100_000
"""The greatest height of a tuple in a recursion that computes values or folds them, unless a budget says otherwise: a
counter to a million fits, and an endless one is detected within some seconds. Any other recursion ends by itself.
"""
ANY_HEIGHT = 2**31 - 2
"""A budget's `height` that limits nothing."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that one epoch may take; None is no limit.

    derivations: enumerated in the epoch. tuples: rows held by all relations after it. height: of any tuple of a
    recursive stratum; None: MAX_HEIGHT where the recursion computes or folds values. memory: bytes of all arrays.
    seconds: of evaluation. cancelled: called now and then; true ends the evaluation. entered: called with the relations
    of each stratum that the evaluation comes to. leaves: called with each stratum that is bootstrapped: after how many
    derivations it is to end with `Elsewhere` (engine/maintenance/speed.py); None: never.
    """

    derivations: int | None = None
    tuples: int | None = None
    height: int | None = None
    memory: int | None = None
    seconds: float | None = None
    cancelled: Callable[[], bool] | None = None
    entered: Callable[[tuple[str, ...]], None] | None = None
    leaves: Callable[[Stratum], int | None] | None = None

    def tallest(self, stratum: Stratum) -> int:
        """The greatest height of a tuple of the stratum."""
        if self.height is not None and stratum.recursive:
            return self.height
        return MAX_HEIGHT if stratum.computes or stratum.signed else ANY_HEIGHT


@dataclass(frozen=True, slots=True)
class Executed:
    """What `execute` did: the change of each relation, the derivations that it enumerated, the strata (as their
    relations) that it built anew because their members changed, and those that it bootstrapped by the policy.
    dropped: the strata that lost all of their rules, and with them all that was derived.

    estimate: the largest estimates, made on the way, of what the updates needed in all. bootstrap: what bootstraps of
    the strata that changed were expected to need. Both in derivations; they count strata that were derived before.
    repaired: what DRed did to the strata that changed, where the transaction asks for it.
    """

    relations: Mapping[str, Change]
    derivations: int
    rebuilt: tuple[tuple[str, ...], ...]
    switched: tuple[Switched, ...] = ()
    estimate: int = 0
    bootstrap: int = 0
    repaired: tuple[Repaired, ...] = ()
    dropped: tuple[tuple[str, ...], ...] = ()

    @property
    def abandoned(self) -> int:
        """Derivations, among the enumerated ones, of updates that were dropped."""
        return sum(one.spent for one in self.switched)


@dataclass(frozen=True, slots=True)
class PlacementState:
    """Everything that a placement holds, for a move to another: the circuit, and for each relation an Arrow table of
    (c0 .., height, support, entry), in which rows of the same tuple and height are to be summed up.
    """

    circuit: Circuit
    relations: Mapping[str, pa.Table]


class Encode(Protocol):
    """Encodes constants. Computed strings are interned in `symbols`."""

    symbols: SymbolTable

    def __call__(self, constant: Constant, /) -> int: ...


class Placement(Protocol):
    """See the module."""

    @property
    def name(self) -> str:
        """`resident`, `spark`, or `mixed` if some strata are here and some there."""

    def execute(
        self,
        circuit: Circuit,
        facts: Mapping[str, FactDelta],
        encode: Encode,
        budget: Budget,
        policy: Policy = DEFAULT,
    ) -> Executed:
        """Bring the state to `circuit` over the facts changed by `facts`. Facts that are elsewhere (`FarFacts`) are
        brought here, unless the placement took them (`TakesFar`).

        The rules that appear or disappear are found by comparing with the circuit of the last epoch. `encode` gives the
        code of a constant. `policy` decides which strata are updated and which are bootstrapped; the result is the
        same. After an error the state is as before.

        Raises:
            BudgetExceededError, EvaluationCancelledError, WeightOverflowError.
        """

    def commit(self) -> None:
        """Keep the executed epoch."""

    def rollback(self) -> None:
        """Drop the executed epoch: facts, supports, entries and indexes are as before it."""

    def asserted(self, relation: str, codes: Codes) -> Codes:
        """The asserted weight of each tuple, int64[n]; 0 for one that is not there."""

    def count(self, relation: str, domain: str) -> int:
        """How many tuples are present (`all`), asserted, or derived."""

    def tuples(
        self, relation: str, bound: Mapping[int, int], domain: str, most: int | None = None
    ) -> tuple[Codes, Codes]:
        """The tuples of a domain that have the codes `bound` (by column), and their asserted weights. most: of many
        tuples only so many, the first in the order of their codes."""

    def holds(self, relation: str) -> bool:
        """Whether the placement holds anything of a relation."""

    def memory(self) -> int:
        """Bytes held."""

    def codes(self, columns: Mapping[str, Sequence[int] | None]) -> Codes | None:
        """The distinct codes in these columns of relations (None: in all columns), int64[n]; None if looking would cost
        too much. Not allowed between `execute` and its `commit` or `rollback`.
        """

    def state(self) -> dict[str, Any]:
        """The whole internal state in codes, in a canonical form: facts, supports, entries, indexes."""

    def export_state(self) -> PlacementState:
        """Everything, supports and heights included. Not allowed between `execute` and its `commit` or `rollback`."""

    def import_state(self, state: PlacementState, encode: Encode) -> None:
        """Hold what another placement held; this one must be new."""

    def close(self) -> None:
        """Give back what is held outside of this process. The placement must not be used any more."""

    def check_invariants(self) -> None:
        """Raise AssertionError where an internal structure contradicts another."""
