"""The audit of one database at one epoch: everything derived anew from facts and rules, and compared.

In: the program, symbols and placement of an engine between two epochs, and the manifest that they were published as.
Out: a `Report`. What is compared, and with what:

    snapshot in Redis: manifest   with what the publisher published
                       objects    with the hashes of their contents, which are their names
                       digests    with those of the rows that are stored
                       rows       with what follows from the stored facts and rules
    memory (resident): program, symbols           with the stored ones
                       facts, tuples, supports, entries, indexes   with a bootstrap from the stored facts and rules

The bootstrap compiles the program from its text again and evaluates in this process, in one thread. Beyond the memory
budget it is given up, and the report says so. Of a state on Spark only what was published is compared: supports and
entries stay where they are. `check_recovered` is the short form after a restart: the digests of the recovered state.

An audit reads; it changes nothing. It is meant for a forked process of its own (engine/server/audits.py), whose memory
stays as the epoch left it while the engine goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.audit.lists import Damaged
from engine.audit.memory import MEMORY, Comparison, Decode, held, visible
from engine.audit.report import Report
from engine.audit.stored import SNAPSHOT, NotRetained, Stored, compare_rows
from engine.circuit.circuit import is_internal
from engine.circuit.naming import name_of
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import Encoder, decode
from engine.database.checkpoint import program_anew
from engine.database.database import Database
from engine.database.program import Program
from engine.errors import BudgetExceededError, CorruptSnapshotError
from engine.language.schema import ColumnType
from engine.maintenance.facts import FactArrays
from engine.maintenance.placement import ANY_HEIGHT, Budget
from engine.resident.placement import ResidentPlacement
from engine.resident.relation import Relation
from engine.storage.connection import connect
from engine.storage.keys import Keys
from engine.storage.manifest import Manifest, in_hex
from engine.storage.rows import Rows, concatenate, empty_rows


@dataclass(frozen=True, slots=True)
class Subject:
    """What is audited: a database as of `manifest`, its snapshot in Redis. memory: bytes that the audit may take for
    what it derives anew; None: no limit."""

    database: Database
    manifest: Manifest
    redis_url: str
    name: str
    memory: int | None = None

    def stored(self, report: Report) -> Stored:
        keep = 1 << 30 if self.memory is None else self.memory // 4
        return Stored(report, connect(self.redis_url), Keys(self.name), self.manifest, keep)


def audit(subject: Subject) -> Report:
    """Compare everything; see the module.

    Raises:
        StorageUnavailableError: Redis cannot be reached.
    """
    report = Report(subject.manifest.epoch)
    stored = _read(subject, report)
    if stored is not None:
        try:
            stored.check_digests()
        except NotRetained:
            _leave_out(report)
            stored = None
    _Audit(subject, report, stored).run()
    return report


def check_recovered(subject: Subject) -> Report:
    """Compare the digests of the state that was recovered with those of the snapshot, and name the first tuples that
    differ.

    Raises:
        StorageUnavailableError: Redis cannot be reached.
    """
    report = Report(subject.manifest.epoch)
    stored = _read(subject, report)
    if stored is not None:
        _Audit(subject, report, stored).compare_digests(stored)
    return report


def _read(subject: Subject, report: Report) -> Stored | None:
    stored = subject.stored(report)
    try:
        stored.read()
    except NotRetained:
        _leave_out(report)
        return None
    return stored


def _leave_out(report: Report) -> None:
    report.leave_out(
        f"the snapshot, because epoch {report.epoch} was no longer retained when the audit came to it; retain more "
        "epochs (--retain-epochs, --retain-seconds)"
    )


class _Audit:
    def __init__(self, subject: Subject, report: Report, stored: Stored | None) -> None:
        self._subject, self._report, self._stored = subject, report, stored
        database = subject.database
        self._program: Program = database.program
        self._symbols: SymbolTable = database.symbols
        place = database.placement
        self._live = place.relations if isinstance(place, ResidentPlacement) else None

    def run(self) -> None:
        self._check_program()
        if self._stored is not None and self._live is not None:
            self._stored.check_symbols(self._symbols.all())
        if self._live is None:
            self._report.leave_out(
                "supports, entries and indexes, because the state is on Spark; what it published is compared"
            )
        facts = self._facts()
        if facts is None:
            return
        mark = len(self._symbols)
        try:
            self._compare(facts)
        except BudgetExceededError as error:
            self._report.leave_out(f"what follows from facts and rules: {error.message}")
        finally:
            self._symbols.truncate(mark)

    def _check_program(self) -> None:
        stored = None if self._stored is None else self._stored.program
        if stored is None:
            return
        program = self._program
        own = {rule.id: (rule.canonical, rule.weight) for rule in program.rule_infos}
        kept = {rule.id: (rule.canonical, rule.weight) for rule in stored.rules}
        for id_ in sorted(own.keys() | kept.keys()):
            if own.get(id_) != kept.get(id_):
                what = f"the rule {id_} is another one than in the snapshot, or has another weight"
                self._report.add("program", MEMORY, what, None, None, kept.get(id_), own.get(id_))
        if program.declaration_text != stored.declarations:
            what = "the declarations are other ones than in the snapshot"
            self._report.add(
                "program", MEMORY, what, None, None, stored.declarations, program.declaration_text
            )

    def _facts(self) -> dict[str, FactArrays] | None:
        """The facts by key, as they are stored; where that is damaged, as they are held. None: there is no way to know
        them."""
        facts: dict[str, FactArrays] = {}
        entries = {} if self._stored is None else self._stored.manifest.relations
        for name in self._program.schemas:
            key = self._program.key(name)
            if self._stored is not None and name not in self._stored.damaged:
                if name in entries and entries[name].counts.asserted:
                    rows = self._stored.facts(name)
                    facts[key] = np.ascontiguousarray(rows.codes), rows.asserted
            elif self._live is None:
                self._report.leave_out(
                    f"what follows, because the facts of {name} are damaged or not retained"
                )
                return None
            elif key in self._live:
                try:
                    rows = visible(held(self._live[key]), self._live[key].fold)
                except Damaged:
                    # Told when the relation itself is compared.
                    continue
                rows = rows.where(rows.asserted != 0)
                facts[key] = np.ascontiguousarray(rows.codes), rows.asserted
        return {key: delta for key, delta in facts.items() if len(delta[0])}

    def _compare(self, facts: Mapping[str, FactArrays]) -> None:
        program, same = program_anew(self._program)
        if not same:
            self._report.leave_out(
                "internal relations and indexes, because the rules compile to another circuit now than they did"
            )
        anew = ResidentPlacement(threads=1)
        budget = Budget(height=ANY_HEIGHT, memory=self._subject.memory)
        anew.execute(program.circuit, facts, Encoder(self._symbols), budget)
        anew.commit()
        for key, relation in sorted(anew.relations.items()):
            if self._live is not None and (same or not is_internal(key)):
                live = self._live.get(key)
                if live is None:
                    if relation.live:
                        what = "follows from the rules, but is not held at all"
                        self._report.add("tuple", MEMORY, what, name_of(key))
                    continue
                Comparison(self._report, name_of(key), self._decoder(key)).compare(live, relation)
            if not is_internal(key) and key == self._program.key(name_of(key)):
                self._compare_stored(name_of(key), relation)
        for key in sorted((self._live or {}).keys() - anew.relations.keys()):
            if same and self._live is not None and self._live[key].live:
                self._report.add(
                    "tuple", MEMORY, "is held, but neither facts nor rules ask for it", name_of(key)
                )

    def _compare_stored(self, name: str, relation: Relation) -> None:
        """Compare the stored rows of a relation with those of one that was derived anew."""
        if self._stored is None or name in self._stored.damaged:
            return
        if self._live is None:
            self._report.relations += 1
            self._report.tuples += relation.live
        there = self._all_stored(name, relation.arity)
        if there is not None:
            expected = visible(held(relation), relation.fold)
            compare_rows(
                self._report, SNAPSHOT, name, expected, there, self._decoder(self._program.key(name))
            )

    def _all_stored(self, name: str, arity: int) -> Rows | None:
        assert self._stored is not None, "the snapshot was read"
        if name not in self._stored.manifest.relations:
            return empty_rows(arity)
        try:
            return concatenate(list(self._stored.parts(name)), arity)
        except CorruptSnapshotError as error:
            self._report.leave_out(f"the stored tuples of {name}: {error.message}")
            return None

    def compare_digests(self, stored: Stored) -> None:
        """Of each relation in memory with its digest in the snapshot."""
        if self._live is None or stored.program is None or not stored.has_symbols:
            self._report.leave_out("the recovered state, because it is on Spark, or the snapshot is damaged")
            return
        for name in sorted(stored.program.schemas):
            key = self._program.key(name)
            entry = stored.manifest.relations.get(name)
            wanted = entry.digest if entry is not None else 0
            relation = self._live.get(key)
            if wanted is None:
                self._report.leave_out(f"{name}, whose digest is not known")
                continue
            if relation is None:
                rows = empty_rows(stored.program.schemas[name].arity)
            else:
                try:
                    rows = visible(held(relation), relation.fold)
                except Damaged as damage:
                    self._report.add("table", MEMORY, f"{name} {damage}", name)
                    continue
            self._report.relations += 1
            self._report.tuples += len(rows)
            try:
                have = stored.digest(name, rows)
            except CorruptSnapshotError as error:
                self._report.add("symbol", MEMORY, error.message, name)
                continue
            if have != wanted:
                what = "the recovered state has another digest than the snapshot"
                self._report.add("digest", MEMORY, what, name, None, in_hex(wanted), in_hex(have))
                there = None if name in stored.damaged else self._all_stored(name, rows.arity)
                if there is not None:
                    compare_rows(self._report, MEMORY, name, there, rows, self._decoder(key))

    def _decoder(self, key: str) -> Decode:
        """Values of the tuples of a relation; of an internal one, which has no types, and of a symbol that is not
        known, the codes."""
        schema = None if is_internal(key) else self._program.schemas.get(name_of(key))
        types: list[ColumnType | None] | None = None
        if schema is not None:
            types = [column.type for column in schema.columns]

        def decoded(codes: Codes) -> list[Sequence[Any]]:
            if types is None or len(types) != codes.shape[1]:
                return [tuple(row) for row in codes.tolist()]
            try:
                return list(decode(codes, types, self._symbols))
            except (KeyError, ValueError, OverflowError):
                return [tuple(row) for row in codes.tolist()]

        return decoded
