"""Where the state is: one placement at a time holds it, and it moves to another on request or when it must.

In: the placement that was chosen for the database (`auto`, `resident`, `spark`), what a transaction asks for, and the
memory that the resident one may take. Out: `now`, the placement to work on. Always: a move belongs to an epoch. What
held the state before is kept until the epoch is committed, and has the state back if it is not; so a refusal and a dry
run leave everything where it was.

`auto` is resident while the state fits into the memory budget. An epoch that outgrows the budget is dropped, and
evaluated again with the stratum that outgrew it on Spark, and with others if that is not enough; the rest stays at home
(engine/mixed/). A stratum comes back when it is expected to take, with what it reads and what is at home, less than
half of the budget, so that it does not move to and fro. A placement that a transaction asks for is for all strata, and
holds for that transaction alone; the next one that asks for none goes back. A move costs one passage of what moves
through Arrow. Spark's packages are imported only when Spark is needed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from engine.circuit.circuit import Circuit, Stratum
from engine.circuit.pivot import pivot_of
from engine.data.transaction import PLACEMENTS, PlacementName
from engine.database.epoch import EVERYTHING
from engine.errors import (
    BudgetExceededError,
    InvalidRequestError,
    SparkUnavailableError,
    shown,
)
from engine.maintenance.meter import DROPPED
from engine.maintenance.placement import Budget, Encode, Executed, Placement
from engine.maintenance.policy import known_to_users
from engine.maintenance.speed import Cluster, Elsewhere, Rates, Verdict, Work, judged
from engine.resident.placement import ResidentPlacement

if TYPE_CHECKING:
    from engine.mixed.placement import MixedPlacement
    from engine.spark.placement import SparkPlacement
    from engine.spark.session.session import SparkOptions, SparkSource

BACK = 0.5
"""The share of the memory budget below which the state comes back from Spark."""
BYTES_FOR_SPARKS = 4
"""Bytes that the resident placement is expected to need, with its tables and indexes, for one on Spark."""
LONG = 2.0
"""Seconds of evaluation at home from which on an epoch says why it was not evaluated on a cluster."""
ATTEMPTS = 4
"""So many times an epoch is tried with some strata on Spark; then everything goes there."""


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
        self._attempts = 0
        self._refused_at: int | None = None
        self.rates = Rates()
        """What is known of how fast this process and the cluster are."""
        self.learns = True
        """Whether more becomes known with each epoch."""
        self._chooses = self._went = False
        self._verdicts: dict[tuple[str, ...], Verdict] = {}
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
        self._attempts, self._went = 0, False
        self._chooses = self._spreads and self.wanted == "auto" and asked in (None, "auto") and not dry_run
        self._verdicts.clear()
        if asked is not None and asked != "auto":
            if asked != self.now.name:
                self._move(asked, budget, encode)
            self.why = f"on {asked}, as asked"
        elif not dry_run:
            self._go_back(budget, encode)

    def _go_back(self, budget: Budget, encode: Encode) -> None:
        """Let the state be where it belongs if the transaction does not ask for a placement."""
        target = _first(self.wanted)
        mixed = self._mixed()
        if mixed is not None and self.wanted == "auto":
            self._come_home(mixed, budget, encode)
        elif self.now.name != target:
            try:
                self._move(target, budget, encode)
            except (BudgetExceededError, SparkUnavailableError) as error:
                self.why = f"stays on {self.now.name}: {error.message}"
                if self.wanted == "auto":
                    from engine.mixed.placement import MixedPlacement

                    spark = cast("SparkPlacement", self.now)
                    self.now = MixedPlacement.around(spark, self._threads, error.message)
            else:
                self.why = f"back on {target}: the transaction does not ask for another placement"

    def _mixed(self) -> MixedPlacement | None:
        """The present placement, if strata of it may be anywhere."""
        if isinstance(self.now, ResidentPlacement):
            return None
        from engine.mixed.placement import MixedPlacement

        return self.now if isinstance(self.now, MixedPlacement) else None

    def _come_home(self, mixed: MixedPlacement, budget: Budget, encode: Encode) -> None:
        """Bring the strata home that have room there."""
        limit, there = budget.memory, mixed.spark.memory()
        if self._refused_at is not None and there > BACK * self._refused_at:
            return
        staying = frozenset() if limit is None else _without_room(mixed, BACK * limit)
        coming = mixed.away.keys() - staying
        if not coming:
            return
        try:
            mixed.place(staying, "", encode)
            size = mixed.home.memory()
            if limit is not None and size > limit:
                mixed.take_back()
                raise _too_large(size, limit)
        except (BudgetExceededError, SparkUnavailableError) as error:
            self._refused_at = there
            self.why = f"stays on {mixed.name}: {error.message}"
        else:
            self._carried(mixed)
            fits = "the state fits" if not staying else f"{_named(coming)} fit"
            self.why = f"back on resident: {fits} into the memory budget again"

    def away(self) -> Mapping[str, str]:
        """The relations that are on Spark, with the reason in words; `EVERYTHING` stands for all."""
        mixed = self._mixed()
        if mixed is not None:
            return mixed.away
        if self.now.name == "resident":
            return {}
        return {EVERYTHING: self.why or "it is the placement of the database"}

    def budget(self, budget: Budget) -> Budget:
        """What the epoch may take here: the memory budget is for this process, and so not for Spark."""
        if self.now.name == "spark" and self._mixed() is None:
            return replace(budget, memory=None)
        return (
            replace(budget, leaves=self._leaves) if self._chooses and self.cluster() is not None else budget
        )

    def outgrow(
        self, error: BudgetExceededError, asked: PlacementName | None, circuit: Circuit, encode: Encode
    ) -> None:
        """The epoch, which was to lead to `circuit`, was dropped by `error`: send strata to Spark, if the reason was
        memory and the placement is chosen automatically.

        Raises:
            BudgetExceededError: otherwise, or if Spark cannot take the state; then the message says both.
        """
        if not self._spreads or self.wanted != "auto" or asked not in (None, "auto"):
            raise error
        if self.now.name == "spark" or error.detail.get("budget") != "memory":
            raise error
        self._attempts += 1
        need = error.message.partition(f"; {DROPPED}")[0]
        try:
            mixed = self._mixed() or self._spread()
            away = mixed.away.keys() | self._leaving(mixed, error, circuit)
            leaving = away - mixed.away.keys()
            if not leaving:
                raise error
            mixed.place(away, f"in the engine process, {need}", encode)
        except SparkUnavailableError as other:
            raise cannot_take(error, other) from other
        self.now = mixed
        told = f"moved {_named(leaving)} to spark, because on resident {need}"
        self.why = told if self._attempts == 1 else f"{self.why}; {told}"

    # ---- a cluster that is faster

    def cluster(self) -> Cluster | None:
        """The cluster; None where Spark would run on this machine's own cores."""
        options = cast("SparkOptions | None", getattr(self._given, "options", self._given))
        if options is None or options.local:
            return None
        running = self._source is not None and self._source.running
        # Each partition is a task of its own; so their number is that of the cores that work at a time.
        return Cluster(options.master, options.partitions, running)

    def _leaves(self, stratum: Stratum) -> int | None:
        """After how many derivations a bootstrap at home is to go to the cluster."""
        mixed, cluster = self._mixed(), self.cluster()
        if cluster is None or not self._chooses or (mixed is not None and stratum.relations[0] in mixed.away):
            return None
        home = cast("ResidentPlacement", mixed.home if mixed is not None else self.now)
        costs, held = (mixed or home).costs, home.relations
        work = Work(
            costs.get(stratum.relations),
            sum(held[name].live * 8 * (held[name].arity + 3) for name in stratum.reads if name in held),
            8 * (3 + max(held[name].arity for name in stratum.relations)),
            not stratum.signed and pivot_of(stratum) is not None,
        )
        verdict = self._verdicts[stratum.relations] = judged(work, self.rates, cluster)
        return verdict.after

    def leave(self, elsewhere: Elsewhere, encode: Encode) -> None:
        """The epoch was dropped because a stratum is expected to take less time on the cluster: send it there. If the
        cluster cannot take it, the epoch stays at home.
        """
        why = self._verdicts[elsewhere.relations].goes
        try:
            mixed = self._mixed() or self._spread()
            assert self._source is not None, "it was made with the placement"
            if not self._source.running:
                start = time.monotonic()
                self._source.session()
                if self.learns:
                    self.rates = replace(self.rates, start=time.monotonic() - start)
            mixed.place(mixed.away.keys() | set(elsewhere.relations), why, encode)
        except SparkUnavailableError as error:
            self._stay(error)
            return
        self.now, self._went = mixed, True
        self._carried(mixed)
        self.why = f"moved {_named(elsewhere.relations)} to spark, which is faster: {why}"

    def refrain(self, error: SparkUnavailableError) -> bool:
        """Spark cannot evaluate the epoch. If it was only to be faster, the epoch is evaluated at home; returns
        whether.
        """
        if not self._went:
            return False
        self._stay(error)
        return True

    def _stay(self, error: SparkUnavailableError) -> None:
        """Go on where the epoch began, and do not choose the cluster again in it."""
        self._chooses = self._went = False
        mixed = self._mixed()
        if mixed is not None:
            mixed.take_back()
            if not mixed.away:
                self.now = mixed.gathered()
        self.why = f"stays on {self.now.name}: {error.message}"

    def _carried(self, mixed: MixedPlacement) -> None:
        carried = mixed.carried
        if not carried.fetched:
            self._measured("sent", carried.sent, carried.seconds)
        elif not carried.sent:
            self._measured("fetched", carried.fetched, carried.seconds)

    def _measured(self, name: str, amount: float, seconds: float) -> None:
        if self.learns:
            self.rates = self.rates.measured(name, amount, seconds)

    def done(self, executed: Executed, seconds: float) -> None:
        """An epoch was executed: learn how fast that was, and say why a large bootstrap stayed at home."""
        cluster, derivations = self.cluster(), executed.derivations
        if self._went and cluster is not None:
            self._measured("there", derivations / cluster.cores, seconds)
        elif self.now.name == "resident":
            self._measured("here", derivations, seconds)
            if self._chooses and not self.why and derivations / self.rates.here >= LONG:
                told = [f"{_named(names)} {one.stays}" for names, one in self._verdicts.items()]
                if cluster is None:
                    told = ["Spark would run on this machine's own cores"]
                self.why = "; ".join(["stays on resident", *told]).replace(";", ":", 1)

    def _spread(self) -> MixedPlacement:
        """The resident placement, with a place on Spark beside it."""
        from engine.mixed.placement import MixedPlacement

        home, spark = self.now, self._make("spark")
        return MixedPlacement(cast("ResidentPlacement", home), cast("SparkPlacement", spark))

    def _leaving(self, mixed: MixedPlacement, error: BudgetExceededError, circuit: Circuit) -> Set[str]:
        """The relations to go to Spark: those of the stratum that the error is about. If they are there already, their
        tuples have no room here, and the strata go that read them here. After two attempts in an epoch, also the
        largest others, until half of what is here is gone; after some more, everything.
        """
        if self._attempts > ATTEMPTS:
            return circuit.arities.keys()
        names = {name for name in error.detail["stratum"] if name in circuit.arities}
        found = {other for name in names for other in circuit.stratum_of[name].relations}
        if found <= mixed.away.keys():
            found = {
                name
                for stratum in circuit.strata
                if not names.isdisjoint(stratum.reads)
                for name in stratum.relations
            }
        if self._attempts > 2 or found <= mixed.away.keys():
            found |= _largest(mixed, circuit)
        return found

    def end(self, committed: bool) -> None:
        """After the epoch: leave the state where it is now, or have it back where it was."""
        held, self._held = self._held, None
        if held is not None:
            gone, self.now = (held, self.now) if committed else (self.now, held)
            gone.close()
        mixed = self._mixed()
        if mixed is not None:
            if not committed:
                mixed.take_back()
            if not mixed.away:
                self.now, self._refused_at = mixed.gathered(), None

    def start_resident(self) -> None:
        """Begin with an empty state in this process; nothing must be held yet."""
        self.end(committed=False)
        if self.now.name != "resident":
            self.now.close()
            self.now = self._make("resident")

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
        self._refused_at = None

    def _move(self, name: str, budget: Budget, encode: Encode) -> None:
        other = self._make(name)
        try:
            other.import_state(self.now.export_state(), encode)
            size = other.memory()
            if name == "resident" and budget.memory is not None and size > budget.memory:
                raise _too_large(size, budget.memory)
        except BaseException:
            other.close()
            raise
        if self._held is None:
            self._held = self.now
        else:
            self.now.close()
        self.now = other


