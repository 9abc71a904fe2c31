"""The tree of `zedlog explain` on a terminal says what the plain text says."""

from __future__ import annotations

from rich.console import Console

from engine.explain.rendering import as_text
from engine.explain.rendering_answer import answer_lines, answer_text
from service.cli.explain import _trees
from zedlog import Reasoner, explain


def test_a_tree_has_the_lines_of_the_text_with_their_depth() -> None:
    reasoner = Reasoner()
    reasoner.apply(
        facts={"edge": [(("a", "[bold]b"), 1), (("[bold]b", "c"), 1)]},
        rules=[("tc(x, y) :- edge(x, y).", 1), ("tc(x, z) :- tc(x, y), edge(y, z).", 1)],
    )
    for asked in ('tc("a", "c")', 'tc("c", "a")'):
        found = explain(reasoner, asked, repairs=1)
        drawn = [line.lstrip("│├└─ ").rstrip() for line in _drawn(found)]
        assert drawn == [line.strip() for line in answer_text(found).splitlines()]
        depths = [(len(line) - len(line.lstrip("│├└─ "))) // 4 for line in _drawn(found)]
        assert depths == [line.depth for line in answer_lines(found)]
    assert as_text(explain(reasoner, 'tc("a", "c")')) == answer_text(explain(reasoner, 'tc("a", "c")'))


def _drawn(found: dict[str, object]) -> list[str]:
    console = Console(width=200)
    with console.capture() as captured:
        for tree in _trees(answer_lines(found)):
            console.print(tree)
    return captured.get().splitlines()
