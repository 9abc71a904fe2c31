"""The oracle of the soak: a reasoner of its own that applies what was acknowledged, and compares.

Transactions are applied in the order of the log (their ids) after each pause of the writers; then every relation of
one pinned epoch must be the reasoner's, weights included, and each transaction's own pair must be there exactly once.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx

from engine.backup.reading import opened
from engine.data.transaction import Transaction
from engine.database.reasoner import Reasoner
from engine.errors import InvalidBackupError, ZedlogError
from tests.soak.load import Done, Listener, Shared

_PATIENCE = 180.0


class Oracle:
    """`check` at a pause: nothing is under way, so the newest epoch is what all transactions together make."""

    def __init__(self, shared: Shared, scratch: Path) -> None:
        self._shared, self._scratch = shared, scratch
        self._reasoner = Reasoner("resident")
        self._applied = 0

    def check(self, listener: Listener | None) -> None:
        with self._shared.lock:
            new = sorted(self._shared.done[self._applied :], key=lambda d: tuple(map(int, d.id.split("-"))))
            self._applied = len(self._shared.done)
            ended = set(self._shared.ended)
        self._replay(new)
        with self._shared.client() as http:
            epoch, found = self._read(http)
            with self._shared.lock:
                open_imports = {n: rows for n, rows in self._shared.begun.items() if n not in ended}
            early = self._set_aside(epoch, found, open_imports)
            self._compare(epoch, found)
            self._backup(http, epoch, early)
        if listener is not None:
            self._heard(listener, epoch, found)
        self._shared.tally.add("comparisons")

    def _replay(self, new: list[Done]) -> None:
        """What was committed must be committed here, and what was refused for its content must be refused."""
        last = 0
        for done in new:
            if done.epoch is None:
                continue
            if done.epoch < last:
                self._shared.tally.bad(
                    "wrong tuples", 1, f"{done.id} has epoch {done.epoch}, after epoch {last}"
                )
            last = done.epoch
            outcome = self._reasoner.commit([Transaction.parse(**done.body)]).outcomes[0]
            if isinstance(outcome, ZedlogError):
                self._shared.tally.bad(
                    "wrong tuples", 1, f"{done.id} was committed, but must be refused: {outcome}"
                )

    def _read(self, http: httpx.Client) -> tuple[int, dict[str, dict[Any, int]]]:
        """The newest epoch, and the tuples of all relations with their weights."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                answer = http.get("/v1/relations")
                answer.raise_for_status()
                epoch = answer.json()["epoch"]
                names = [one["relation"] for one in answer.json()["relations"]]
                return epoch, {name: self._tuples(http, name, epoch) for name in names}
            except (httpx.HTTPError, ValueError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _tuples(self, http: httpx.Client, name: str, epoch: int) -> dict[Any, int]:
        rows: dict[Any, int] = {}
        for domain in ("all", "asserted"):
            parameters: dict[str, Any] = {"as_of": epoch, "limit": 10_000, "domain": domain}
            while True:
                answer = http.get(f"/v1/relations/{name}/facts", params=parameters)
                answer.raise_for_status()
                body = answer.json()
                # Only facts have weights; those of other tuples are 0.
                weights = body.get("weights") or [0] * len(body["tuples"])
                for row, weight in zip(body["tuples"], weights, strict=True):
                    rows[tuple(row)] = weight
                if body.get("cursor") is None:
                    break
                parameters["cursor"] = body["cursor"]
        return rows

    def _set_aside(self, epoch: int, found: dict[str, dict[Any, int]], begun: dict[int, int]) -> int:
        """Imports whose outcome was not known may be there or not, but not in half. How many facts of theirs are."""
        early = 0
        brought, whole = found.get("brought", {}), found.get("whole", {})
        for n, rows in begun.items():
            own = [row for row in brought if row[0] == n]
            early += len(own)
            told = [row for row in whole if row[0] == n]
            if len(own) not in (0, rows) or told != ([(n, rows)] if own else []):
                text = f"epoch {epoch}: {len(own)} of {rows} rows of import {n}, {told}"
                self._shared.tally.bad("half epochs read", 1, text)
            for table, gone in ((brought, own), (whole, told)):
                for row in gone:
                    del table[row]
        return early

    def _compare(self, epoch: int, found: dict[str, dict[Any, int]]) -> None:
        tally = self._shared.tally
        names = self._reasoner.relations().keys() | found.keys()
        expected = {
            name: dict(self._reasoner.weighted(name)) if name in self._reasoner.relations() else {}
            for name in names
        }
        for name in sorted(names):
            here, there = expected[name], found.get(name, {})
            if name in ("left", "right", "brought"):
                lost, twice = here.keys() - there.keys(), [row for row, weight in there.items() if weight > 1]
                tally.bad("lost", len(lost), f"epoch {epoch}: {name}{sorted(lost)[:5]}")
                tally.bad("twice", len(twice), f"epoch {epoch}: {name}{twice[:5]}")
            wrong = [row for row in here.keys() | there.keys() if here.get(row) != there.get(row)]
            tally.bad("wrong tuples", len(wrong), f"epoch {epoch}: {name}{wrong[:5]}")
            tally.add("tuples compared", len(here))
        torn = found.get("torn", {})
        tally.bad("half epochs read", len(torn), f"epoch {epoch}: torn{list(torn)[:5]}")

    def _backup(self, http: httpx.Client, epoch: int, early: int) -> None:
        """A backup of the epoch is whole, or is refused by whoever reads it. early: facts that the oracle does not know
        yet."""
        path = self._scratch / "soak.zip"
        try:
            with http.stream("GET", "/v1/backup", params={"as_of": epoch}) as answer, path.open("wb") as file:
                if answer.status_code != 200:
                    return
                for portion in answer.iter_bytes():
                    file.write(portion)
        except httpx.TransportError:
            self._shared.tally.add("backups that were cut off")
            return
        try:
            manifest = opened(path).manifest
        except InvalidBackupError as error:
            self._shared.tally.bad("wrong backups", 1, f"epoch {epoch}: {error}")
            return
        facts = early + sum(self._reasoner.count(name, "asserted") for name in self._reasoner.relations())
        if (manifest.epoch, manifest.rows) != (epoch, facts):
            text = f"epoch {epoch}: it has {manifest.rows} facts of epoch {manifest.epoch}, not {facts}"
            self._shared.tally.bad("wrong backups", 1, text)
        self._shared.tally.add("backups")

    def _heard(self, listener: Listener, epoch: int, found: dict[str, dict[Any, int]]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while listener.epoch is None or listener.epoch < epoch:
            if time.monotonic() > deadline:
                self._shared.tally.bad("wrong in a feed", 1, f"it is at {listener.epoch}, not at {epoch}")
                return
            time.sleep(0.05)
        with listener.lock:
            for name in listener.relations:
                wrong = listener.states[name] ^ found.get(name, {}).keys()
                self._shared.tally.bad(
                    "wrong in a feed", len(wrong), f"epoch {epoch}: {name}{list(wrong)[:5]}"
                )
