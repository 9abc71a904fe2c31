"""Papers 000 and 001: LUBM-1 with the rules of RDFS and of its ontology, of which facts and rules come and go.

The differential way (`update`) against deleting too much and deriving again (DRed) and against computing everything
again (`bootstrap`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.client import lubm as lubm_with_ontology
from benchmarks.engine import RDFS, Array, lubm_boxes
from benchmarks.papers.data import MissingData
from benchmarks.papers.peers import compared
from benchmarks.papers.sections import (
    COMPARED,
    CPU,
    Row,
    Section,
    Settings,
    Target,
    Work,
    sample,
    share_in_words,
    without_dred,
)
from benchmarks.papers.strategies import (
    Change,
    against_dred,
    compare,
    crossing,
    facts_away,
    rule_away,
    small_is_cheap,
)
from benchmarks.peers import Workload
from zedlog import Reasoner

TITLE = "000 and 001: facts and rules of a knowledge graph"
PAPER = (
    "The papers evaluate Datalog reasoners over differential dataflow and over DBSP with LUBM-1 under RDFS and OWL "
    "rules: how long facts and rules that come and go take, against DRed and against computing everything again."
)
SHARES: dict[str, Sequence[float]] = {
    "tiny": (0, 10),
    "small": (0, 1, 10, 50),
    "default": (0, 0.1, 1, 5, 10, 25, 50),
    "large": (0, 0.01, 0.1, 1, 5, 10, 25, 50, 75),
}
"""Per cent of the facts; 0 is one fact."""
EVERY = {"tiny": 50, "small": 5, "default": 1, "large": 1}
"""One assertion of so many is taken."""
AXIOMS = {"tiny": 3, "small": 6, "default": 15, "large": 1000}
"""How many axioms of the ontology come and go, by chance."""
NAMES = (
    "domains",
    "ranges",
    "sub-properties of sub-properties",
    "sub-classes of sub-classes",
    "types by sub-classes",
    "triples by sub-properties",
)
TRIPLES = "The data is {called}: {facts:,} triples, {all:,} with what follows. "


def coded(settings: Settings) -> Array:
    boxes = lubm_boxes(settings.data)
    if boxes is None:
        raise MissingData(
            "LUBM-1: the .ntenc files are not in the data folder, and nothing stands in for them."
        )
    assertions, terms = boxes
    return np.unique(np.concatenate((assertions[:: settings.of(EVERY)], terms)), axis=0)


def called(settings: Settings) -> str:
    every = settings.of(EVERY)
    return "LUBM-1" if every == 1 else f"LUBM-1 with one in {every} assertions"


def number_of(share: float, facts: int) -> int:
    return max(1, int(share / 100 * facts))


def facts(settings: Settings) -> Section:
    """Growing shares of the facts, under RDFS."""
    triples = coded(settings)
    reasoner = Reasoner("resident", threads=1)
    reasoner.apply(facts={"t": triples}, rules=[(rule, 1) for rule in RDFS])
    changes = [
        facts_away(share_in_words(n, share), "t", sample(triples, n))
        for share in settings.of(SHARES)
        for n in [number_of(share, len(triples))]
    ]
    told = TRIPLES.format(called=called(settings), facts=len(triples), all=reasoner.count("t"))
    return _section("Facts come and go, RDFS", told, reasoner, changes, settings, "facts")


def rules(settings: Settings) -> Section:
    """Each of the six rules of RDFS, one by one."""
    triples = coded(settings)
    reasoner = Reasoner("resident", threads=1)
    reasoner.apply(facts={"t": triples}, rules=[(rule, 1) for rule in RDFS])
    changes = [rule_away(f"rule for {name}", [rule]) for name, rule in zip(NAMES, RDFS, strict=True)]
    told = TRIPLES.format(called=called(settings), facts=len(triples), all=reasoner.count("t"))
    return _section("Rules come and go, RDFS", told, reasoner, changes, settings)


def _with_ontology(settings: Settings) -> tuple[list[tuple[str, str, str]], list[str], Reasoner]:
    path = settings.data / "lubm1.nt.gz"
    if not path.exists():
        raise MissingData("LUBM-1 with its ontology: lubm1.nt.gz is not in the data folder.")
    triples, clauses = lubm_with_ontology(path)
    triples = triples[:: settings.of(EVERY)]
    reasoner = Reasoner("resident", threads=1)
    reasoner.apply(facts={"triple": [(row, 1) for row in triples]}, rules=[(clause, 1) for clause in clauses])
    return triples, clauses, reasoner


def owl_facts(settings: Settings) -> Section:
    """Growing shares of the facts, under the OWL 2 RL rules of LUBM's own ontology."""
    triples, clauses, reasoner = _with_ontology(settings)
    order = np.random.default_rng(1).permutation(len(triples))
    changes = []
    for share in settings.of(SHARES):
        n = number_of(share, len(triples))
        chosen = [triples[i] for i in order[:n]]
        changes.append(
            Change(
                share_in_words(n, share),
                {"facts": {"triple": [(row, -1) for row in chosen]}},
                {"facts": {"triple": [(row, 1) for row in chosen]}},
                n,
            )
        )
    told = _told(called(settings), triples, clauses, reasoner)
    return _section("Facts come and go, OWL 2 RL", told, reasoner, changes, settings, "facts")


