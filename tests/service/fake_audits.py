"""Audits in memory, with the interface of `AuditClient`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from engine.errors import UnknownAuditError
from engine.storage.audits import Audit, LastAudit, new_audit


class FakeAudits:
    """`end` is what the engine does."""

    def __init__(self, reach: Callable[[], None]) -> None:
        self._reach = reach
        self.audits: list[Audit] = []
        self.ended: dict[str, LastAudit] = {}

    async def submit(self) -> Audit:
        self._reach()
        waiting = [audit for audit in self.audits if audit.status == "queued"]
        if not waiting:
            self.audits.append(new_audit("full", "request"))
        return (waiting or self.audits)[-1]

    def end(self, audit: Audit) -> None:
        """The last audit has ended so."""
        assert audit.finished is not None
        self.audits = [*(one for one in self.audits if one.id != audit.id), audit]
        report = audit.report or {}
        self.ended[audit.kind] = LastAudit(
            audit.id,
            audit.kind,
            audit.status,
            audit.finished,
            report.get("epoch"),
            report.get("differing"),
            audit.why,
        )

    async def get(self, audit_id: str) -> Audit:
        self._reach()
        for audit in self.audits:
            if audit.id == audit_id:
                return replace(audit)
        raise UnknownAuditError("there is no such audit")

    async def list(self, limit: int) -> list[Audit]:
        self._reach()
        return self.audits[::-1][:limit]

    async def last(self) -> dict[str, LastAudit]:
        self._reach()
        return dict(self.ended)
