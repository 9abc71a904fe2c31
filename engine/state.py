"""The state of a placement, decoded: for comparing two states, and for looking at one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from engine.language.schema import ColumnType, Schema
from engine.symbols import SymbolTable
from engine.values import decode


def decoded_state(
    state: Mapping[str, Mapping[str, Any]], schemas: Mapping[str, Schema], symbols: SymbolTable
) -> dict[str, Any]:
    """`Placement.state()` with values for codes, and without empty parts; see `Reasoner.state`."""
    result: dict[str, Any] = {"facts": {}, "supports": {}, "entries": {}, "indexes": {}}
    for relation, parts in state.items():
        if relation not in schemas:
            # Nothing mentions it and it holds nothing; the placement drops it with the next circuit.
            assert not parts["supports"], f"{relation} holds tuples but has no schema: {parts}"
            continue
        types = [column.type for column in schemas[relation].columns]
        for part in ("facts", "supports", "entries"):
            if parts[part]:
                result[part][relation] = {_values(t, types, symbols): v for t, v in parts[part].items()}
        for columns, keys in parts["indexes"].items():
            rest = [kind for c, kind in enumerate(types) if c not in columns]
            key_types = [types[c] for c in columns]
            result["indexes"][relation, columns] = {
                _values(key, key_types, symbols): sorted(
                    (_values(payload, rest, symbols), hw >> 1, 1 - 2 * (hw & 1)) for payload, hw in postings
                )
                for key, postings in keys.items()
            }
    return result


def _values(codes: tuple[int, ...], types: list[ColumnType | None], symbols: SymbolTable) -> tuple[Any, ...]:
    return decode(np.array([codes], np.int64).reshape(1, len(codes)), types, symbols)[0]
