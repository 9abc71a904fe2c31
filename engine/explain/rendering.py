"""Proofs as JSON, as text and as a Mermaid diagram.

In: a `Proof`, whose values are codes. Out: a JSON document in which a tuple is named by its text, as `edge("a","b")`;
text and diagram are made from that document, so any client can make them too. Always: each tuple stands once in the
document; a node that was not followed has the kind `open`, and its id can be asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from engine.explain.matching import Matcher
from engine.explain.nodes import (
    Absent,
    Checked,
    Child,
    Contribution,
    Derivation,
    Folded,
    Key,
    Node,
    Proof,
    Step,
    Term,
    written_name,
)
from engine.language.canonical import format_literal, format_term
from engine.language.constants import write_constant
from engine.language.schema import Column, ColumnType, Schema
from engine.language.syntax import Aggregate, Comparison, Constant, Variable, rebuilt
from engine.language.syntax import Term as SyntaxTerm

Json = dict[str, Any]


class Namer:
    """Values by their codes. `know` first, then ask; all symbols are read together."""

    def __init__(self, matcher: Matcher, schemas: Mapping[str, Schema]) -> None:
        self._matcher, self._schemas = matcher, schemas
        self._texts: dict[int, str] = {}

    async def know(self, terms: Iterable[Term]) -> None:
        """Read the texts of the symbols among the terms."""
        wanted = {
            term[0] for term in terms if not isinstance(term, str) and term[1] is ColumnType.SYMBOL
        } - self._texts.keys()
        if wanted:
            codes = np.array(sorted(wanted), np.int64)
            column = [Column("", ColumnType.SYMBOL)]
            rows = await self._matcher.source.decode(codes[:, None], column, self._matcher.new_symbols)
            self._texts |= zip(codes.tolist(), (str(row[0]) for row in rows), strict=True)

    def terms_of(self, key: Key) -> list[Term]:
        columns = self._schemas[key[0]].columns
        return [(code, column.type) for code, column in zip(key[1], columns, strict=True)]

    def constant(self, code: int, kind: ColumnType | None) -> Constant:
        if kind is ColumnType.SYMBOL:
            return Constant(self._texts[code], kind)
        if kind is ColumnType.FLOAT:
            return Constant(float(np.int64(code).view(np.float64)), kind)
        if kind is ColumnType.BOOL:
            return Constant(bool(code), kind)
        return Constant(code, ColumnType.NUMBER)

    def value(self, term: Term) -> Any:
        return term if isinstance(term, str) else self.constant(*term).value

    def text(self, term: Term) -> str:
        if isinstance(term, str):
            return term
        constant = self.constant(*term)
        return write_constant(constant.value, constant.type)

    def atom(self, relation: str, terms: Iterable[Term]) -> str:
        return f"{relation}({','.join(map(self.text, terms))})"

    def id(self, key: Key) -> str:
        return self.atom(key[0], self.terms_of(key))


async def document(proof: Proof, namer: Namer) -> Json:
    """The proof as JSON: `root`, and `nodes` by their ids."""
    await namer.know(_terms(proof.nodes.values(), namer))
    nodes = {namer.id(key): _node(node, namer) for key, node in proof.nodes.items()}
    return {"root": namer.id(proof.root), "complete": proof.complete, "nodes": nodes}


async def derivations(several: Iterable[Derivation], namer: Namer) -> list[Json]:
    """Instances of rules as JSON, for a list of alternatives."""
    several = list(several)
    await namer.know(term for one in several for term in _derivation_terms(one, namer))
    return [_derivation(one, namer) for one in several]


# ---- the values in a proof


def _terms(nodes: Iterable[Node], namer: Namer) -> Iterator[Term]:
    for node in nodes:
        yield from namer.terms_of(node.key)
        for derivation in node.derivations:
            yield from _derivation_terms(derivation, namer)
        for folded in node.folds:
            yield from _folded_terms(folded, namer)


def _derivation_terms(derivation: Derivation, namer: Namer) -> Iterator[Term]:
    yield from (term for _, term in derivation.binding)
    yield from step_terms(derivation.steps, namer)


def step_terms(steps: Iterable[Step], namer: Namer) -> Iterator[Term]:
    for step in steps:
        match step:
            case Child():
                yield from namer.terms_of(step.key)
            case Absent():
                yield from step.pattern
            case Checked():
                yield from (term for _, term in step.binding)
                for folded in step.aggregates:
                    yield from _folded_terms(folded, namer)


def _folded_terms(folded: Folded, namer: Namer) -> Iterator[Term]:
    yield folded.value
    for one in folded.contributions:
        yield from (term for _, term in one.binding)
        yield from () if one.value is None else (one.value,)
        yield from step_terms(one.steps, namer)


# ---- JSON


def _node(node: Node, namer: Namer) -> Json:
    relation = node.key[0]
    found: Json = {
        "kind": node.kind,
        "relation": relation,
        "tuple": [namer.value(term) for term in namer.terms_of(node.key)],
    }
    if node.kind == "open":
        return found
    if node.weight:
        found["weight"] = node.weight
    if node.height:
        found["height"] = node.height
    if node.searched:
        found["searched"] = True
    if node.derivations:
        found["derivation"] = _derivation(node.derivations[0], namer)
    if node.folds:
        found["folds"] = [_folded(folded, namer) for folded in node.folds]
    return found


def _derivation(derivation: Derivation, namer: Namer) -> Json:
    return {
        "rule": derivation.plan.id,
        "text": derivation.plan.text,
        "substitution": substitution(derivation.binding, namer),
        "steps": [step_json(step, namer) for step in derivation.steps],
    }


def substitution(binding: Iterable[tuple[str, Term]], namer: Namer) -> Json:
    return {written_name(name): namer.value(term) for name, term in binding}


def step_json(step: Step, namer: Namer) -> Json:
    match step:
        case Child():
            return {"kind": "tuple", "node": namer.id(step.key)}
        case Absent():
            return {"kind": "absent", "pattern": f"!{namer.atom(step.relation, step.pattern)}"}
        case Checked():
            return {
                "kind": "condition",
                "text": format_literal(plain(step.literal)),
                "holds": format_literal(filled(step, namer)),
                **(
                    {"aggregates": [_folded(one, namer) for one in step.aggregates]}
                    if step.aggregates
                    else {}
                ),
            }


def _folded(folded: Folded, namer: Namer) -> Json:
    found: Json = {"function": folded.function}
    if folded.text is not None:
        found["text"] = format_term(plain_term(folded.text))
    if folded.column is not None:
        found["column"] = folded.column
    return {
        **found,
        "value": namer.value(folded.value),
        "count": folded.count,
        "contributions": [_contribution(one, namer) for one in folded.contributions],
    }


def _contribution(one: Contribution, namer: Namer) -> Json:
    found: Json = {} if one.value is None else {"value": namer.value(one.value)}
    if one.fact:
        return {**found, "weight": one.fact}
    if one.plan is not None:
        found |= {"rule": one.plan.id, "text": one.plan.text}
    found["substitution"] = substitution(one.binding, namer)
    if one.steps:
        found["steps"] = [step_json(step, namer) for step in one.steps]
    return found


def plain(literal: Comparison) -> Comparison:
    """The literal with the names of its variables as a text has them."""
    return replace(literal, left=plain_term(literal.left), right=plain_term(literal.right))


def plain_term(term: SyntaxTerm) -> SyntaxTerm:
    def change(node: Any) -> Any:
        if isinstance(node, Variable):
            return Variable(written_name(node.name))
        return rebuilt(node, change)

    changed: SyntaxTerm = change(term)
    return changed


def filled(step: Checked, namer: Namer) -> Comparison:
    """The literal with values in the place of variables and aggregates."""
    values = {name: term for name, term in step.binding if not isinstance(term, str)}
    aggregates = {one.text: one.value for one in step.aggregates}

    def change(node: Any) -> Any:
        if isinstance(node, Aggregate):
            value = aggregates[node]
            assert not isinstance(value, str)
            return namer.constant(*value)
        if isinstance(node, Variable) and node.name in values:
            return namer.constant(*values[node.name])
        return rebuilt(node, change)

    return replace(step.literal, left=change(step.literal.left), right=change(step.literal.right))


# ---- text


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a tree: how deep it stands, its text, and what it is: a node's kind, `absent`, `condition`, `again`,
    `fold`, `more` or `rule`. node: the id of the tuple that it is about, which can be asked for."""

    depth: int
    text: str
    kind: str
    node: str | None = None


