"""The program library with a golden for each program: tests/library/<name>/facts, expected, and the oracle's rules.

The expected tuples come from clingo. A program of positive rules is translated for it; for any other, the folder has
`oracle.lp`, the same problem written by hand as an answer set program. Where clingo cannot compute at all (floats),
they are worked out by hand, and the folder says how in `by_hand.md`.

`python -m tests.library.case` writes the expected tuples anew, those by hand excepted.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import clingo

from engine.errors import UnsupportedFeatureError
from engine.files.batch import FileRun
from engine.language.parser import parse_program
from engine.language.schema import ColumnType
from engine.language.supported import features_of
from engine.language.syntax import Directive, ProgramText
from tests.oracle.clingo_oracle import solve
from tests.oracle.from_text import program_from_text
from tests.oracle.rules import Model, Row, Value
from tests.programs.case import lines_of

FOLDER = Path(__file__).parent
PROGRAMS = FOLDER.parent.parent / "programs"


@dataclass(frozen=True, slots=True)
class LibraryCase:
    """One program. `text` puts out every relation that the program only counts."""

    name: str

    @property
    def folder(self) -> Path:
        return FOLDER / self.name

    @property
    def text(self) -> str:
        return (PROGRAMS / f"{self.name}.dl").read_text().replace(".printsize", ".output")

    @property
    def program(self) -> ProgramText:
        return parse_program(self.text)

    def lacking(self) -> str | None:
        """Why this version cannot evaluate the program, or None. Any other fault of the program is an error."""
        try:
            FileRun.of(self.text)
        except UnsupportedFeatureError as error:
            return error.message
        return None

    def features(self) -> list[str]:
        """What the rules need beyond positive atoms."""
        found = {feature.value for rule in self.program.rules for feature, _ in features_of(rule)}
        declared = any(declaration.fixpoint for declaration in self.program.declarations)
        return sorted(found | ({"fixpoint"} if declared else set()))

    @property
    def outputs(self) -> list[str]:
        return [d.relation for d in self.program.directives if d.kind == "output"]

    @property
    def by_hand(self) -> bool:
        return (self.folder / "by_hand.md").exists()

    def facts(self) -> dict[str, set[Row]]:
        """The golden's facts, read without the project's own reader."""
        program = self.program
        types = {d.relation: [column.type for column in d.columns] for d in program.declarations}
        return {
            directive.relation: self._rows(directive, types[directive.relation])
            for directive in program.directives
            if directive.kind == "input"
        }

    def _rows(self, directive: Directive, types: list[ColumnType | None]) -> set[Row]:
        given = dict(directive.parameters)
        path = self.folder / "facts" / given.get("filename", f"{directive.relation}.facts")
        lines = path.read_text().split("\n")[:-1]
        split = (line.split(given.get("delimiter", "\t")) for line in lines)
        return {tuple(_value(t, v) for t, v in zip(types, row, strict=True)) for row in split}

    def model(self) -> Model:
        """What clingo derives from the golden's facts."""
        oracle = self.folder / "oracle.lp"
        if not oracle.exists():
            rules, own = program_from_text(self.text)
            facts = {name: dict.fromkeys(rows, 1) for name, rows in self.facts().items()}
            return solve(rules, {**own, **facts})
        return _answer(oracle.read_text(), self.facts())

    def expected(self, relation: str) -> list[str]:
        return (self.folder / "expected" / f"{relation}.csv").read_text().split("\n")[:-1]


def cases() -> list[LibraryCase]:
    return [LibraryCase(path.stem) for path in sorted(PROGRAMS.glob("*.dl"))]


def _value(kind: ColumnType | None, text: str) -> Value:
    if kind is ColumnType.NUMBER:
        return int(text)
    return float(text) if kind is ColumnType.FLOAT else text


def _answer(text: str, facts: dict[str, set[Row]]) -> Model:
    """The only answer set of a hand-written program over the facts."""

    def term(value: Value) -> str:
        return str(value) if isinstance(value, int) else '"' + str(value).replace('"', '\\"') + '"'

    lines = [f"{name}({','.join(map(term, row))})." for name, rows in facts.items() for row in rows]
    control = clingo.Control(["--warn=none"])
    control.add("base", [], "\n".join([text, *lines]))
    control.ground([("base", [])])
    model: Model = {}
    with control.solve(yield_=True) as handle:
        answers = [answer.symbols(atoms=True) for answer in handle]
    if len(answers) != 1:
        raise AssertionError(f"clingo found {len(answers)} answer sets")
    for symbol in answers[0]:
        row = tuple(a.number if a.type is clingo.SymbolType.Number else a.string for a in symbol.arguments)
        model.setdefault(symbol.name, set()).add(row)
    return model


def write_expected(case: LibraryCase) -> None:
    (case.folder / "expected").mkdir(exist_ok=True)
    model = case.model()
    for relation in case.outputs:
        text = "".join(f"{line}\n" for line in lines_of(model.get(relation, ())))
        (case.folder / "expected" / f"{relation}.csv").write_text(text)


if __name__ == "__main__":
    for chosen in [LibraryCase(name) for name in sys.argv[1:]] or cases():
        if not chosen.by_hand:
            write_expected(chosen)
            print(f"wrote {chosen.name}")
