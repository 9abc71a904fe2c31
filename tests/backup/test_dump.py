"""A dump gives the same relations when it is run, and what Souffle does not know is said."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from engine.backup.dumping import dump_folder, dump_program
from engine.backup.reading import opened
from engine.files.batch import FileRun
from tests.backup.conftest import Home
from tests.backup.test_backup import STRANGE, fill


def derived(home: Home) -> dict[str, set[tuple[Any, ...]]]:
    """Every relation that rules derive, by the values of its tuples as files write them."""
    found = {}
    for name, (_, tuples, _) in home.everything()["relations"].items():
        if any(is_derived for _, is_derived in tuples.values()):
            found[name] = {tuple(map(text, row)) for row in tuples}
    return found


def text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.17g}" if isinstance(value, float) else str(value)


def run(program: Path, facts: Path, results: Path) -> dict[str, set[tuple[str, ...]]]:
    """What `zedlog run` writes, as RFC 4180, so that any symbol comes back."""
    source = program.read_text().splitlines()
    lines = [f"{line}(rfc4180=true)" if line.startswith(".output") else line for line in source]
    FileRun.of("\n".join(lines)).run(facts, results, io.BytesIO(), io.BytesIO())
    return {
        path.stem: {tuple(row) for row in csv.reader(io.StringIO(path.read_bytes().decode(), newline=""))}
        for path in results.glob("*.csv")
    }


@pytest.mark.parametrize("form", ["folder", "program"])
def test_a_dump_that_is_run_gives_the_same_relations(origin: Home, tmp_path: Path, form: str) -> None:
    fill(origin)
    backup = opened(origin.backup(tmp_path / "b.zip"))
    folder = tmp_path / "dump"
    folder.mkdir()
    if form == "folder":
        remarks = dump_folder(backup, folder)
        assert {path.name for path in folder.iterdir()} == {
            "program.dl",
            *(f"{name}.facts" for name in ("cost", "derivedtoo", "dist", "edge", "flag", "loose", "way")),
        }
        # Only the relation with strange symbols is not a plain file.
        assert ".input edge(rfc4180=true)\n" in (folder / "program.dl").read_text()
        assert ".input cost\n" in (folder / "program.dl").read_text()
        assert (folder / "flag.facts").read_text() == "()\n"
        assert "0\t0\n" in (folder / "loose.facts").read_text()
    else:
        remarks = dump_program(backup, folder / "program.dl")
    expected = derived(origin)
    assert set(expected) == {"tc", "dear", "best", "alone", "derivedtoo", "dist"}
    assert len(expected["tc"]) > 3 * len(STRANGE)
    assert run(folder / "program.dl", folder, tmp_path / "out") == expected
    told = " ".join(remarks)
    for word in ("bool", "64 bits", "constraint", "asserted more than once", "added more than once"):
        assert word in told
        assert word in (folder / "program.dl").read_text()
    assert "fixpoint" not in told


def test_what_souffle_knows_needs_no_remark(origin: Home, tmp_path: Path) -> None:
    origin.apply(facts=[{"relation": "p", "tuples": [["a", "b"], ["c", "d"]]}])
    folder = tmp_path / "dump"
    folder.mkdir()
    assert dump_folder(opened(origin.backup(tmp_path / "b.zip")), folder) == []
    assert (folder / "p.facts").read_text() == "a\tb\nc\td\n"
    program = (folder / "program.dl").read_text()
    assert ".decl p(c0: symbol, c1: symbol)" in program
    assert "Note" not in program


def test_a_fixpoint_and_a_dot_are_said(origin: Home, tmp_path: Path) -> None:
    origin.apply(
        declarations=".decl rank(x: symbol, r: float) fixpoint(tolerance=1e-9, max_height=200)\n.decl a.b(x: symbol)",
        facts=[{"relation": "a.b", "tuples": [["a"]]}],
        rules=[{"rule": "other(x) :- nothing(x)."}],
    )
    remarks = " ".join(dump_program(opened(origin.backup(tmp_path / "b.zip")), tmp_path / "all.dl"))
    for word in ("fixpoint", "dot", "unknown types"):
        assert word in remarks
