"""The first rows of a file, as the page Data shows them before an import."""

from __future__ import annotations

import asyncio
import bz2
import gzip
from collections.abc import AsyncIterator

import pytest

from service.console.file_preview import HEAD_BYTES, ROWS, Preview, head_of, preview


def seen(name: str, content: bytes, header: bool | None = None) -> Preview:
    async def portions() -> AsyncIterator[bytes]:
        for start in range(0, len(content), 1000):
            yield content[start : start + 1000]

    head, whole = asyncio.run(head_of(portions(), name))
    assert len(head) <= HEAD_BYTES
    return preview(name, head, whole, header)


def test_a_header_is_recognised_by_the_types_of_the_rest() -> None:
    found = seen("f.csv", b"name,floor\nlab,2\nvault,-1\n")
    assert (found.format, found.header, found.names) == ("csv", True, ("name", "floor"))
    assert found.types == ("symbol", "number")
    assert found.rows == (("lab", 2), ("vault", -1))


def test_a_first_line_like_the_others_is_a_row_unless_the_person_says_otherwise() -> None:
    content = b"a,b\nb,c\n"
    assert seen("e.csv", content).rows == (("a", "b"), ("b", "c"))
    told = seen("e.csv", content, header=True)
    assert (told.names, told.rows) == (("a", "b"), (("b", "c"),))


def test_a_header_with_types_gives_them() -> None:
    found = seen("f.tsv", b"name:symbol\tcode:symbol\nlab\t007\n")
    assert (found.typed, found.types, found.rows) == (True, ("symbol", "symbol"), (("lab", "007"),))


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".bz2", bz2.compress)])
def test_a_packed_file_is_read_no_further_than_needed(ending: str, pack: object) -> None:
    lines = b"".join(b"%d,%d\n" % (number, number) for number in range(200_000))
    found = seen(f"n.csv{ending}", pack(lines))  # type: ignore[operator]
    assert found.rows == tuple((number, number) for number in range(ROWS))
    assert found.types == ("number", "number")


def test_a_cut_line_is_left_out() -> None:
    row = b"x" * 1000 + b",1\n"
    found = seen("long.csv", row * 200)
    assert found.problem == ""
    assert len(found.rows) == ROWS
    assert all(number == 1 for _, number in found.rows)


def test_json_lines() -> None:
    found = seen("f.jsonl", b'{"name": "lab", "floor": 2}\n{"name": "lobby", "floor": 0}\n')
    assert (found.names, found.types) == (("name", "floor"), ("symbol", "number"))
    assert found.rows == (("lab", 2), ("lobby", 0))
    assert seen("f.jsonl", b"[1, 2.5]\n[2, 3]\n").types == ("number", "float")
    assert "line 2" in seen("f.jsonl", b"[1]\n{\n").problem


def test_what_cannot_be_shown_says_why() -> None:
    assert seen("f.xlsx", b"PK").format is None
    assert "does not say the format" in seen("f.xlsx", b"PK").problem
    assert "is empty" in seen("f.csv", b"").problem
    assert "is empty, or is not packed" in seen("f.csv.gz", b"not packed").problem
    ragged = seen("f.csv", b"a,b\nc\n", header=False)
    assert "line 2" in ragged.problem
    assert ragged.rows == (("a", "b"), ("c",))
