"""A circuit for people and programs: as JSON-ready data, as a Mermaid flow chart, as text."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

from engine.circuit.circuit import Circuit, Stratum
from engine.circuit.normal import Fold
from engine.circuit.pivot import pivot_of
from engine.circuit.plan import Absent, Check, CompiledRule, Extend, Let, Plan, Source, Step, Where
from engine.language.canonical import format_fixpoint, format_literal, format_rule, format_term
from engine.language.syntax import Constant, Rule


def to_json(circuit: Circuit) -> dict[str, Any]:
    """Strata in order, each with its relations, rules and delta plans, and the demanded indexes."""
    return {
        "strata": [_stratum(number, stratum) for number, stratum in enumerate(circuit.strata)],
        "indexes": [
            {"relation": demand.relation, "columns": list(demand.columns), "plans": users}
            for demand, users in _users(circuit)
        ],
        "relations": dict(sorted(circuit.arities.items())),
    }


def to_mermaid(circuit: Circuit, on_spark: Container[int] = ()) -> str:
    """A flow chart: a box for each stratum, arrows from each relation through the rules that read it. on_spark: the
    numbers of the strata that are there.
    """
    lines = ["flowchart LR"]
    names = {relation: f"n{i}" for i, relation in enumerate(sorted(circuit.arities))}
    for number, stratum in enumerate(circuit.strata):
        title = "recursive stratum" if stratum.recursive else "stratum"
        pivot = pivot_of(stratum) or {}
        columns = ", ".join(f"{c + 1} of {name}" for name, c in pivot.items())
        handed_on = f"; pivot: column {_escaped(columns)}" if columns else ""
        place = "; on Spark" if number in on_spark else ""
        lines.append(f'  subgraph s{number}["{title} {number}{handed_on}{place}"]')
        lines += [f'    {names[r]}["{r}/{circuit.arities[r]}"]' for r in stratum.relations]
        lines += [f'    {_node(rule.id)}(["{_escaped(_text(rule))}"])' for rule in stratum.rules]
        lines.append("  end")
    for stratum in circuit.strata:
        for rule in stratum.rules:
            negated = rule.negated
            for relation in dict.fromkeys(rule.body):
                arrow = "-. not .->" if relation in negated else "-->"
                lines.append(f"  {names[relation]} {arrow} {_node(rule.id)}")
            lines.append(f"  {_node(rule.id)} --> {names[rule.head]}")
        for fold in stratum.folds:
            lines += [
                f"  {names[source]} -- {fold.function} --> {names[fold.target]}" for source in fold.sources
            ]
    return "\n".join(lines) + "\n"


def to_text(circuit: Circuit) -> str:
    """What `zedlog plan` prints."""
    lines = []
    for number, stratum in enumerate(circuit.strata):
        kind = "recursive" if stratum.recursive else "not recursive"
        if not stratum.rules and not stratum.folds:
            lines.append(f"stratum {number}: {', '.join(stratum.relations)} (facts only)")
            continue
        lines.append(f"stratum {number}: {', '.join(stratum.relations)} ({kind})")
        pivot = pivot_of(stratum)
        if pivot is not None:
            lines.append("  pivot: " + ", ".join(f"column {c + 1} of {name}" for name, c in pivot.items()))
        for rule in stratum.rules:
            lines.append(f"  {rule.id}  {_text(rule)}")
            for plan in rule.plans:
                sign = "-d" if plan.start.negated else "d"
                begin = f"    {sign}{plan.start.relation} (atom {plan.start.atom + 1}): "
                lines.append(begin + " -> ".join(_parts(plan)))
        for fold in stratum.folds:
            over = f"over {', '.join(fold.sources)}" if fold.sources else "in place, height by height"
            if fold in stratum.clocked:
                over += ", height by height" + (
                    f", {format_fixpoint(fold.fixpoint)}" if fold.fixpoint else ""
                )
            lines.append(f"  {fold.target}: {fold.function} in column {fold.place + 1}, {over}")
    users = _users(circuit)
    lines.append(f"indexes: {len(users)}" if users else "indexes: none")
    for demand, plans in users:
        columns = ", ".join(str(c + 1) for c in demand.columns) or "no column"
        lines.append(
            f"  {demand.relation} by {columns}  (used by {len(plans)} plan{'s' if len(plans) > 1 else ''})"
        )
    return "\n".join(lines) + "\n"


def _stratum(number: int, stratum: Stratum) -> dict[str, Any]:
    return {
        "number": number,
        "relations": list(stratum.relations),
        "recursive": stratum.recursive,
        "pivot": dict(pivot) if (pivot := pivot_of(stratum)) is not None else None,
        "reads": sorted(stratum.reads),
        "rules": [_rule(rule) for rule in stratum.rules],
        "folds": [_fold(fold, fold in stratum.clocked) for fold in stratum.folds],
    }


def _fold(fold: Fold, clocked: bool) -> dict[str, Any]:
    """`sources` is empty for a fold in place, which is over the target's own supported tuples.

    `by_height`: the fold is in place, or a source is in the same stratum (`clocked`); then `fixpoint` limits it.
    """
    limit = fold.fixpoint
    return {
        "target": fold.target,
        "function": fold.function,
        "column": fold.place,
        "group": list(fold.group),
        "sources": list(fold.sources),
        "by_height": clocked or not fold.sources,
        "fixpoint": {"tolerance": limit.tolerance, "max_height": limit.max_height} if limit else None,
    }


def _text(rule: CompiledRule) -> str:
    """The core rule as text; internal names are shown as they are."""
    return format_rule(Rule(rule.rule.head, rule.rule.body))


def _rule(rule: CompiledRule) -> dict[str, Any]:
    return {"id": rule.id, "rule": _text(rule), "plans": [_plan(plan) for plan in rule.plans]}


def _plan(plan: Plan) -> dict[str, Any]:
    start = plan.start
    return {
        "start": {
            "atom": start.atom,
            "relation": start.relation,
            "negated": start.negated,
            "constants": {str(column): _source(constant) for column, constant in start.constants},
            "equal": [list(pair) for pair in start.equal],
            "variables": dict(start.variables),
        },
        "steps": [_step(step) for step in plan.steps],
        "head": {"relation": plan.head, "columns": [_source(source) for source in plan.columns]},
    }


def _step(step: Step) -> dict[str, Any]:
    match step:
        case Let():
            return {
                "operator": "let",
                "name": step.name,
                "term": format_term(step.term),
                "carry": list(step.carry),
            }
        case Where():
            return {
                "operator": "where",
                "condition": format_literal(step.condition),
                "carry": list(step.carry),
            }
        case Check() | Absent() | Extend():
            common = {
                "operator": {Check: "check", Absent: "absent", Extend: "join"}[type(step)],
                "atom": step.atom,
                "relation": step.relation,
                "sees": "new" if step.before else "old",
                "key": {str(column): _source(source) for column, source in step.key},
                "carry": list(step.carry),
            }
            if not isinstance(step, Extend):
                return common
            equal = [list(pair) for pair in step.equal]
            return {**common, "equal": equal, "keep": dict(step.kept), "consolidate": step.consolidate}


def _users(circuit: Circuit) -> list[tuple[Any, list[str]]]:
    """Each demanded index with the plans (rule id and atom) and folds (their target) that use it."""
    users: dict[Any, list[str]] = {}
    for rule in circuit.rules.values():
        for plan in rule.plans:
            for demand in dict.fromkeys(plan.demands):
                users.setdefault(demand, []).append(f"{rule.id}/{plan.start.atom}")
    for stratum in circuit.strata:
        for fold in stratum.folds:
            for demand in fold.demands:
                users.setdefault(demand, []).append(f"fold {fold.target}")
    return sorted(users.items(), key=lambda pair: (pair[0].relation, pair[0].columns))


def _parts(plan: Plan) -> list[str]:
    return [*map(_part, plan.steps), f"{plan.head}({', '.join(map(_source, plan.columns))})"]


def _part(step: Step) -> str:
    match step:
        case Let():
            return f"let {step.name} = {format_term(step.term)}"
        case Where():
            return f"where {format_literal(step.condition)}"
        case Check() | Absent() | Extend():
            key = ", ".join(f"{column + 1}={_source(source)}" for column, source in step.key)
            verb = {Check: "check", Absent: "absent", Extend: "join"}[type(step)]
            summed = ", summed up" if isinstance(step, Extend) and step.consolidate else ""
            return f"{verb} {step.relation}({key}{summed})"


def _source(source: Source) -> str:
    return format_term(source) if isinstance(source, Constant) else source


def _node(rule_id: str) -> str:
    """A rule id as the name of a node, which may hold letters, digits and `_` only."""
    return re.sub(r"\W", "_", rule_id)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
