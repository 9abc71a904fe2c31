"""Folders that `zedlog export --follow` fills: a file of Parquet for each epoch, alone or as a table of Delta.

In: batches of rows of one epoch. Out: `epoch-NUMBER.parquet`, with the columns of the relation, `weight` (+1 for a
tuple that appeared, -1 for one that went) and `epoch`. The state at the beginning is `epoch-NUMBER-snapshot.parquet`,
all of it with +1; so the sum of the weights up to an epoch is the state at that epoch. Always: a file gets its name
when it is on the disk as a whole, and the same epoch has the same name, so an epoch that comes again replaces its file.
As Delta, an epoch is one version of the table, which carries the epoch as the transaction of this application
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md, "Transaction Identifiers"), so it is added once.

The position is in `_position.json`, whose name, like those of unfinished files, readers of such folders pass over.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import InvalidRequestError, TargetExistsError

PARQUET, DELTA = "parquet", "delta"
_POSITION: Final = "_position.json"
_SAID: Final = b"zedlog"
"""What a file says of itself, in the metadata of Parquet."""
_LOG: Final = "_delta_log"
_APPLICATION: Final = "zedlog-export"
_ARROW: Final = {"symbol": pa.string(), "number": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}
_DELTA: Final = {"symbol": "string", "number": "long", "float": "double", "bool": "boolean"}

Columns = Sequence[tuple[str, str]]
"""Name and type of each column."""


class Folder:
    """One folder with the changes of one relation or query. about: what it is of; as_delta: as a table of Delta.

    Raises:
        TargetExistsError: it is of something else, or holds other things. InvalidRequestError: it is of another format.
    """

    def __init__(self, path: Path, about: Mapping[str, str], *, as_delta: bool) -> None:
        self.path = path
        self._about = dict(about)
        self._as_delta = as_delta
        self.columns: Columns | None = None
        self.token: str | None = None
        self.epoch = -1
        self._version, self._committed = 0, -1
        path.mkdir(parents=True, exist_ok=True)
        for leftover in path.glob(".*.part"):
            leftover.unlink()
        if (path / _POSITION).exists():
            self._resume(orjson.loads((path / _POSITION).read_bytes()))
        elif any(not name.startswith(".") for name in os.listdir(path)):
            raise TargetExistsError(
                f"{path} holds other things than an export that can go on; give a new folder", path=str(path)
            )
        else:
            self._keep()

    def _resume(self, kept: Mapping[str, Any]) -> None:
        if kept["about"] != self._about:
            what = next(iter(kept["about"].values()))
            raise TargetExistsError(
                f"{self.path} has the changes of {what}; give a folder for each", path=str(self.path)
            )
        if kept["format"] != self._format:
            raise InvalidRequestError(f"{self.path} has the format {kept['format']}", field="format")
        self.token, self.epoch = kept["token"], kept["epoch"]
        self.columns = _columns(kept["columns"])
        self._look()
        if self.token is None and (begun := sorted(self.path.glob("epoch-*-snapshot.parquet"))):
            # It was killed when the state was there, but not yet the position after it.
            said = orjson.loads(pq.read_metadata(begun[0]).metadata[_SAID])
            self.columns = _columns(said["columns"])
            if self._as_delta:
                self._commit(begun[0].name, said["epoch"], pq.read_metadata(begun[0]).num_rows)
            self.move(said["token"], said["epoch"])

    @property
    def _format(self) -> str:
        return DELTA if self._as_delta else PARQUET

    def take_columns(self, columns: Sequence[Mapping[str, Any]]) -> None:
        """The columns of what comes from now on.

        Raises:
            InvalidRequestError: they are others than those of the files that are there.
        """
        found = [(str(c["name"]), str(c["type"] or "")) for c in columns]
        if self.columns is None:
            # A column has no type as long as there is no value.
            self.columns = found if all(kind for _, kind in found) else None
        elif list(self.columns) != found and all(kind for _, kind in found):
            now = ", ".join(f"{name}: {kind}" for name, kind in found)
            raise InvalidRequestError(
                f"the columns are other ones now ({now}) than in {self.path}, which is complete up to the epoch "
                f"{self.epoch}; go on in another folder"
            )

    def move(self, token: str, epoch: int) -> None:
        """All up to this epoch has been written."""
        self.token, self.epoch = token, epoch
        self._keep()

    def _keep(self) -> None:
        kept = {
            "about": self._about,
            "format": self._format,
            "token": self.token,
            "epoch": self.epoch,
            "columns": self.columns,
        }
        with _whole(self.path / _POSITION) as part:
            part.write_bytes(orjson.dumps(kept))

    def has(self, epoch: int) -> bool:
        """Whether the table has the epoch already, whose file then stays as the table knows it."""
        return self._as_delta and epoch <= self._committed

    @contextmanager
    def writing(self, epoch: int, *, snapshot: bool = False) -> Iterator[EpochFile]:
        """The file of an epoch, which is there when the context ends without an error."""
        name = f"epoch-{epoch:020d}{'-snapshot' if snapshot else ''}.parquet"
        with _whole(self.path / name) as part:
            file = EpochFile(part, epoch, self.columns or ())
            try:
                yield file
            finally:
                file.close(self.columns)
        if self._as_delta:
            self._commit(name, epoch, file.rows)

    # ---- Delta

    def _commit(self, name: str, epoch: int, rows: int) -> None:
        """Add a file to the table, in one version, unless that has been done."""
        log = self.path / _LOG
        log.mkdir(exist_ok=True)
        while True:
            if epoch <= self._committed:
                return
            now = int(time.time() * 1000)
            size = (self.path / name).stat().st_size
            actions: list[dict[str, Any]] = [
                {"commitInfo": {"timestamp": now, "operation": "WRITE", "engineInfo": "zedlog"}},
                {"txn": {"appId": _APPLICATION, "version": epoch, "lastUpdated": now}},
                {
                    "add": {
                        "path": name,
                        "partitionValues": {},
                        "size": size,
                        "modificationTime": now,
                        "dataChange": True,
                        "stats": orjson.dumps({"numRecords": rows}).decode(),
                    }
                },
            ]
            if not self._version:
                actions[1:1] = self._table(now)
            if _first(log / f"{self._version:020d}.json", actions):
                self._version, self._committed = self._version + 1, epoch
                return
            # Somebody else, who looks after the table, has made this version.
            self._look()

    def _look(self) -> None:
        """Learn which version of the table comes next, and which epoch is the last that is in it."""
        versions = sorted(int(p.stem) for p in (self.path / _LOG).glob("[0-9]*.json") if p.stem.isdigit())
        self._version = versions[-1] + 1 if versions else 0
        self._committed = self._last_epoch(versions)

    def _last_epoch(self, versions: Sequence[int]) -> int:
        for version in reversed(versions):
            for line in (self.path / _LOG / f"{version:020d}.json").read_bytes().splitlines():
                done = orjson.loads(line).get("txn", {})
                if done.get("appId") == _APPLICATION:
                    return int(done["version"])
        return -1

    def _table(self, now: int) -> list[dict[str, Any]]:
        fields = [*(self.columns or ()), *((name, "number") for name in _added(self.columns or ()))]
        schema = {
            "type": "struct",
            "fields": [
                {"name": name, "type": _DELTA[kind], "nullable": True, "metadata": {}}
                for name, kind in fields
            ],
        }
        return [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {
                "metaData": {
                    "id": str(uuid.uuid4()),
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": orjson.dumps(schema).decode(),
                    "partitionColumns": [],
                    "configuration": {},
                    "createdTime": now,
                }
            },
        ]


class EpochFile:
    """The rows of one epoch, batch by batch."""

    def __init__(self, path: Path, epoch: int, columns: Columns) -> None:
        self._epoch, self._columns = epoch, columns
        added = [(name, pa.int64()) for name in _added(columns)]
        self._schema = pa.schema([*((name, _ARROW[kind]) for name, kind in columns), *added])
        self._writer = pq.ParquetWriter(path, self._schema)
        self.rows = 0
        self.token: str | None = None
        """To be known at the end."""

    def add(self, tuples: Sequence[Sequence[Any]], weight: int) -> None:
        """Add tuples that appeared (1) or went (-1)."""
        if not tuples:
            return
        arrays = [
            pa.array([row[i] for row in tuples], self._schema.field(i).type)
            for i in range(len(self._columns))
        ]
        for value in (weight, self._epoch):
            arrays.append(pa.repeat(pa.scalar(value, pa.int64()), len(tuples)))
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))
        self.rows += len(tuples)

    def close(self, columns: Columns | None) -> None:
        said = {"token": self.token, "epoch": self._epoch, "columns": columns}
        self._writer.add_key_value_metadata({_SAID: orjson.dumps(said)})
        self._writer.close()


def _columns(kept: Sequence[Sequence[str]] | None) -> Columns | None:
    return None if kept is None else [(name, kind) for name, kind in kept]


def _added(columns: Columns) -> tuple[str, str]:
    """The names of the columns for the weight and the epoch; other ones if the relation has such names itself."""
    taken = {name for name, _ in columns}
    return tuple(name if name not in taken else f"zedlog_{name}" for name in ("weight", "epoch"))  # type: ignore[return-value]  # as many as there are names


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A path to write to; what is there at the end gets the name `path` in one step, and stays there for good."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
        _sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _first(path: Path, actions: Sequence[Mapping[str, Any]]) -> bool:
    """Write a version of a table; False if somebody else has written it."""
    part = path.with_name(f".{path.name}.part")
    with part.open("wb") as out:
        out.write(b"".join(orjson.dumps(action) + b"\n" for action in actions))
        out.flush()
        os.fsync(out.fileno())
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    _sync(path.parent)
    return True


def _sync(folder: Path) -> None:
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
