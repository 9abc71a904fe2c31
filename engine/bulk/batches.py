"""Batch files: the facts of a bulk import, kept durably next to the log entry that names them.

In: Parquet files of natural typed columns (`c0 .. c(n-1)`: string, int64, double or bool) and a `weight` for each row,
below one batch directory. Out: `FileFacts`, which reads them as `TypedFacts` (engine/data/facts.py). Always: a file is
completely on the disk before the log names it with its SHA-256; it never changes; and a file that is missing or has
another digest is refused, so a replay applies exactly what was acknowledged. Codes are not in the files, because only
the engine assigns the codes of symbols.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.data.arrow import column, columns
from engine.data.facts import ARROW_TYPES, FileFacts, TypedFacts
from engine.data.transaction import BatchFile, FactChange, FactFiles, Transaction
from engine.errors import BatchUnreadableError, BulkStorageError
from engine.language.schema import ColumnType

WEIGHT = "weight"
REJECTS, UPLOADS = "rejects", "uploads"
"""Folders of a batch directory: bad rows of imports; files that the service has received."""


class BatchStore:
    """The batch directory of one database. Made when it is first written to.

    In it: a folder for each import, `rejects/`, `uploads/`, and a scratch folder whose name begins with a dot.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, name: str) -> Path:
        """An empty folder for one import or its scratch files.

        Raises:
            BulkStorageError: it cannot be made.
        """
        path = self.root / name
        try:
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
        except OSError as error:
            raise unwritable(path, error) from error
        return path

    def remove(self, name: str) -> None:
        """Remove a folder, if it is there."""
        shutil.rmtree(self.root / name, ignore_errors=True)

    def keep(self, name: str, relation: str, types: Sequence[ColumnType], files: Iterable[Path]) -> FactFiles:
        """Make finished Parquet files durable below the folder `name`, and name them.

        Raises:
            BulkStorageError: the files cannot be written to the disk.
        """
        kept: list[BatchFile] = []
        folder = self.root / name
        try:
            for number, source in enumerate(sorted(files)):
                rows = pq.read_metadata(source).num_rows
                if not rows:
                    continue
                path = folder / f"{relation}-{number:05d}.parquet"
                os.rename(source, path)
                digest, size = synced(path)
                kept.append(BatchFile(f"{name}/{path.name}", digest, rows, size))
            for directory in (folder, folder.parent):
                sync_folder(directory)
        except OSError as error:
            raise unwritable(folder, error) from error
        return FactFiles(relation, tuple(kind.value for kind in types), tuple(kept))

    def load(self, transaction: Transaction) -> Transaction:
        """The transaction with its batches as `facts` in files. Whoever stages it reads them, or lets others read them;
        then a file that is missing, or is not the one that was written, is refused with BatchUnreadableError.
        """
        if not transaction.batches:
            return transaction
        facts = tuple(
            FactChange(batch.relation, self.facts(batch), 0) for batch in transaction.batches if batch.files
        )
        return replace(transaction, batches=(), facts=(*transaction.facts, *facts))

    def facts(self, batch: FactFiles) -> FileFacts:
        """The facts of a batch, not read yet."""
        types = tuple(ColumnType(kind) for kind in batch.types)
        schema = pa.schema(
            [*((column(i), ARROW_TYPES[t]) for i, t in enumerate(types)), (WEIGHT, pa.int64())]
        )
        return FileFacts(
            types,
            sum(file.rows for file in batch.files),
            tuple(str(self.root / file.path) for file in batch.files),
            lambda: self._check(batch, schema),
            lambda: self._read(batch, types, schema),
            lambda: self._first(batch, len(types)),
        )

    def _read(
        self, batch: FactFiles, types: tuple[ColumnType, ...], schema: pa.Schema
    ) -> tuple[TypedFacts, npt.NDArray[np.int64]]:
        table = pa.concat_tables([self._part(file, schema) for file in batch.files])
        # Weights that cancel out within the import change nothing.
        table = table.filter(pc.not_equal(table.column(WEIGHT), 0))
        # A copy: Arrow lends its memory for reading only, and the kernels ask for more.
        weights = np.array(table.column(WEIGHT).to_numpy(), np.int64)
        return TypedFacts(types, table), weights

    def _part(self, file: BatchFile, schema: pa.Schema) -> pa.Table:
        path = self.root / file.path
        with _opening(path):
            data = path.read_bytes()
        _compare(path, hashlib.sha256(data).hexdigest(), file.sha256)
        with _parsing(path):
            table = pq.read_table(pa.BufferReader(data), columns=schema.names).select(schema.names)
            # Spark says of every column that it may hold nulls; here that is only a matter of the schema.
            return table.cast(schema)

    def _check(self, batch: FactFiles, schema: pa.Schema) -> None:
        """Compare the files' bytes, and their columns, with what was written."""
        for file in batch.files:
            path = self.root / file.path
            with _opening(path), path.open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            _compare(path, digest, file.sha256)
            with _parsing(path):
                held = pq.read_schema(path)
                for wanted in schema:
                    kind = held.field(wanted.name).type
                    # In the file these are the same.
                    kind = pa.string() if kind == pa.large_string() else kind
                    if kind != wanted.type:
                        raise pa.ArrowInvalid(f"{wanted.name} holds {kind} and not {wanted.type}")

    def _first(self, batch: FactFiles, arity: int) -> list[Any]:
        """One of the tuples."""
        path = self.root / batch.files[0].path
        with _opening(path), _parsing(path):
            rows = next(pq.ParquetFile(path).iter_batches(1, columns=columns(arity)))
            return list(rows.select(columns(arity)).to_pylist()[0].values())


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    """A file that cannot be read becomes an error for a user."""
    try:
        yield
    except OSError as error:
        raise BatchUnreadableError(
            f"the batch file {path} cannot be read ({error.strerror}); if the engine has moved, give it the same "
            "batch directory",
            file=str(path),
        ) from error


@contextmanager
def _parsing(path: Path) -> Iterator[None]:
    """The same for one that is not a Parquet file with the right columns."""
    try:
        yield
    except (pa.ArrowInvalid, KeyError, OSError) as error:
        raise BatchUnreadableError(
            f"the batch file {path} cannot be read: {error}", file=str(path)
        ) from error


def _compare(path: Path, digest: str, expected: str) -> None:
    if digest != expected:
        raise BatchUnreadableError(
            f"the batch file {path} has changed since it was imported: its SHA-256 is now {digest}",
            file=str(path),
            expected=expected,
            got=digest,
        )


def synced(path: Path) -> tuple[str, int]:
    """Make sure that a file is on the disk; returns its SHA-256 and size."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
        return digest, file.tell()


def sync_folder(path: Path) -> None:
    """Make sure that the names in a folder are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def unwritable(path: Path, error: OSError) -> BulkStorageError:
    """The error for a user when a directory cannot be written."""
    return BulkStorageError(f"cannot write to {path}: {error.strerror or error}", path=str(path))
