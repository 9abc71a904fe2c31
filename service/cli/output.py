"""What the command line prints: rows in four formats, an epoch's outcome, and errors.

Answers go to standard output, everything else (progress, notes, errors) to standard error, so that output
can be piped. Text that comes from users or the service is escaped before it meets rich's markup.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from service.cli.client import Json, Refused
from service.cli.options import Format

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)
_PIPE = 400
"""The most columns of a table in a pipe."""

# A table shows this many rows; more would scroll past any reader. Other formats write all.
TABLE_ROWS = 1_000


def note(text: str) -> None:
    """A remark for a person (rich markup)."""
    err.print(text)


def print_whole(table: Table) -> None:
    """A table; in a pipe as wide as it is, so that nothing in it is cut."""
    if out.is_terminal:
        out.print(table)
    else:
        Console(file=out.file, highlight=False, width=_PIPE).print(table)


def fail(message: str) -> None:
    """One error, in red (plain text)."""
    err.print(f"[bold red]error:[/] {escape(message)}")


_HINTS = {
    "unauthorized": "Give a token with ZEDLOG_TOKEN or --token; an admin makes one with 'zedlog token create'.",
    "forbidden": "An admin can see the rights of tokens with 'zedlog token list'.",
    "rate_limited": "Nothing was done; try again later, or ask for a token with a higher rate.",
}


def print_refusal(refusal: Refused) -> None:
    """The service's problem document, with the offending line and a caret where it names one."""
    problem = refusal.problem
    err.print(f"[bold red]error:[/] {escape(str(refusal))} [dim]({escape(refusal.code)})[/]")
    hint = _HINTS.get(refusal.code)
    if hint is not None:
        err.print(f"  [dim]{hint}[/]")
    source, column = problem.get("source"), problem.get("column")
    if isinstance(source, str) and isinstance(column, int):
        gutter = f"{problem.get('line', 1)} | "
        # Tabs stay tabs, so that the caret stands under the fault whatever their width.
        pad = "".join("\t" if c == "\t" else " " for c in source[: column - 1])
        err.print(f"  [dim]{gutter}[/]{escape(source)}")
        err.print(f"  {' ' * len(gutter)}{pad}[bold red]{'^' * _caret_width(problem)}[/]")


def _caret_width(problem: Json) -> int:
    """The width of the fault, which only the rendered form of the error shows."""
    last_line = str(problem.get("rendered", "")).rpartition("\n")[2].strip()
    return len(last_line) if last_line and set(last_line) == {"^"} else 1


def show(value: Any) -> str:
    """A value as program text; anything that is not a value of the language, as JSON."""
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 tuple`, `12,345 tuples`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def milliseconds(value: Any) -> str:
    """A duration in ms with a sensible number of digits."""
    if not isinstance(value, int | float):
        return "?"
    if value >= 10_000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 100 else f"{value:.2g} ms" if value < 10 else f"{value:.1f} ms"


def moment(seconds: float | None) -> str:
    """A time as people write it, in the local zone; nothing for one that is not known."""
    return "" if seconds is None else datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M:%S")


def print_outcome(outcome: Json, *, dry_run: bool = False) -> None:
    """What a transaction did: its epoch, the changes of each relation, and the time."""
    total = outcome.get("elapsed_ms", {}).get("total", outcome.get("elapsed_ms", {}).get("engine"))
    head = "[yellow]dry run[/]: this would be epoch" if dry_run else "epoch"
    changes = {r: c for r, c in outcome.get("changes", {}).items() if c["inserted"] or c["deleted"]}
    out.print(f"{head} [bold]{outcome.get('epoch')}[/] in {milliseconds(total)}")
    if not changes:
        out.print("  [dim]no tuple appeared or disappeared[/]")
    for relation, change in sorted(changes.items()):
        out.print(f"  {escape(relation)}: {signed_counts(change)}")
    reason = outcome.get("reason", "")
    if reason not in ("", "maintained"):
        out.print(f"  [dim]{escape(reason)}[/]")


def print_tuples(relation: str, change: Json, limit: int) -> None:
    """The delta of one relation: its counts, then at most `limit` tuples with their signs, in order."""
    inserted, deleted = sorted(change["inserted"]), sorted(change["deleted"])
    counts = {"inserted": len(inserted), "deleted": len(deleted)}
    out.print(f"  {escape(relation)} {signed_counts(counts)}")
    signed = [("+", "green", row) for row in inserted] + [("-", "red", row) for row in deleted]
    for sign, colour, row in signed[:limit]:
        out.print(f"    [{colour}]{sign} {escape(relation)}({escape(', '.join(map(show, row)))})[/]")
    if 0 < limit < len(signed):
        out.print(f"    [dim]and {len(signed) - limit:,} more[/]")


def signed_counts(change: Json) -> str:
    """`+3 -1` in colour."""
    parts = []
    if change["inserted"]:
        parts.append(f"[green]+{change['inserted']:,}[/]")
    if change["deleted"]:
        parts.append(f"[red]-{change['deleted']:,}[/]")
    return " ".join(parts)


def chosen(given: Format | None) -> Format:
    """The format that was asked for; by default a table for a person and CSV for a pipe."""
    if given is not None:
        return given
    return Format.TABLE if sys.stdout.isatty() else Format.CSV


def write_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], how: Format, title: str = "") -> int:
    """Write all rows (a table: the first `TABLE_ROWS`); returns how many there were."""
    if how is Format.TABLE:
        return _write_table(columns, rows, title)
    if how is Format.CSV:
        return _write_csv(columns, rows)
    return _write_json(columns, rows, lines=how is Format.NDJSON)


def _write_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str) -> int:
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(escape(column), overflow="fold")
    total = 0
    for row in rows:
        total += 1
        if total <= TABLE_ROWS:
            table.add_row(*(escape(value if isinstance(value, str) else show(value)) for value in row))
    out.print(table)
    if total > TABLE_ROWS:
        note(f"[dim]there are more than these {TABLE_ROWS:,} rows; --format csv writes all[/]")
    return total


class _Lines:
    """The target of a CSV writer, which replaces its line ends by line feeds. The writer itself must end lines with a
    carriage return, too, because it quotes only the fields that contain a character of its own line ends."""

    def write(self, line: str) -> None:
        sys.stdout.write(line.removesuffix("\r\n") + "\n")


def _write_csv(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    writer = csv.writer(_Lines(), lineterminator="\r\n")
    writer.writerow(columns)
    total = 0
    for row in rows:
        writer.writerow([value if isinstance(value, str) else show(value) for value in row])
        total += 1
    return total


def _write_json(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, lines: bool) -> int:
    """Objects keyed by column, one on a line (NDJSON) or as one array. They are written as they come, not collected."""
    write = sys.stdout.write
    total = 0
    for row in rows:
        text = orjson.dumps(dict(zip(columns, row, strict=True))).decode()
        if lines:
            write(text + "\n")
        else:
            write(("[\n " if total == 0 else ",\n ") + text)
        total += 1
    if not lines:
        write("\n]\n" if total else "[]\n")
    return total
