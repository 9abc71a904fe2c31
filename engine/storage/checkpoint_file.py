"""A checkpoint as a file: written so that it is there whole or not at all, and read back only if it is undamaged.

In: a `Checkpoint` (engine/database/checkpoint.py). Out: one file, and from it an equal checkpoint whose arrays are in
memory of their own. The file has the arrays' bytes in chunks, then a description (JSON) with the form of each array and
a digest of each chunk, then a footer that says where the description is and has its digest. A chunk of zeros, such as
the part of a pool that was never used, is not stored. Always: the file gets its name only when all of it is on disk, so
a process that ends while it writes leaves the earlier file; each byte that is used has been compared with a digest.

The digest (XXH3, 128 bits) is for damage, not for forgery: whoever may write into the folder may change all data. It
takes 30 GB/s on the machine where BLAKE2b takes 1 and SHA-256 takes 2, so what reading costs is copying out of the page
cache, or the disk. Reading into memory was chosen over mapping the file: the bytes that were compared are the ones that
are used, and a file that is damaged or cut later on does not matter to the process.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import orjson
from xxhash import xxh3_128_digest, xxh3_128_hexdigest

from engine.database.checkpoint import Checkpoint
from engine.errors import CorruptSnapshotError
from engine.resident.checkpoint import Array, CheckpointUnusable, ResidentParts, layout
from engine.storage.manifest import StoredProgram

_FOOTER = struct.Struct("<QQ16s16s")  # place and length of the description, its digest, magic
_MAGIC = b"Zedlog checkp. 1"
_CHUNK = 1 << 20
_MOST_THREADS = 4


class NoCheckpoint(CheckpointUnusable):
    """There is no checkpoint."""


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> int:
    """Write the file, in place of the one that is there; returns its bytes.

    Raises:
        OSError: it could not be written; the earlier file is as it was.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            described = [_write_array(file, array) for array in checkpoint.parts.arrays]
            about = _encode(checkpoint, described)
            place = file.tell()
            file.write(about)
            file.write(_FOOTER.pack(place, len(about), xxh3_128_digest(about), _MAGIC))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return size


def remove_partial(path: Path) -> None:
    """Remove what processes that ended while they wrote have left of this file."""
    for partial in path.parent.glob(f"{path.name}.*.partial"):
        with suppress(OSError):
            partial.unlink()


def read_checkpoint(path: Path) -> Checkpoint:
    """The checkpoint in a file.

    Raises:
        NoCheckpoint: there is no such file.
        CheckpointUnusable: it is damaged, or was written by another version.
    """
    try:
        with path.open("rb") as file:
            described, parts = _read(file)
    except FileNotFoundError:
        raise NoCheckpoint("there is none") from None
    except OSError as error:
        raise CheckpointUnusable(f"it cannot be read: {error.strerror or error}") from error
    return _decode(described, parts)


# ---- arrays


def _bytes_of(array: Array) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _write_array(file: BinaryIO, array: Array) -> dict[str, Any]:
    data = _bytes_of(array)
    digests = []
    for start in range(0, len(data), _CHUNK):
        chunk = data[start : start + _CHUNK]
        if chunk.any():
            file.write(chunk.data)
            digests.append(xxh3_128_hexdigest(chunk.data))
        else:
            digests.append("")
    return {"type": _to_json(array.dtype), "shape": array.shape, "chunks": digests}


@dataclass(frozen=True, slots=True)
class _Chunk:
    into: npt.NDArray[np.uint8]
    place: int
    digest: str


