"""The tree of an explanation, beside the text that `zedlog explain` makes of the same document."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.explain.rendering_answer import answer_lines
from service.console.proof_tree import Entry, ProofTree
from zedlog import Reasoner, explain

Json = dict[str, Any]
RULES = (
    "tc(x, y) :- edge(x, y).",
    "tc(x, z) :- tc(x, y), edge(y, z), !closed(z).",
    "far(x, n) :- edge(x, _), n = count : { tc(x, _) }, n > 1.",
    "short(x, min(d + c)) :- short(x, d), cost(x, c).",
)


@pytest.fixture(scope="module")
def reasoner() -> Reasoner:
    made = Reasoner(threads=1)
    edges = [("a", "b"), ("b", "c"), ("c", "d")]
    made.apply(
        declarations=".decl closed(x: symbol)",
        facts={"edge": [(row, 1) for row in edges], "short": [(("a", 4), 1)], "cost": [(("a", 2), 1)]},
        rules=[(text, 1) for text in RULES],
    )
    return made


def tree(reasoner: Reasoner, found: Json) -> tuple[ProofTree, list[str]]:
    asked: list[str] = []

    async def ask(text: str, epoch: int) -> Json:
        asked.append(text)
        return explain(reasoner, text, repairs=0)

    return ProofTree(ask, 1), asked


def opened(entries: list[Entry], depth: int = 12) -> list[Entry]:
    """All entries, each before those inside."""
    found = []
    for entry in entries:
        found.append(entry)
        if entry.inside is not None and depth:
            found += opened(asyncio.run(entry.inside()), depth - 1)
    return found


@pytest.mark.parametrize("text", ['tc("a", "d")', 'far("a", 3)', 'short("a", 4)', 'edge("a", "b")'])
def test_a_proof_has_what_its_text_has(reasoner: Reasoner, text: str) -> None:
    found = explain(reasoner, text)
    proofs, asked = tree(reasoner, found)
    every = opened(proofs.top(found))
    shown = {entry.text for entry in every}
    nodes = {id_ for id_, node in found["nodes"].items() if node["kind"] != "open"}
    assert nodes <= shown
    lines = "\n".join(line.text for line in answer_lines(found))
    for entry in every:
        if entry.kind in ("fact", "absent", "condition") and entry.tuple not in asked:
            assert entry.text in lines
    # Of what is in the answer nothing is asked for again; only why a negated atom has found nothing.
    assert set(asked) <= {entry.text.removeprefix("!") for entry in every if entry.kind == "absent"}


def test_what_an_answer_left_out_is_asked_for_when_it_is_opened(reasoner: Reasoner) -> None:
    found = explain(reasoner, 'tc("a", "d")', size=2)
    proofs, asked = tree(reasoner, found)
    every = opened(proofs.top(found))
    assert asked
    assert {entry.text for entry in every} >= {'edge("a","b")', 'edge("b","c")', 'edge("c","d")'}


def test_why_not_shows_what_fails_and_what_is_missing_can_be_opened(reasoner: Reasoner) -> None:
    found = explain(reasoner, 'tc("d", "a")', repairs=0)
    proofs, asked = tree(reasoner, found)
    (top,) = proofs.top(found)
    assert (top.text, top.kind) == ('tc("d","a")', "missing")
    every = opened([top], 3)
    fails = [entry for entry in every if entry.kind == "fails"]
    assert any(entry.text == 'edge("d","a")' and entry.tuple == 'edge("d","a")' for entry in fails)
    assert 'edge("d","a")' in asked
    # A pattern with a variable is no tuple, and leads nowhere.
    assert all(entry.tuple is None for entry in fails if "y" in entry.text or "_" in entry.text)


def test_a_change_has_its_causes_and_both_states() -> None:
    made = Reasoner(threads=1)
    before = {"holds": False, "root": 'p("a")', "rules": [], "withheld": False}
    made.apply(facts={"e": [(("a",), 1)]}, rules=[("p(x) :- e(x).", 1)])
    after = explain(made, 'p("a")')
    found = {
        "epoch": 7,
        "root": 'p("a")',
        "change": "appeared",
        "causes": [{"kind": "fact", "change": "added", "fact": 'e("a")', "weight": 1}],
        "before": before,
        "after": after,
    }
    proofs, _ = tree(made, found)
    top = proofs.top(found)
    assert [(entry.text, entry.kind) for entry in top] == [
        ('e("a")', "cause"),
        ('p("a")', "missing"),
        ('p("a")', "rule"),
    ]
    assert top[1].note.startswith("before")
    assert top[2].note.startswith("after")
