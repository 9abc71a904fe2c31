"""The page: what was compared, a table, a plot, and what it means, for each section that was measured."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.papers.plots import LABELS, draw
from benchmarks.papers.sections import Row, Section, Target, in_words

Parts = Mapping[str, tuple[str, str, Mapping[str, Section], Sequence[str]]]
"""Part -> (title, what the paper did, its sections, why others of its sections are not there)."""

INTRODUCTION = """# The papers' evaluations

Four papers stand behind the ways in which Zedlog evaluates: differential reasoners (000, 001), DYRE (002), DCDatalog
(003) and elastic incrementalization (004). This page does their evaluations again, in their shapes, with Zedlog beside
the peers that the machine had. It is written by one command, which measures only what it has not kept from before:

```
make papers                               # all parts: about {minutes}
make papers PARTS="elastic dyre"          # some of them
make papers SIZES=large                   # as large as in the papers: hours; SIZES=small: some minutes
```

Each figure is the median of the runs, with the least and the most in brackets. A time is either the CPU time of
evaluating, where our own strategies are compared, or the wall time, where others take part; each section says which.
The load is that of the whole machine when the section began and ended: where it is more than the cores, wall times are
longer than they need be, and only ratios within a table count. The papers' own figures, and the machines they were
measured on, are not at hand, so that none stand beside ours.
"""


def write(path: Path, parts: Parts, minutes: str) -> None:
    """Write the page, and its plots into a folder beside it that has its name."""
    plots = path.with_suffix("")
    lines = [INTRODUCTION.format(minutes=minutes)]
    measured = [section for _, _, sections, _ in parts.values() for section in sections.values()]
    lines += _targets([(section.title, target) for section in measured for target in section.targets])
    drawn = set()
    for name, (title, paper, sections, absent) in parts.items():
        lines += [f"## {title}\n", f"{paper}\n"]
        for section in sections.values():
            plot = plots / f"{name}-{_slug(section.title)}.svg"
            draw(section, plot)
            drawn.add(plot)
            lines += [f"{line}\n" for line in _section(section, f"{plots.name}/{plot.name}")]
        lines += [f"- Left out. {reason}" for reason in absent]
        lines += [""] if absent else []
    for old in set(plots.glob("*.svg")) - drawn:
        old.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n")


def _slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _section(section: Section, plot: str) -> Iterator[str]:
    yield f"### {section.title}"
    yield f"{section.compared} A time is the {section.clock}." if section.clock else section.compared
    yield "\n".join(_table(section))
    yield f"![{section.title}: median and spread]({plot})"
    yield section.meaning.strip()
    if section.left_out:
        yield "\n".join(f"- Left out or replaced. {line}" for line in section.left_out)
    yield _how(section)


def _how(section: Section) -> str:
    about = section.about
    machine, (before, after) = about["machine"], about["load"]
    return (
        f"Measured on {about['date']} with `{about['command']}`, {about['runs']} runs, sizes `{about['size']}`, in "
        f"{about['seconds']:.0f} s; {machine['processor']}, {machine['cores']} cores, Python {machine['python']}; load "
        f"{before} to {after}."
    )


def _table(section: Section) -> Iterator[str]:
    names = section.contestants
    notes = any(row.note for row in section.rows)
    yield _line(
        [section.axis or "what", *(LABELS.get(name, name) for name in names), *(["note"] if notes else [])]
    )
    yield _line(["---", *["---:" for _ in names], *(["---"] if notes else [])])
    for row in section.rows:
        yield _line([row.name, *(_cell(row, name) for name in names), *([row.note] if notes else [])])


def _cell(row: Row, name: str) -> str:
    seconds = row.seconds.get(name)
    if not seconds:
        return ""
    return f"{in_words(row.median(name))} ({in_words(min(seconds))} to {in_words(max(seconds))})"


def _targets(targets: Sequence[tuple[str, Target]]) -> list[str]:
    """Those that were missed, by name and with the reason, and how many there are."""
    missed = [(title, target) for title, target in targets if not target.met]
    lines = [
        "## Targets\n",
        f"{len(targets) - len(missed)} of {len(targets)} targets are met. "
        + ("These are missed:" if missed else "None is missed."),
        "",
    ]
    if missed:
        lines += [
            _line(["table", "target", "wanted", "measured", "why"]),
            _line(["---", "---", "---:", "---:", "---"]),
        ]
        for title, target in missed:
            bound = "at least" if target.most else "at most"
            lines.append(
                _line(
                    [
                        title,
                        target.name,
                        f"{bound} {target.limit:g} {target.unit}",
                        f"{target.value:.3g} {target.unit}",
                        target.reason or "not known",
                    ]
                )
            )
        lines.append("")
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
