"""A change before anything is kept: a dry run, what it would make appear and go, and examples of it.

The engine evaluates a dry run like any epoch and then takes it back, so the numbers are those of the change itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nicegui import ui

from service.console.client import Client, ServiceError
from service.console.rows import as_text

# Up to so many tuples, all of them are fetched to choose examples from.
_MOST_FETCHED: Final = 20_000
_EXAMPLES: Final = 10
# How long a page waits for an outcome while the engine is busy, or away.
PATIENCE_SECONDS: Final = 120.0
TRANSACTIONS: Final = "/v1/transactions"
RULES: Final = "/v1/rules"


@dataclass(slots=True)
class Preview:
    """What a change would do. examples: by relation, tuples that would appear and go. about: what to know of the
    examples."""

    document: Mapping[str, Any]
    examples: Mapping[str, tuple[list[list[Any]], list[list[Any]]]] = field(default_factory=dict)
    about: str = ""


async def preview(client: Client, path: str, body: Mapping[str, Any], rule: str = "") -> Preview:
    """Try a change. path: where it would be sent. rule: if it adds one rule, its text, which is asked as a query for
    examples where there are too many tuples to fetch them.

    Raises:
        ServiceError: the change would be refused.
        Unreachable: no engine has tried it.
    """
    document = await client.change(path, dict(body), dry_run=True, patience=PATIENCE_SECONDS)
    changes = document["changes"]
    total = sum(one["inserted"] + one["deleted"] for one in changes.values())
    if total > _MOST_FETCHED:
        return await _by_query(client, document, rule, total)
    if total == 0:
        return Preview(document)
    whole = await client.change(path, dict(body), dry_run=True, delta=True, patience=PATIENCE_SECONDS)
    delta = whole.get("delta")
    if delta is None:
        return Preview(
            whole, {}, "Your token may not have so many rows in one answer, so there are no examples."
        )
    examples = {
        name: (one["inserted"][:_EXAMPLES], one["deleted"][:_EXAMPLES]) for name, one in delta.items()
    }
    return Preview(whole, examples)


async def _by_query(client: Client, document: Mapping[str, Any], rule: str, total: int) -> Preview:
    much = f"{total:,} tuples are too many to fetch"
    if not rule:
        return Preview(document, {}, f"{much}, so there are no examples.")
    query = rule.strip().removesuffix(".")
    try:
        found = await client.request("POST", "/v1/query", json={"query": query, "limit": _EXAMPLES})
    except ServiceError:
        # The rule may be a program, or read what it declares itself.
        return Preview(document, {}, f"{much}, so there are no examples.")
    name = query.partition("(")[0].strip()
    about = (
        f"{much}; the examples are what the rule derives from what is there now, which may be there already."
    )
    return Preview(document, {name: (found["tuples"], [])}, about)


def draw(found: Preview, kept: bool = False) -> None:
    """Show it. kept: it is no preview any more, but what was done."""
    document = found.document
    changes: Mapping[str, Mapping[str, int]] = document["changes"]
    cost, elapsed = document["cost"], document["elapsed_ms"]
    what = f"This is epoch {document['epoch']} now." if kept else "Nothing is kept yet. This change would do:"
    ui.label(what).classes("text-bold")
    ui.label(
        f"{cost['derivations']:,} derivations, {elapsed['engine']:,.1f} ms, "
        f"{document['strategy']}, {document['placement']}"
    ).classes("text-sm")
    if not changes:
        ui.label("No tuple appears or goes.")
    for name, one in sorted(changes.items()):
        with ui.row().classes("items-baseline gap-3"):
            ui.label(name).classes("font-mono text-bold")
            if one["inserted"]:
                ui.label(f"+{one['inserted']:,}").classes("text-positive")
            if one["deleted"]:
                ui.label(f"-{one['deleted']:,}").classes("text-negative")
        came, went = found.examples.get(name, ((), ()))
        _examples(name, "+", came, one["inserted"])
        _examples(name, "-", went, one["deleted"])
    if found.about:
        ui.label(found.about).classes("text-sm")


def _examples(name: str, sign: str, tuples: Sequence[Sequence[Any]], count: int) -> None:
    if not tuples:
        return
    lines = [f"{sign} {name}({', '.join(map(as_text, one))})" for one in tuples]
    if count > len(tuples):
        lines.append(f"  and {count - len(tuples):,} more")
    ui.label("\n".join(lines)).classes("font-mono text-sm whitespace-pre-wrap break-all")
