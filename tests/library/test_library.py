"""Every program of programs/: it parses, it is in the table, its golden holds, and clingo agrees with the golden."""

from __future__ import annotations

import io
import math
import re
from pathlib import Path

import pytest

from engine.files.batch import FileRun
from engine.language.check import check_safety
from engine.language.schema import ColumnType
from tests.library.case import PROGRAMS, LibraryCase, cases
from tests.programs.case import lines_of

CASES = cases()


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> LibraryCase:
    found: LibraryCase = request.param
    return found


def test_the_library_is_there() -> None:
    assert {
        "rdfs", "rho_df", "rho_df_specialised", "same_generation", "cspa", "csda", "points_to", "galen", "crdt",
        "transitive_closure", "connected_components", "sssp", "apsp", "attend", "delivery", "pagerank",
    } <= {case.name for case in CASES}  # fmt: skip


def test_program_says_what_it_is_and_its_rules_are_safe(case: LibraryCase) -> None:
    header = "".join(line for line in case.text.splitlines(keepends=True) if line.startswith("//"))
    for relation in case.outputs:
        assert relation in header, f"the header does not explain {relation}"
    assert "// In:" in header
    assert "// Out:" in header
    assert case.program.rules
    for rule in case.program.rules:
        check_safety(rule)


def test_table_of_the_readme_says_what_each_program_needs() -> None:
    rows = re.findall(
        r"^\| \[(\w+)\]\((\w+)\.dl\) \|.*\| ([^|]*) \|$", (PROGRAMS / "README.md").read_text(), re.M
    )
    assert [name for name, _, _ in rows] == [target for _, target, _ in rows]
    table = {name: needs for name, _, needs in rows}
    assert table == {case.name: ", ".join(case.features()) or "nothing" for case in CASES}


def test_golden(case: LibraryCase, tmp_path: Path) -> None:
    """The program run over the golden's facts gives the expected tuples."""
    lacking = case.lacking()
    if lacking is not None:
        pytest.skip(f"programs/{case.name}.dl cannot be evaluated yet: {lacking}")
    batch = FileRun.of(case.text)
    batch.run(case.folder / "facts", tmp_path, io.BytesIO(), io.BytesIO())
    for directive, layout in batch.outputs:
        found = (tmp_path / layout.filename).read_text().split("\n")[:-1]
        rows = [line.split(layout.delimiter) for line in found]
        expected = [line.split("\t") for line in case.expected(directive.relation)]
        if any(c.type is ColumnType.FLOAT for c in batch.schemas[directive.relation].columns):
            assert_close(rows, expected)
        else:
            assert sorted(rows) == sorted(expected), directive.relation


def assert_close(rows: list[list[str]], expected: list[list[str]]) -> None:
    """Equal but for the floats in the last column, which a limit approaches."""
    assert sorted(row[:-1] for row in rows) == sorted(row[:-1] for row in expected)
    value = {tuple(row[:-1]): float(row[-1]) for row in rows}
    for row in expected:
        assert math.isclose(value[tuple(row[:-1])], float(row[-1]), abs_tol=1e-6), row


def test_golden_is_what_clingo_says(case: LibraryCase) -> None:
    if case.by_hand:
        # Worked out with pencil and paper: by_hand.md.
        assert any(case.expected(relation) for relation in case.outputs)
        return
    model = case.model()
    for relation in case.outputs:
        assert case.expected(relation) == lines_of(model.get(relation, ())), relation
        assert model.get(relation), f"the golden derives no {relation}, so it checks nothing"
