"""The circuit as a graph for ECharts, and its plans as text.

In: the answer of `GET /v1/circuit`, the relations' counts, and the summary of an epoch. Out: the options of a chart in
which data flows from left to right; each node has an `about`, which a click hands back. Always: at most MOST_NODES
nodes are drawn. A circuit that has more is drawn without its rules, or as strata only, so that a large program does not
slow a page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

Json = dict[str, Any]
Detail = Literal["rules", "relations", "strata"]
MOST_NODES: Final = 400
_DETAILS: Final[tuple[Detail, ...]] = ("rules", "relations", "strata")
_COLUMN, _ROW = 260, 56
_RELATION, _RULE, _RECURSIVE, _CHANGED = "#1d4ed8", "#475569", "#7e22ce", "#b45309"
LEGEND: Final = (
    (_RELATION, "relation"),
    (_RECURSIVE, "recursive"),
    (_CHANGED, "changed in the last epoch"),
    (_RULE, "rule"),
)
"""Colours, and what they mean."""


def details(circuit: Json) -> list[Detail]:
    """How finely the circuit can be drawn, the finest first; at least as strata."""
    strata = circuit["strata"]
    relations = sum(len(stratum["relations"]) for stratum in strata)
    rules = sum(len(stratum["rules"]) for stratum in strata)
    counts = {"rules": relations + rules, "relations": relations}
    return [detail for detail in _DETAILS if counts.get(detail, 0) <= MOST_NODES]


def options(circuit: Json, counts: Mapping[str, int], epoch: Json | None, detail: Detail) -> Json:
    """The options of the chart. counts: the tuples of each relation. epoch: the summary whose changes are shown."""
    drawing = _Drawing(circuit["strata"], counts, (epoch or {}).get("changes", {}))
    nodes, links = (
        drawing.strata_only() if detail == "strata" else drawing.relations(with_rules=detail == "rules")
    )
    return {
        "animation": False,
        "tooltip": {"confine": True, "renderMode": "richText"},
        "series": [
            {
                "type": "graph",
                "layout": "none",
                "roam": True,
                "scaleLimit": {"min": 0.1, "max": 8},
                "data": nodes[:MOST_NODES],
                "links": links,
                "edgeSymbol": ["none", "arrow"],
                "edgeSymbolSize": 7,
                "lineStyle": {"color": "#94a3b8", "width": 1.5, "curveness": 0.12},
                "label": {"show": True, "color": "#ffffff", "fontSize": 11, "lineHeight": 14},
                "emphasis": {"focus": "adjacency"},
            }
        ],
    }


class _Drawing:
    """Nodes and links of the strata. A stratum stands in the column after the last one that it reads from."""

    def __init__(self, strata: list[Json], counts: Mapping[str, int], changes: Mapping[str, Json]) -> None:
        self._strata, self._counts, self._changes = strata, counts, changes
        self._home = {relation: stratum["number"] for stratum in strata for relation in stratum["relations"]}
        self._rows: dict[float, int] = {}
        self._columns: dict[int, int] = {}
        for stratum in strata:
            below = self._below(stratum)
            self._columns[stratum["number"]] = 1 + max(
                (self._columns.get(one, 0) for one in below), default=-1
            )

    def _below(self, stratum: Json) -> set[int]:
        """The other strata that it reads from."""
        return {self._home[one] for one in stratum["reads"] if one in self._home} - {stratum["number"]}

    def _place(self, column: float) -> Json:
        row = self._rows[column] = self._rows.get(column, -1) + 1
        return {"x": column * _COLUMN, "y": row * _ROW}

    def relations(self, *, with_rules: bool) -> tuple[list[Json], list[Json]]:
        nodes: list[Json] = []
        links: list[Json] = []
        for stratum in self._strata:
            column = self._columns[stratum["number"]]
            nodes += [self._relation(relation, stratum, column) for relation in stratum["relations"]]
            for rule in stratum["rules"]:
                if with_rules:
                    nodes.append(_rule_node(rule, stratum["number"], self._place(column - 0.5)))
                links += _rule_links(rule, with_rules=with_rules)
            for fold in stratum["folds"]:
                links += [
                    {
                        "source": one,
                        "target": fold["target"],
                        "label": {"show": True, "formatter": fold["function"]},
                    }
                    for one in fold["sources"]
                ]
        return nodes, _distinct(links)

    def strata_only(self) -> tuple[list[Json], list[Json]]:
        nodes: list[Json] = []
        links: list[Json] = []
        for stratum in self._strata:
            number, names = stratum["number"], stratum["relations"]
            changed = any(name in self._changes for name in names)
            about = {"kind": "stratum", "stratum": number}
            tuples = sum(self._counts.get(name, 0) for name in names)
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            told = f"stratum {number}: {', '.join(names[:3])}{more}, {tuples:,} tuples"
            told += ", on Spark" if stratum.get("place") == "spark" else ""
            place = self._place(self._columns[number])
            nodes.append(
                _node(f"stratum {number}", _short(told), told, _colour(stratum, changed), place, about)
            )
            below = self._below(stratum)
            links += [{"source": f"stratum {one}", "target": f"stratum {number}"} for one in sorted(below)]
        shown = {node["id"] for node in nodes[:MOST_NODES]}
        return nodes, [link for link in links if {link["source"], link["target"]} <= shown]

    def _relation(self, relation: str, stratum: Json, column: float) -> Json:
        change = self._changes.get(relation)
        tuples = f"{self._counts[relation]:,}" if relation in self._counts else "?"
        told = f"{relation}: {tuples} tuples"
        label = f"{_short(relation, 22)}  {tuples}"
        if change is not None:
            told += f", {_signed(change)} in the last epoch"
            label += f"\n{_signed(change)}"
        about = {"kind": "relation", "relation": relation, "stratum": stratum["number"]}
        return _node(relation, label, told, _colour(stratum, change is not None), self._place(column), about)


def _colour(stratum: Json, changed: bool) -> str:
    return _CHANGED if changed else _RECURSIVE if stratum["recursive"] else _RELATION


def _signed(change: Json) -> str:
    return " ".join(
        f"{sign}{change[way]:,}" for sign, way in (("+", "inserted"), ("-", "deleted")) if change[way]
    )


def _node(id_: str, label: str, told: str, colour: str, place: Json, about: Json) -> Json:
    lines = label.split("\n")
    return {
        "id": id_,
        "name": told,
        **place,
        "symbol": "roundRect",
        "symbolSize": [max(map(len, lines)) * 6.4 + 16, 14 * len(lines) + 12],
        "itemStyle": {"color": colour},
        "label": {"formatter": label.replace("{", "(").replace("}", ")")},
        "about": about,
    }


def _rule_node(rule: Json, stratum: int, place: Json) -> Json:
    """A rule is a dot with the beginning of its text below it: whole rules would cover each other."""
    about = {"kind": "rule", "rule": rule["id"], "stratum": stratum}
    node = _node(f"rule {rule['id']}", _short(rule["rule"], 20), rule["rule"], _RULE, place, about)
    label = {**node["label"], "position": "bottom", "color": "#7c8798", "fontSize": 10}
    return {**node, "symbol": "circle", "symbolSize": 14, "label": label}


def _rule_links(rule: Json, *, with_rules: bool) -> list[Json]:
    links: list[Json] = []
    node = f"rule {rule['id']}"
    for plan in rule["plans"]:
        start, head = plan["start"], plan["head"]["relation"]
        style = {"lineStyle": {"type": "dashed"}} if start["negated"] else {}
        links.append({"source": start["relation"], "target": node if with_rules else head, **style})
        if with_rules:
            links.append({"source": node, "target": head})
    return links


def _distinct(links: Iterable[Json]) -> list[Json]:
    """Each arrow once, however many plans make it."""
    return list({(link["source"], link["target"], "lineStyle" in link): link for link in links}.values())


def _short(text: str, most: int = 34) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# ---- plans as text


def plan_text(plan: Json) -> str:
    """A delta plan: from which relation's changes it starts, and what it joins them with, in order."""
    start, head = plan["start"], plan["head"]
    begin = f"{'-' if start['negated'] else ''}Δ{start['relation']}"
    return " → ".join(
        [begin, *map(_step_text, plan["steps"]), f"{head['relation']}({', '.join(head['columns'])})"]
    )


def _step_text(step: Json) -> str:
    match step["operator"]:
        case "let":
            return f"let {step['name']} = {step['term']}"
        case "where":
            return f"where {step['condition']}"
        case operator:
            key = ", ".join(f"{int(column) + 1}={source}" for column, source in step["key"].items())
            summed = ", summed up" if step.get("consolidate") else ""
            return f"{operator} {step['relation']}({key}{summed})"


def title(stratum: Json) -> str:
    """A stratum in a line."""
    kind = "recursive" if stratum["recursive"] else "facts only" if not stratum["rules"] else "not recursive"
    kind += ", on Spark" if stratum.get("place") == "spark" else ""
    return f"Stratum {stratum['number']}: {', '.join(stratum['relations'])} ({kind})"