def _too_large(size: int, limit: int) -> BudgetExceededError:
    return BudgetExceededError(
        f"the state needs {size / 2**20:,.0f} MiB in the engine process (resident), "
        f"but {limit / 2**20:,.0f} MiB are allowed",
        budget="memory",
    )


def _without_room(mixed: MixedPlacement, limit: float) -> Set[str]:
    """The relations that are on Spark and have no room at home: the smallest strata come first, each with a mirror of
    what it reads and what stays there.
    """
    staying = set(mixed.away)
    room = limit - mixed.home.memory()
    own = [stratum for stratum in mixed.circuit.strata if stratum.relations[0] in staying]
    sizes = {name: mixed.spark.size(name) * BYTES_FOR_SPARKS for name in staying}
    for stratum in sorted(own, key=lambda stratum: sum(sizes[name] for name in stratum.relations)):
        mirrors = (stratum.reads & staying) - mixed.home.relations.keys()
        need = sum(sizes[name] for name in (*stratum.relations, *mirrors))
        if need <= room:
            room -= need
            staying.difference_update(stratum.relations)
    return staying


def _largest(mixed: MixedPlacement, circuit: Circuit) -> set[str]:
    """The relations of the largest strata at home, which take half of what all take."""
    sizes = {
        stratum.relations: sum(
            mixed.home.relations[n].memory() for n in stratum.relations if n in mixed.home.relations
        )
        for stratum in circuit.strata
        if stratum.relations[0] not in mixed.away
    }
    left, found = sum(sizes.values()) / 2, set[str]()
    for relations in sorted(sizes, key=lambda relations: -sizes[relations]):
        if left < 0 or (found and not sizes[relations]):
            break
        left -= sizes[relations]
        found.update(relations)
    return found


def _named(relations: Iterable[str]) -> str:
    return "{" + ", ".join(sorted(known_to_users(relations))) + "}"


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
