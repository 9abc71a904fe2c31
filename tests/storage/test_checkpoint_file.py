"""The file of a checkpoint: the same comes back, and what is damaged in any way is refused."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.database.checkpoint import Checkpoint
from engine.resident.checkpoint import CheckpointUnusable, ResidentParts
from engine.storage import checkpoint_file
from engine.storage.checkpoint_file import read_checkpoint, remove_partial, write_checkpoint
from engine.storage.manifest import StoredProgram
from tests.waiting import until
from zedlog import Reasoner


@pytest.fixture
def checkpoint() -> Checkpoint:
    """Of a state with rules, symbols and two indexes; the closure of 300 edges takes more than one chunk."""
    r = Reasoner("resident")
    r.apply(
        facts={"edge": [((f"n{i}", f"n{i + 1}"), 1) for i in range(300)], "n": [((1.5, 2), 3)]},
        rules=[("tc(x, y) :- edge(x, y).", 1), ("tc(x, z) :- tc(x, y), tc(y, z).", 2)],
        declarations=".decl n(a: float, b: number)",
    )
    made = r.checkpoint("incarnation", {"edge": "rAbc"})
    assert made is not None
    return made


def test_the_same_comes_back(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "c"
    sparse = np.zeros(3_000_000, np.int64)
    sparse[1_500_000] = 7
    arrays = [*checkpoint.parts.arrays, sparse, np.empty((0, 3), np.int32), np.zeros(200_000, np.int8)]
    size = write_checkpoint(path, replace(checkpoint, parts=ResidentParts(checkpoint.parts.about, arrays)))
    assert size == path.stat().st_size
    # Of the sparse one, only a chunk is stored.
    assert size < sum(array.nbytes for array in arrays) - sparse.nbytes * 0.9
    back = read_checkpoint(path)
    assert len(back.parts.arrays) == len(arrays)
    for one, other in zip(arrays, back.parts.arrays, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.tobytes() == other.tobytes()
        assert other.flags.writeable
    for name in ("layout", "incarnation", "epoch", "declarations", "schemas", "stored", "keys", "versions"):
        assert getattr(back, name) == getattr(checkpoint, name)
    for name in ("rules", "symbols", "looked", "heaviest", "circuit"):
        assert getattr(back, name) == getattr(checkpoint, name)
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnusable, match="there is none"):
        read_checkpoint(tmp_path / "c")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointUnusable, match="it cannot be read: Is a directory"):
        read_checkpoint(tmp_path / "folder")


def test_every_damage_is_noticed(tmp_path: Path, checkpoint: Checkpoint) -> None:
    path = tmp_path / "c"
    size = write_checkpoint(path, checkpoint)
    whole = path.read_bytes()
    rng = np.random.default_rng(1)
    for place in [0, size - 1, size - 20, size - 40, size - 50, *rng.integers(0, size, 40).tolist()]:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(damaged)
        with pytest.raises(CheckpointUnusable, match="it is damaged"):
            read_checkpoint(path)
    for length in [0, 1, 47, 48, size - 1, *rng.integers(0, size, 20).tolist()]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointUnusable, match="it is damaged"):
            read_checkpoint(path)
    for other in (whole + b"\0", whole[1:], whole[:1000] + whole[2000:], b"\0" * size, b"{}"):
        path.write_bytes(other)
        with pytest.raises(CheckpointUnusable, match="it is damaged"):
            read_checkpoint(path)
    path.write_bytes(whole)
    assert read_checkpoint(path).epoch == 1


def test_a_description_that_cannot_be_read(
    tmp_path: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As another version might have written it, with an intact digest."""
    monkeypatch.setattr(StoredProgram, "encode", lambda self: b"{}")
    write_checkpoint(tmp_path / "c", checkpoint)
    with pytest.raises(CheckpointUnusable, match="its description cannot be read: the program"):
        read_checkpoint(tmp_path / "c")


def test_the_arrays_of_another_version_are_not_even_read(tmp_path: Path, checkpoint: Checkpoint) -> None:
    write_checkpoint(tmp_path / "c", replace(checkpoint, layout="another"))
    back = read_checkpoint(tmp_path / "c")
    assert (back.layout, len(back.parts.arrays)) == ("another", 0)


@pytest.mark.parametrize("at", ["fsync", "write"])
def test_a_failure_leaves_the_earlier_file(
    tmp_path: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    path = tmp_path / "c"
    write_checkpoint(path, checkpoint)

    def full(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(*((os, "fsync") if at == "fsync" else (checkpoint_file, "_write_array")), full)
    with pytest.raises(OSError, match="No space left"):
        write_checkpoint(path, replace(checkpoint, epoch=2))
    assert read_checkpoint(path).epoch == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_process_that_is_killed_while_it_writes_leaves_the_earlier_file(
    tmp_path: Path, checkpoint: Checkpoint
) -> None:
    path = tmp_path / "c"
    write_checkpoint(path, checkpoint)
    for arrays in (1, 5, len(checkpoint.parts.arrays)):
        child = os.fork()
        if not child:
            try:
                halting(arrays)
                write_checkpoint(path, replace(checkpoint, epoch=2))
            finally:
                os._exit(1)
        until(lambda: (tmp_path / "halted").exists())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        (tmp_path / "halted").unlink()
        assert len(list(tmp_path.glob("c.*.partial"))) == 1
        assert read_checkpoint(path).epoch == 1
        remove_partial(path)
        assert list(tmp_path.iterdir()) == [path]


def halting(arrays: int) -> None:
    """Make this process halt for ever once it has written so many arrays."""
    write, written = checkpoint_file._write_array, 0

    def until_then(file: Any, array: Any) -> Any:
        nonlocal written
        described = write(file, array)
        written += 1
        if written == arrays:
            file.flush()
            (Path(file.name).parent / "halted").touch()
            signal.pause()
        return described

    checkpoint_file._write_array = until_then
