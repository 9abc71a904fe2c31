"""Faults at each stage of an epoch, for transactions that ask for them by the names of their relations.

A transaction with a fact of the relation `fault_STAGE` meets the hook at that stage of its epoch, every time. What the
hook does (raise, end the process) is the test's choice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import engine.database.writer
import engine.server.loop
from engine.database.staging import Staging
from engine.database.writer import Writer
from engine.resident.placement import ResidentPlacement
from engine.storage.publisher import Publisher

STAGES = ("stage", "execute", "evaluated", "constraints", "record", "keep", "answer", "publish", "sent")
"""In their order. At `sent` the epoch is visible already; at all others it is not."""

Hook = Callable[[str], None]
Replace = Callable[[Any, str, Any], None]


def relation(stage: str) -> str:
    return f"fault_{stage}"


def install(hook: Hook, replace: Replace = setattr) -> None:
    """Put the hook into the engine's code, by `replace` (a test's `monkeypatch.setattr`)."""

    def meet(stage: str, relations: Iterable[str]) -> None:
        if relation(stage) in relations:
            hook(stage)

    add, execute = Staging.add, ResidentPlacement.execute
    check, record, keep = engine.database.writer.check_constraints, Writer._record, Writer._keep
    answer, prepare, send = engine.server.loop.answer, Publisher._prepare, Publisher._send

    def staged(self: Any, request: Any) -> None:
        add(self, request)
        meet("stage", [change.relation for change in request.facts])

    def executed(self: Any, circuit: Any, facts: Any, *rest: Any) -> Any:
        meet("execute", facts)
        result = execute(self, circuit, facts, *rest)
        meet("evaluated", facts)
        return result

    def checked(before: Any, program: Any, done: Any, *rest: Any) -> None:
        check(before, program, done, *rest)
        meet("constraints", done.relations)

    def recorded(self: Any, program: Any, done: Any, *rest: Any) -> Any:
        meet("record", done.relations)
        return record(self, program, done, *rest)

    def kept(self: Any, program: Any, made: Any) -> None:
        keep(self, program, made)
        meet("keep", made.relations)

    def answered(transaction: Any, result: Any, incarnation: str) -> Any:
        if not isinstance(result, Exception):
            meet("answer", [change.relation for change in transaction.facts])
        return answer(transaction, result, incarnation)

    def prepared(self: Any, made: Any, *rest: Any) -> Any:
        meet("publish", () if made is None else made.relations)
        return prepare(self, made, *rest)

    def sent(self: Any, publication: Any) -> None:
        send(self, publication)
        meet("sent", () if publication.manifest is None else publication.manifest.changes)

    replace(Staging, "add", staged)
    replace(ResidentPlacement, "execute", executed)
    replace(engine.database.writer, "check_constraints", checked)
    replace(Writer, "_record", recorded)
    replace(Writer, "_keep", kept)
    replace(engine.server.loop, "answer", answered)
    replace(Publisher, "_prepare", prepared)
    replace(Publisher, "_send", sent)
