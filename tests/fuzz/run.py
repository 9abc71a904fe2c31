"""The coverage-guided fuzzer over `check_text`: `scripts/fuzz`. Arguments are libFuzzer's.

Needs atheris, which `scripts/fuzz` installs into an environment of its own.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(
    include=["engine.language", "engine.circuit", "engine.database.program", "lark"]
):
    from tests.fuzz.target import check_text, text_of


def one_input(data: bytes) -> None:
    check_text(text_of(data))


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
