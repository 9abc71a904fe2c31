"""How messages show values: as JSON does, and so that everything in them can be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.errors import did_you_mean, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (2.0, "2.0"),
        (-(2**63), "-9223372036854775808"),
        ("ann", '"ann"'),
        ('a "b"\\\n', r'"a \"b\"\\\n"'),
        ("naïve 木", '"naïve 木"'),
        # Half of a surrogate pair, a mark that turns the text round, a line separator: none of them is seen.
        ("\ud800\u202e\u2028", r'"\ud800\u202e\u2028"'),
        (["a", 1, [None, False]], '["a", 1, [null, false]]'),
        (("a", 1), '["a", 1]'),
        ({"tuples": []}, '{"tuples": []}'),
        (b"a", "b'a'"),
        (float("nan"), "NaN"),
    ],
)
def test_a_value_is_shown_as_json(value: Any, text: str) -> None:
    assert shown(value) == text


def test_a_long_value_is_cut_off() -> None:
    assert shown("x" * 300) == '"' + "x" * 200 + '"...'
    assert shown([1] * 300) == json.dumps([1] * 300)[:200] + "..."
    assert shown(10**5000) == "a value of the type int that is too large to show"


def test_names_that_are_near() -> None:
    assert did_you_mean([]) == ""
    assert did_you_mean(["edge", "edges"]) == ' Did you mean "edge" or "edges"?'
