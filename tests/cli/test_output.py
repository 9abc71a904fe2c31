"""What is printed: errors with their caret, rows in four formats."""

from __future__ import annotations

import json

import pytest
from rich.console import Console

from service.cli import output
from service.cli.client import Refused
from service.cli.options import Format

ROWS = [("a", 1, True), ('x,"y"', -2, False)]
COLUMNS = ("name", "n", "flag")


@pytest.fixture(autouse=True)
def plain_consoles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consoles that write to what pytest captures, without colour and as wide as need be."""
    monkeypatch.setattr(output, "out", Console(width=200, color_system=None, soft_wrap=True))
    monkeypatch.setattr(output, "err", Console(width=200, color_system=None, soft_wrap=True, stderr=True))


def test_a_program_error_shows_line_and_caret(capsys: pytest.CaptureFixture[str]) -> None:
    source = "\tp(x, y) :- q(x)."
    problem = {
        "code": "unsafe_rule",
        "detail": "the variable y is bound by no atom of the body",
        "line": 12,
        "column": 7,
        "source": source,
        "rendered": f"line 12, column 7: ...\n  {source}\n  \t     ^",
    }
    output.print_refusal(Refused(422, problem))
    message, line, caret = capsys.readouterr().err.splitlines()
    assert message == "error: the variable y is bound by no atom of the body (unsafe_rule)"
    assert line.startswith("  12 | ")
    assert line.endswith("p(x, y) :- q(x).")
    # However wide the tab is on the terminal, the caret stands under the y.
    assert caret.index("^") == line.index("y)")


def test_the_caret_is_as_wide_as_the_fault(capsys: pytest.CaptureFixture[str]) -> None:
    problem = {
        "code": "c",
        "detail": "d",
        "line": 1,
        "column": 1,
        "source": "edge(x).",
        "rendered": "x\n  ^^^^",
    }
    output.print_refusal(Refused(422, problem))
    assert capsys.readouterr().err.splitlines()[-1] == "      ^^^^"


def test_markup_in_what_users_wrote_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_refusal(Refused(422, {"code": "c", "detail": "[bold]x[/] is wrong"}))
    output.write_rows(("a",), [("[red]x",)], Format.TABLE)
    seen = capsys.readouterr()
    assert "[bold]x[/] is wrong" in seen.err
    assert "[red]x" in seen.out


def test_csv(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.write_rows(COLUMNS, ROWS, Format.CSV) == 2
    assert capsys.readouterr().out == 'name,n,flag\na,1,true\n"x,""y""",-2,false\n'


def test_csv_quotes_what_would_end_a_line_or_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.write_rows(["x"], [("a\rb",), ("a\r\nb",), ("",)], Format.CSV) == 3
    assert capsys.readouterr().out == 'x\n"a\rb"\n"a\r\nb"\n""\n'


def test_json_and_ndjson(capsys: pytest.CaptureFixture[str]) -> None:
    expected = [{"name": "a", "n": 1, "flag": True}, {"name": 'x,"y"', "n": -2, "flag": False}]
    output.write_rows(COLUMNS, ROWS, Format.JSON)
    assert json.loads(capsys.readouterr().out) == expected
    output.write_rows(COLUMNS, ROWS, Format.NDJSON)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == expected
    output.write_rows(COLUMNS, [], Format.JSON)
    assert json.loads(capsys.readouterr().out) == []


def test_a_long_table_is_cut_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert output.write_rows(("n",), ((i,) for i in range(1_500)), Format.TABLE) == 1_500
    seen = capsys.readouterr()
    assert " 999 " in seen.out
    assert " 1000 " not in seen.out
    assert "there are more than these 1,000 rows" in seen.err


def test_durations_have_the_digits_they_deserve() -> None:
    values = [0.0312, 0.42, 3.14159, 42.42, 421.7, 12_345.0, None]
    shown = [output.milliseconds(v) for v in values]
    assert shown == ["0.031 ms", "0.42 ms", "3.1 ms", "42.4 ms", "422 ms", "12.3 s", "?"]


def test_values_are_shown_as_program_text() -> None:
    assert [output.show(v) for v in ('a"b', True, -3, 1.5)] == ['"a\\"b"', "true", "-3", "1.5"]


def test_what_is_no_value_of_the_language_is_json_in_a_cell(capsys: pytest.CaptureFixture[str]) -> None:
    output.write_rows(("epoch", "changes"), [(1, {"tc": {"inserted": 2, "deleted": 0}})], Format.CSV)
    assert capsys.readouterr().out.splitlines()[1] == '1,"{""tc"":{""inserted"":2,""deleted"":0}}"'
