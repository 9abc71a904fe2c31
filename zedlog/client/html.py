"""What a notebook shows: small pieces of HTML, in which every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_NUMBERS = ("number", "float")


def rows_table(
    columns: Sequence[str],
    types: Sequence[str | None],
    rows: Sequence[Sequence[Any]],
    shown: int,
    caption: str,
) -> str:
    """A table of the first rows, with numbers to the right, and what there is to say below it."""
    head = "".join(
        f"<th>{escape(name)}<br><small>{escape(kind or '?')}</small></th>"
        for name, kind in zip(columns, types, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align: {"right" if kind in _NUMBERS else "left"}">{escape(text(value))}</td>'
            for kind, value in zip(types, row, strict=True)
        )
        + "</tr>"
        for row in rows[:shown]
    )
    left = len(rows) - shown
    note = f"the first {shown} of {caption}" if left > 0 else caption
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if columns else ""
    return f"{table}<p><small>{escape(note)}</small></p>"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table of a few rows."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="text-align: left">{escape(text(value))}</td>' for value in row)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text(value: Any) -> str:
    """A value as a cell shows it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
