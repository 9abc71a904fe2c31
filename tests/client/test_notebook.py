"""docs/tour.ipynb: runs from the beginning to the end, with a service of its own, and shows what its text says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "tour.ipynb"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The notebook with its outputs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ZEDLOG_URL", raising=False)
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        notebook = nbformat.read(NOTEBOOK, as_version=4)
        folder = str(tmp_path_factory.mktemp("notebook"))
        NotebookClient(
            notebook, timeout=280, kernel_name="python3", resources={"metadata": {"path": folder}}
        ).execute()
        return notebook


def shown(notebook: Any) -> list[str]:
    """What each code cell shows: its text, and its HTML without the tags."""
    found = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            texts = []
            for output in cell.outputs:
                data = output.get("data", {})
                texts.append(output.get("text") or data.get("text/html") or data.get("text/plain", ""))
            found.append(re.sub(r"<[^>]+>", " ", "".join(texts)))
    return found


@pytest.mark.filterwarnings("default")
def test_the_notebook_runs_and_shows_what_it_says(run: Any) -> None:
    start, result, ann, table, proof, whynot, whatif, refused, mended, past, end = shown(run)
    assert "running" in start
    assert "epoch 1: belongs +9 -0" in result
    assert sorted(re.findall(r"secrets|source|handbook", ann)) == ["secrets", "source"]
    assert "[('ann', 3), ('bob', 1), ('cy', 3)]" in table
    assert "shape: (7, 2)" in table
    assert "member(&quot;cy&quot;,&quot;backend&quot;)  (fact)" in proof
    assert 'fails: there is no member("bob","backend"), but there is' in whynot
    assert whatif.count("'cy'") == 3
    assert "constraint_violated [['cy', 'secrets']]" in refused
    assert "epoch 2:" in mended
    assert "refused:" in mended
    assert "then [('handbook',), ('secrets',), ('source',)] now []" in past
    assert end.startswith("ended with")


def test_the_notebook_is_kept_without_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)
