"""A program over files: what goes in, what comes out, and where errors point."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from engine.errors import (
    ArityError,
    InvalidRequestError,
    InvalidValueError,
    TypeMismatchError,
    UnsafeRuleError,
    ZedlogError,
)
from engine.files.batch import FileRun

CLOSURE = """\
.decl edge(x: symbol, y: symbol)
.decl tc(x: symbol, y: symbol)
.input edge
.output tc
tc(x, y) :- edge(x, y).
tc(x, z) :- tc(x, y),
            edge(y, z).
"""


def run(text: str, folder: Path, stdin: bytes = b"", to_stdout: bool = False) -> str:
    out = io.BytesIO()
    FileRun.of(text).run(folder, None if to_stdout else folder / "out", io.BytesIO(stdin), out)
    return out.getvalue().decode()


def test_facts_come_from_the_folder_and_results_go_into_the_other(tmp_path: Path) -> None:
    (tmp_path / "edge.facts").write_text("b\tc\na\tb\nb\tc\n")
    assert run(CLOSURE, tmp_path) == ""
    assert (tmp_path / "out" / "tc.csv").read_text() == "a\tb\na\tc\nb\tc\n"


def test_facts_of_the_text_join_those_of_the_files(tmp_path: Path) -> None:
    (tmp_path / "n.facts").write_text("3\n1\n")
    (tmp_path / "more.txt").write_text("n\n7\n")
    text = """
    .decl n(x: number) .decl both(x: number)
    .input n
    .input n(filename="more.txt", headers=true)
    n(5). n(1). both(5).
    both(x) :- n(x).
    .output both
    .printsize both
    """
    assert run(text, tmp_path) == "both\t4\n"
    assert (tmp_path / "out" / "both.csv").read_text() == "1\n3\n5\n7\n"


def test_integers_of_the_text_in_a_column_that_is_declared_float(tmp_path: Path) -> None:
    text = """
    .decl w(x: symbol, n: float) output
    .decl half(n: float) output
    w("a", 3). w("b", 2.5). w("a", 3.0).
    half(n / 2.0) :- w("a", n).
    """
    run(text, tmp_path)
    assert (tmp_path / "out" / "w.csv").read_text() == "a\t3\nb\t2.5\n"
    assert (tmp_path / "out" / "half.csv").read_text() == "1.5\n"
    for wrong in ('.decl w(x: symbol, n: float) w("a", 9007199254740993).', "u(1.5). u(2)."):
        with pytest.raises(TypeMismatchError, match="line 1, column"):
            FileRun.of(wrong)


def test_standard_output_has_souffles_frame(tmp_path: Path) -> None:
    (tmp_path / "edge.facts").write_text("a\tb\n")
    text = CLOSURE.replace(".output tc", ".output tc(IO=stdout)\n.printsize tc, edge")
    frame = "---------------\ntc\n===============\na\tb\n===============\n"
    assert run(text, tmp_path) == frame + "tc\t1\nedge\t1\n"
    assert not (tmp_path / "out").exists()


def test_all_to_standard_output_has_the_columns_names(tmp_path: Path) -> None:
    (tmp_path / "edge.facts").write_text("a\tb\n")
    frame = "---------------\ntc\nx\ty\n===============\na\tb\n===============\n"
    assert run(CLOSURE, tmp_path, to_stdout=True) == frame


def test_standard_input_and_a_compressed_output(tmp_path: Path) -> None:
    text = CLOSURE.replace(".input edge", '.input edge(IO=stdin, delimiter=" ")')
    text = text.replace(".output tc", '.output tc(compress=true, filename="deep/tc.gz")')
    run(text, tmp_path, b"a b\nb c\n")
    assert gzip.decompress((tmp_path / "out/deep/tc.gz").read_bytes()) == b"a\tb\na\tc\nb\tc\n"


def test_every_type_and_the_nullary_relation(tmp_path: Path) -> None:
    text = """
    .decl v(s: symbol, n: number, f: float, b: bool)
    .decl w(b: bool, f: float, n: number, s: symbol)
    .decl some() .decl none()
    .input v
    w(b, f, n, s) :- v(s, n, f, b).
    some() :- v(_, _, _, true).
    none() :- v("nothing", _, _, _).
    .output w, some, none
    """
    (tmp_path / "v.facts").write_text("é\t-1\t0.5\tfalse\n\t2\t1e3\ttrue\n")
    run(text, tmp_path)
    read = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert read == {
        "w.csv": "false\t0.5\t-1\té\ntrue\t1000\t2\t\n",
        "some.csv": "()\n",
        "none.csv": "",
    }


def test_type_aliases_old_qualifiers_and_several_heads(tmp_path: Path) -> None:
    text = """
    .type Node <: symbol
    .decl a(x: Node) input
    .decl b(x: Node) output
    .decl c(x: Node)
    b(x), c(x) :- a(x); c(x).
    .output c(filename="c.txt")
    """
    (tmp_path / "a.facts").write_text("k\n")
    run(text, tmp_path)
    assert (tmp_path / "out/b.csv").read_text() == (tmp_path / "out/c.txt").read_text() == "k\n"


def test_an_output_may_be_derived_without_a_declaration(tmp_path: Path) -> None:
    assert run('q(1, "a"). p(y, x) :- q(x, y). .output p(IO=stdout)', tmp_path).splitlines()[3] == "a\t1"


@pytest.mark.parametrize(
    ("line", "error", "message"),
    [
        ('edge("a").', ArityError, "line 8, column 1: edge(x: symbol, y: symbol) has 2 columns"),
        ('edge("a", 5).', TypeMismatchError, "line 8, column 11: column 2 (y) of edge holds symbol"),
        ("tc(x, w) :- edge(x, y).", UnsafeRuleError, "line 8, column 7: the variable w"),
        ("tc(x, 5) :- edge(x, y).", TypeMismatchError, "line 8, column 7: "),
        ('n(1). n("a").', TypeMismatchError, "line 8, column 9: "),
    ],
)
def test_errors_point_into_the_program(line: str, error: type[ZedlogError], message: str) -> None:
    with pytest.raises(error) as caught:
        FileRun.of(CLOSURE + line)
    assert str(caught.value).startswith(message)
    assert str(caught.value).splitlines()[1] == f"  {line}"


def test_nothing_is_written_when_a_file_is_wrong_or_missing(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidRequestError, match=r"edge\.facts: No such file or directory \(\.input edge, line 3"
    ):
        run(CLOSURE, tmp_path)
    (tmp_path / "edge.facts").write_text("a\tb\na\n")
    with pytest.raises(InvalidValueError, match=r"edge\.facts, line 2: 1 field separated by tabs"):
        run(CLOSURE, tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_result_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "edge.facts").write_text("a\tb\n")
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(InvalidRequestError, match="cannot write the result"):
        run(CLOSURE, tmp_path)
