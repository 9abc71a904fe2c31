"""The rows that an import could not use: counted, the first ones shown, all of them in a file.

In: the written rows of one relation, good and bad. Out: one JSON object a line: `file`, `line` (for formats of lines)
or `row` (from 1, header lines not counted) if it is known, or `partition` and `offset` of a message, `reason`, `text`.
Always: sorted by file and place. Spark knows only the part of the file that a task read and the row's place in that
part; the number of rows before the part is counted in a second pass, which only an import with bad rows needs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import orjson
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from engine.bulk.batches import sync_folder, unwritable
from engine.bulk.reading import BLOCK, FILE, PLACE, RAW, REASON, RawRows
from engine.bulk.sources import Source

PLACES: Final = ("partition", "offset", "line", "row", "column")
"""What may say where a bad row is, from the whole to the part."""
SAMPLES = 10
"""Bad rows that a job shows."""
_TEXT = 300
_COLUMN = re.compile("column ([0-9]+)", re.ASCII)


@dataclass(slots=True)
class Rejected:
    """number: of bad rows. samples: the first ones. file: the file with all of them; None if there are none."""

    number: int = 0
    samples: list[dict[str, Any]] = field(default_factory=list)
    file: str | None = None


def write_rejects(
    bad: DataFrame, rows: RawRows, every_row: Callable[[], DataFrame], sources: Sequence[Source], path: Path
) -> None:
    """Append the bad rows to the file `path`, one JSON object a line.

    every_row: FILE, BLOCK and PLACE of all rows of the files, whose numbers are those of `bad`.

    Raises:
        BulkStorageError: the file cannot be written.
    """
    # The offsets of messages, and rows whose place nobody knows, need no counting.
    before = {} if rows.messages or rows.table else _before(every_row())
    names = {source.url: source.name for source in sources}
    kind = "line" if rows.lines else "row"
    if rows.messages:
        kind = "offset"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as out:
            # Over Spark Connect, text that is not UTF-8 could not be brought here.
            shown = bad.withColumn(RAW, F.make_valid_utf8(RAW))
            for row in shown.orderBy(FILE, BLOCK, PLACE).toLocalIterator():
                place = row[PLACE]
                if before and place is not None:
                    start, first = before[row[FILE], row[BLOCK]]
                    place += start - first + 1
                found = {
                    "file": row[FILE] if rows.messages or rows.table else _name(row[FILE], names),
                    **({"partition": row[BLOCK]} if rows.messages else {}),
                    **({} if place is None else {kind: place}),
                    **_reason(row[REASON]),
                    "text": row[RAW],
                }
                out.write(orjson.dumps(found) + b"\n")
            out.flush()
            os.fsync(out.fileno())
        sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from error


def _before(rows: DataFrame) -> dict[tuple[str, int], tuple[int, int]]:
    """For each part of a file how many rows of the file are before it, and its first PLACE."""
    parts = rows.groupBy(FILE, BLOCK).agg(F.min(PLACE).alias("first"), F.count(F.lit(1)).alias("count"))
    before: dict[tuple[str, int], tuple[int, int]] = {}
    total: dict[str, int] = {}
    for part in sorted(parts.collect(), key=lambda p: (p[FILE], p[BLOCK])):
        before[part[FILE], part[BLOCK]] = total.get(part[FILE], 0), part["first"]
        total[part[FILE]] = total.get(part[FILE], 0) + part["count"]
    return before


def summary(path: Path, number: int) -> Rejected:
    """The report of a rejects file."""
    samples = []
    with path.open("rb") as lines:
        for line, _ in zip(lines, range(SAMPLES), strict=False):
            sample = orjson.loads(line)
            text = sample["text"]
            samples.append(
                {**sample, "text": text if text is None or len(text) <= _TEXT else text[:_TEXT] + "..."}
            )
    return Rejected(number, samples, str(path))


def _reason(text: str) -> dict[str, Any]:
    """What is wrong, and in which column of the line if a parser says so."""
    column, _, reason = text.partition(": ")
    said = _COLUMN.fullmatch(column)
    return {"column": int(said[1]), "reason": reason} if said else {"reason": text}


def _name(url: str, names: dict[str, str]) -> str:
    """The client's name of a file that Spark names by its URL."""
    path = unquote(urlsplit(url).path)
    return names.get(f"file://{path}") or names.get(url) or unquote(url)
