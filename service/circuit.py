"""The circuit of an epoch's rules, for people and programs to inspect.

The service compiles it from the snapshot: a circuit depends only on the rules, so it is the one that the engine runs.
"""

from __future__ import annotations

from typing import Any

from engine.circuit.circuit import Circuit
from engine.circuit.compile import compile_circuit
from engine.circuit.describe import to_json, to_mermaid
from engine.language.parser import parse_declarations, parse_rules
from engine.language.syntax import fixpoints_of
from engine.storage.snapshot import Snapshot


def circuit_of(snapshot: Snapshot) -> Circuit:
    """The circuit of the snapshot's rules over its relations."""
    rules = [rule for info in snapshot.rules for rule in parse_rules(info.canonical)]
    declared = parse_declarations(snapshot.declarations)
    return compile_circuit(rules, snapshot.schemas, fixpoints=fixpoints_of(declared))


def circuit_json(snapshot: Snapshot) -> dict[str, Any]:
    return to_json(circuit_of(snapshot))


def circuit_mermaid(snapshot: Snapshot) -> str:
    return to_mermaid(circuit_of(snapshot))
