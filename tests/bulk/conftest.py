"""A Spark session for the tests of bulk jobs, and an importer that brings files straight into a reasoner."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.bulk.batches import BatchStore
from engine.bulk.importing import Imported, Importer
from engine.bulk.sources import Places, sources_of
from engine.data.transaction import Transaction
from engine.database.epoch import EpochResult
from engine.errors import ZedlogError
from engine.spark.session.session import SparkSource
from service.bulk_models import ImportBody
from service.validation import read_as
from tests.spark.conftest import java, source  # noqa: F401
from zedlog import Reasoner

Bring = Callable[..., Imported]


class Import:
    """Files below `folder` into `reasoner`, as the engine's jobs do it, without Redis."""

    def __init__(self, folder: Path, session: Any) -> None:
        self.folder = folder
        self.session = session
        self.store = BatchStore(folder / "batches")
        self.rejects = folder / "rejects.jsonl"
        self.reasoner = Reasoner()
        self.steps: list[str] = []
        """The stages of the last import."""

    def write(self, name: str, text: str | bytes) -> str:
        data = text if isinstance(text, bytes) else text.encode()
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return name

    def declare(self, text: str) -> None:
        self.reasoner.apply(declarations=text)

    def read(self, **body: Any) -> tuple[Imported, Transaction]:
        request = read_as(ImportBody, body).request()
        self.steps = []
        importer = Importer(self.session, self.store, "job", self.rejects, self.steps.append)
        sources = sources_of(request, Places(import_root=self.folder))
        done = importer.run(request, sources, self.reasoner.relations())
        return done, done.transaction(request)

    def __call__(self, **body: Any) -> Imported:
        """Import, and apply what comes out; what refuses it is raised."""
        done, transaction = self.read(**body)
        self.apply(transaction)
        return done

    def apply(self, transaction: Transaction) -> EpochResult:
        """Apply a transaction as the log has it; what refuses it is raised."""
        logged = Transaction.decode(transaction.encode())
        outcome = self.reasoner.commit([self.store.load(logged)]).outcomes[0]
        if isinstance(outcome, ZedlogError):
            raise outcome
        return outcome

    def weighted(self, relation: str) -> dict[Any, int]:
        return dict(self.reasoner.weighted(relation, "asserted"))


@pytest.fixture
def bring(source: SparkSource, tmp_path: Path) -> Import:  # noqa: F811
    return Import(tmp_path, source.session().newSession())
