"""What every benchmark prints and writes: a table for people, JSON for comparing runs."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure: the median of several runs, the best of them, and what we aim at (an upper bound)."""

    name: str
    unit: str
    median: float
    best: float
    runs: int
    target: float | None = None
    note: str = ""


def timed(action: Callable[[], object], runs: int = 3) -> list[float]:
    """Seconds of each of `runs` calls."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return seconds


def figure(
    name: str,
    values: Sequence[float],
    unit: str,
    target: float | None = None,
    note: str = "",
    most: bool = False,
) -> Figure:
    """A figure from the values of several runs. `most`: more is better, and `target` is a lower bound."""
    best = max(values) if most else min(values)
    return Figure(name, unit, float(np.median(values)), float(best), len(values), target, note)


def machine() -> dict[str, str | int]:
    """What the figures were measured on."""
    names = [line.split(":")[1].strip() for line in _cpuinfo() if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": len(names),
        "python": platform.python_version(),
    }


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.exists() else []


def show(title: str, figures: Sequence[Figure], path: Path | None) -> None:
    """Print the table and, with a path, write the JSON."""
    about = machine()
    table = Table(title=f"{title} ({about['cores']} cores, {about['processor']}, Python {about['python']})")
    for column in ("what", "median", "best", "target", "note"):
        table.add_column(column, justify="left" if column in ("what", "note") else "right", overflow="fold")
    for f in figures:
        target = "" if f.target is None else f"{f.target:,.4g} {f.unit}"
        table.add_row(f.name, f"{f.median:,.4g} {f.unit}", f"{f.best:,.4g} {f.unit}", target, f.note)
    Console(width=150).print(table)
    write(figures, path)


def write(figures: Sequence[Figure], path: Path | None) -> None:
    """Write the JSON, if a path is given."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps({"machine": machine(), "figures": [asdict(f) for f in figures]}, indent=2) + "\n"
        )
