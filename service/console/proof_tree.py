"""An explanation as a tree that is opened node by node.

In: an answer of `POST /v1/explain`, and a way to ask for another. Out: entries; what is inside one is made when it is
opened. So a proof costs what is looked at, also where its tuples share their reasons, and what the answer left out
(`open`) is asked for when somebody wants to see it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from engine.explain.rendering import condition_line, origin_text, shown_value, transaction_text

Json = dict[str, Any]
Ask = Callable[[str, int], Awaitable[Json]]
"""The explanation of a tuple, given as text, at an epoch."""

_REMARKS: Final = {
    "open": "not followed yet",
    "withheld": "derived from relations that you may not read",
    "iterated": "the value on which the recursive aggregate has settled; there is no proof from lower heights",
    "unsettled": "its height is unknown, and no proof was found within the limits of the search",
}
_CONSTANTS = re.compile(r'"(?:[^"\\]|\\.)*"')
_VARIABLE = re.compile(r"\b(?!true\b|false\b)[A-Za-z_?]\w*")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the tree. kind: of a node, or `rule`, `absent`, `condition`, `fold`, `fails`, `cause`, `more`. note:
    what is said beside the text. tuple: the text of the tuple that it stands for. inside: makes what is under it; None:
    there is nothing."""

    text: str
    kind: str
    note: str = ""
    tuple: str | None = None
    inside: Callable[[], Awaitable[list[Entry]]] | None = None


