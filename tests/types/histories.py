"""Random histories in which the types of columns change: by facts, by rules and by declarations.

`history(seed)` yields transactions. Relations are undeclared most of the time, and hold symbols and numbers in turn;
some rules only fit the one, and some the other. `State` says what a transaction should leave, without knowing anything
of types: sums of weights. Whether the sum can be a state at all, a fresh reasoner says.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from engine.data.transaction import Transaction
from engine.data.values import Tuple

RULES = (
    "b(x) :- a(x, _).",
    "b(y) :- f(_, y).",
    "c(x, y) :- a(x, y), !b(y).",
    "c(x, z) :- c(x, y), f(y, z).",
    "d(x) :- a(x, y), x > y.",
    "d(x) :- b(x), !f(x, _).",
    "m(x, count(y)) :- c(x, y).",
    "m(x, n) :- b(x), n = count : { f(_, x) }.",
    "lo(x, min(y)) :- a(x, y).",
    "lo(z, min(y)) :- lo(x, y), f(x, z).",
    "b(n) :- f(s, _), n = to_number(s).",
    "a(x, y) :- f(x, y), x != y.",
    "e(x + 1) :- d(x).",
    'e(cat(x, "!")) :- d(x).',
    "b(1) :- go().",
    'b("p") :- go().',
    "b(x, y) :- f(x, y).",
    "t(sum(y)) :- f(_, y).",
    "s(x, n) :- b(x), n = sum y : { f(x, y) }.",
    "w(x, n) :- n = max y : { f(x, y) }.",
    'u(x) :- b(x), match("[0-9]", x).',
    "v(x) :- b(n), x = range(0, n).",
)
DECLARATIONS = {
    "a": (".decl a(x: symbol, y: symbol)", ".decl a(x: number, y: number)"),
    "b": (".decl b(x: symbol)", ".decl b(x: number)"),
}
VALUES: tuple[tuple[Any, ...], ...] = (("1", "2", "3"), (1, 2, 3))
ARITIES = {"a": (2,), "f": (2,), "b": (1, 1, 2), "go": (0,)}

Facts = dict[str, list[tuple[Tuple, int]]]


@dataclass
class State:
    """What is asserted: tuples and rules with weights, and declarations by relation."""

    facts: dict[str, dict[Tuple, int]] = field(default_factory=dict)
    rules: dict[str, int] = field(default_factory=dict)
    declarations: dict[str, str] = field(default_factory=dict)

    def after(self, change: dict[str, Any]) -> State | None:
        """The state that a transaction leads to; None where a weight would be below zero."""
        facts = {name: dict(held) for name, held in self.facts.items()}
        rules = dict(self.rules)
        sums = change["mode"] == "zset"

        def put(weights: dict[Any, int], what: Any, weight: int) -> None:
            held = weights.get(what, 0)
            weights[what] = held + weight if sums else max(held, 1) if weight > 0 else 0

        for name, tuples in change["facts"].items():
            for values, weight in tuples:
                put(facts.setdefault(name, {}), values, weight)
        for text, weight in change["rules"]:
            put(rules, text, weight)
        declarations = {n: t for n, t in self.declarations.items() if n not in change["undeclare"]}
        declarations |= {
            n: t for n, texts in DECLARATIONS.items() for t in texts if t in change["declarations"]
        }
        weights = [*rules.values(), *(w for held in facts.values() for w in held.values())]
        if min(weights, default=0) < 0:
            return None
        facts = {n: {t: w for t, w in held.items() if w} for n, held in facts.items()}
        return State(facts, {t: w for t, w in rules.items() if w}, declarations)

    def whole(self) -> dict[str, Any]:
        """All of it as one transaction."""
        facts = {name: list(held.items()) for name, held in self.facts.items() if held}
        text = "\n".join(self.declarations.values())
        return {"facts": facts, "rules": list(self.rules.items()), "declarations": text}

    def nothing(self) -> dict[str, Any]:
        """All of it taken back, as one transaction."""
        facts = {name: [(t, -w) for t, w in held.items()] for name, held in self.facts.items() if held}
        rules = [(text, -weight) for text, weight in self.rules.items()]
        return {"facts": facts, "rules": rules, "undeclare": list(self.declarations)}


def as_transaction(change: dict[str, Any]) -> Transaction:
    """The same as a client sends it."""
    return Transaction.parse(
        facts=[
            {"relation": name, "tuples": [list(values)], "weight": weight}
            for name, tuples in change["facts"].items()
            for values, weight in tuples
        ],
        rules=[{"rule": text, "weight": weight} for text, weight in change["rules"]],
        declarations=change["declarations"],
        undeclare=change["undeclare"],
        mode=change["mode"],
    )


class History:
    """Transactions for a state that the caller keeps: `state` is read anew for each."""

    def __init__(self, seed: int) -> None:
        self.state = State()
        self._random = random.Random(seed)

    def transactions(self, number: int) -> Iterator[dict[str, Any]]:
        for _ in range(number):
            yield self._transaction()

    def _transaction(self) -> dict[str, Any]:
        chance, state = self._random, self.state
        facts: Facts = {}
        for name in chance.sample(sorted(ARITIES), chance.choice((1, 1, 2))):
            held = state.facts.get(name, {})
            if held and chance.random() < 0.4:
                # All of it goes, and perhaps something else comes.
                facts.setdefault(name, []).extend((values, -weight) for values, weight in held.items())
            elif held and chance.random() < 0.5:
                facts.setdefault(name, []).append((chance.choice(sorted(held, key=str)), -1))
            if chance.random() < 0.6:
                own = chance.choice(VALUES)
                arity = chance.choice(ARITIES[name])
                for _ in range(chance.choice((1, 2, 3))):
                    values = tuple(chance.choice(own) for _ in range(arity))
                    facts.setdefault(name, []).append((values, chance.choice((1, 1, 1, 1, -1))))
            if name in facts:
                chance.shuffle(facts[name])
        rules: list[tuple[str, int]] = []
        if chance.random() < 0.4:
            if state.rules and chance.random() < 0.5:
                rules.append((chance.choice(sorted(state.rules)), -1))
            if chance.random() < 0.7:
                rules.append((chance.choice(RULES), 1))
        undeclare: list[str] = []
        declarations: list[str] = []
        if chance.random() < 0.15:
            name = chance.choice(sorted(DECLARATIONS))
            if name in state.declarations:
                undeclare.append(name)
            if name not in state.declarations or chance.random() < 0.5:
                declarations.append(chance.choice(DECLARATIONS[name]))
        change = {
            "facts": facts,
            "rules": rules,
            "declarations": "\n".join(declarations),
            "undeclare": undeclare,
            "mode": chance.choice(("zset", "zset", "zset", "set")),
        }
        after = state.after(change)
        if after is not None:
            # Tuples of a wrong type are refused also where they come to nothing; here they are left out.
            change["facts"] = {
                name: [
                    (values, weight)
                    for values, weight in tuples
                    if values in after.facts[name] or values in state.facts.get(name, {})
                ]
                for name, tuples in facts.items()
            }
        return change
