"""A transaction, collected in a block and sent at its end: everything in it is applied in one epoch, or nothing.

    with client.transaction(message="the new lines") as t:
        t.add("edge", [("a", "b"), ("b", "c")])
        t.rule("tc(x, y) :- edge(x, y).")
    print(t.result)

An exception in the block means that nothing is sent. Every transaction has an Idempotency-Key, made at its beginning if
none is given, so that after a lost connection it is sent again and applied once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, TypedDict

from zedlog.client.connection import new_key
from zedlog.client.drivers import finish
from zedlog.client.errors import Json
from zedlog.client.models import Commit, Rule

Mode = Literal["zset", "set"]
Replaces = Literal["source", "relations"]
RULE_ID = re.compile(r"r[0-9a-f]{12}")


class Options(TypedDict, total=False):
    """How a transaction is sent. message: why; it is kept with the transaction. source: for whom the facts count.
    mode: in `set`, adding what is there, or removing what is not, has no effect. key: the Idempotency-Key. dry_run: say
    what would change, and change nothing. delta: `result.delta` lists the tuples that appeared and went. replaces: the
    source asserts exactly these facts from now on, in all relations or in those that are named. strategy, placement:
    see docs/http.md.
    """

    message: str | None
    source: str | None
    mode: Mode
    key: str | None
    dry_run: bool
    delta: bool
    replaces: Replaces | None
    strategy: str | None
    placement: str | None


@dataclass
class Draft:
    """What a transaction will do. `result` is what it did, once the block has ended."""

    options: Options
    facts: list[Json] = field(default_factory=list)
    rules: list[Json] = field(default_factory=list)
    declarations: list[str] = field(default_factory=list)
    undeclared: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    result: Commit | None = None
    key: str = ""

    def __post_init__(self) -> None:
        self.key = self.key or self.options.get("key") or new_key()

    def add(self, relation: str, rows: Any, *, weight: int = 1) -> None:
        """Add facts: tuples, or a table of Polars, pandas or Arrow."""
        self.facts.append({"relation": relation, "tuples": rows_of(rows), "weight": weight})

    def remove(self, relation: str, rows: Any) -> None:
        """Take facts back."""
        self.add(relation, rows, weight=-1)

    def rule(self, text: str, *, weight: int = 1) -> None:
        """Add a rule; a body with `;` makes several."""
        self.rules.append({"rule": text, "weight": weight})

    def remove_rule(self, rule: str | Rule) -> None:
        """Take a rule back, named by its text, its id, or as `client.rules()` gives it."""
        self.rule(rule if isinstance(rule, str) else rule.canonical, weight=-1)

    def declare(self, text: str) -> None:
        """Add declarations: `.decl edge(x: symbol, y: symbol)`."""
        self.declarations.append(text)

    def undeclare(self, *relations: str) -> None:
        """Withdraw declarations."""
        self.undeclared += relations

    def program(self, text: str) -> None:
        """Add all that a program's text declares: facts, rules and declarations."""
        self.programs.append(text)

    def body(self) -> Json:
        """The transaction as `POST /v1/transactions` takes it."""
        options = self.options
        fields: Json = {
            "facts": self.facts,
            "rules": self.rules,
            "declarations": self.declarations,
            "undeclare": self.undeclared,
            "program": "\n".join(self.programs),
            "message": options.get("message"),
            "source": options.get("source"),
            "replaces": options.get("replaces"),
        }
        return {name: value for name, value in fields.items() if value} | {
            "mode": options.get("mode", "zset")
        }


Send = Callable[[Draft], Coroutine[Any, Any, Commit]]


class AsyncTransaction(Draft):
    """`async with client.transaction() as t:`"""

    def __init__(self, send: Send, options: Options) -> None:
        super().__init__(options)
        self.send = send

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.result = await self.send(self)


class Transaction(Draft):
    """`with client.transaction() as t:`"""

    def __init__(self, begun: AsyncTransaction) -> None:
        super().__init__(begun.options, key=begun.key)
        self.send = begun.send

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.result = finish(self.send(self))


def rows_of(rows: Any) -> list[Sequence[Any]]:
    """The rows of what a caller has: an iterable of tuples, or a table of Polars, pandas or Arrow.

    Raises:
        TypeError: a row is not a tuple or a list. A text would otherwise be taken for a row of characters.
    """
    if hasattr(rows, "iter_rows"):
        return list(rows.iter_rows())
    if hasattr(rows, "itertuples"):
        return list(rows.itertuples(index=False, name=None))
    if hasattr(rows, "to_pylist"):
        return [tuple(row.values()) for row in rows.to_pylist()]
    found = list(_iterable(rows))
    for row in found:
        if not isinstance(row, tuple | list):
            raise TypeError(f"a row is a tuple of values, such as ('a', 1), not {row!r}")
    return found


def _iterable(rows: Any) -> Iterable[Any]:
    if isinstance(rows, str | bytes):
        raise TypeError(f"rows are an iterable of tuples, not {rows!r}")
    return rows  # type: ignore[no-any-return]
