"""The symbol list in the snapshot, in chunks; new symbols are appended.

In: the chunks so far, the strings that an epoch interned, and the codes of those that nothing uses any more. Out: the
chunks after it. A symbol's code is its place in the list, for ever. A forgotten symbol leaves a hole: the chunk is
written anew without it, or left out if nothing is left; older manifests keep the chunk that they name. Small chunks are
merged by eights, like runs of tuples, up to `CHUNK_SYMBOLS`; so a database with n symbols has O(log n + n /
CHUNK_SYMBOLS) chunks, and a symbol is rewritten a handful of times.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.storage.manifest import SYMBOLS, SymbolChunk, decode_symbols, encode_symbols, object_id
from engine.storage.objects import ObjectStore

CHUNK_SYMBOLS = 65_536
_CHUNKS_PER_TIER = 8


def append_symbols(
    chunks: tuple[SymbolChunk, ...], symbols: Sequence[str], store: ObjectStore
) -> tuple[SymbolChunk, ...]:
    """The chunks with `symbols` at the end."""
    if not symbols:
        return chunks
    after = list(chunks)
    first = chunks[-1].first + chunks[-1].count if chunks else 0
    after += _write(symbols, first, store)
    while (mergeable := _mergeable(after)) > 1:
        joined: list[str | None] = []
        for chunk in after[-mergeable:]:
            joined += _read(chunk, store)
        after[-mergeable:] = _write(joined, after[-mergeable].first, store)
    return tuple(after)


def forget_symbols(
    chunks: tuple[SymbolChunk, ...], gone: npt.NDArray[np.int64], store: ObjectStore
) -> tuple[SymbolChunk, ...]:
    """The chunks without the symbols with the codes `gone`, ascending."""
    if not len(gone):
        return chunks
    after = []
    for chunk in chunks:
        low, high = np.searchsorted(gone, [chunk.first, chunk.first + chunk.count]).tolist()
        if low < high:
            texts = _read(chunk, store)
            for code in gone[low:high].tolist():
                texts[code - chunk.first] = None
            chunk = SymbolChunk(store.put(SYMBOLS, encode_symbols(texts)), chunk.first, chunk.count)
        if chunk.id != _EMPTY or chunk is chunks[-1] or chunk.first == chunks[-1].first:
            after.append(chunk)
    return tuple(after)


_EMPTY = object_id(SYMBOLS, encode_symbols(()))


def _read(chunk: SymbolChunk, store: ObjectStore) -> list[str | None]:
    texts = decode_symbols(store.get([chunk.id])[0])
    return texts + [None] * (chunk.count - len(texts))


def _write(symbols: Sequence[str | None], first: int, store: ObjectStore) -> list[SymbolChunk]:
    parts = [symbols[i : i + CHUNK_SYMBOLS] for i in range(0, len(symbols), CHUNK_SYMBOLS)]
    return [
        SymbolChunk(store.put(SYMBOLS, encode_symbols(part)), first + i * CHUNK_SYMBOLS, len(part))
        for i, part in enumerate(parts)
    ]


def _mergeable(chunks: list[SymbolChunk]) -> int:
    """How many chunks at the end are to become one: at least eight, none larger than the last one's size
    class."""
    tier = _tier(chunks[-1].count)
    same, first = 0, chunks[-1].first + chunks[-1].count
    for chunk in reversed(chunks):
        # Behind a gap begins another list.
        if chunk.count >= CHUNK_SYMBOLS or _tier(chunk.count) > tier or chunk.first + chunk.count != first:
            break
        same, first = same + 1, chunk.first
    return same if same >= _CHUNKS_PER_TIER else 0


def _tier(symbols: int) -> int:
    return (max(symbols, 1).bit_length() - 1) // 3
