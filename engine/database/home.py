"""Where the state is: one placement at a time holds it, and it moves to another on request or when it must.

In: the placement that was chosen for the database (`auto`, `resident`, `spark`), what a transaction asks for, and the
memory that the resident one may take. Out: `now`, the placement to work on. Always: a move belongs to an epoch. The
placement that held the state before is kept until the epoch is committed, and has the state back if it is not; so a
refusal and a dry run leave everything where it was.

`auto` is resident while the state fits into the memory budget. An epoch that outgrows the budget is dropped, and
evaluated on Spark instead. The state comes back when it is expected to take less than half of the budget, so that it
does not move to and fro. A placement that a transaction asks for holds for that transaction alone; the next one that
asks for none goes back. A move costs one passage of the whole state through Arrow. Spark's packages are imported only
when Spark is needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from engine.data.transaction import PLACEMENTS, PlacementName
from engine.errors import (
    BudgetExceededError,
    InvalidRequestError,
    SparkUnavailableError,
    shown,
)
from engine.maintenance.meter import DROPPED
from engine.maintenance.placement import Budget, Encode, Placement
from engine.resident.placement import ResidentPlacement

if TYPE_CHECKING:
    from engine.spark.session.session import SparkOptions, SparkSource

BACK = 0.5
"""The share of the memory budget below which the state comes back from Spark."""
BYTES_FOR_SPARKS = 4
"""Bytes that the resident placement is expected to need, with its tables and indexes, for one on Spark."""


class Placements:
    """See the module. threads: of the resident placement. spark: how to get a session; one that is given stays open,
    one that is made here is started by the first epoch that needs it, and closed by `close`. spreads: whether `auto`
    may go to Spark without being asked.
    """

    def __init__(
        self,
        wanted: str,
        threads: int | None = None,
        spark: SparkSource | SparkOptions | None = None,
        spreads: bool = True,
    ) -> None:
        self._threads = threads
        self._spreads = spreads
        self._given = spark
        self._source: SparkSource | None = None
        self.wanted = _known(wanted)
        self.now = self._make(_first(self.wanted))
        self._held: Placement | None = None
        self._outgrown = self._outgrows = False
        self._refused_at: int | None = None
        self.why = ""
        """Why the present epoch is evaluated here, in words; empty if there is nothing to say."""

    def close(self) -> None:
        """Give back what is held outside of this process."""
        self.now.close()
        if self._source is not None and self._source is not self._given:
            self._source.close()

    def _make(self, name: str) -> Placement:
        if name != "spark":
            return ResidentPlacement(self._threads)
        from engine.spark.placement import SparkPlacement
        from engine.spark.session.session import SparkOptions, SparkSource

        if self._source is None:
            given = self._given
            self._source = given if isinstance(given, SparkSource) else SparkSource(given or SparkOptions())
        return SparkPlacement(self._source)

    # ---- one epoch

    def begin(self, asked: PlacementName | None, dry_run: bool, budget: Budget, encode: Encode) -> None:
        """Before an epoch: move to where it is to be evaluated.

        Raises:
            ZedlogError: the placement that the transaction asks for cannot take the state; nothing is moved.
        """
        self.why = ""
        self._outgrows = self._outgrown
        if asked is not None and asked != "auto":
            if asked != self.now.name:
                self._move(asked, budget, encode)
            self.why = f"on {asked}, as asked"
        elif not dry_run and (target := self._own_choice(budget)) != self.now.name:
            try:
                self._move(target, budget, encode)
            except (BudgetExceededError, SparkUnavailableError) as error:
                self._refused_at = self.now.memory()
                if self.wanted == "auto":
                    self._outgrown = self._outgrows = True
                self.why = f"stays on {self.now.name}: {error.message}"
            else:
                fits = "the state fits into the memory budget again"
                asked_for_none = "the transaction does not ask for another placement"
                self.why = f"back on {target}: {fits if self._outgrown else asked_for_none}"
                self._outgrows = False

    def _own_choice(self, budget: Budget) -> str:
        """Where the state belongs if the transaction does not ask for a placement."""
        if self.wanted != "auto":
            return self.wanted
        limit = budget.memory
        if self.now.name == "resident" or not self._outgrown or limit is None:
            return "resident"
        size = self.now.memory()
        tried = self._refused_at is not None and size > BACK * self._refused_at
        fits = size * BYTES_FOR_SPARKS <= BACK * limit
        return "resident" if fits and not tried else "spark"

    def budget(self, budget: Budget) -> Budget:
        """What the epoch may take here: the memory budget is for this process, and so for the resident placement."""
        return budget if self.now.name == "resident" else replace(budget, memory=None)

    def outgrow(self, error: BudgetExceededError, asked: PlacementName | None, encode: Encode) -> None:
        """The epoch was dropped by `error`: go to Spark, if the reason was memory and the placement is chosen
        automatically.

        Raises:
            BudgetExceededError: otherwise, or if Spark cannot take the state; then the message says both.
        """
        own = self._spreads and self.wanted == "auto" and asked in (None, "auto")
        if not own or self.now.name != "resident" or error.detail.get("budget") != "memory":
            raise error
        try:
            self._move("spark", Budget(), encode)
        except SparkUnavailableError as other:
            raise cannot_take(error, other) from other
        self._outgrows = True
        need = error.message.partition(f"; {DROPPED}")[0]
        self.why = f"moved to spark, because on resident {need}"

    def end(self, committed: bool) -> None:
        """After the epoch: leave the state where it is now, or have it back where it was."""
        held, self._held = self._held, None
        if held is not None:
            gone, self.now = (held, self.now) if committed else (self.now, held)
            gone.close()
        if committed:
            self._outgrown = self._outgrows and self.now.name == "spark"
            if not self._outgrown:
                self._refused_at = None

    def start_resident(self) -> None:
        """Begin with an empty state in this process; nothing must be held yet."""
        self.end(committed=False)
        if self.now.name != "resident":
            self.now.close()
            self.now = self._make("resident")
        self._outgrows = False

    def move_to(
        self, wanted: str, spark: SparkSource | SparkOptions | None, budget: Budget, encode: Encode
    ) -> None:
        """Choose another placement for the database, and move there.

        Raises:
            ZedlogError: the other placement cannot take the state; everything is as before.
        """
        name = _first(_known(wanted))
        before = self._given, self._source
        if spark is not None:
            self._given, self._source = spark, None
        try:
            if name != self.now.name or spark is not None:
                self._move(name, budget, encode)
        except BaseException:
            if spark is not None and self._source is not None and self._source is not spark:
                self._source.close()
            self._given, self._source = before
            raise
        self.end(committed=True)
        if spark is not None and before[1] is not None and before[1] is not before[0]:
            before[1].close()
        self.wanted = _known(wanted)
        self._outgrown = False

    def _move(self, name: str, budget: Budget, encode: Encode) -> None:
        other = self._make(name)
        try:
            other.import_state(self.now.export_state(), encode)
            size = other.memory()
            if name == "resident" and budget.memory is not None and size > budget.memory:
                raise BudgetExceededError(
                    f"the state needs {size / 2**20:,.0f} MiB in the engine process (resident), "
                    f"but {budget.memory / 2**20:,.0f} MiB are allowed",
                    budget="memory",
                )
        except BaseException:
            other.close()
            raise
        if self._held is None:
            self._held = self.now
        else:
            self.now.close()
        self.now = other


def cannot_take(error: BudgetExceededError, other: SparkUnavailableError) -> BudgetExceededError:
    """The refusal of an epoch that is too large for one placement, and cannot be evaluated on the other."""
    return BudgetExceededError(
        f"{error.message}; and Spark cannot take it over: {other.message}",
        **{**error.detail, "spark": other.code},
    )


def _known(name: str) -> PlacementName:
    if name not in PLACEMENTS:
        raise InvalidRequestError(f"placement must be one of {', '.join(PLACEMENTS)}, not {shown(name)}")
    return cast("PlacementName", name)


def _first(wanted: str) -> str:
    return "spark" if wanted == "spark" else "resident"
