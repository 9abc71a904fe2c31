"""Why a tuple is absent, as JSON and as the lines of a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.explain.absence import Absence, Attempt, Failing
from engine.explain.nodes import Checked, Term
from engine.explain.rendering import (
    Line,
    Namer,
    condition_line,
    filled,
    plain,
    plain_term,
    step_json,
    step_lines,
    step_terms,
    substitution,
)
from engine.language.canonical import format_literal
from engine.language.syntax import Aggregate, Atom, Comparison, Literal, Negation, Variable, rebuilt, walk

Json = dict[str, Any]
Known = tuple[tuple[str, Term], ...]


async def absence_document(absence: Absence, namer: Namer) -> Json:
    """The document of a tuple that does not hold."""
    await namer.know(_terms(absence, namer))
    found: Json = {
        "root": namer.id(absence.key),
        "rules": [_attempt(attempt, namer) for attempt in absence.attempts],
        "withheld": absence.withheld,
    }
    if absence.instead is not None:
        found["instead"] = namer.id(absence.instead)
    if absence.contributes:
        found["contributes"] = absence.contributes
    return found


def _terms(absence: Absence, namer: Namer) -> Iterator[Term]:
    yield from namer.terms_of(absence.key)
    if absence.instead is not None:
        yield from namer.terms_of(absence.instead)
    for attempt in absence.attempts:
        yield from (term for _, term in (*attempt.binding, *attempt.known))
        yield from step_terms(attempt.steps, namer)
        failing = attempt.failing
        if failing is not None:
            yield from failing.pattern
            for key in failing.found:
                yield from namer.terms_of(key)
            if failing.checked is not None:
                yield from step_terms((failing.checked,), namer)


def _attempt(attempt: Attempt, namer: Namer) -> Json:
    found: Json = {"rule": attempt.plan.id, "text": attempt.plan.text, "fits": attempt.fits}
    if not attempt.fits:
        return found
    found["substitution"] = substitution(attempt.binding, namer)
    found["satisfied"] = [step_json(step, namer) for step in attempt.steps]
    found["exhaustive"] = attempt.exhaustive
    if attempt.failing is not None:
        found["fails"] = _failing(attempt.failing, attempt.known, namer)
        found["not_reached"] = [_written(literal, attempt.known, namer) for literal in attempt.others]
    return found


def _failing(failing: Failing, known: Known, namer: Namer) -> Json:
    literal = failing.literal
    found: Json = {"literal": _written(literal, known, namer)}
    if failing.checked is not None:
        step = step_json(failing.checked, namer)
        found |= {"kind": "condition", "holds": False, "with": format_literal(filled(failing.checked, namer))}
        if "aggregates" in step:
            found["aggregates"] = step["aggregates"]
        return found
    atom = literal.atom if isinstance(literal, Negation) else literal
    assert isinstance(atom, Atom)
    found["kind"] = "absent" if isinstance(literal, Negation) else "tuple"
    text = namer.atom(atom.relation, failing.pattern)
    found["pattern"] = f"!{text}" if isinstance(literal, Negation) else text
    found["found"] = [namer.id(key) for key in failing.found]
    found["count"] = failing.count
    return found


def _written(literal: Literal, known: Known, namer: Namer) -> str:
    """A literal as the text has it. Where it compares a computed argument, whose variable no text has, with values."""
    if isinstance(literal, Comparison):
        made = any(
            isinstance(side, Variable) and side.name.startswith("@") for side in (literal.left, literal.right)
        )
        if made and not any(isinstance(node, Aggregate) for node in walk(literal)):
            return format_literal(plain(filled(Checked(literal, known), namer)))
        return format_literal(plain(literal))
    changed: Literal = _plain_part(literal)
    return format_literal(changed)


def _plain_part(part: Any) -> Any:
    return rebuilt(part, _plain_part) if isinstance(part, Atom | Negation) else plain_term(part)


def absence_lines(found: Json) -> list[Line]:
    """The document as the lines of a tree."""
    made = [Line(0, f"{found['root']}  (does not hold)", "absence")]
    if "instead" in found:
        also = (
            f", to which a fact of weight {found['contributes']} contributes"
            if "contributes" in found
            else ""
        )
        made.append(Line(1, f"its group has {found['instead']}{also}", "instead"))
    if not found["rules"] and not found["withheld"]:
        made.append(Line(1, "no rule derives the relation, and it is no fact", "fails"))
    for attempt in found["rules"]:
        head = f"{attempt['rule']}: {attempt['text']}"
        if not attempt["fits"]:
            made.append(Line(1, f"{head}  (its head cannot be this tuple)", "rule"))
            continue
        made.append(Line(1, head, "rule"))
        nodes = {step["node"]: {"kind": "holds"} for step in attempt["satisfied"] if step["kind"] == "tuple"}
        step_lines(nodes, attempt["satisfied"], 2, set(), made)
        fails = attempt.get("fails")
        if fails is None:
            made.append(Line(2, "the whole body holds, but the fold of the group has another value", "fails"))
            continue
        made.append(Line(2, _fails_text(fails), "fails"))
        made += [Line(3, one, "found") for one in fails.get("found", ())]
        if fails.get("count", 0) > len(fails.get("found", ())):
            made.append(Line(3, f"and {fails['count'] - len(fails['found'])} more", "more"))
        made += [Line(2, f"not reached: {one}", "more") for one in attempt["not_reached"]]
    if found["withheld"]:
        made.append(Line(1, "other rules read relations that you may not read", "withheld"))
    made += _repair_lines(found)
    return made


def _fails_text(fails: Json) -> str:
    if fails["kind"] == "condition":
        return f"fails: {condition_line(fails['literal'], fails['with'])}"
    if fails["kind"] == "absent":
        return f"fails: {fails['pattern']}, because there is"
    near = ", but there is" if fails["found"] else ""
    return f"fails: there is no {fails['pattern']}{near}"


def _repair_lines(found: Json) -> Iterator[Line]:
    if "repairs" not in found:
        return
    for number, repair in enumerate(found["repairs"], 1):
        what = ", ".join(f"{one['change']} {one['fact']}" for one in repair)
        yield Line(1, f"repair {number}: {what}", "repair")
    search = found["search"]
    if not found["repairs"]:
        yield Line(1, "no repair was found", "repair")
    if not search["complete"]:
        yield Line(1, f"the search ended at a limit: {search['limit']}", "more")
