"""Paper 004 (elastic incrementalization): when to stop updating and compute anew, over Galen, CRDT and points-to."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.elastic import RATIO
from benchmarks.engine import Array
from benchmarks.papers import data
from benchmarks.papers.sections import (
    CPU,
    Row,
    Section,
    Settings,
    Target,
    Work,
    in_words,
    sample,
    share_in_words,
)
from benchmarks.papers.strategies import compare, crossing, facts_away
from engine.data.transaction import Strategy
from zedlog import Reasoner

TITLE = "004 (elastic incrementalization): the size of a change, and when to start anew"
PAPER = (
    "The paper evaluates an engine that abandons an update for a bootstrap once it passes a fraction of the "
    "bootstrap's cost, for changes of growing size over Galen, a list CRDT and a points-to analysis."
)
STRATEGIES: tuple[Strategy, ...] = ("update", "bootstrap", "auto")
SHARES: dict[str, Sequence[float]] = {
    "tiny": (0, 20),
    "small": (0, 1, 20, 50),
    "default": (0, 0.1, 1, 5, 20, 50),
    "large": (0, 0.01, 0.1, 1, 5, 10, 20, 35, 50, 75),
}
"""Per cent of the changing relation; 0 is one fact."""
SWITCHES: dict[str, Sequence[float]] = {
    "tiny": (0, 0.2, math.inf),
    "small": (0, 0.2, 1, math.inf),
    "default": (0, 0.1, 0.2, 0.5, 1, math.inf),
    "large": (0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 2, math.inf),
}
SWITCHED: dict[str, Sequence[float]] = {
    "tiny": (20,),
    "small": (0, 20),
    "default": (0, 1, 20),
    "large": (0, 1, 5, 20, 50),
}
"""The changes of the table of switches, in per cent."""
GALEN = {"tiny": 0.03, "small": 0.15, "default": 0.3, "large": 1.0}
"""The share of Galen's classes."""
OPERATIONS = {"tiny": 300, "small": 10_000, "default": 60_000, "large": None}
MODULES = {"tiny": 1, "small": 6, "default": 24, "large": 100}
REASON = "not examined; likely an update that was abandoned late, or a bootstrap where the update was cheaper"
AT_LEAST = 0.002
"""Seconds below which a ratio of two times says nothing."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A program over facts; `changing` is the relation of which facts go and come back, `last` those at its end."""

    about: str
    declarations: str
    rules: list[str]
    facts: dict[str, Array]
    changing: str
    last: bool = False

    def reasoner(self, switch: float | None = None) -> Reasoner:
        how: dict[str, Any] = {} if switch is None else {"switch": switch}
        reasoner = Reasoner("resident", threads=1, **how)
        reasoner.apply(facts=self.facts, declarations=self.declarations)
        reasoner.apply(rules=[(rule, 1) for rule in self.rules])
        return reasoner

    def chosen(self, share: float) -> tuple[str, Array]:
        rows = self.facts[self.changing]
        n = max(1, int(share / 100 * len(rows)))
        return share_in_words(n, share), rows[-n:] if self.last else sample(rows, n, seed=2)


def galen(settings: Settings, left_out: list[str]) -> Subject:
    share = settings.of(GALEN)
    facts = data.galen(settings.data, share)
    whole = "Galen" if share >= 1 else f"Galen, cut to {100 * share:.3g} % of its classes (by chance)"
    if share < 1:
        left_out.append("Galen in full: it takes minutes and 8 GB for each bootstrap (`--sizes large`).")
    return Subject(f"{whole}; `p` changes", *data.program("galen"), facts, "p")


def crdt(settings: Settings, left_out: list[str]) -> Subject:
    facts = data.crdt(settings.data, settings.of(OPERATIONS), left_out)
    about = f"the list CRDT, {len(facts['insert']):,} insertions; the last ones are undone"
    return Subject(about, *data.program("crdt"), facts, "insert", last=True)


def points_to(settings: Settings, left_out: list[str]) -> Subject:
    modules = settings.of(MODULES)
    about = f"field-sensitive points-to of an invented program of {modules} modules; `assign` changes"
    return Subject(about, *data.program("points_to"), data.points_to(modules), "assign")


SUBJECTS: dict[str, Callable[[Settings, list[str]], Subject]] = {
    "Galen": galen,
    "CRDT": crdt,
    "points-to": points_to,
}


def sizes(title: str, settings: Settings) -> Section:
    """Changes of growing size: update, bootstrap, and what the engine chooses."""
    left_out: list[str] = []
    subject = SUBJECTS[title](settings, left_out)
    reasoner = subject.reasoner()
    rows: list[Row] = []
    for share in settings.of(SHARES):
        name, chosen = subject.chosen(share)
        rows += compare(
            reasoner, facts_away(name, subject.changing, chosen), STRATEGIES, settings.runs, left_out
        )
    targets = []
    for row in rows:
        better = min(row.median("update"), row.median("bootstrap"))
        if better >= AT_LEAST:
            ratio = row.median("auto") / better
            targets.append(Target(f"{title}, {row.name}: elastic / better", ratio, RATIO, reason=REASON))
    return Section(
        f"{title}: growing changes",
        f"{_about(subject)} Facts are removed and added again by each strategy in turns; `elastic` is the engine's own "
        "choice (`auto`), with its default switch.",
        CPU,
        rows,
        f"{crossing(rows, 'removed')} {crossing(rows, 'added')} {_worst(targets)}",
        "facts",
        targets,
        left_out,
    )


def _worst(targets: Sequence[Target]) -> str:
    if not targets:
        return "All times are too short for a ratio that says something."
    worst = max(targets, key=lambda target: target.value)
    return f"At worst `elastic` takes {worst.value:.3g} times as long as the better of the two."


def switches(title: str, settings: Settings) -> Section:
    """The same change with the switch from 0 (always bootstrap) to infinity (never)."""
    left_out: list[str] = []
    subject = SUBJECTS[title](settings, left_out)
    changes = [subject.chosen(share) for share in settings.of(SWITCHED)]
    rows = []
    for switch in settings.of(SWITCHES):
        reasoner = subject.reasoner(switch)
        found: dict[str, list[float]] = {}
        for name, chosen in changes:
            there_and_back = facts_away(name, subject.changing, chosen)
            for row in compare(reasoner, there_and_back, ("auto",), settings.runs, left_out):
                found[row.name] = list(row.seconds["auto"])
        rows.append(Row("infinity" if math.isinf(switch) else f"{switch:g}", found))
    best = {name: min(rows, key=lambda row: row.median(name)) for name in rows[0].seconds}
    told = "; ".join(f"{name} by {row.name} ({in_words(row.median(name))})" for name, row in best.items())
    return Section(
        f"{title}: the switch",
        f"{_about(subject)} The switch is the fraction of a bootstrap's cost after which an update may be abandoned: 0 "
        "always computes anew, infinity never does. A column is a change.",
        CPU,
        rows,
        f"Each change is fastest with this switch: {told}. Neighbours that are as fast differ by chance.",
        "switch",
        left_out=left_out,
    )


def _about(subject: Subject) -> str:
    facts = sum(map(len, subject.facts.values()))
    return f"{subject.about[0].upper()}{subject.about[1:]}; {facts:,} facts, {len(subject.rules)} rules."


SECTIONS: dict[str, Work] = {
    name: work
    for title in SUBJECTS
    for name, work in (
        (f"{title} sizes", partial(sizes, title)),
        (f"{title} switches", partial(switches, title)),
    )
}
