"""Parameters of `.input` and `.output`: defaults, values, and what is refused."""

from __future__ import annotations

import pytest

from engine.errors import DeclarationError, ProgramError, UnsupportedFeatureError
from engine.files.batch import FileRun
from engine.files.layout import Layout

DECLARED = ".decl r(x: symbol, n: number)\n"


def layout(directive: str) -> Layout:
    batch = FileRun.of(DECLARED + directive)
    ((_, found),) = batch.inputs + batch.outputs
    return found


@pytest.mark.parametrize(
    ("directive", "expected"),
    [
        (".input r", Layout("r.facts")),
        (".output r", Layout("r.csv")),
        (".input r()", Layout("r.facts")),
        ('.input r(IO=file, filename="a/b.txt", delimiter=",")', Layout("a/b.txt", delimiter=",")),
        ('.input r(delimiter="\\t", headers=true)', Layout("r.facts", headers=True)),
        (".input r(rfc4180=true)", Layout("r.facts", delimiter=",", rfc4180=True)),
        ('.input r(rfc4180="true", delimiter=";")', Layout("r.facts", delimiter=";", rfc4180=True)),
        ('.input r(columns="2:0")', Layout("r.facts", columns=(2, 0))),
        (".input r(IO=stdin)", Layout("r.facts", channel="stdin")),
        (".output r(IO=stdout)", Layout("r.csv", channel="stdout")),
        (".output r(compress=true)", Layout("r.csv.gz", compress=True)),
    ],
)
def test_layouts(directive: str, expected: Layout) -> None:
    assert layout(directive) == expected


@pytest.mark.parametrize(
    ("directive", "error", "message"),
    [
        (
            ".input r(IO=sqlite)",
            UnsupportedFeatureError,
            ".input cannot use IO=sqlite; it can use file or stdin",
        ),
        (".output r(IO=stdin)", UnsupportedFeatureError, "it can use file or stdout"),
        ('.input r(file="x")', DeclarationError, "unknown parameter file; did you mean filename?"),
        ('.input r(delimeter=",")', DeclarationError, "did you mean delimiter?"),
        (".input r(compress=true)", DeclarationError, "unknown parameter compress"),
        ('.output r(columns="0")', DeclarationError, "unknown parameter columns"),
        ('.printsize r(filename="x")', DeclarationError, "unknown parameter filename"),
        (".input r(headers=yes)", DeclarationError, "headers must be true or false, not 'yes'"),
        (".input r(headers=true, headers=true)", DeclarationError, "the parameter headers is given twice"),
        ('.input r(delimiter="")', DeclarationError, "the delimiter must have at least one character"),
        ('.input r(delimiter="\\n")', DeclarationError, "and no line break"),
        (
            '.input r(rfc4180=true, delimiter="ab")',
            DeclarationError,
            "with rfc4180 the delimiter must be one",
        ),
        ('.input r(columns="a")', DeclarationError, "columns must be numbers from 0"),
        ('.input r(columns="1")', DeclarationError, "needs 2 different columns, not '1'"),
        ('.input r(columns="1:1")', DeclarationError, "needs 2 different columns"),
        ('.input r(IO=stdin, filename="x")', DeclarationError, "filename has no effect with IO=stdin"),
        ('.output r(filename="")', DeclarationError, "filename must not be empty"),
        (".input q", DeclarationError, "q is not declared"),
        (".output q", DeclarationError, "q is not declared"),
    ],
)
def test_what_has_no_meaning_is_refused_with_its_place(
    directive: str, error: type[ProgramError], message: str
) -> None:
    with pytest.raises(error) as caught:
        layout(directive)
    assert message in str(caught.value)
    assert str(caught.value).startswith("line 2, column 1: ")
