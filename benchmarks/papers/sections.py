"""What a part measures: sections, each a table of rows with a time for each contestant, kept as JSON.

A section is the unit that is measured, kept and resumed. It knows how it came about (machine, load, command), what was
left out and why, and which of its targets it met, so that the page needs nothing else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from benchmarks.engine import Array
from benchmarks.report import machine
from engine.data.transaction import STRATEGIES, Strategy

SIZES = ("tiny", "small", "default", "large")
"""`tiny` is what the tests run, `small` takes some minutes; `large` is what the papers ran, and takes hours."""
COMPARED = tuple(cast(Strategy, name) for name in ("update", "dred", "bootstrap") if name in STRATEGIES)
"""The strategies that are compared, as far as this version has them."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to measure. data: the folder of the public data sets. program: that of the built peers, or None. peers: name
    -> command of further ones."""

    size: str
    runs: int
    data: Path
    program: Path | None = None
    peers: Mapping[str, str] = field(default_factory=dict)
    command: str = ""

    def of(self, sizes: Mapping[str, Any]) -> Any:
        return sizes[self.size]


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that all contestants did: contestant -> seconds of each run. x: its place in the plot."""

    name: str
    seconds: Mapping[str, Sequence[float]]
    x: float | None = None
    note: str = ""

    def median(self, contestant: str) -> float:
        return float(np.median(self.seconds[contestant]))

    def fastest(self, among: Sequence[str]) -> str:
        return min((name for name in among if name in self.seconds), key=self.median)


@dataclass(frozen=True, slots=True)
class Target:
    """An upper bound on a ratio or a time; `most` makes it a lower bound. reason: why it was missed, where known."""

    name: str
    value: float
    limit: float
    unit: str = "x"
    most: bool = False
    reason: str = ""

    @property
    def met(self) -> bool:
        return self.value >= self.limit if self.most else self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Section:
    """A table, and what it says. clock: what a time is. axis: what `Row.x` is; without it the plot has bars."""

    title: str
    compared: str
    clock: str
    rows: Sequence[Row]
    meaning: str
    axis: str = ""
    targets: Sequence[Target] = ()
    left_out: list[str] = field(default_factory=list)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def contestants(self) -> list[str]:
        return list(dict.fromkeys(name for row in self.rows for name in row.seconds))


Work = Callable[[Settings], Section]

CPU = (
    "CPU time of the evaluation with one thread: executing and committing the epoch, without the way of the facts into "
    "codes, which is the same for every strategy"
)
WALL = "wall time"


def measured(work: Work, settings: Settings) -> Section:
    """The section, with how it came about."""
    before, began = os.getloadavg()[0], time.perf_counter()
    section = work(settings)
    about = {
        "machine": machine(),
        "command": settings.command,
        "size": settings.size,
        "runs": settings.runs,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(time.perf_counter() - began, 1),
    }
    return replace(section, about=about)


def key(settings: Settings) -> dict[str, Any]:
    """What a kept section must have been measured with to be used again."""
    return {
        "size": settings.size,
        "runs": settings.runs,
        "strategies": list(COMPARED),
        "data": settings.data.is_dir(),
        "peers": [*(["built"] if settings.program else []), *sorted(settings.peers)],
    }


class Kept:
    """The sections of one part, in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sections(self, key: Mapping[str, Any] | None = None) -> dict[str, Section]:
        """Name -> section; with a key only if they were measured in that way."""
        if not self.path.exists():
            return {}
        stored = json.loads(self.path.read_text())
        if key is not None and stored["key"] != key:
            return {}
        return {name: _section(entry) for name, entry in stored["sections"].items()}

    def absent(self) -> dict[str, str]:
        """Name of a section that was left out -> why."""
        found: dict[str, str] = json.loads(self.path.read_text())["absent"] if self.path.exists() else {}
        return found

    def keep(
        self, key: Mapping[str, Any], sections: Mapping[str, Section], absent: Mapping[str, str]
    ) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        stored = {name: asdict(section) for name, section in sections.items()}
        text = json.dumps({"key": key, "sections": stored, "absent": absent}, indent=1)
        unfinished = self.path.with_suffix(".part")
        unfinished.write_text(text + "\n")
        unfinished.replace(self.path)


def _section(entry: dict[str, Any]) -> Section:
    rows = [Row(**row) for row in entry.pop("rows")]
    targets = [Target(**target) for target in entry.pop("targets")]
    return Section(**entry, rows=rows, targets=targets)


def without_dred() -> list[str]:
    return [] if "dred" in COMPARED else ["DRed: this version has no strategy `dred`."]


def sample(rows: Array, number: int, seed: int = 1) -> Array:
    """So many of the rows, by chance but always the same."""
    return rows[np.random.default_rng(seed).choice(len(rows), number, replace=False)]


def in_words(seconds: float) -> str:
    """Three digits: 12.3 us, 4.56 ms, 7.89 s."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            value = seconds * factor
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    raise AssertionError


def share_in_words(number: int, share: float | None) -> str:
    facts = f"{number:,} fact{'s' * (number > 1)}"
    return facts if share is None or number == 1 else f"{share:.3g} % ({facts})"
