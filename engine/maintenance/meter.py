"""The epoch's budget, watched while it runs: the error names the stratum, its rules and the relation that grew."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from engine.circuit.circuit import Stratum
from engine.circuit.normal import INTERNAL
from engine.errors import BudgetExceededError, EvaluationCancelledError
from engine.maintenance.placement import Budget
from engine.maintenance.policy import Course, known_to_users
from engine.maintenance.speed import Elsewhere

DROPPED = "it was dropped and changed nothing"
"""What every refusal for a budget says after its reason."""


class Growing(Protocol):
    """A relation as the budget sees it: `live` is the number of tuples that it holds."""

    @property
    def name(self) -> str: ...

    @property
    def live(self) -> int: ...

    def memory(self) -> int:
        """Bytes held."""


class Meter:
    """Counts derivations, and refuses what passes the budget.

    memory: returns the bytes that are held in all; without it those of `relations` are summed up. `beside` are the
    bytes that the epoch keeps in addition: the journal, and the changes of lower relations.
    """

    def __init__(
        self, budget: Budget, relations: Mapping[str, Growing], memory: Callable[[], int] | None = None
    ) -> None:
        self.beside = 0
        self._memory = memory or (lambda: sum(relation.memory() for relation in relations.values()))
        self.derivations = 0
        self.budget = budget
        self._relations = relations
        self._stop = None if budget.seconds is None else time.monotonic() + budget.seconds
        self._stratum: Stratum | None = None
        self.course = Course()
        self._grew = False
        # The derivations of the stratum after which it is to be evaluated elsewhere.
        self._leaves: int | None = None

    def enter(self, stratum: Stratum, course: Course | None = None) -> None:
        """The stratum that an error is about from now on, and what watches the cost of its strategy."""
        self._stratum = stratum
        self.course = course if course is not None else Course()
        bootstrapped = course is not None and course.bootstraps and stratum.derives
        self._leaves = (
            self.budget.leaves(stratum) if bootstrapped and self.budget.leaves is not None else None
        )
        if self.budget.entered is not None:
            self.budget.entered(known_to_users(stratum.relations))

    def grew(self) -> None:
        """An array of a relation was enlarged."""
        self._grew = True

    def reserve(self, size: int, relation: Growing | None = None) -> None:
        """Arrays of this many bytes are about to be made, in addition to the existing ones.

        Raises:
            BudgetExceededError: there is no room for them.
        """
        limit = self.budget.memory
        if limit is not None:
            self._check_memory(self._memory() + self.beside + size, limit, relation)

    def _check_memory(self, used: int, limit: int, relation: Growing | None) -> None:
        if used > limit:
            text = f"{used / 2**20:,.0f} MiB, of {limit / 2**20:,.0f} MiB allowed"
            hint = (
                "To allow it more: Budget(memory=...), 'zedlog run --memory', 'zedlog serve --memory-budget'"
            )
            self._refuse("memory", text, relation, hint)

    @property
    def left(self) -> int | None:
        """Derivations that the budget still allows; None where it has no limit."""
        limit = self.budget.derivations
        return None if limit is None else limit - self.derivations

    def charge(self, derivations: int) -> None:
        """Count derivations that a step is about to enumerate.

        Raises:
            Abandoned: the stratum is to be bootstrapped instead; the step is not counted.
            Elsewhere: its bootstrap is not to go on here.
        """
        self.course.charge(derivations)
        self.derivations += derivations
        if self._leaves is not None and self.course.spent > self._leaves:
            assert self._stratum is not None, "it was entered"
            raise Elsewhere(self._stratum.relations)
        limit = self.budget.derivations
        if limit is not None and self.derivations > limit:
            self._refuse("derivations", f"{self.derivations:,} derivations, of {limit:,} allowed")
        self.check_time()

    def quiet(self) -> float:
        """How many derivations may be enumerated before `charge` has to be asked."""
        left, quiet = self.left, self.course.quiet()
        if left is not None:
            quiet = min(left, quiet)
        if self._leaves is not None:
            quiet = min(max(0, self._leaves - self.course.spent), quiet)
        return quiet

    def passed(self, height: int, derivations: int) -> None:
        """So many derivations, no more than `quiet` said, were enumerated at a height."""
        self.course.passed(height, derivations)
        self.derivations += derivations

    def part(self, relations: Mapping[str, Growing], stratum: Stratum) -> Meter:
        """A meter for a part of the work on a stratum, which may be done in another thread, with what is left of the
        budget; `absorb` follows. relations: those of the part, whose memory comes on top of what is held now.
        """
        seconds = None if self._stop is None else max(0.0, self._stop - time.monotonic())
        budget = replace(self.budget, derivations=self.left, seconds=seconds, entered=None, leaves=None)
        held = self._memory()
        meter = Meter(
            budget,
            {**self._relations, **relations},
            lambda: held + sum(relation.memory() for relation in relations.values()),
        )
        meter.beside = self.beside
        meter.enter(stratum)
        return meter

    def absorb(self, part: Meter) -> None:
        """Count what a part of the work has counted.

        Raises:
            as of `charge`.
        """
        self.course.absorb(part.course)
        self.derivations += part.derivations
        self.charge(0)

    @property
    def held(self) -> int:
        """Tuples that all relations hold."""
        return sum(relation.live for relation in self._relations.values())

    def check_time(self) -> None:
        """Ask whether the evaluation may go on.

        Raises:
            BudgetExceededError: its time is over. EvaluationCancelledError: it was cancelled.
        """
        if self.budget.cancelled is not None and self.budget.cancelled():
            raise EvaluationCancelledError("the evaluation was cancelled; all of it was dropped")
        if self._stop is not None and time.monotonic() > self._stop:
            hint = "To allow it more: Budget(seconds=...), 'zedlog run --timeout', 'zedlog serve --epoch-seconds'"
            self._refuse("seconds", f"more than the {self.budget.seconds:g} seconds allowed", hint=hint)

    def height(self, height: int, stratum: Stratum) -> None:
        """The epoch goes on to `height`."""
        self.course.rise(height)
        limit = self.budget.tallest(stratum)
        if height > limit:
            self._refuse(
                "height",
                f"a tuple of height {height:,}, of {limit:,} allowed",
                hint="If the recursion ends, allow more heights (max_height, --max-height); "
                "if it does not end, add a condition that bounds the values that it computes",
            )

    def tuples(self, relation: Growing, stratum: Stratum) -> None:
        """Tuples were pushed to `relation`."""
        # One join may deliver many chunks, and is charged once. Facts are not evaluation.
        if self.derivations:
            self.check_time()
        limit = self.budget.tuples
        if limit is not None:
            held = self.held
            if held > limit:
                self._refuse("tuples", f"{held:,} tuples, of {limit:,} allowed", relation)
        if self._grew and self.budget.memory is not None:
            self._grew = False
            self._check_memory(self._memory(), self.budget.memory, relation)

    def _refuse(self, what: str, text: str, relation: Growing | None = None, hint: str = "") -> None:
        stratum = self._stratum
        names = stratum.relations if stratum else ()
        own = [self._relations[name] for name in names if name in self._relations]
        grown = self._relations[relation.name] if relation else max(own, key=lambda r: r.live, default=None)
        # Relations and rules that exist only in the circuit mean nothing to a user.
        shown = grown if grown is not None and known_to_users((grown.name,)) else None
        where = f" while {shown.name} grew to {shown.live:,} tuples" if shown else ""
        raise BudgetExceededError(
            f"the transaction needs {text}{where}; {DROPPED}{'. ' if hint else ''}{hint}",
            budget=what,
            stratum=list(known_to_users(names)),
            rules=sorted({rule.id.partition(INTERNAL)[0] for rule in stratum.rules}) if stratum else [],
            relation=shown.name if shown else None,
        )
