"""Python source -> files of facts: what flows where inside of functions, and through their calls.

    python examples/analysis/extract.py shop.py facts

A place is a variable of a function, `search.term`, or a call by its line, `search.args@5`. Of Python it knows what
the example needs: functions, assignments to names, calls, `return`, and operators, whose operands all flow into the
result. Anything else flows from each part into the whole, which errs on the safe side.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

RELATIONS = ("flow", "call", "argument", "parameter", "result")
Fact = tuple[str, ...]


class Function:
    """The facts of one function, in `facts` as (relation, values...)."""

    def __init__(self, node: ast.FunctionDef) -> None:
        self.facts: set[Fact] = set()
        self._name = node.name
        for position, parameter in enumerate(node.args.args):
            self.facts.add(("parameter", node.name, str(position), self._place(parameter.arg)))
        for statement in ast.walk(node):
            if isinstance(statement, ast.Assign):
                for target in statement.targets:
                    for name in ast.walk(target):
                        if isinstance(name, ast.Name):
                            self._flow(statement.value, self._place(name.id))
            elif isinstance(statement, ast.Return) and statement.value is not None:
                for source in self._sources(statement.value):
                    self.facts.add(("result", node.name, source))
            elif isinstance(statement, ast.Call):
                self._call(statement)

    def _place(self, name: str) -> str:
        return f"{self._name}.{name}"

    def _flow(self, value: ast.expr, place: str) -> None:
        for source in self._sources(value):
            self.facts.add(("flow", source, place))

    def _call(self, node: ast.Call) -> None:
        place = self._site(node)
        self.facts.add(("call", place, called(node)))
        for position, argument in enumerate(node.args):
            for source in self._sources(argument):
                self.facts.add(("argument", place, str(position), source))

    def _site(self, node: ast.Call) -> str:
        return f"{self._place(called(node))}@{node.lineno}"

    def _sources(self, node: ast.AST) -> Iterator[str]:
        """The places whose values go into that of an expression."""
        if isinstance(node, ast.Call):
            yield self._site(node)
        elif isinstance(node, ast.Name):
            yield self._place(node.id)
        else:
            for child in ast.iter_child_nodes(node):
                yield from self._sources(child)


def called(node: ast.Call) -> str:
    """The name of what is called, of a method without its object."""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else "unknown"


def main(source: Path, folder: Path) -> None:
    facts: set[Fact] = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            facts |= Function(node).facts
    folder.mkdir(parents=True, exist_ok=True)
    for relation in RELATIONS:
        lines = sorted("\t".join(values) for name, *values in facts if name == relation)
        (folder / f"{relation}.facts").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
