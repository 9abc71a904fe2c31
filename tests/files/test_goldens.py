"""The golden programs, run over their files as `zedlog run` does: the same tuples as their folders say."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from engine.files.batch import FileRun
from engine.language.schema import ColumnType
from tests.programs.case import FOLDER, read_rows

CASES = sorted(path.parent for path in FOLDER.glob("*/program.dl"))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_golden(case: Path, tmp_path: Path) -> None:
    batch = FileRun.of((case / "program.dl").read_text())
    assert batch.outputs
    batch.run(case / "facts", tmp_path, io.BytesIO(), io.BytesIO())
    for directive, layout in batch.outputs:
        types: list[ColumnType | None] = [c.type for c in batch.schemas[directive.relation].columns]
        if not types:
            found = (tmp_path / layout.filename).read_text()
            assert found == ("()\n" if (case / "expected" / layout.filename).read_text() else "")
            continue
        # By value, for the goldens write floats in another form.
        found_rows = read_rows(tmp_path / layout.filename, types)
        expected = read_rows(case / "expected" / layout.filename, types)
        assert sorted(found_rows) == sorted(expected), directive.relation
        assert expected or not found_rows
