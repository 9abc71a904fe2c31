"""What pages show, without a browser: rows, places of errors, pictures of epochs."""

from __future__ import annotations

from typing import Any

import pytest

from service.console.editor import span_of
from service.console.rows import as_text, grid_columns, grid_rows, tuples_of
from service.console.timeline import chart, sparkline, told

XY = [{"name": "x", "type": "symbol"}, {"name": "y", "type": "number"}]


class TestGrid:
    def test_integers_that_a_browser_cannot_hold_go_to_it_as_text_and_sort_as_integers(self) -> None:
        rows: list[list[Any]] = [["a", 2**53 + 1], ["b", 5]]
        assert grid_rows(XY, rows) == [
            {"i": 0, "c0": "a", "c1": "9007199254740993"},
            {"i": 1, "c0": "b", "c1": "5"},
        ]
        assert "BigInt" in grid_columns(XY, rows)[1][":comparator"]

    def test_small_integers_stay_numbers(self) -> None:
        rows: list[list[Any]] = [["a", 2**53], ["b", -(2**53)]]
        assert [row["c1"] for row in grid_rows(XY, rows)] == [2**53, -(2**53)]
        assert ":comparator" not in grid_columns(XY, rows)[1]

    def test_columns_have_their_names_and_types(self) -> None:
        columns = [{"name": "a.b", "type": "float"}, {"name": "t", "type": None}]
        found = grid_columns(columns, [])
        assert [(one["field"], one["headerName"]) for one in found] == [("c0", "a.b"), ("c1", "t")]
        assert "toFixed(1)" in found[0][":valueFormatter"], "2.0 is not 2"

    def test_booleans_are_words(self) -> None:
        assert grid_rows([{"name": "t", "type": "bool"}], [[True], [False]]) == [
            {"i": 0, "c0": "true"},
            {"i": 1, "c0": "false"},
        ]


@pytest.mark.parametrize(
    ("query", "row", "expected"),
    [
        ("edge(x, y)", ["a", 1], ['edge("a", 1)']),
        ('edge("k", y), !other(x), tc(y, x)', ["a", 1], ['edge("k", 1)', 'tc(1, "a")']),
        ("edge(x, _), tc(x, y)", ["a", 1], ['tc("a", 1)']),
        ("edge(x, y), edge(x, y), y > 3", ["a", 4], ['edge("a", 4)']),
        ("edge(x, y); tc(x, y)", ["a", 1], []),
        ("q(x, y) :- edge(x, y)", ["a", 1], []),
        ("edge(x, z), n = count : { tc(x, _) }", ["a", 1], []),
        ("edge(x, y", ["a", 1], []),
        ("edge(x, y)", ['say "hi"\\', -1], ['edge("say \\"hi\\"\\\\", -1)']),
    ],
)
def test_a_row_stands_for_tuples(query: str, row: list[Any], expected: list[str]) -> None:
    assert tuples_of(query, XY, row) == expected


def test_types_are_kept_in_the_text_of_a_tuple() -> None:
    columns = [{"name": "f", "type": "float"}, {"name": "b", "type": "bool"}]
    assert tuples_of("m(f, b)", columns, [2, True]) == ["m(2.0, true)"]
    assert [as_text(value) for value in (2.0, 2, True, "a")] == ["2.0", "2", "true", '"a"']


@pytest.mark.parametrize(
    ("text", "problem", "expected"),
    [
        (
            "tc(x, y),\n !edg(x,y)",
            {"line": 2, "column": 3, "rendered": "?\n !edg(x,y)\n  ^^^^^^^^"},
            "edg(x,y)",
        ),
        ("tc(x, y", {"line": 1, "column": 8, "rendered": "x\n  tc(x, y\n         ^"}, "y"),
        ("a\nb", {"line": 1, "column": 2, "rendered": "^"}, "a"),
        ("tc(x)", {"line": 1, "column": 1}, "t"),
        ("\u00e9\U0001f600x(1)", {"line": 1, "column": 3, "rendered": "\n^^^^"}, "x(1)"),
        ("tc(x)", {"line": 9, "column": 1}, None),
        ("tc(x)", {}, None),
        ("", {"line": 1, "column": 1}, None),
    ],
)
def test_the_place_of_an_error(text: str, problem: dict[str, Any], expected: str | None) -> None:
    found = span_of(text, problem)
    assert (None if found is None else text[found[0] : found[1]]) == expected


def epoch(number: int, strategy: str = "update", **changes: tuple[int, int]) -> dict[str, Any]:
    return {
        "epoch": number,
        "time": 1000.0 + number,
        "changes": {name: {"inserted": came, "deleted": went} for name, (came, went) in changes.items()},
        "strategy": strategy,
        "placement": "resident",
        "derivations": 7,
        "reason": "maintained",
        "elapsed_ms": 2.5 * number,
    }


class TestTimeline:
    EPOCHS = (epoch(2, edge=(1, 4)), epoch(1, "bootstrap", edge=(2, 0), tc=(9, 0)), epoch(0, "bootstrap"))

    def test_colours_say_how_and_refusals_are_between_the_epochs_at_their_time(self) -> None:
        refused = [
            {"time": 1001.5, "problem": {"code": "constraint_violated", "message": "<b>no</b>"}},
            {"time": 1.0, "problem": None},
        ]
        options = chart(self.EPOCHS, refused)
        assert options["xAxis"]["data"] == ["0", "1", "refused", "2"]
        series = {one["name"]: [tuple(point["value"]) for point in one["data"]] for one in options["series"]}
        assert series == {"update": [(3, 5.0)], "bootstrap": [(0, 0.01), (1, 2.5)], "refused": [(2, 0.01)]}
        text = next(one for one in options["series"] if one["name"] == "refused")["data"][0]["told"]
        assert "constraint_violated" in text
        assert options["tooltip"]["renderMode"] == "richText", "names are text, not HTML"

    def test_an_epoch_in_words(self) -> None:
        text = told(self.EPOCHS[1])
        assert "Epoch 1" in text
        assert "tc: +9 -0\nedge: +2 -0" in text
        many = told(epoch(1, **{f"r{i}": (1, 0) for i in range(9)}))
        assert "and 3 more relations" in many

    def test_changes_of_a_relation(self) -> None:
        found = sparkline("edge", self.EPOCHS, width=3.0, height=20.0)
        assert found["told"] == "+3 -4 in the last 3 epochs"
        # Epoch 1 is the second bar, half as high as the highest, which is what epoch 2 deleted.
        assert found["up"] == "M1.0 10v-5.0h0.6V10zM2.0 10v-2.5h0.6V10z"
        assert found["down"] == "M2.0 10v10.0h0.6V10z"
        assert sparkline("other", self.EPOCHS)["up"] == ""
        assert sparkline("other", ())["told"] == "no changes in the epochs shown"