_REMARKS = {
    "open": "not followed; ask for this tuple",
    "withheld": "derived from relations that you may not read",
    "iterated": "the value on which the recursive aggregate has settled; there is no proof from lower heights",
    "unsettled": "its height is unknown, and no proof was found within the limits of the search",
}


def lines(found: Json) -> list[Line]:
    """A document as the lines of a tree. A tuple is followed where it comes first; later it is only named."""
    made: list[Line] = []
    seen: set[str] = set()
    _node_lines(found["nodes"], found["root"], 0, seen, made)
    return made


def as_text(found: Json) -> str:
    """The same as plain text."""
    return "\n".join("  " * line.depth + line.text for line in lines(found)) + "\n"


def _node_lines(nodes: Json, id_: str, depth: int, seen: set[str], made: list[Line]) -> None:
    node = nodes.get(id_, {"kind": "open"})
    kind = node["kind"]
    if id_ in seen and kind not in ("fact", "open"):
        made.append(Line(depth, f"{id_}  (see above)", "again", id_))
        return
    seen.add(id_)
    if kind == "fact":
        weight = "" if node["weight"] == 1 else f", weight {node['weight']}"
        made.append(Line(depth, f"{id_}  (fact{weight}{origin_text(node)})", kind, id_))
    elif kind == "holds":
        made.append(Line(depth, id_, kind, id_))
    elif kind == "rule":
        derivation = node["derivation"]
        made.append(Line(depth, f"{id_}  by {derivation['rule']}: {derivation['text']}", kind, id_))
        step_lines(nodes, derivation["steps"], depth + 1, seen, made)
    else:
        remark = _REMARKS.get(kind)
        made.append(Line(depth, id_ if remark is None else f"{id_}  ({remark})", kind, id_))
    for folded in node.get("folds", ()):
        _fold_lines(nodes, folded, depth + 1, seen, made)


