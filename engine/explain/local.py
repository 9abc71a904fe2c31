"""Explanations of a reasoner in this process.

from zedlog import Reasoner, explain
explain(reasoner, 'tc("a", "d")')["nodes"]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.data.values import Value
from engine.database.reasoner import Reasoner
from engine.errors import InvalidRequestError
from engine.explain.explainer import SIZE, Explainer
from engine.explain.memory import ReasonerSource, at_once
from engine.explain.repair import Limits
from engine.language.parser import parse_goal
from engine.language.prefixes import NO_PREFIXES, Prefixes
from engine.language.syntax import Constant

Json = dict[str, Any]


def explain(
    reasoner: Reasoner, asked: str | tuple[str, Sequence[Value]], size: int = SIZE, repairs: int = 3
) -> Json:
    """Why a tuple holds, or why not: the document that `POST /v1/explain` answers with.

    asked: `tc("a", "d")`, or a relation and the values. size: the most tuples of the proof. repairs: how many ways to
    make an absent tuple true are looked for, each tried by a dry run. Copies the state, so it takes a while if that is
    large.

    Raises:
        ZedlogError: there is no such relation, or the tuple does not fit it.
    """
    relation, values = parsed(asked, reasoner.prefixes) if isinstance(asked, str) else asked
    return at_once(_explained(reasoner, relation, list(values), size, repairs))


def parsed(text: str, prefixes: Prefixes = NO_PREFIXES) -> tuple[str, list[Value]]:
    """The relation and the values of a tuple as text. prefixes: those that it may use.

    Raises:
        ProgramSyntaxError: it is not an atom. InvalidRequestError: it has variables.
    """
    goal = parse_goal(text, prefixes)
    if not all(isinstance(term, Constant) for term in goal.terms):
        raise InvalidRequestError(
            f"a tuple has only constants, so {text} cannot be explained; a query finds the tuples that fit it"
        )
    return goal.relation, [term.value for term in goal.terms if isinstance(term, Constant)]


async def _explained(reasoner: Reasoner, relation: str, values: list[Value], size: int, repairs: int) -> Json:
    explainer = Explainer(ReasonerSource(reasoner))
    key = await explainer.key(relation, values)
    if await explainer.holds(key):
        return await explainer.why(key, size)

    async def attempt(changes: Sequence[tuple[str, list[Value], int]]) -> bool:
        facts: dict[str, list[tuple[tuple[Value, ...], int]]] = {}
        for name, row, weight in changes:
            facts.setdefault(name, []).append((tuple(row), weight))
        result = reasoner.dry_run(facts=facts)
        return (tuple(values), 1) in result.changes.get(relation, [])

    return await explainer.why_not(key, attempt if repairs else None, Limits(wanted=repairs))
