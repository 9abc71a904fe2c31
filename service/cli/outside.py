"""What `zedlog import` and `zedlog sync` have in common for what is not a file: its options, and reading it on and on.

Reading on is one job after the other, each of them one transaction, or none if there is nothing new. What is applied is
what the service says it applied, so it may be stopped at any moment, by Ctrl-C or a signal, and started again.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Any, Final

import typer
from rich.markup import escape

from engine.bulk.outside import JDBC, KAFKA, TABLES
from service.cli.client import Json, Refused, ServiceClient, Unreachable
from service.cli.jobs import follow, report
from service.cli.output import counted, note, out

_PANEL, _TABLES = "Topics of Kafka", "Tables"
_PASSING: Final = ("source_unreachable", "spark_unavailable", "storage_unavailable", "engine_unavailable")
"""Failures that may be over when it is tried again."""
_LONGEST_PAUSE = 60.0

Connection = Annotated[
    str | None,
    typer.Option(
        help="A file of the engine's --connections folder, with user, password and options.",
        rich_help_panel=_TABLES,
    ),
]
Table = Annotated[str | None, typer.Option(help="jdbc: the table.", rich_help_panel=_TABLES)]
Query = Annotated[
    str | None, typer.Option(help="jdbc: in place of a table, a SELECT.", rich_help_panel=_TABLES)
]
PartitionColumn = Annotated[
    str | None,
    typer.Option(
        help="jdbc: a column of numbers, dates or times by which several tasks share the table.",
        rich_help_panel=_TABLES,
    ),
]
LowerBound = Annotated[str | None, typer.Option(help="jdbc: about its least value.", rich_help_panel=_TABLES)]
UpperBound = Annotated[
    str | None, typer.Option(help="jdbc: about its greatest value.", rich_help_panel=_TABLES)
]
Partitions = Annotated[
    int | None, typer.Option(min=1, help="jdbc: how many tasks share the table.", rich_help_panel=_TABLES)
]
VersionAsOf = Annotated[
    str | None,
    typer.Option(help="delta: a version; iceberg: the id of a snapshot.", rich_help_panel=_TABLES),
]
TimestampAsOf = Annotated[
    str | None,
    typer.Option(
        help="delta: a time such as '2026-01-31 12:00:00'; iceberg: milliseconds since 1970.",
        rich_help_panel=_TABLES,
    ),
]
Stream = Annotated[
    str | None,
    typer.Option(help="The name of the position. Default: the topic's.", rich_help_panel=_PANEL),
]
Starting = Annotated[
    str | None,
    typer.Option(
        help="earliest or latest: where a stream begins that has no position. Default: earliest.",
        rich_help_panel=_PANEL,
    ),
]
MaxMessages = Annotated[
    int | None, typer.Option(min=1, help="The most messages of one transaction.", rich_help_panel=_PANEL)
]
WeightHeader = Annotated[
    str | None,
    typer.Option(help="The header of a message that holds its weight, such as -1.", rich_help_panel=_PANEL),
]
Every = Annotated[
    float | None,
    typer.Option(min=0.1, help="Do it again every so many seconds, until Ctrl-C.", rich_help_panel=_PANEL),
]


def is_outside(path: str, format: str | None) -> bool:
    """Whether a path is not that of files."""
    return path.partition(":")[0].lower() in (JDBC, KAFKA) or format in TABLES


def given(**options: Any) -> Json:
    """The options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def read_on(client: ServiceClient, body: Json, every: float) -> None:
    """Read what is new, again and again, until a signal.

    Raises:
        Refused: it failed for a reason that does not pass by itself. Unreachable: there is no service at the beginning.
    """
    messages, transactions, pause, begun = 0, 0, every, False
    with _signals() as stopped:
        while not stopped:
            try:
                job = follow(client, client.post("/v1/imports", body))
                if job["status"] == "cancelled":
                    break
                if job["problem"] is not None and job["problem"]["code"] in _PASSING and begun:
                    raise Refused(int(job["problem"]["status"]), job["problem"])
                result = _shown(job)
                messages += result.get("stream", {}).get("messages", result["rows"])
                transactions += result["epoch"] is not None
                if not begun and result["epoch"] is None:
                    note(f"nothing new; looking every {every:g} s, until Ctrl-C")
                # What a limit left is read at once.
                behind = result.get("stream", {}).get("lag", 0) and result["epoch"] is not None
                begun, pause = True, 0.0 if behind else every
            except KeyboardInterrupt:
                break
            except (Refused, Unreachable) as error:
                passing = not isinstance(error, Refused) or error.problem.get("code") in _PASSING
                if not begun or not passing:
                    raise
                pause = min(2 * max(pause, every), _LONGEST_PAUSE)
                note(f"[yellow]{escape(str(error).partition(chr(10))[0])}; trying again in {pause:g} s[/]")
            _wait(pause, stopped)
    note(
        f"stopped: {counted(messages, 'row')} in {counted(transactions, 'transaction')}; started again, it goes on here"
    )


def _shown(job: Json) -> Json:
    """Print what a job did, in one line if it is a stream; the result."""
    result: Json | None = job["result"]
    if result is None or "stream" not in result or result["rejected"]:
        report(job)
    elif result["epoch"] is not None:
        stream = result["stream"]
        out.print(
            f"epoch {result['epoch']}: {counted(stream['messages'], 'message')} of {escape(stream['topic'])}, "
            f"{stream['lag']:,} behind, {result['seconds']:.1f} s"
        )
    assert result is not None, "report raises where there is none"
    return result


def _wait(seconds: float, stopped: list[int]) -> None:
    until = time.monotonic() + seconds
    try:
        while not stopped and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
    except KeyboardInterrupt:
        return


@contextmanager
def _signals() -> Iterator[list[int]]:
    """The signals that came; each also interrupts what waits."""
    came: list[int] = []

    def heard(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = {one: signal.signal(one, heard) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