def owl_rules(settings: Settings) -> Section:
    """Rules of the ontology, one by one. A row is all of one shape, because there are many."""
    triples, clauses, reasoner = _with_ontology(settings)
    order = np.random.default_rng(2).permutation(len(clauses))[: settings.of(AXIOMS)]
    left_out = without_dred()
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for i in order.tolist():
        for row in compare(reasoner, rule_away("rule", [clauses[i]]), COMPARED, settings.runs, left_out):
            for strategy, seconds in row.seconds.items():
                found[row.name][strategy].append(float(np.median(seconds)))
    rows = [
        Row(f"one of {len(order)} rules {name.rpartition(' ')[2]}", dict(all)) for name, all in found.items()
    ]
    told = _told(called(settings), triples, clauses, reasoner) + (
        f"{len(order)} of the rules, by chance, are removed and added again one after the other; the spread of a row "
        "is that over the rules, each by its median. "
    )
    return Section(
        "Rules come and go, OWL 2 RL",
        told + _strategies(),
        CPU,
        rows,
        meaning(rows),
        targets=small_is_cheap(rows, 0.5),
        left_out=left_out,
    )


def _told(name: str, triples: Sequence[Any], clauses: Sequence[str], reasoner: Reasoner) -> str:
    return (
        f"{len(clauses)} rules made of LUBM's ontology (one or more for each axiom; the older copy of the ontology "
        f"in the file is left out) over {name}: {len(triples):,} triples, {reasoner.count('triple'):,} with what "
        "follows. "
    )


def _strategies() -> str:
    return f"Each change is made and taken back by each strategy in turns: {', '.join(COMPARED)}."


def _section(
    title: str, told: str, reasoner: Reasoner, changes: Sequence[Change], settings: Settings, axis: str = ""
) -> Section:
    left_out = without_dred()
    rows = [row for change in changes for row in compare(reasoner, change, COMPARED, settings.runs, left_out)]
    return Section(
        title,
        told + _strategies(),
        CPU,
        rows,
        meaning(rows),
        axis,
        [*small_is_cheap(rows), *_symmetric(rows)] if axis else [],
        left_out,
    )


def _symmetric(rows: Sequence[Row]) -> list[Target]:
    """That taking 1 % away costs at most half more than giving it back, as in benchmarks/engine.py."""
    found = {row.name: row.median("update") for row in rows if row.name.startswith("1 % ")}
    if len(found) != 2:
        return []
    away, back = found.values()
    reason = "not examined"
    return [Target("1 %: update, removed / added", away / back, 1.5, reason=reason)]


def meaning(rows: Sequence[Row]) -> str:
    return " ".join(filter(None, (crossing(rows, "removed"), crossing(rows, "added"), against_dred(rows))))


def peers(settings: Settings) -> Section:
    workload = Workload("rdfs", RDFS, {"t": coded(settings)}, "t", changes=True)
    return compared("Peers on LUBM-1 under RDFS", [(f"{called(settings)}, RDFS", workload)], settings)


SECTIONS: dict[str, Work] = {
    "facts": facts,
    "rules": rules,
    "owl facts": owl_facts,
    "owl rules": owl_rules,
    "peers": peers,
}
