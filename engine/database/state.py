"""The state of a placement, decoded, for comparing two states and for looking at one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.circuit.circuit import is_internal
from engine.circuit.naming import name_of
from engine.data.symbols import SymbolTable
from engine.data.values import Tuple, decode
from engine.language.schema import ColumnType, Schema


def decoded_state(
    state: Mapping[str, Mapping[str, Any]], schemas: Mapping[str, Schema], symbols: SymbolTable
) -> dict[str, Any]:
    """`Placement.state()` with values for codes, and without empty parts; see `Reasoner.state`.

    schemas: by the relations' keys.
    """
    result: dict[str, Any] = {"facts": {}, "supports": {}, "entries": {}, "indexes": {}}
    for key, parts in state.items():
        relation = name_of(key)
        if is_internal(key):
            # Its columns have no schema; its effect shows in the relations of the text.
            continue
        if key not in schemas:
            # Nothing mentions it and it holds nothing; the placement drops it with the next circuit.
            assert not parts["supports"], f"{key} holds tuples but has no schema: {parts}"
            continue
        types = [column.type for column in schemas[key].columns]
        for part in ("facts", "supports", "entries"):
            if parts[part]:
                keys = _values(list(parts[part]), types, symbols)
                result[part][relation] = dict(zip(keys, parts[part].values(), strict=True))
        for columns, postings in parts["indexes"].items():
            rest = [kind for c, kind in enumerate(types) if c not in columns]
            keys = _values(list(postings), [types[c] for c in columns], symbols)
            payloads = iter(
                _values([payload for held in postings.values() for payload, _ in held], rest, symbols)
            )
            result["indexes"][relation, columns] = {
                key: sorted((next(payloads), hw >> 1, 1 - 2 * (hw & 1)) for _, hw in held)
                for key, held in zip(keys, postings.values(), strict=True)
            }
    return result


def _values(
    codes: list[tuple[int, ...]], types: list[ColumnType | None], symbols: SymbolTable
) -> list[Tuple]:
    """The tuples decoded, all at once: a state may hold millions of them."""
    return decode(np.array(codes, np.int64).reshape(len(codes), len(types)), types, symbols)