class ProofTree:
    """Makes the entries of answers about one epoch."""

    def __init__(self, ask: Ask, epoch: int) -> None:
        self._ask, self._epoch = ask, epoch

    def top(self, found: Json) -> list[Entry]:
        """The entries of an answer."""
        if "after" in found:
            return self._change(found)
        if "derivations" in found:
            return self._ways(found)
        if "nodes" in found:
            return [self._node(found["nodes"], found["root"])]
        return [self._absence(found)]

    # ---- a tuple that holds

    def _node(self, nodes: Mapping[str, Json], id_: str) -> Entry:
        node = nodes.get(id_, {"kind": "open"})
        kind = node["kind"]
        if kind == "open":
            return Entry(id_, kind, _REMARKS[kind], id_, partial(self._asked, id_))
        if kind == "fact":
            weight = "" if node["weight"] == 1 else f", weight {node['weight']}"
            return Entry(id_, kind, f"fact{weight}{origin_text(node)}", id_)
        note = _REMARKS.get(kind, "")
        if "weight" in node:
            note = ", ".join(filter(None, (note, f"also a fact, weight {node['weight']}{origin_text(node)}")))
        followed = "derivation" in node or node.get("folds")
        return Entry(id_, kind, note, id_, partial(self._inside, nodes, node) if followed else None)

    async def _asked(self, id_: str) -> list[Entry]:
        found = await self._ask(id_, self._epoch)
        if "nodes" not in found:
            return await self._absent(found)
        node = found["nodes"][found["root"]]
        inside = await self._inside(found["nodes"], node)
        return inside or [self._node(found["nodes"], found["root"])]

    async def _inside(self, nodes: Mapping[str, Json], node: Json) -> list[Entry]:
        made: list[Entry] = []
        if "derivation" in node:
            made += [_by(node["derivation"]), *self._steps(nodes, node["derivation"]["steps"])]
        return made + [self._fold(nodes, one) for one in node.get("folds", ())]

    def _steps(self, nodes: Mapping[str, Json], steps: Iterable[Json]) -> list[Entry]:
        return [self._step(nodes, step) for step in steps]

    def _step(self, nodes: Mapping[str, Json], step: Json) -> Entry:
        if step["kind"] == "tuple":
            return self._node(nodes, step["node"])
        if step["kind"] == "absent":
            return self._missing(step["pattern"], "absent", "nothing found")
        folds = step.get("aggregates", ())

        async def inside() -> list[Entry]:
            return [self._fold(nodes, one) for one in folds]

        return Entry(
            condition_line(step["text"], step["holds"]), "condition", "", None, inside if folds else None
        )

    def _fold(self, nodes: Mapping[str, Json], fold: Json) -> Entry:
        count = fold["count"]
        name = fold.get("text", f"{fold['function']} in column {fold.get('column', 0) + 1}")

        async def inside() -> list[Entry]:
            made = [self._contribution(nodes, one) for one in fold["contributions"]]
            left = count - len(made)
            return made + ([Entry(f"and {left} more", "more")] if left else [])

        text = f"{name} = {shown_value(fold['value'])}"
        return Entry(text, "fold", f"of {count} contribution{'' if count == 1 else 's'}", None, inside)

    def _contribution(self, nodes: Mapping[str, Json], one: Json) -> Entry:
        value = shown_value(one["value"]) if "value" in one else ""
        if "weight" in one:
            return Entry(value or "a fact", "fact", f"fact, weight {one['weight']}{origin_text(one)}")
        where = _where(one["substitution"])
        steps = one.get("steps", ())

        async def inside() -> list[Entry]:
            by = [_by(one)] if "rule" in one else []
            return by + self._steps(nodes, steps)

        shown = ", ".join(filter(None, (value, where))) or "a binding without variables"
        return Entry(shown, "contribution", "", None, inside if steps or "rule" in one else None)

    # ---- the ways to derive a tuple

    def _ways(self, found: Json) -> list[Entry]:
        made: list[Entry] = []
        for one in found["derivations"]:
            if "weight" in one:
                made.append(Entry(found["root"], "fact", f"fact, weight {one['weight']}{origin_text(one)}"))
                continue

            async def inside(way: Json = one) -> list[Entry]:
                return self._steps({}, way["steps"])

            by = _by(one)
            made.append(Entry(by.text, "rule", by.note, None, inside if one["steps"] else None))
        if found["withheld"]:
            made.append(Entry("other rules read relations that you may not read", "withheld"))
        return made

    # ---- a tuple that does not hold

    def _absence(self, found: Json) -> Entry:
        return Entry(found["root"], "missing", "does not hold", found["root"], partial(self._absent, found))

    async def _absent(self, found: Json) -> list[Entry]:
        made: list[Entry] = []
        if "instead" in found:
            also = (
                f", to which a fact of weight {found['contributes']} contributes"
                if "contributes" in found
                else ""
            )
            node = self._node({}, found["instead"])
            made.append(Entry(node.text, node.kind, f"is what its group has{also}", node.tuple, node.inside))
        rules = found.get("rules", ())
        if not rules and not found.get("withheld"):
            made.append(Entry("no rule derives the relation, and it is no fact", "fails"))
        made += [self._attempt(attempt) for attempt in rules]
        if found.get("withheld"):
            made.append(Entry("other rules read relations that you may not read", "withheld"))
        return made

    def _attempt(self, attempt: Json) -> Entry:
        if not attempt["fits"]:
            return Entry(attempt["text"], "rule", f"{attempt['rule']}: its head cannot be this tuple")

        async def inside() -> list[Entry]:
            made = self._steps({}, attempt["satisfied"])
            fails = attempt.get("fails")
            if fails is None:
                return [
                    *made,
                    Entry("the whole body holds, but the fold of the group has another value", "fails"),
                ]
            made.append(self._failing(fails))
            return made + [Entry(one, "more", "not reached") for one in attempt["not_reached"]]

        return Entry(attempt["text"], "rule", f"{attempt['rule']}: not satisfied", None, inside)

    def _failing(self, fails: Json) -> Entry:
        if fails["kind"] == "condition":
            folds = fails.get("aggregates", ())

            async def folded() -> list[Entry]:
                return [self._fold({}, one) for one in folds]

            text = condition_line(fails["literal"], fails["with"])
            return Entry(text, "fails", "is not so", None, folded if folds else None)
        left = fails["count"] - len(fails["found"])

        async def found() -> list[Entry]:
            made = [self._node({}, one) for one in fails["found"]]
            return made + ([Entry(f"and {left} more", "more")] if left > 0 else [])

        if fails["kind"] == "absent":
            return Entry(fails["pattern"], "fails", "does not hold, because of what is inside", None, found)
        missing = self._missing(fails["pattern"], "fails", "there is none")
        if not fails["found"]:
            return missing
        return Entry(missing.text, "fails", "there is none; inside is what comes near", missing.tuple, found)

    def _missing(self, pattern: str, kind: str, note: str) -> Entry:
        """What was not found. Where it is one tuple, it is opened to see why it does not hold."""
        atom = pattern.removeprefix("!")
        if _VARIABLE.search(_CONSTANTS.sub("", atom.partition("(")[2])):
            return Entry(pattern, kind, note)
        return Entry(pattern, kind, note, atom, partial(self._asked, atom))

    # ---- a change

    def _change(self, found: Json) -> list[Entry]:
        made = [Entry(_cause(one), "cause", one["change"]) for one in found.get("causes", ())]
        committed = found.get("committed", {})
        told = committed.get("transactions")
        made += [Entry(transaction_text(one), "cause", "committed by") for one in told or ()]
        if committed and not told:
            why = "are no longer kept" if told is None else "are not yours to read"
            made.append(Entry(f"the transactions of this epoch {why}", "more"))
        if "before_unknown" in found:
            made.append(Entry(f"what was before is unknown: {found['before_unknown']}", "more"))
        for title, epoch, part in (
            ("before", self._epoch - 1, found.get("before")),
            ("after", self._epoch, found["after"]),
        ):
            if part is not None:
                (entry,) = ProofTree(self._ask, epoch).top(part)
                note = ", ".join(filter(None, (title, entry.note)))
                made.append(Entry(entry.text, entry.kind, note, entry.tuple, entry.inside))
        return made


def _by(derivation: Json) -> Entry:
    return Entry(
        derivation["text"], "rule", f"by {derivation['rule']}{_after(_where(derivation['substitution']))}"
    )


def _where(substitution: Json) -> str:
    return ", ".join(f"{name} = {shown_value(value)}" for name, value in substitution.items())


def _after(where: str) -> str:
    return f" where {where}" if where else ""


def _cause(cause: Json) -> str:
    if cause["kind"] == "fact":
        return str(cause["fact"])
    if cause["kind"] == "rule":
        return f"rule {cause['rule']}: {cause['text']}"
    return f"{', '.join(cause['found'])}, against {cause['pattern']}"
