"""The symbol list in the snapshot: append-only chunks.

In: the chunks so far and the strings that an epoch interned. Out: the chunks after it. A symbol's code is its
place in the list, for ever, so a chunk never changes and readers keep what they have read. Small chunks are
merged by eights, like runs of tuples, up to `CHUNK_SYMBOLS`; so a database with n symbols has
O(log n + n / CHUNK_SYMBOLS) chunks, and a symbol is rewritten a handful of times.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.storage.manifest import SYMBOLS, SymbolChunk, decode_symbols, encode_symbols
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
        joined: list[str] = []
        for data in store.get([chunk.id for chunk in after[-mergeable:]]):
            joined += decode_symbols(data)
        after[-mergeable:] = _write(joined, after[-mergeable].first, store)
    return tuple(after)


def _write(symbols: Sequence[str], first: int, store: ObjectStore) -> list[SymbolChunk]:
    parts = [symbols[i : i + CHUNK_SYMBOLS] for i in range(0, len(symbols), CHUNK_SYMBOLS)]
    return [
        SymbolChunk(store.put(SYMBOLS, encode_symbols(list(part))), first + i * CHUNK_SYMBOLS, len(part))
        for i, part in enumerate(parts)
    ]


def _mergeable(chunks: list[SymbolChunk]) -> int:
    """How many chunks at the end are to become one: at least eight, none larger than the last one's size
    class."""
    tier = _tier(chunks[-1].count)
    same = 0
    for chunk in reversed(chunks):
        if chunk.count >= CHUNK_SYMBOLS or _tier(chunk.count) > tier:
            break
        same += 1
    return same if same >= _CHUNKS_PER_TIER else 0


def _tier(symbols: int) -> int:
    return (max(symbols, 1).bit_length() - 1) // 3
