"""A checkpoint: a database with its resident state, from which a new process goes on without deriving everything again.

In: a database between two epochs; later, a checkpoint and what the newest snapshot has (`SavedState`), which may be
some epochs ahead. Out: the checkpoint; the program that it was made of, and the difference between its facts and those
of the snapshot, so that one epoch leads from one to the other. Always: facts, rules and declarations are those of the
snapshot afterwards, whatever happened in between, for they are compared, and not replayed. What cannot be compared is
not used (`CheckpointUnusable`): codes are durable names, so the checkpoint's symbols must be the snapshot's first ones.

Costs: comparing reads the facts of the relations that have changed since, in the whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import orjson

from engine.circuit.circuit import Circuit
from engine.circuit.plan import CompiledRule
from engine.data.codes import Codes
from engine.data.transaction import RuleChange
from engine.database.database import Database
from engine.database.epoch import RuleInfo
from engine.database.program import Program
from engine.database.saved import SavedState
from engine.language.canonical import canonical_text, format_rule
from engine.language.schema import Schema
from engine.language.syntax import Rule
from engine.maintenance.facts import FactArrays
from engine.maintenance.placement import Placement
from engine.resident.checkpoint import CheckpointUnusable, ResidentParts, layout
from engine.resident.placement import ResidentPlacement
from engine.resident.relation import Relation

_GROUND = np.zeros(1, np.int32)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A database after the epoch `epoch` of the incarnation `incarnation`.

    layout: of the arrays. rules: each with its text in which the variables have the names that it was compiled with,
    because the order of an internal relation's columns follows them. stored: the relations that hold facts. keys: as of
    `Program`. versions: names of what the snapshot held of each relation; equal names mean equal contents. symbols: how
    many codes there were, and a digest of their texts. looked: codes and strings there were when those that nothing
    uses were looked for last. circuit: a digest of what the state depends on.
    """

    layout: str
    incarnation: str
    epoch: int
    rules: Sequence[tuple[RuleInfo, str]]
    declarations: str
    schemas: Mapping[str, Schema]
    stored: Sequence[str]
    keys: Mapping[str, str]
    versions: Mapping[str, str]
    symbols: tuple[int, str]
    looked: tuple[int, int]
    heaviest: int
    circuit: str
    parts: ResidentParts


def checkpoint_of(
    database: Database, incarnation: str, versions: Mapping[str, str], looked: tuple[int, int]
) -> Checkpoint | None:
    """A checkpoint of the database, whose arrays the next epoch changes; None if the state is not resident."""
    placement, program = database.placement, database.program
    if not isinstance(placement, ResidentPlacement):
        return None
    return Checkpoint(
        layout(),
        incarnation,
        database.epoch,
        [(info, format_rule(tree)) for info, tree in program.rules.values()],
        program.declaration_text,
        program.schemas,
        [name for name in program.stored if name in program.schemas],
        program.keys,
        versions,
        _symbols_digest(database.symbols.all()),
        looked,
        database.heaviest,
        _circuit_digest(program.circuit),
        placement.parts(),
    )


def check_history(checkpoint: Checkpoint, state: SavedState) -> None:
    """Check that the snapshot can have come from the checkpoint.

    Raises:
        CheckpointUnusable: it is of another database, of a later state, or its codes have other meanings.
    """
    if checkpoint.layout != layout():
        raise CheckpointUnusable("it was written by another version of Zedlog")
    if checkpoint.incarnation != state.incarnation:
        raise CheckpointUnusable("it belongs to another database")
    if checkpoint.epoch > state.epoch:
        raise CheckpointUnusable(
            f"it is of epoch {checkpoint.epoch}, but the newest published epoch is {state.epoch}"
        )
    if _symbols_digest(state.symbols[: checkpoint.symbols[0]]) != checkpoint.symbols:
        raise CheckpointUnusable("symbols that it has were forgotten since, or are other ones")


def checkpoint_program(checkpoint: Checkpoint) -> Program:
    """The compiled program of a checkpoint.

    Raises:
        CheckpointUnusable: its circuit is not the one that the checkpoint was made of.
    """
    held = {name: checkpoint.schemas[name] for name in checkpoint.stored}
    infos = [info for info, _ in checkpoint.rules]
    texts = [text for _, text in checkpoint.rules]
    program = restored_program(infos, checkpoint.declarations, checkpoint.schemas, held, texts)
    program = replace(program, keys=checkpoint.keys).compiled(lambda _: False)
    if _circuit_digest(program.circuit) != checkpoint.circuit:
        raise CheckpointUnusable("this version of Zedlog makes another circuit of its rules")
    return program


def restored_program(
    rules: Sequence[RuleInfo],
    declarations: str,
    schemas: Mapping[str, Schema],
    held: Mapping[str, Schema],
    texts: Iterable[str] | None = None,
) -> Program:
    """The program of these rules and declarations, not compiled yet, when the relations `held` hold facts. texts: of
    the rules, if not the canonical ones.
    """
    written = texts or (rule.canonical for rule in rules)
    changes = [RuleChange(text, rule.weight) for text, rule in zip(written, rules, strict=True)]
    program = Program(schemas=held, stored=held).changed(changes, declarations, "zset")
    return program.with_infos(rules).inferred_anew(schemas)


