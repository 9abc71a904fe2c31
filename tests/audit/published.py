"""A reasoner and a publisher in this process, as an engine has them, so that a test can damage either side."""

from __future__ import annotations

from typing import Any

import redis

from engine.audit.audit import Subject, audit, check_recovered
from engine.audit.report import Report
from engine.database.epoch import EpochResult
from engine.resident.checkpoint import CheckpointUnusable
from engine.resident.placement import ResidentPlacement
from engine.resident.relation import Relation
from engine.server.recovery import read_state, versions_of
from engine.storage.publisher import Publisher
from engine.storage.retention import Retention
from tests.storage.writing import new_publisher
from zedlog import Reasoner

PROGRAM = [
    ("tc(x, y) :- edge(x, y).", 1),
    ("tc(x, z) :- tc(x, y), edge(y, z).", 1),
    ("far(x) :- node(x), !tc(x, x).", 1),
    ("cost(y, min(c + d)) :- cost(x, c), road(x, y, d).", 1),
]
FACTS = {
    "edge": [(("a", "b"), 1), (("b", "c"), 2), (("c", "a"), 1), (("c", "d"), 1), (("d", "e"), 3)],
    "node": [((name,), 1) for name in "abcdefg"],
    "road": [(("a", "b", 2), 1), (("b", "c", 3), 1), (("a", "c", 9), 1), (("c", "d", 1), 1)],
    "cost": [(("a", 0), 1), (("c", 7), 1)],
}


class Published:
    """See the module. It has the program and the facts above, unless it is made without. executors: those of Spark may
    publish."""

    def __init__(
        self,
        client: redis.Redis,
        url: str,
        database: str,
        reasoner: Reasoner | None = None,
        retention: Retention | None = None,
        filled: bool = True,
        executors: bool = False,
    ) -> None:
        self.client, self.url, self.name = client, url, database
        self.publisher: Publisher = new_publisher(client, database, retention, url if executors else None)
        self.reasoner = reasoner or Reasoner(placement="resident", threads=1)
        if filled:
            self.apply(rules=PROGRAM, facts=FACTS)
            # So that the snapshot has runs above the base, and the state was updated, too.
            self.apply(facts={"edge": [(("e", "f"), 1), (("c", "d"), -1)], "node": [(("h",), 1)]})

    def apply(self, **change: Any) -> EpochResult:
        result = self.reasoner.apply(**change)
        self.publisher.publish(result.record, (), f"{result.epoch}-1")
        return result

    @property
    def subject(self) -> Subject:
        return Subject(self.reasoner.database, self.publisher.manifest, self.url, self.name)

    def audit(self) -> Report:
        return audit(self.subject)

    def check_recovered(self) -> Report:
        return check_recovered(self.subject)

    def restart(self) -> None:
        """A new publisher and a new reasoner, from what is in Redis."""
        self.publisher = new_publisher(self.client, self.name)
        self.reasoner = Reasoner.restore(read_state(self.publisher), placement="resident", threads=1)

    def resume(self) -> None:
        """The same, but from a checkpoint, if it can be used."""
        checkpoint = self.reasoner.checkpoint(self.publisher.incarnation, versions_of(self.publisher))
        assert checkpoint is not None
        self.publisher = new_publisher(self.client, self.name)
        try:
            state = read_state(self.publisher)
            self.reasoner = Reasoner.resume(checkpoint, state, placement="resident", threads=1)
        except CheckpointUnusable:
            self.restart()

    def relation(self, name: str) -> Relation:
        """The arrays of a relation."""
        placement = self.reasoner.database.placement
        assert isinstance(placement, ResidentPlacement)
        return placement.relations[self.reasoner.database.program.key(name)]

    def row(self, relation: str, *values: Any) -> int:
        """The row of a tuple of symbols and numbers."""
        symbols, held = self.reasoner.database.symbols, self.relation(relation)
        codes = [symbols.find(value) if isinstance(value, str) else value for value in values]
        return held.arrays.rows[: held.live].tolist().index(codes)

    def digests(self) -> dict[str, int | None]:
        return {name: entry.digest for name, entry in self.publisher.manifest.relations.items()}
