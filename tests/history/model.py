"""Random transactions with and without sources, and a model that only knows sums of weights.

The model's state: what each source, and `None` for everything without a source, gives to each tuple. It says which
transactions must be refused, and what the relations and the sources hold after the others.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from engine.data.transaction import Transaction

ROWS: dict[str, list[tuple[Any, ...]]] = {
    "edge": [(a, b) for a in "abc" for b in "abc"],
    "age": [(name, n) for name in "abc" for n in (1, 2)],
    "go": [()],
}
RULES = (
    "tc(x, y) :- edge(x, y).",
    "tc(x, z) :- tc(x, y), edge(y, z).",
    "old(x) :- age(x, n), n > 1.",
    "far(x, y) :- tc(x, y), !edge(x, y), go().",
    "oldest(x, max(n)) :- age(x, n).",
    # Facts and derived tuples in one relation.
    "edge(y, x) :- edge(x, y), go().",
)
SOURCES = ("hr", "crm", "a b-c")
Weights = Counter[tuple[Any, ...]]
Parts = dict[tuple[str, str | None], Weights]


@dataclass
class Model:
    """What each source gives to each relation, and the weights of rules."""

    parts: Parts = field(default_factory=dict)
    rules: Counter[str] = field(default_factory=Counter)

    def copy(self) -> Model:
        return Model({key: Counter(part) for key, part in self.parts.items()}, Counter(self.rules))

    def part(self, relation: str, source: str | None) -> Weights:
        return self.parts.setdefault((relation, source), Counter())

    def total(self, relation: str) -> Weights:
        """The weights of a relation."""
        total: Weights = Counter()
        for (name, _), part in self.parts.items():
            if name == relation:
                total.update(part)
        return _positive(total)

    def of_source(self, relation: str, source: str) -> Weights:
        return _positive(self.part(relation, source))

    def after(self, body: dict[str, Any]) -> Model | None:
        """The state after a transaction; None if it must be refused."""
        new, source, mode = self.copy(), body.get("source"), body.get("mode", "zset")
        if body.get("replaces"):
            named = {change["relation"] for change in body["facts"]}
            for relation, known in [*new.parts]:
                if known == source and (body["replaces"] == "source" or relation in named):
                    new.parts[relation, known].clear()
        for change in body.get("facts", ()):
            part = new.part(change["relation"], source)
            for row in map(tuple, change["tuples"]):
                weight = change.get("weight", 1)
                if mode == "zset":
                    part[row] += weight
                elif weight > 0:
                    # Without a source, what anyone asserts is there already.
                    there = part[row] if source is not None else new.total(change["relation"])[row]
                    part[row] += 0 if there else 1
                elif source is not None:
                    part[row] = 0
                else:
                    part[row] -= new.total(change["relation"])[row]
        for rule in body.get("rules", ()):
            new.rules[rule["rule"]] += rule["weight"]
        if any(weight < 0 for part in (*new.parts.values(), new.rules) for weight in part.values()):
            return None
        return new


def _positive(weights: Weights) -> Weights:
    return Counter({row: weight for row, weight in weights.items() if weight})


def random_body(rng: random.Random) -> dict[str, Any]:
    """The body of a transaction, for `Transaction.parse`; often one that is refused."""
    body: dict[str, Any] = {"mode": rng.choice(("zset", "zset", "set"))}
    if rng.random() < 0.75:
        body["source"] = rng.choice(SOURCES)
        if rng.random() < 0.3:
            body["replaces"] = rng.choice(("source", "relations"))
    facts = []
    for relation in rng.sample(sorted(ROWS), rng.randint(0 if body.get("replaces") else 1, 2)):
        rows = rng.choices(ROWS[relation], k=rng.randint(0 if body.get("replaces") else 1, 4))
        weight = 1 if body.get("replaces") else rng.choice((1, 1, 2, -1, -1))
        facts.append({"relation": relation, "tuples": [list(row) for row in rows], "weight": weight})
    body["facts"] = facts
    if rng.random() < 0.2:
        body["rules"] = [{"rule": rng.choice(RULES), "weight": rng.choice((1, 1, -1))}]
        body["mode"] = "zset"
    return body


def transaction(body: dict[str, Any], **more: Any) -> Transaction:
    return Transaction.parse(**body, **more)
