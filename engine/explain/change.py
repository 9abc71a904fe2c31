"""Why a tuple came or went at an epoch: the two explanations beside each other, and what of them changed.

In: explainers of the epoch and of the one before it. Out: a document with `before`, `after` and `causes`: the facts and
rules of the two proofs that are in one of the two states only, and the negated atoms of a proof that found something in
the other state. Always: each cause is part of a proof that is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from engine.data.values import Value
from engine.explain.explainer import Explainer
from engine.language.parser import parse_goal
from engine.language.syntax import Constant

Json = dict[str, Any]
_KINDS = {
    (False, True): "appeared",
    (True, False): "went",
    (True, True): "held before and after",
    (False, False): "held neither before nor after",
}


async def changed(
    before: Explainer | None, after: Explainer, relation: str, values: Sequence[Value], size: int
) -> Json:
    """The document. before: None if the state before is unknown, or there was none."""
    found: Json = {"after": await _explained(after, relation, values, size)}
    found["before"] = None if before is None else await _explained(before, relation, values, size)
    if before is None:
        return found
    held = found["before"]["holds"], found["after"]["holds"]
    causes: list[Json] = []
    if held[0]:
        causes += await _causes(found["before"], after, "removed")
    if held[1]:
        causes += await _causes(found["after"], before, "added")
    found["change"] = _KINDS[held]
    found["causes"] = causes
    return found


async def _explained(explainer: Explainer, relation: str, values: Sequence[Value], size: int) -> Json:
    schema = explainer.program.schemas.get(relation)
    if schema is None or schema.arity != len(values):
        return {"holds": False, "root": relation, "rules": [], "withheld": False, "unknown": True}
    key = await explainer.key(relation, values)
    if await explainer.holds(key):
        return await explainer.why(key, size)
    return await explainer.why_not(key)


async def _causes(proof: Json, other: Explainer, change: str) -> list[Json]:
    """What of a proof is not so in the other state."""
    causes: list[Json] = []
    rules: dict[str, str] = {}
    patterns: dict[str, None] = {}
    for id_, node in proof["nodes"].items():
        if node["kind"] == "fact":
            weight = await other.weight(node["relation"], node["tuple"])
            if not weight:
                causes.append({"kind": "fact", "change": change, "fact": id_, "weight": node["weight"]})
        for one in _instances(node):
            rules[one["rule"]] = one["text"]
        for step in _steps(node):
            if step["kind"] == "absent":
                patterns[step["pattern"]] = None
    known = other.rules()
    causes += [
        {"kind": "rule", "change": change, "rule": id_, "text": text}
        for id_, text in rules.items()
        if id_ not in known
    ]
    for pattern in patterns:
        goal = parse_goal(pattern.removeprefix("!"))
        bound = {place: term.value for place, term in enumerate(goal.terms) if isinstance(term, Constant)}
        tuples = await other.matching(goal.relation, bound)
        if tuples:
            # What stood against it before went, or what stands against it now came.
            causes.append(
                {
                    "kind": "negation",
                    "change": "removed" if change == "added" else "added",
                    "pattern": pattern,
                    "found": tuples,
                }
            )
    return causes


def _instances(node: Json) -> Iterator[Json]:
    if "derivation" in node:
        yield node["derivation"]
    for folded in node.get("folds", ()):
        yield from (one for one in folded["contributions"] if "rule" in one)


def _steps(node: Json) -> Iterator[Json]:
    for one in _instances(node):
        yield from _below(one.get("steps", ()))


def _below(steps: Iterable[Json]) -> Iterator[Json]:
    for step in steps:
        yield step
        for folded in step.get("aggregates", ()):
            for one in folded["contributions"]:
                yield from _below(one.get("steps", ()))
