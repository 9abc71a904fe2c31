"""Symbols that nothing uses any more are forgotten; no code ever stands for another string."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.data.symbols import SymbolTable
from engine.database import writer
from engine.errors import ConstraintViolationError
from zedlog import Reasoner


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_FEW_SYMBOLS", 10)


def test_a_table_keeps_what_is_used() -> None:
    table = SymbolTable(["a", None, "c", "d", "e"])
    assert (len(table), table.held, table.find("c")) == (5, 4, 2)
    before = table.nbytes
    assert table.keep(np.array([0, 4, 77]), ["c", "not there"]).tolist() == [3]
    assert table.all() == ("a", None, "c", None, "e")
    assert table.nbytes < before
    # A string that comes back is a new symbol.
    assert (table.intern("d"), table.intern("f"), len(table)) == (5, 6, 7)
    table.truncate(6)
    assert (table.since(5), table.find("f"), table.intern("g")) == (("d",), None, 6)


def test_symbols_that_come_and_go_are_given_back() -> None:
    r = Reasoner("resident")
    r.apply(
        facts={"p": [(("stays", 0), 1)]},
        rules=[
            ('q(x, "named") :- p(x, _).', 1),
            ("r(cat(x, y)) :- q(x, y).", 1),
            ("n(c) :- c = count : {p(_, _)}.", 1),
        ],
    )
    held = []
    for i in range(8):
        facts = [((f"new {i} {j}", j), 1) for j in range(50)]
        r.apply(facts={"p": facts})
        assert r.count("r") == 51
        first = r.apply(facts={"p": [(row, -1) for row, _ in facts]})
        held.append((r.database.symbols.held, r.database.symbols.nbytes))
    assert max(held) < (260, 80_000)
    # Codes go on: none is given twice.
    assert len(r.database.symbols) > 8 * 100
    r.apply(facts={"other": [((f"{j}",), 1) for j in range(300)]})
    r.apply(facts={"other": [((f"{j}",), -1) for j in range(300)]})
    r.apply(facts={"other": [((f"{j} again",), 1) for j in range(5)]})
    assert sorted(r.facts("r")) == [("staysnamed",)]
    assert r.facts("q") == [("stays", "named")]
    assert r.facts("q", domain="derived", y="named") == [("stays", "named")]
    # A result that is looked at late says what it would have said at once.
    assert len(first.changes["p"]) == 50
    assert (("new 7 3", 3), -1) in first.changes["p"]
    assert r.query('q(x, "named"), !other(x)').tuples == [("stays",)]
    other = Reasoner.restore(r.export())
    assert other.state() == r.state()
    r.check_invariants()


def test_what_is_refused_forgets_nothing_that_is_used() -> None:
    r = Reasoner("resident")
    r.apply(
        facts={"p": [((f"{i}",), 1) for i in range(30)]}, declarations=".decl never(x: symbol) constraint"
    )
    r.apply(rules=[("never(x) :- p(x), gone(x).", 1)], facts={"gone": [(("nothing",), 1)]})
    r.apply(facts={"p": [((f"{i}",), -1) for i in range(29)]})
    for _ in range(3):
        with pytest.raises(ConstraintViolationError):
            r.apply(facts={"gone": [(("29",), 1)], "p": [((f"more {i}",), 1) for i in range(40)]})
        r.dry_run(facts={"p": [((f"some {i}",), 1) for i in range(40)]})
    assert r.facts("p") == [("29",)]
    r.apply(facts={"p": [((f"{i}",), 1) for i in range(29)]})
    assert sorted(r.facts("p")) == sorted((f"{i}",) for i in range(30))


def test_after_a_restart_the_next_symbol_follows_the_published_ones() -> None:
    """A rule meets strings that no tuple holds; once they are forgotten, a restart meets them again."""
    r = Reasoner("resident")
    r.apply(
        facts={"p": [((f"stays {i}",), 1) for i in range(5)]},
        rules=[('q(x) :- p(x), y = cat(x, "!"), y != "other".', 1)],
    )
    for i in range(3):
        facts = [((f"new {i} {j}",), 1) for j in range(40)]
        r.apply(facts={"p": facts})
        r.apply(facts={"p": [(row, -1) for row, _ in facts]})
    state, checkpoint = r.export(), r.checkpoint()
    assert None in state.symbols
    assert "stays 1!" not in state.symbols
    assert checkpoint is not None
    for other in (Reasoner.restore(state), Reasoner.resume(checkpoint, state)):
        assert other.export().symbols == state.symbols
        record = other.apply(facts={"p": [(("another",), 1)]}).record
        assert record.first_symbol == len(state.symbols)
        assert "another" in record.symbols
        assert other.count("q") == 6


def test_after_a_restart_what_a_new_version_holds_is_published_with_the_next_epoch() -> None:
    """Where the evaluation holds a string that the published state did not have."""
    r = Reasoner("resident")
    r.apply(facts={"p": [(("a",), 1)]}, rules=[('q(x, cat(x, "!")) :- p(x).', 1)])
    state = r.export()
    assert "a!" in state.symbols
    known = [text for text in state.symbols if text != "a!"]
    other = Reasoner.restore(replace(state, symbols=known))
    record = other.apply(facts={"p": [(("b",), 1)]}).record
    assert (record.first_symbol, set(record.symbols)) == (len(known), {"a!", "b", "b!"})
    assert other.apply(facts={"p": [(("c",), 1)]}).record.first_symbol == len(other.database.symbols) - 2
