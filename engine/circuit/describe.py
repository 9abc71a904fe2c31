"""A circuit for people and programs: as JSON-ready data, as a Mermaid flow chart, as text."""

from __future__ import annotations

from typing import Any

from engine.circuit.circuit import Circuit, Stratum
from engine.circuit.plan import CompiledRule, Extend, Plan, Source, Step
from engine.language.canonical import format_rule, format_term
from engine.language.syntax import Constant


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


def to_mermaid(circuit: Circuit) -> str:
    """A flow chart: a box for each stratum, arrows from each relation through the rules that read it."""
    lines = ["flowchart LR"]
    names = {relation: f"n{i}" for i, relation in enumerate(sorted(circuit.arities))}
    for number, stratum in enumerate(circuit.strata):
        title = "recursive stratum" if stratum.recursive else "stratum"
        lines.append(f'  subgraph s{number}["{title} {number}"]')
        lines += [f'    {names[r]}["{r}/{circuit.arities[r]}"]' for r in stratum.relations]
        lines += [f'    {rule.id}(["{_escaped(format_rule(rule.rule))}"])' for rule in stratum.rules]
        lines.append("  end")
    for stratum in circuit.strata:
        for rule in stratum.rules:
            lines += [f"  {names[relation]} --> {rule.id}" for relation in dict.fromkeys(rule.body)]
            lines.append(f"  {rule.id} --> {names[rule.head]}")
    return "\n".join(lines) + "\n"


def to_text(circuit: Circuit) -> str:
    """What `zedlog plan` prints."""
    lines = []
    for number, stratum in enumerate(circuit.strata):
        kind = "recursive" if stratum.recursive else "not recursive"
        if not stratum.rules:
            lines.append(f"stratum {number}: {', '.join(stratum.relations)} (facts only)")
            continue
        lines.append(f"stratum {number}: {', '.join(stratum.relations)} ({kind})")
        for rule in stratum.rules:
            lines.append(f"  {rule.id}  {format_rule(rule.rule)}")
            for plan in rule.plans:
                lines.append(
                    f"    d{plan.start.relation} (atom {plan.start.atom + 1}): " + " -> ".join(_parts(plan))
                )
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
        "reads": sorted(stratum.reads),
        "rules": [_rule(rule) for rule in stratum.rules],
    }


def _rule(rule: CompiledRule) -> dict[str, Any]:
    return {"id": rule.id, "rule": format_rule(rule.rule), "plans": [_plan(plan) for plan in rule.plans]}


def _plan(plan: Plan) -> dict[str, Any]:
    start = plan.start
    return {
        "start": {
            "atom": start.atom,
            "relation": start.relation,
            "constants": {str(column): _source(constant) for column, constant in start.constants},
            "equal": [list(pair) for pair in start.equal],
            "variables": dict(start.variables),
        },
        "steps": [_step(step) for step in plan.steps],
        "head": {"relation": plan.head, "columns": [_source(source) for source in plan.columns]},
    }


def _step(step: Step) -> dict[str, Any]:
    common = {
        "atom": step.atom,
        "relation": step.relation,
        "sees": "new" if step.before else "old",
        "key": {str(column): _source(source) for column, source in step.key},
        "carry": list(step.carry),
    }
    if not isinstance(step, Extend):
        return {"operator": "check", **common}
    kept = dict(step.kept)
    equal = [list(pair) for pair in step.equal]
    return {"operator": "join", **common, "equal": equal, "keep": kept, "consolidate": step.consolidate}


def _users(circuit: Circuit) -> list[tuple[Any, list[str]]]:
    """Each demanded index with the plans (rule id and atom) that use it."""
    users: dict[Any, list[str]] = {}
    for rule in circuit.rules.values():
        for plan in rule.plans:
            for demand in dict.fromkeys(plan.demands):
                users.setdefault(demand, []).append(f"{rule.id}/{plan.start.atom}")
    return sorted(users.items(), key=lambda pair: (pair[0].relation, pair[0].columns))


def _parts(plan: Plan) -> list[str]:
    parts = []
    for step in plan.steps:
        key = ", ".join(f"{column + 1}={_source(source)}" for column, source in step.key)
        verb = "join" if isinstance(step, Extend) else "check"
        summed = ", summed up" if isinstance(step, Extend) and step.consolidate else ""
        parts.append(f"{verb} {step.relation}({key}{summed})")
    return [*parts, f"{plan.head}({', '.join(map(_source, plan.columns))})"]


def _source(source: Source) -> str:
    return format_term(source) if isinstance(source, Constant) else source


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