def origin_text(fact: Json) -> str:
    """What is known of where a fact comes from, to be put after what else is said of it; nothing if that is nothing."""
    text = ""
    if fact.get("sources"):
        weights = [
            f"{name}{'' if weight == 1 else f' ({weight})'}" for name, weight in fact["sources"].items()
        ]
        text += f", from {', '.join(weights)}"
    since = fact.get("since")
    if since is not None and not since["exact"]:
        text += f", since epoch {since['epoch']} or before"
    elif since is not None:
        text += f", since epoch {since['epoch']}"
        text += "".join(f", {transaction_text(one)}" for one in since["transactions"] or ())
    return text


def transaction_text(told: Json) -> str:
    """A transaction with who asked for it, and why."""
    text = f"transaction {told['transaction']}"
    for name, word in (("author", "by"), ("source", "for")):
        if told[name] is not None:
            text += f" {word} {told[name]}"
    return text if told["message"] is None else f"{text}: {shown_value(told['message'])}"


def step_lines(nodes: Json, steps: Iterable[Json], depth: int, seen: set[str], made: list[Line]) -> None:
    for step in steps:
        if step["kind"] == "tuple":
            _node_lines(nodes, step["node"], depth, seen, made)
        elif step["kind"] == "absent":
            made.append(Line(depth, f"{step['pattern']}  (nothing found)", "absent"))
        else:
            made.append(Line(depth, _condition(step), "condition"))
            for folded in step.get("aggregates", ()):
                _fold_lines(nodes, folded, depth + 1, seen, made)


