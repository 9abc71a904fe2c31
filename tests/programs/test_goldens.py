"""Every golden case: evaluated, changed step by step, and each value compared with what is in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.errors import Span
from engine.language.parser import parse_program
from tests.oracle.rules import Row
from tests.programs.case import Case, case_paths, lines_of, read_case
from zedlog import Reasoner

CASES = case_paths()


def test_there_are_cases() -> None:
    assert len(CASES) >= 80
    assert sum((path / "changes").is_dir() for path in CASES) >= 30


@pytest.fixture(params=CASES, ids=lambda path: path.name)
def case(request: pytest.FixtureRequest) -> Case:
    path: Path = request.param
    return read_case(path)


def load(case: Case, reasoner: Reasoner) -> None:
    """The whole case in one transaction. The rules go in letter by letter as they stand in the program."""
    program = parse_program(case.text)
    # Rules that one clause with `;` became share its span.
    spans = dict.fromkeys(rule.span for rule in program.rules)
    reasoner.apply(
        facts={name: list(rows.items()) for name, rows in case.facts.items() if rows},
        rules=[(excerpt(case.text, span), 1) for span in spans],
        declarations="\n".join(line for line in case.text.splitlines() if line.startswith(".decl")),
    )


def excerpt(text: str, span: Span) -> str:
    lines = text.split("\n")[span.line - 1 : span.end_line]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    return "\n".join(lines)


def fact_changes(change: dict[str, Any]) -> dict[str, list[tuple[Row, int]]]:
    changes: dict[str, list[tuple[Row, int]]] = {}
    for entry in change["facts"]:
        rows = changes.setdefault(entry["relation"], [])
        rows.extend((tuple(row), entry["weight"]) for row in entry["tuples"])
    return changes


def expected_lines(case: Case, name: str) -> list[str]:
    return (case.path / "expected" / f"{name}.csv").read_text().split("\n")[:-1]


def test_golden(case: Case) -> None:
    """What is derived at first, and the delta of each change, are the folder's; the state stays exact."""
    check_golden(case, Reasoner())


def check_golden(case: Case, reasoner: Reasoner) -> None:
    load(case, reasoner)
    for name in case.outputs:
        assert lines_of(reasoner.facts(name)) == expected_lines(case, name), name
    for file in case.change_files:
        change = json.loads(file.read_text())
        case.take(change)
        result = reasoner.apply(
            facts=fact_changes(change),
            rules=[(entry["rule"], entry["weight"]) for entry in change["rules"]],
        )
        reasoner.check_invariants()
        for name in case.outputs:
            delta = result.changes.get(name, [])
            for word, sign in (("inserted", 1), ("deleted", -1)):
                found = lines_of(row for row, weight in delta if weight == sign)
                assert found == lines_of(change["expected"][name][word]), f"{file.name}: {name} {word}"
    model = case.model()
    for name in case.outputs:
        assert set(reasoner.facts(name)) == model.get(name, set())


def test_golden_expectations_are_what_the_oracles_say(case: Case) -> None:
    """So that no golden goes stale, and none was written from the system's own answer."""
    before = case.model()
    for name in case.outputs:
        assert lines_of(before.get(name, ())) == expected_lines(case, name), name
    for file in case.change_files:
        change = json.loads(file.read_text())
        case.take(change)
        after = case.model()
        for name in case.outputs:
            delta = {"inserted": after.get(name, set()) - before.get(name, set())}
            delta["deleted"] = before.get(name, set()) - after.get(name, set())
            for word, rows in delta.items():
                assert lines_of(change["expected"][name][word]) == lines_of(rows), (
                    f"{file.name}: {name} {word}"
                )
        before = after