def _read(file: BinaryIO) -> tuple[dict[str, Any], list[Array]]:
    """The description and the arrays. The arrays of another version are not read."""
    size = os.fstat(file.fileno()).st_size
    footer = os.pread(file.fileno(), _FOOTER.size, max(0, size - _FOOTER.size))
    place, length, digest, magic = _FOOTER.unpack(footer) if len(footer) == _FOOTER.size else (0, 0, b"", b"")
    if magic != _MAGIC or place + length + _FOOTER.size != size:
        raise CheckpointUnusable("it is damaged: it does not end as a checkpoint does")
    about = os.pread(file.fileno(), length, place)
    if xxh3_128_digest(about) != digest:
        raise CheckpointUnusable("it is damaged: its description is not what was written")
    described = orjson.loads(about)
    if described["layout"] != layout():
        return described, []
    arrays, chunks, end = [], [], 0
    for one in described["arrays"]:
        # Zeros from the system: what is never used takes no memory.
        array = np.zeros(one["shape"], np.dtype(_from_json(one["type"])))
        arrays.append(array)
        data = _bytes_of(array)
        for number, wanted in enumerate(one["chunks"]):
            if wanted:
                into = data[number * _CHUNK : (number + 1) * _CHUNK]
                chunks.append(_Chunk(into, end, wanted))
                end += len(into)
    if end != place:
        raise CheckpointUnusable("it is damaged: it does not have all of its arrays")
    _fill(file.fileno(), chunks)
    return described, arrays


def _fill(descriptor: int, chunks: Sequence[_Chunk]) -> None:
    def fill(part: Sequence[_Chunk]) -> None:
        for chunk in part:
            got = os.preadv(descriptor, [chunk.into.data], chunk.place)
            if got != len(chunk.into) or xxh3_128_hexdigest(chunk.into.data) != chunk.digest:
                raise CheckpointUnusable("it is damaged: an array is not what was written")

    threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(threads, "checkpoint") as pool:
        list(pool.map(fill, _shares(chunks, 8 * threads)))


def _shares(chunks: Sequence[_Chunk], number: int) -> Iterator[Sequence[_Chunk]]:
    size = max(1, -(-len(chunks) // number))
    return (chunks[start : start + size] for start in range(0, len(chunks), size))


def _to_json(kind: np.dtype[Any]) -> Any:
    return kind.descr if kind.names else kind.str


def _from_json(kind: Any) -> Any:
    return kind if isinstance(kind, str) else [tuple(field) for field in kind]


# ---- the description


def _encode(checkpoint: Checkpoint, described: Sequence[dict[str, Any]]) -> bytes:
    infos = tuple(info for info, _ in checkpoint.rules)
    program = StoredProgram(infos, checkpoint.declarations, dict(checkpoint.schemas))
    return orjson.dumps(
        {
            "layout": checkpoint.layout,
            "incarnation": checkpoint.incarnation,
            "epoch": checkpoint.epoch,
            "program": program.encode().decode(),
            "texts": [text for _, text in checkpoint.rules],
            "stored": list(checkpoint.stored),
            "keys": dict(checkpoint.keys),
            "versions": dict(checkpoint.versions),
            "symbols": checkpoint.symbols,
            "looked": checkpoint.looked,
            "heaviest": checkpoint.heaviest,
            "circuit": checkpoint.circuit,
            "parts": checkpoint.parts.about,
            "arrays": described,
        },
        # Counters may be numbers of numpy.
        option=orjson.OPT_SERIALIZE_NUMPY,
    )


def _decode(parsed: dict[str, Any], arrays: Sequence[Array]) -> Checkpoint:
    try:
        program = StoredProgram.decode(parsed["program"].encode())
        count, digest = parsed["symbols"]
        codes, strings = parsed["looked"]
        return Checkpoint(
            parsed["layout"],
            parsed["incarnation"],
            parsed["epoch"],
            list(zip(program.rules, parsed["texts"], strict=True)),
            program.declarations,
            program.schemas,
            parsed["stored"],
            parsed["keys"],
            parsed["versions"],
            (count, digest),
            (codes, strings),
            parsed["heaviest"],
            parsed["circuit"],
            ResidentParts(parsed["parts"], arrays),
        )
    except (CorruptSnapshotError, KeyError, TypeError, ValueError) as error:
        raise CheckpointUnusable(f"its description cannot be read: {error}") from error
