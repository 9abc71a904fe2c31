"""Symbols whose texts are elsewhere, against a table that holds everything: the same codes, whatever is asked for."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from engine.data import far
from engine.data.symbols import SymbolTable
from engine.expressions.texts import Texts


class Source:
    """Far texts in a dictionary, which counts the questions."""

    def __init__(self) -> None:
        self.held: dict[int, str] = {}
        self.asked = 0

    def codes(self, texts: Sequence[str]) -> dict[str, int]:
        self.asked += 1
        assert len(set(texts)) == len(texts)
        return {text: code for code, text in self.held.items() if text in set(texts)}

    def texts(self, codes: Sequence[int]) -> dict[int, str]:
        self.asked += 1
        return {code: self.held[code] for code in codes if code in self.held}

    def span(self, first: int, stop: int) -> dict[int, str]:
        return {code: text for code, text in self.held.items() if first <= code < stop}

    def truncate(self, length: int) -> None:
        self.held = {code: text for code, text in self.held.items() if code < length}


class Both:
    """A table with a far part, and one without; `learn` adds new texts to both, far ones to the first."""

    def __init__(self) -> None:
        self.source, self.table, self.plain = Source(), SymbolTable(), SymbolTable()

    def learn(self, texts: Sequence[str]) -> None:
        new = [text for text in dict.fromkeys(texts) if self.plain.find(text) is None]
        self.source.held |= dict(enumerate(new, len(self.table)))
        self.table.add_far(self.source, len(new))
        self.plain.intern_all(texts)

    def compare(self) -> None:
        assert self.table.all() == self.plain.all()
        assert len(self.table) == len(self.plain)
        assert self.table.held == self.plain.held


@pytest.mark.parametrize("seed", range(20))
def test_differential_far_symbols(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far, "KEPT", 3)
    monkeypatch.setattr(far, "SPAN", 4)
    chance, both = random.Random(seed), Both()
    table, plain = both.table, both.plain
    for _ in range(60):
        texts = [f"t{chance.randrange(30)}" for _ in range(chance.randrange(6))]
        match chance.randrange(7):
            case 0:
                both.learn(texts)
            case 1:
                assert table.intern_all(texts).tolist() == plain.intern_all(texts).tolist()
            case 2:
                assert [table.intern(text) for text in texts] == [plain.intern(text) for text in texts]
            case 3:
                expected = [plain.find(text) for text in texts]
                assert table.find_all(texts) == [table.find(text) for text in texts] == expected
            case 4 if len(plain):
                codes = np.array([chance.randrange(len(plain)) for _ in texts], np.int64)
                assert (
                    table.texts(codes) == plain.texts(codes) == [table.text(code) for code in codes.tolist()]
                )
            case 5:
                length = chance.randrange(len(plain) + 1)
                table.truncate(length)
                plain.truncate(length)
            case 6:
                first = chance.randrange(len(plain) + 1)
                assert list(table.since(first)) == list(plain.since(first))
        both.compare()
    table.bring_near()
    assert not both.source.held
    both.compare()
    assert [table.find(text) for text in plain.near[0]] == plain.near[1].tolist()


def test_one_question_for_many_texts() -> None:
    both = Both()
    both.learn([f"t{i}" for i in range(100)])
    both.table.intern_all([f"t{i}" for i in range(50, 150)])
    assert both.source.asked == 1
    both.table.find_all([f"t{i}" for i in range(50, 150)])
    both.table.intern("t60")
    assert both.source.asked == 1
    texts = Texts(both.table)
    codes = texts.intern_all([f"t{i}" for i in range(10)] + [f"u{i}" for i in range(10)])
    assert both.source.asked == 2
    assert texts.settle(codes).tolist() == [*range(10), *range(150, 160)]
    assert both.source.asked == 2
    assert both.table.texts(np.arange(20)) == [f"t{i}" for i in range(20)]
    assert both.source.asked == 3


def test_a_symbol_that_was_forgotten_has_no_text() -> None:
    both = Both()
    both.learn(["a", "b", "c"])
    del both.source.held[1]
    assert both.table.all() == ("a", None, "c")
    assert both.table.find("b") is None
    with pytest.raises(KeyError):
        both.table.text(1)
    assert both.table.intern("b") == 3
