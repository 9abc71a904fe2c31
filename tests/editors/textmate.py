"""A small reader of TextMate grammars, for tests: text -> the scope of every character.

It knows what our grammar uses: `match` and `begin`/`end` with captures, `include` of the repository, nested `patterns`.
As editors do, it goes line by line, takes the match that begins first, prefers `end` to the patterns and an earlier
pattern to a later one. Regular expressions are Python's; a construct that Python's `re` lacks fails here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Rule = dict[str, Any]


@dataclass(frozen=True)
class Open:
    """A `begin` that has not met its `end`; the scope is that of all inside, or None."""

    rule: Rule
    scope: str | None


class Grammar:
    def __init__(self, source: Rule) -> None:
        self._repository = source["repository"]
        self._top: Rule = {"patterns": source["patterns"]}

    def scopes(self, text: str) -> list[str | None]:
        """The innermost scope of each character; None where no rule gives one."""
        found: list[str | None] = []
        stack = [Open(self._top, None)]
        for line in text.splitlines(keepends=True):
            found += self._line(line, stack)
        return found

    def _line(self, line: str, stack: list[Open]) -> list[str | None]:
        scopes: list[str | None] = [None] * len(line)
        position = 0
        while True:
            here = stack[-1]
            candidates: list[tuple[Rule, str]] = [(rule, _start(rule)) for rule in self._rules(here.rule)]
            if "end" in here.rule:
                candidates.insert(0, (here.rule, here.rule["end"]))
            best: re.Match[str] | None = None
            chosen: Rule = {}
            for rule, pattern in candidates:
                match = re.compile(pattern).search(line, position)
                if match is not None and (best is None or match.start() < best.start()):
                    best, chosen = match, rule
            upto = len(line) if best is None else best.start()
            scopes[position:upto] = [here.scope] * (upto - position)
            if best is None:
                return scopes
            ends = chosen is here.rule
            if best.end() == position == best.start() and not ends:
                raise ValueError(f"a rule matches nothing, for ever: {chosen}")
            name = chosen.get("name", here.scope) if not ends else here.scope
            scopes[best.start() : best.end()] = [name] * (best.end() - best.start())
            captures = chosen.get("beginCaptures" if "begin" in chosen else "captures", {})
            for number, capture in {} if ends else captures.items():
                start, end = best.span(int(number))
                scopes[start:end] = [capture["name"]] * (end - start)
            position = best.end()
            if ends:
                stack.pop()
            elif "begin" in chosen:
                stack.append(Open(chosen, chosen.get("name", here.scope)))

    def _rules(self, rule: Rule) -> Iterator[Rule]:
        for pattern in rule.get("patterns", ()):
            if "include" in pattern:
                named = self._repository[pattern["include"].removeprefix("#")]
                yield from self._rules(named) if _start(named) == "" else (named,)
            else:
                yield pattern


def _start(rule: Rule) -> str:
    return str(rule.get("match") or rule.get("begin") or "")
