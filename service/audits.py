"""Audits as a principal may see them, and what readiness and metrics say of the last ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine.storage.audits import Audit, LastAudit
from service.principal import Principal

_NOT_TOLD = "it could not be completed; the engine's log has the reason"
"""A reason may name what a principal may not read."""


def audit_document(audit: Audit, principal: Principal) -> dict[str, Any]:
    """An audit without the differences in relations that the principal may not read; `withheld` says how many of those
    that are named are left out.
    """
    report = None if audit.report is None else _readable(audit.report, principal)
    return {
        "audit": audit.id,
        "kind": audit.kind,
        "cause": audit.cause,
        "status": audit.status,
        "requested": audit.requested,
        "started": audit.started,
        "finished": audit.finished,
        "report": report,
        "why": audit.why if audit.why is None or principal.reads is None else _NOT_TOLD,
        "status_url": f"/v1/audits/{audit.id}",
    }


def _readable(report: Mapping[str, Any], principal: Principal) -> dict[str, Any]:
    every = principal.reads is None
    # A difference without a relation may be about a rule or a symbol, which belong to all relations.
    seen = [
        one
        for one in report["differences"]
        if every or (one["relation"] is not None and principal.may_read(one["relation"]))
    ]
    left_out = report["uncompared"]
    if not every and left_out:
        left_out = [f"{len(left_out)} things; their reasons may name relations that you may not read"]
    return {
        **report,
        "differences": seen,
        "uncompared": left_out,
        "withheld": len(report["differences"]) - len(seen),
    }


def last_documents(last: Mapping[str, LastAudit]) -> dict[str, Any]:
    """The last audit that has ended, of each kind; null if there is none. Without the reason why it failed: anybody may
    see this.
    """
    found = {kind: asdict(last[kind]) if kind in last else None for kind in ("full", "start")}
    for one in found.values():
        if one is not None:
            del one["why"]
    return found