def _condition(step: Json) -> str:
    return condition_line(step["text"], step["holds"])


def condition_line(text: str, values: str) -> str:
    """A condition, and what it says with values."""
    return text if text == values else f"{text}  ({values})"


def _fold_lines(nodes: Json, folded: Json, depth: int, seen: set[str], made: list[Line]) -> None:
    one, count = folded["function"], folded["count"]
    of = f" of {count} contribution{'' if count == 1 else 's'}"
    name = folded.get("text", f"{one} in column {folded.get('column', 0) + 1}")
    made.append(Line(depth, f"{name} = {shown_value(folded['value'])}{of}", "fold"))
    for number, each in enumerate(folded["contributions"]):
        value = f"{shown_value(each['value'])}  " if "value" in each else ""
        if "weight" in each:
            made.append(Line(depth + 1, f"{value}(fact, weight {each['weight']}{origin_text(each)})", "rule"))
            continue
        by = f"by {each['rule']}: {each['text']}" if "rule" in each else ""
        where = ", ".join(f"{name} = {shown_value(v)}" for name, v in each["substitution"].items())
        if by or where or value:
            made.append(
                Line(depth + 1, f"{value}{by}{' where ' if by and where else ''}{where}".rstrip(), "rule")
            )
        step_lines(nodes, each.get("steps", ()), depth + 2, seen, made)
        if number + 1 == len(folded["contributions"]) and number + 1 < count:
            made.append(Line(depth + 1, f"and {count - number - 1} more", "more"))


def shown_value(value: Any) -> str:
    kinds = {str: ColumnType.SYMBOL, bool: ColumnType.BOOL, float: ColumnType.FLOAT, int: ColumnType.NUMBER}
    return write_constant(value, kinds[type(value)])


# ---- Mermaid


def as_mermaid(found: Json) -> str:
    """A document as a flow chart, from what is explained to what it rests on."""
    nodes: Json = found["nodes"]
    numbers = {id_: f"n{i}" for i, id_ in enumerate(nodes)}
    made = ["flowchart TD"]
    edges: list[str] = []
    for id_, node in nodes.items():
        number, kind = numbers[id_], node["kind"]
        shape = ("([", "])") if kind == "fact" else ("[/", "/]") if kind == "open" else ("[", "]")
        extra = {"fact": "fact", "rule": "", "fold": "", "open": "not followed"}.get(kind, kind)
        if node.get("derivation"):
            extra = node["derivation"]["rule"]
        if "weight" in node:
            extra = f"{extra}{origin_text(node)}".removeprefix(", ")
        label = f"{id_}<br/>{extra}" if extra else id_
        made.append(f'  {number}{shape[0]}"{_escaped(label)}"{shape[1]}')
        steps = list(node["derivation"]["steps"]) if "derivation" in node else []
        for folded in node.get("folds", ()):
            steps += _all_steps(folded)
        for place, step in enumerate(_flat(steps)):
            if step["kind"] == "tuple":
                edges.append(f"  {number} --> {numbers[step['node']]}")
            else:
                text = step["pattern"] if step["kind"] == "absent" else _condition(step)
                made.append(f'  {number}c{place}{{{{"{_escaped(text)}"}}}}')
                edges.append(f"  {number} -.-> {number}c{place}")
    return "\n".join((*made, *dict.fromkeys(edges))) + "\n"


def _all_steps(folded: Json) -> list[Json]:
    return [step for one in folded["contributions"] for step in one.get("steps", ())]


def _flat(steps: Iterable[Json]) -> Iterator[Json]:
    for step in steps:
        yield step
        for folded in step.get("aggregates", ()):
            yield from _flat(_all_steps(folded))


def _escaped(text: str) -> str:
    entities = {"&": "#amp;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "\n": " "}
    return "<br/>".join(
        "".join(entities.get(letter, letter) for letter in part) for part in text.split("<br/>")
    )
