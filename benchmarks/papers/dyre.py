"""Paper 002 (DYRE): batches of growing size go and come back, in graph programs and under RDFS."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.engine import LINEAR, NON_LINEAR, RDFS, SAME_GENERATION, Array
from benchmarks.papers import data, lubm
from benchmarks.papers.peers import compared
from benchmarks.papers.sections import (
    COMPARED,
    CPU,
    Section,
    Settings,
    Work,
    sample,
    share_in_words,
    without_dred,
)
from benchmarks.papers.strategies import compare, facts_away, gain, small_is_cheap
from benchmarks.peers import Workload, graph
from zedlog import Reasoner

TITLE = "002 (DYRE): batches of growing size"
PAPER = (
    "The paper evaluates a dynamic reasoner with batches of growing size, which are removed from and added to graph "
    "programs and RDFS."
)
BATCHES: dict[str, Sequence[int]] = {
    "tiny": (1, 10),
    "small": (1, 100, 1_000, 10_000),
    "default": (1, 10, 100, 1_000, 10_000, 50_000),
    "large": (1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 50_000),
}
"""Facts of a batch; those of more than half of all facts are left out."""
PROGRAMS = {
    # The section -> (program, graph, rules)
    "closure of graph1000": ("The linear transitive closure", "graph1000", LINEAR),
    "closure of graph10000": ("The linear transitive closure", "graph10000", LINEAR),
    "closure of tree11": ("The linear transitive closure", "tree11", LINEAR),
    "non-linear closure of graph1000": ("The non-linear transitive closure", "graph1000", NON_LINEAR),
    "same generation of graph1000": ("Same generation", "graph1000", SAME_GENERATION),
}
SMALL = 300
"""Edges of each graph in the size `tiny`."""


def edges_of(name: str, settings: Settings, left_out: list[str]) -> tuple[str, Array]:
    called, edges = data.graph(settings.data, name, left_out)
    if settings.size == "tiny":
        return f"{SMALL} edges of {called}", edges[:SMALL]
    return called, edges


def batches(title: str, settings: Settings) -> Section:
    what, name, rules = PROGRAMS[title]
    left_out: list[str] = []
    called, edges = edges_of(name, settings, left_out)
    return _measure(f"{what} of {called}", "arc", edges, rules, settings, left_out)


def rdfs(settings: Settings) -> Section:
    return _measure(f"RDFS over {lubm.called(settings)}", "t", lubm.coded(settings), RDFS, settings, [])


def _measure(
    title: str, relation: str, rows: Array, rules: list[str], settings: Settings, left_out: list[str]
) -> Section:
    left_out += without_dred()
    reasoner = Reasoner("resident", threads=1)
    reasoner.apply(facts={relation: rows}, rules=[(rule, 1) for rule in rules])
    head = rules[0].partition("(")[0]
    sizes = [n for n in settings.of(BATCHES) if n <= len(rows) // 2]
    found = [
        row
        for n in sizes
        for row in compare(
            reasoner,
            facts_away(share_in_words(n, None), relation, sample(rows, n, seed=4)),
            COMPARED,
            settings.runs,
            left_out,
        )
    ]
    compared_with = (
        f"{len(rows):,} facts, {reasoner.count(head):,} tuples of `{head}`. A batch of facts, taken by chance, is "
        f"removed and added again by each strategy in turns: {', '.join(COMPARED)}."
    )
    meaning = f"{lubm.meaning(found)} {gain(found)}"
    return Section(title, compared_with, CPU, found, meaning, "facts", small_is_cheap(found), left_out)


def peers(settings: Settings) -> Section:
    """The graphs whose programs the peers have."""
    left_out: list[str] = []
    workloads: list[tuple[str, Workload]] = []
    for name in ("graph10000", "tree11"):
        called, edges = edges_of(name, settings, left_out)
        workloads.append((f"linear closure of {called}", graph("linear", LINEAR, edges, changes=True)))
    section = compared("Peers on graph programs", workloads, settings)
    section.left_out[:0] = left_out
    return section


SECTIONS: dict[str, Work] = {
    **{title: partial(batches, title) for title in PROGRAMS},
    "RDFS": rdfs,
    "peers": peers,
}