def program_anew(program: Program) -> tuple[Program, bool]:
    """The program compiled from its text again, and whether that gives the same circuit: then internal relations have
    the same names and columns, too.
    """
    held = {name: program.schemas[name] for name in program.stored if name in program.schemas}
    infos = [info for info, _ in program.rules.values()]
    texts = [format_rule(tree) for _, tree in program.rules.values()]
    made = restored_program(infos, program.declaration_text, program.schemas, held, texts)
    made = replace(made, keys=program.keys).compiled(lambda _: False)
    return made, _circuit_digest(made.circuit) == _circuit_digest(program.circuit)


def program_after(before: Program, state: SavedState, holds: Mapping[str, Schema]) -> Program:
    """The snapshot's program, compiled as if one transaction had led to it from the checkpoint's program `before`."""
    same = (
        before.rule_infos == tuple(state.rules)
        and before.declaration_text == state.declarations
        and before.schemas == state.schemas
        and before.stored.keys() == holds.keys()
    )
    if same:
        return before
    program = restored_program(state.rules, state.declarations, state.schemas, holds)
    return replace(
        program,
        # A rule that stays is compiled with its own names of variables if it has to be compiled again.
        rules={id_: (info, before.tree(id_) or tree) for id_, (info, tree) in program.rules.items()},
        circuit=before.circuit,
        types=before.types,
        fixpoints=before.fixpoints,
        keys=before.keys,
        key_ids=before.key_ids,
        stale=frozenset(program.schemas.keys() | before.schemas.keys()),
        stale_rules=frozenset(program.rules.keys() ^ before.rules.keys()),
    )


def fact_changes(
    placement: Placement, before: Program, after: Program, checkpoint: Checkpoint, state: SavedState
) -> dict[str, FactArrays]:
    """The facts that lead from the checkpoint's, which the placement holds, to the snapshot's; by key."""
    changes: dict[str, FactArrays] = {}
    for name in dict.fromkeys((*checkpoint.stored, *state.facts)):
        old, new = before.key(name), after.key(name)
        version = state.versions.get(name)
        if name in before.schemas and old != new:
            held, weights = placement.tuples(old, {}, "asserted")
            changes[old] = held, -weights
        elif version is not None and version == checkpoint.versions.get(name):
            continue
        if name in state.facts:
            changes[new] = _difference(placement, new, *state.facts[name])
        elif old == new:
            held, weights = placement.tuples(old, {}, "asserted")
            changes[old] = held, -weights
    return {key: delta for key, delta in changes.items() if len(delta[0])}


def _difference(placement: Placement, key: str, codes: Codes, weights: Codes) -> FactArrays:
    """What must be added to the weights of a relation so that its facts are these."""
    now = placement.asserted(key, codes)
    if np.count_nonzero(now) == placement.count(key, "asserted"):
        moved = np.flatnonzero(weights != now)
        return codes[moved], weights[moved] - now[moved]
    # Some facts are gone.
    held, held_weights = placement.tuples(key, {}, "asserted")
    tally = Relation(key, codes.shape[1])
    tally.push(codes, _GROUND, weights)
    tally.push(held, _GROUND, -held_weights)
    rows = tally.all_rows()
    change = tally.describe(rows)[0]
    return tally.codes(rows[change != 0]), change[change != 0]


def check_counts(placement: Placement, program: Program, state: SavedState) -> None:
    """Check that every relation has as many tuples and facts as the snapshot.

    Raises:
        CheckpointUnusable: one does not.
    """
    for name in program.schemas.keys() | state.counts.keys():
        key = program.key(name)
        for domain, expected in zip(("all", "asserted"), state.counts.get(name, (0, 0)), strict=True):
            found = placement.count(key, domain)
            if found != expected:
                what = "tuples" if domain == "all" else "facts"
                raise CheckpointUnusable(f"{name} would have {found} {what}, but the snapshot has {expected}")


def _symbols_digest(symbols: Sequence[str | None]) -> tuple[int, str]:
    return len(symbols), _digest(list(symbols))


def _circuit_digest(circuit: Circuit) -> str:
    """Of the strata, rules, folds and indexes, which decide what the heights and indexes of a state are; their order,
    which depends on how the circuit came about, does not count.
    """
    strata = [
        [sorted(s.relations), s.recursive, sorted(map(_rule_text, s.rules)), sorted(map(repr, s.folds))]
        for s in circuit.strata
        if s.derives
    ]
    return _digest([sorted(strata), sorted(map(repr, circuit.demands))])


def _rule_text(rule: CompiledRule) -> str:
    """The id and the normal form, where the order of an internal relation's columns shows."""
    return f"{rule.id}: {canonical_text(Rule(rule.rule.head, rule.rule.body))}"


def _digest(plain: object) -> str:
    return hashlib.blake2b(orjson.dumps(plain), digest_size=16).hexdigest()
