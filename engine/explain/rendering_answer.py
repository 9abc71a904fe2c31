"""Any answer of an explanation as the lines of a tree: a proof, an absence, a page of alternatives, or a change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from engine.explain.rendering import Line, lines, origin_text, shown_value, step_lines, transaction_text
from engine.explain.rendering_absence import absence_lines

Json = dict[str, Any]


def answer_lines(found: Json) -> list[Line]:
    """See the module."""
    if "derivations" in found:
        return list(_alternatives(found))
    if "after" in found:
        return list(_change(found))
    if "nodes" in found:
        return lines(found)
    if "rules" in found:
        return absence_lines(found)
    return [Line(0, f"{found['root']}  (does not hold)", "absence")]


def answer_text(found: Json) -> str:
    """The same as plain text."""
    return "".join(f"{'  ' * line.depth}{line.text}\n" for line in answer_lines(found))


def _alternatives(found: Json) -> Iterator[Line]:
    count = found["count"]
    yield Line(0, f"{found['root']}  ({count} way{'' if count == 1 else 's'} to derive it)", "rule")
    for one in found["derivations"]:
        if "weight" in one:
            yield Line(1, f"fact, weight {one['weight']}{origin_text(one)}", "fact")
            continue
        where = ", ".join(f"{name} = {shown_value(value)}" for name, value in one["substitution"].items())
        yield Line(1, f"by {one['rule']}: {one['text']}{' where ' if where else ''}{where}", "rule")
        made: list[Line] = []
        nodes = {step["node"]: {"kind": "holds"} for step in one["steps"] if step["kind"] == "tuple"}
        step_lines(nodes, one["steps"], 2, set(), made)
        yield from made
    if found.get("cursor"):
        yield Line(1, "and more", "more")
    if found["withheld"]:
        yield Line(1, "other rules read relations that you may not read", "withheld")


def _change(found: Json) -> Iterator[Line]:
    if "change" in found:
        yield Line(0, f"{found['root']} {found['change']} at epoch {found['epoch']}", "change")
    else:
        yield Line(0, f"{found['root']} at epoch {found['epoch']}", "change")
        yield Line(1, f"what was before is unknown: {found['before_unknown']}", "more")
    committed = found.get("committed", {})
    told = committed.get("transactions")
    for one in told or ():
        yield Line(1, f"committed by {transaction_text(one)}", "cause")
    if committed and not told:
        why = "are no longer kept" if told is None else "are not yours to read"
        yield Line(1, f"the transactions of this epoch {why}", "more")
    for cause in found.get("causes", ()):
        if cause["kind"] == "fact":
            yield Line(1, f"{cause['change']}: fact {cause['fact']}", "cause")
        elif cause["kind"] == "rule":
            yield Line(1, f"{cause['change']}: rule {cause['rule']}: {cause['text']}", "cause")
        else:
            yield Line(
                1, f"{cause['change']}: {', '.join(cause['found'])}, against {cause['pattern']}", "cause"
            )
    for title, part in (("before", found.get("before")), ("after", found["after"])):
        if part is not None:
            yield Line(0, f"{title}:", "title")
            yield from (replace(line, depth=line.depth + 1) for line in answer_lines(part))
