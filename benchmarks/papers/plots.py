"""The plot of a section as SVG: lines over sizes, or bars; medians, with the spread from the least to the most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.papers.sections import Row, Section

COLOURS = {
    "update": "#00796b",
    "bootstrap": "#c62828",
    "dred": "#ef8f00",
    "auto": "#5e35b1",
    "Zedlog": "#00796b",
    "Zedlog, 2 threads": "#4db6ac",
    "1 thread": "#00796b",
    "2 threads": "#4db6ac",
}
"""Of the contestants that appear in several plots; the others take what is left."""
OTHERS = ("#1565c0", "#6d4c41", "#ad1457", "#546e7a", "#9e9d24", "#37474f")
LABELS = {
    "auto": "elastic",
    "dred": "DRed",
    "differential": "differential dataflow",
    "souffle": "Souffle",
    "dyre": "DYRE",
}
"""How the page calls a contestant, where it is not by its own name."""
VERBS = ("removed", "added")
STYLE: Any = {
    "font.size": 9,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    # Names inside the file are the same in every run.
    "svg.hashsalt": "zedlog",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}


def draw(section: Section, path: Path) -> None:
    """Write the plot."""
    with mpl.rc_context(STYLE):
        panels = _panels(section)
        figure = Figure(
            figsize=(9, 3.4 if section.axis else 1.6 + 0.3 * len(section.rows)), layout="constrained"
        )
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for place, (title, rows) in zip(axes, panels.items(), strict=True):
            if section.axis:
                _lines(place, rows, section)
            else:
                _bars(place, rows, section)
            place.set_title(title)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        # No date, so that the same figures give the same file.
        figure.savefig(path, format="svg", metadata={"Date": None})


def _panels(section: Section) -> Mapping[str, Sequence[Row]]:
    """What is removed and what is added beside each other."""
    if section.axis and all(row.x is not None for row in section.rows):
        parts = {verb: [row for row in section.rows if row.name.endswith(verb)] for verb in VERBS}
        if all(parts.values()):
            return parts
    return {"": section.rows}


def _colour(name: str, section: Section) -> str:
    others = [one for one in section.contestants if one not in COLOURS]
    return COLOURS.get(name) or OTHERS[others.index(name) % len(OTHERS)]


def _spread(rows: Sequence[Row], name: str) -> tuple[list[float], list[list[float]]]:
    """(medians, how far below and above them the runs go)"""
    medians = [row.median(name) for row in rows]
    below = [m - min(row.seconds[name]) for row, m in zip(rows, medians, strict=True)]
    above = [max(row.seconds[name]) - m for row, m in zip(rows, medians, strict=True)]
    return medians, [below, above]


def _lines(axes: Axes, rows: Sequence[Row], section: Section) -> None:
    numbers = all(row.x is not None for row in rows)
    for name in section.contestants:
        chosen = [row for row in rows if name in row.seconds]
        places = [float(row.x or 0) if numbers else float(rows.index(row)) for row in chosen]
        medians, spread = _spread(chosen, name)
        axes.errorbar(
            places,
            medians,
            yerr=spread,
            label=LABELS.get(name, name),
            color=_colour(name, section),
            marker="o",
            markersize=3.5,
            capsize=2,
            linewidth=1.4,
        )
    axes.set_yscale("log")
    axes.set_ylabel("seconds")
    axes.set_xlabel(section.axis)
    if numbers:
        axes.set_xscale("log")
    else:
        axes.set_xticks(range(len(rows)), [row.name for row in rows])


def _bars(axes: Axes, rows: Sequence[Row], section: Section) -> None:
    names = section.contestants
    height = 0.8 / len(names)
    for i, name in enumerate(names):
        chosen = [row for row in rows if name in row.seconds]
        medians, spread = _spread(chosen, name)
        axes.barh(
            [rows.index(row) + (i - (len(names) - 1) / 2) * height for row in chosen],
            medians,
            height * 0.9,
            xerr=spread,
            label=LABELS.get(name, name),
            color=_colour(name, section),
            error_kw={"elinewidth": 0.8, "capsize": 1.5},
        )
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("seconds")
