"""A golden case: a folder with a program, its facts, what must come out, and changes with their deltas.

    program.dl           declarations, rules, facts; `.output r` says that expected/r.csv is compared
    facts/r.facts        tab separated, no header, typed by r's declaration; a line that stands twice has weight 2
    expected/r.csv       tab separated, no header, sorted by line
    changes/01.json ...  a transaction (`facts`, `rules`), and the `expected` delta of every `.output` relation:
                         {"inserted": [...], "deleted": [...]}, each sorted by line

`python -m tests.programs.case` writes the expected values anew. They come from clingo, or, where clingo's language
cannot express the program, from naive evaluation; never from Zedlog, so that a golden cannot repeat the system's own
mistake. Where both can, they must agree.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.language.canonical import canonical_text
from engine.language.parser import parse_program, parse_rules
from engine.language.schema import ColumnType
from engine.language.syntax import Rule
from tests.oracle.clingo_dialect import NotExpressibleError, solve_dialect
from tests.oracle.from_text import row_of
from tests.oracle.rules import Facts, Model, Row, Value
from tests.oracle.stratified import stratified_model

FOLDER = Path(__file__).parent


@dataclass
class Case:
    """A folder, read. `facts` are those of the program's text and those of the files, with weights."""

    path: Path
    text: str
    outputs: list[str]
    facts: dict[str, dict[Row, int]]
    rules: dict[str, int] = field(default_factory=dict)
    """The weight of each rule, by its canonical text."""
    trees: dict[str, Rule] = field(default_factory=dict)

    @property
    def change_files(self) -> list[Path]:
        return sorted(self.path.glob("changes/*.json"))

    def present(self) -> tuple[list[Rule], Facts]:
        """The rules and facts of weight > 0."""
        facts = {name: {row: w for row, w in rows.items() if w} for name, rows in self.facts.items()}
        return [self.trees[text] for text, weight in self.rules.items() if weight], facts

    def model(self) -> Model:
        """What clingo says of the present facts and rules; naive evaluation, where clingo cannot."""
        naive = stratified_model(*self.present(), budget=5_000_000)
        try:
            by_clingo = solve_dialect(*self.present())
        except NotExpressibleError:
            return naive
        assert by_clingo == naive, f"{self.path.name}: the two oracles differ"
        return by_clingo

    def add_rule(self, rule: Rule, weight: int) -> None:
        text = canonical_text(rule)
        self.trees[text] = rule
        self.rules[text] = self.rules.get(text, 0) + weight

    def take(self, change: dict[str, Any]) -> None:
        """Add a change's weights to the present ones."""
        for entry in change["facts"]:
            rows = self.facts.setdefault(entry["relation"], {})
            for row in entry["tuples"]:
                rows[tuple(row)] = rows.get(tuple(row), 0) + entry["weight"]
        for entry in change["rules"]:
            for rule in parse_rules(entry["rule"]):
                self.add_rule(rule, entry["weight"])


def case_paths() -> list[Path]:
    return sorted(path.parent for path in FOLDER.glob("*/program.dl"))


def read_case(path: Path) -> Case:
    text = (path / "program.dl").read_text()
    program = parse_program(text)
    types = {d.relation: [column.type for column in d.columns] for d in program.declarations}
    facts: dict[str, dict[Row, int]] = {}
    for fact in program.facts:
        rows = facts.setdefault(fact.relation, {})
        rows[row_of(fact)] = rows.get(row_of(fact), 0) + 1
    for directive in program.directives:
        if directive.kind == "input":
            rows = facts.setdefault(directive.relation, {})
            for row in read_rows(path / "facts" / f"{directive.relation}.facts", types[directive.relation]):
                rows[row] = rows.get(row, 0) + 1
    case = Case(path, text, [d.relation for d in program.directives if d.kind == "output"], facts)
    for rule in program.rules:
        case.add_rule(rule, 1)
    return case


def read_rows(path: Path, types: Sequence[ColumnType | None]) -> list[Row]:
    lines = path.read_text().split("\n")[:-1]
    return [tuple(_value(t, v) for t, v in zip(types, line.split("\t"), strict=True)) for line in lines]


def _value(kind: ColumnType | None, text: str) -> Value:
    match kind:
        case ColumnType.NUMBER:
            return int(text)
        case ColumnType.FLOAT:
            return float(text)
        case ColumnType.BOOL:
            return {"true": True, "false": False}[text]
        case _:
            return text


def lines_of(rows: Iterable[Sequence[Value]]) -> list[str]:
    """Rows as sorted lines; a symbol as it is, so goldens hold none with a tab or a line break."""
    return sorted("\t".join(str(v).lower() if isinstance(v, bool) else str(v) for v in row) for row in rows)


def write_expected(case: Case) -> None:
    """Compute by clingo what must come out at first and after each change, and write it into the folder."""
    (case.path / "expected").mkdir(exist_ok=True)
    before = case.model()
    for name in case.outputs:
        text = "".join(f"{line}\n" for line in lines_of(before.get(name, ())))
        (case.path / "expected" / f"{name}.csv").write_text(text)
    for file in case.change_files:
        change = json.loads(file.read_text())
        case.take(change)
        after = case.model()
        change["expected"] = {
            name: _delta(before.get(name, set()), after.get(name, set())) for name in case.outputs
        }
        file.write_text(_json(change))
        before = after


def _delta(before: set[Row], after: set[Row]) -> dict[str, list[list[Value]]]:
    return {"inserted": _sorted(after - before), "deleted": _sorted(before - after)}


def _sorted(rows: set[Row]) -> list[list[Value]]:
    return [list(row) for row in sorted(rows, key=lambda row: lines_of([row]))]


def _json(change: dict[str, Any]) -> str:
    """One line for each fact change, rule change and delta: short, and still a readable diff."""
    parts = []
    for key, value in change.items():
        entries = value if isinstance(value, list) else [{name: delta} for name, delta in value.items()]
        lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
        if isinstance(value, dict):
            lines = [line[1:-1] for line in lines]
        open_, close = "[]" if isinstance(value, list) else "{}"
        inner = ",\n".join(f"    {line}" for line in lines)
        parts.append(f'  "{key}": {open_}\n{inner}\n  {close}' if lines else f'  "{key}": {open_}{close}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    chosen = [FOLDER / name for name in sys.argv[1:]] or case_paths()
    for chosen_path in chosen:
        write_expected(read_case(chosen_path))
        print(f"wrote {chosen_path.relative_to(FOLDER)}")
