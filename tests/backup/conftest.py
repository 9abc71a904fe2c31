"""A database in a thread of this process, with a job thread, so that a backup can be made and restored without HTTP."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.backup.writing import backup
from engine.bulk.batches import UPLOADS
from engine.bulk.runner import JobOptions, JobRunner
from engine.data.sources import origin as source_origin
from engine.data.transaction import Transaction
from engine.errors import SparkUnavailableError
from engine.server.audits import Audits
from engine.server.loop import restore_reasoner
from engine.server.settings import EngineOptions
from engine.storage.embedded import EmbeddedServer
from engine.storage.jobs import Job
from tests.process.running import Database, EngineThread
from tests.waiting import until

_numbers = itertools.count(1)


class NoSpark:
    """A restore needs none."""

    running = False

    def another(self) -> Any:
        raise SparkUnavailableError("a restore must not ask for Spark")

    def close(self) -> None:
        pass


class Home:
    """One database: `db` is its client, `folder` its batch directory."""

    def __init__(self, db: Database, folder: Path, name: str) -> None:
        self.db, self.folder, self.name = db, folder, name

    def apply(self, **body: Any) -> dict[str, Any]:
        outcome = self.db.apply(Transaction.parse(**body))
        assert outcome.status == "committed", outcome.body
        return outcome.body

    def backup(self, path: Path, epoch: int | None = None) -> Path:
        async def write() -> None:
            snapshot = await self.db.client.snapshot(epoch)
            with path.open("wb") as file:
                async with self.db.client.hold(snapshot.epoch):
                    async for portion in backup(snapshot, self.name):
                        file.write(portion)

        self.db.run(write())
        return path

    def restore(self, path: Path) -> Job:
        """The job that restores a file, when it has ended."""
        uploads = self.folder / self.name / UPLOADS / "x"
        uploads.mkdir(parents=True, exist_ok=True)
        name = f"{next(_numbers)}.zip"
        (uploads / name).write_bytes(path.read_bytes())
        request = {"paths": [f"x/{name}"], "uploaded": True, "bytes": path.stat().st_size}
        job_id = self.db.run(self.db.client.jobs.submit("restore", request)).job_id
        return self.ended(job_id)

    def ended(self, job_id: str) -> Job:
        def look() -> Job | None:
            job = self.db.run(self.db.client.jobs.get(job_id))
            return job if job.ended else None

        return until(look, seconds=60)

    def everything(self) -> dict[str, Any]:
        """Rules with weights, declarations, each relation's types and tuples with weight and derivation, what every
        source asserts, and the digests of all that.
        """
        snapshot = self.db.run(self.db.client.snapshot())
        relations = {}
        for name, schema in snapshot.schemas.items():
            page = self.db.run(snapshot.facts(name, limit=1_000_000))
            asserted = self.db.run(snapshot.facts(name, domain="asserted", limit=1_000_000))
            relations[name] = (
                [column.type for column in schema.columns],
                {row: (w, d) for row, w, d in zip(page.tuples, page.weights, page.derived, strict=True)},
                dict(zip(asserted.tuples, asserted.weights, strict=True)),
            )
        rules = {rule.id: (rule.text, rule.weight) for rule in snapshot.rules}
        whole = snapshot.with_hidden()
        sources = {}
        for name in snapshot.hidden:
            if whole.counts(name).all:
                page = self.db.run(whole.facts(name, limit=1_000_000))
                types = [column.type for column in whole.schemas[name].columns]
                sources[source_origin(name)] = types, dict(zip(page.tuples, page.weights, strict=True))
        digests = {name: whole.digest(name) for name in whole.schemas if whole.counts(name).asserted}
        digests |= {name: snapshot.digest(name) for name in relations}
        return {
            "rules": rules,
            "declarations": snapshot.declarations,
            "relations": relations,
            "sources": sources,
            "digests": digests,
        }


@contextmanager
def home(
    server: EmbeddedServer, folder: Path, options: EngineOptions | None = None, name: str | None = None
) -> Iterator[Home]:
    """A database with an engine; without a name an empty one."""
    name = name or f"backup-{next(_numbers)}"
    jobs = JobRunner(server.url, name, JobOptions(folder / "batches"), NoSpark())  # type: ignore[arg-type]
    engine = EngineThread(server.url, name, options, restore_reasoner, audits=Audits(server.url, name))
    engine.engine._jobs = jobs
    with Database(server.url, name) as db, engine:
        yield Home(db, folder / "batches", name)
    jobs.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def origin(server: EmbeddedServer, tmp_path: Path) -> Iterator[Home]:
    with home(server, tmp_path / "origin") as made:
        yield made


@pytest.fixture
def other(server: EmbeddedServer, tmp_path: Path) -> Iterator[Home]:
    with home(server, tmp_path / "other") as made:
        yield made
