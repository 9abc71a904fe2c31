"""The circuit of an epoch's rules, for people and programs to inspect.

The service compiles it from the snapshot: a circuit depends only on the rules, so it is the one that the engine runs.
"""

from __future__ import annotations

from typing import Any

from engine.circuit.circuit import Circuit, Stratum
from engine.circuit.compile import compile_circuit
from engine.circuit.describe import to_json, to_mermaid
from engine.database.epoch import EVERYTHING
from engine.language.parser import parse_declarations, parse_rules
from engine.language.syntax import fixpoints_of
from engine.storage.snapshot import Snapshot


def circuit_of(snapshot: Snapshot) -> Circuit:
    """The circuit of the snapshot's rules over its relations."""
    rules = [rule for info in snapshot.rules for rule in parse_rules(info.canonical)]
    declared = parse_declarations(snapshot.declarations)
    return compile_circuit(rules, snapshot.schemas, fixpoints=fixpoints_of(declared))


def circuit_json(snapshot: Snapshot) -> dict[str, Any]:
    """The circuit, and of each stratum where the engine has it (`place`: `resident`, `spark`, or null if the version
    that published the epoch did not say), `why`, and how many `tuples` it holds.
    """
    circuit = circuit_of(snapshot)
    told = to_json(circuit)
    for described, stratum in zip(told["strata"], circuit.strata, strict=True):
        known = [name for name in stratum.relations if name in snapshot.schemas]
        place, why = _place(snapshot, stratum)
        described |= {"place": place, "why": why, "tuples": sum(snapshot.counts(name).all for name in known)}
    return told


def circuit_mermaid(snapshot: Snapshot) -> str:
    circuit = circuit_of(snapshot)
    return to_mermaid(
        circuit, {number for number, s in enumerate(circuit.strata) if _place(snapshot, s)[0] == "spark"}
    )


def _place(snapshot: Snapshot, stratum: Stratum) -> tuple[str | None, str]:
    if snapshot.away is None:
        return None, "the version that published the epoch did not say"
    for name in (EVERYTHING, *stratum.relations):
        if name in snapshot.away:
            return "spark", snapshot.away[name]
    return "resident", "it is in the engine process"
