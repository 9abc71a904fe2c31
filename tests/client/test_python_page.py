"""The examples of docs/python.md, run as they stand there, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.live import LiveSystem
from zedlog import Client
from zedlog.client import errors

PAGE = Path(__file__).resolve().parents[2] / "docs" / "python.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_examples_do_what_the_page_says(
    live: LiveSystem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ZEDLOG_URL", live.url)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    said = []
    for number, block in enumerate(BLOCKS):
        exec(compile(block, f"{PAGE.name}, block {number}", "exec"), names)
        said.append(capsys.readouterr().out)
    client = names["client"]
    assert isinstance(client, Client)
    client.close()
    text = "".join(said)
    # What the comments in the examples say is printed.
    for line in (
        "epoch 1: edge +3 -0, tc +6 -0",
        "['x'] ['symbol'] 1",
        "[('c',), ('d',)]",
        "syntax_error 1 8",
        "[('tc', ('a', 'z'))]",
        "[('b',), ('c',), ('d',), ('z',), ('e',)]",
        'rule tc("a","c")',
    ):
        assert line in text
    assert (tmp_path / "monday.zip").stat().st_size > 1_000


def test_the_page_names_every_error_and_every_method() -> None:
    page = PAGE.read_text()
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }
    assert {name for name in classes if f"`{name}`" not in page and f"errors.{name}" not in page} == set()
    methods = {name for name in vars(Client) if not name.startswith("_") and name not in ("Core",)}
    # What the page leaves to the documentation of the methods themselves.
    rest = {"commit", "job", "audits", "cancel", "upload_file"}
    assert {name for name in methods if not re.search(rf"\b{name}\b", page)} - rest == set()
