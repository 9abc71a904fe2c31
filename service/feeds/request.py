"""What a feed is about, as a request says it: relations with bound columns, or a query.

The form is that of the URL and, for a subscription, of JSON: `{"relations": ["tc"], "where": {"x": "a"}}` or
`{"query": "tc(x, y), !edge(x, y)"}`. Always: two requests for the same have the same `key`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from engine.database.query import answer_head, relations_of
from engine.errors import shown
from engine.language.canonical import canonical_text
from engine.language.parser import expanded_query, parse_query
from engine.language.prefixes import NO_PREFIXES, Prefixes
from engine.language.syntax import Atom, Constant, Query, Rule, Variable
from engine.storage.client import parse_token
from service.changes import with_place
from service.problems import InvalidParameterError

MOST_RELATIONS = 100


@dataclass(frozen=True, slots=True)
class About:
    """goal: the query, if it is an atom whose tuples are the rows of the answer."""

    relations: tuple[str, ...]
    where: tuple[tuple[str, str], ...]
    query: Query | None
    goal: Atom | None
    key: Any

    @property
    def reads(self) -> frozenset[str]:
        """The relations that must be readable for whoever listens."""
        return frozenset(self.relations) if self.query is None else relations_of(self.query)

    def to_json(self) -> dict[str, Any]:
        if self.query is not None:
            return {"query": self.query.text}
        return {"relations": list(self.relations), "where": dict(self.where)}


def about(
    relations: Sequence[str],
    where: Iterable[tuple[str, str]],
    query: str | None,
    prefixes: Prefixes = NO_PREFIXES,
) -> About:
    """prefixes: those that the query may use. Raises InvalidParameterError, ProgramError."""
    bound = tuple(sorted(where))
    if query is None:
        if not relations:
            raise InvalidParameterError(
                "a feed is about relations or a query: give relation=NAME, as often as you like, or query=TEXT"
            )
        names = tuple(sorted(set(relations)))
        if len(names) > MOST_RELATIONS:
            raise InvalidParameterError(f"a feed may be about {MOST_RELATIONS} relations, not {len(names)}")
        twice = next((a for a, b in pairwise(bound) if a[0] == b[0]), None)
        if twice is not None:
            raise InvalidParameterError(f"the column {shown(twice[0])} is bound twice", parameter=twice[0])
        return About(names, bound, None, None, ("relations", names, bound))
    if relations or bound:
        name = "relation" if relations else bound[0][0]
        raise InvalidParameterError(
            f"a query says itself what it reads: leave out {shown(name)}, or leave out query", parameter=name
        )
    # With whole IRIs: a subscription asks for the same under other prefixes.
    query = with_place("query", lambda text=query: expanded_query(text, prefixes))  # type: ignore[misc]
    parsed = with_place("query", lambda: parse_query(query))
    names, head = with_place("query", lambda: answer_head(parsed))
    texts = tuple(sorted(canonical_text(Rule(head, body, head.span, query)) for body in parsed.bodies))
    goal = parsed.goal if parsed.goal is not None and _plain(parsed.goal) else None
    return About((), (), parsed, goal, ("query", names, texts))


def about_json(data: Mapping[str, Any]) -> About:
    """The inverse of `About.to_json`."""
    return about(data.get("relations", ()), data.get("where", {}).items(), data.get("query"))


def position(text: str, incarnation: str) -> int:
    """The epoch that a number or a token names.

    Raises:
        InvalidTokenError: it is neither, or a token of another database.
    """
    if text.isdecimal() and text.isascii() and len(text) < 19:
        return int(text)
    return parse_token(text, incarnation)


def _plain(goal: Atom) -> bool:
    """Whether each matching tuple is a row, and no two of them the same one."""
    variables = [term.name for term in goal.terms if isinstance(term, Variable)]
    known = all(isinstance(term, Variable | Constant) for term in goal.terms)
    return known and len(set(variables)) == len(variables)
