"""A restore's work: turns a backup into batch files and the one transaction that names them; needs no Spark.

In: the file of a backup. Out: a transaction with its rules, declarations and facts, and what the database must look
like afterwards. Always: the whole backup has been checked, and every fact of it has been read, before there is a
transaction; until then nothing but the job's folder was written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.backup.form import MANIFEST, WEIGHT, BackupManifest, Collection, differences
from engine.backup.reading import Backup, damaged, opened
from engine.bulk.batches import BatchStore, unwritable
from engine.data.sources import check_source, origin, sourced
from engine.data.transaction import FactFiles, RuleChange, Transaction
from engine.errors import InvalidRequestError, shown
from engine.storage.snapshot import Snapshot

Step = Callable[[str], None]
_FILE_ROWS = 4_000_000
"""A batch file is read as a whole; this bounds it."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What a backup becomes. The collections of its manifest say what the database must hold afterwards."""

    backup: Backup
    transaction: Transaction

    def report(self) -> dict[str, Any]:
        """What is known before the transaction is applied."""
        manifest = self.backup.manifest
        return {
            "backup": {
                "database": manifest.database,
                "epoch": manifest.epoch,
                "version": manifest.version,
                "written": manifest.written,
            },
            "facts": manifest.rows,
            "rules": len(self.backup.rules),
            "relations": len([one for one in manifest.collections if not one.hidden]),
            "sources": len({one.place["source"] for one in manifest.collections if one.hidden}),
        }


def restored(path: Path, store: BatchStore, folder: str, step: Step = lambda _: None) -> Restored:
    """Check a backup and write its batch files below `folder`.

    Raises:
        InvalidBackupError, NewerBackupError: it cannot be restored. BulkStorageError: the folder cannot be written.
    """
    step("verify")
    backup = opened(path)
    _check_names(backup.manifest)
    step("batches")
    root = store.folder(folder)
    batches = []
    for number, one in enumerate(backup.manifest.collections):
        if one.file is not None:
            batches.append(_batch(backup, one, store, folder, root / f".scratch-{number}"))
    return Restored(
        backup,
        Transaction(
            declarations=backup.manifest.declarations,
            rules=tuple(RuleChange(rule.text, rule.weight) for rule in backup.rules),
            batches=tuple(batches),
            onto_empty=True,
        ),
    )


def _check_names(manifest: BackupManifest) -> None:
    """Check that what is said to be asserted by sources is of relations of the backup, with the types of these. That
    sources assert no more than is there, the engine checks when it adds up the weights (engine/database/staging.py).

    Raises:
        InvalidBackupError.
    """
    relations = {one.name: one for one in manifest.collections if not one.hidden}
    for one in manifest.collections:
        found = origin(one.name)
        if one.hidden != (found is not None):
            raise damaged(MANIFEST, f"{shown(one.name)} cannot be what its field hidden says")
        if found is None:
            continue
        relation, source = found
        try:
            check_source(source)
        except InvalidRequestError as error:
            raise damaged(MANIFEST, error.message) from error
        if sourced(relation, source) != one.name:
            raise damaged(MANIFEST, f"{shown(one.name)} is not the name of what a source asserts")
        if relation not in relations or relations[relation].types != one.types:
            raise damaged(
                MANIFEST,
                f"the source {shown(source)} asserts facts of {shown(relation)} as {one.schema}, but the backup has no "
                "such relation with these types",
            )


def _batch(backup: Backup, one: Collection, store: BatchStore, folder: str, scratch: Path) -> FactFiles:
    """Makes the batch files of one relation, with the names and types that the engine reads."""
    files: list[Path] = []
    writer: pq.ParquetWriter | None = None
    rows = 0
    try:
        scratch.mkdir()
        for table in backup.tables(one):
            if pc.min(table.column(WEIGHT)).as_py() is not None and pc.min(table.column(WEIGHT)).as_py() < 1:
                raise damaged(one.file or one.name, "a fact has a weight below 1")
            if writer is None or rows >= _FILE_ROWS:
                if writer is not None:
                    writer.close()
                files.append(scratch / f"{len(files):05d}.parquet")
                writer, rows = pq.ParquetWriter(files[-1], table.schema, compression="zstd"), 0
            writer.write_table(table)
            rows += table.num_rows
        if writer is not None:
            writer.close()
            writer = None
    except OSError as error:
        raise unwritable(scratch, error) from error
    finally:
        if writer is not None:
            writer.close()
    # A relation's name may be too long for a file.
    named = store.keep(folder, scratch.name.removeprefix("."), one.types, files)
    scratch.rmdir()
    return FactFiles(one.name, named.types, named.files)


def compared(snapshot: Snapshot, backup: Backup) -> list[dict[str, Any]]:
    """Where the restored database differs from what the backup says (engine/backup/form.py)."""
    whole = snapshot.with_hidden()
    found = {}
    for name in whole.schemas:
        counts = whole.counts(name)
        tuples = {"all": counts.all, "asserted": counts.asserted, "derived": counts.derived}
        found[name] = tuples, whole.digest(name)
    return differences(backup.manifest.collections, found)
