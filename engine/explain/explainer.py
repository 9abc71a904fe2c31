"""Explanations of one state: why, in which other ways, why not, and why it changed.

In: a source, the relations that may be shown, limits. Out: JSON-ready documents (docs/http.md says what is in them);
`rendering.py` makes text and diagrams of them. Always: nothing is shown that comes from a relation that may not be
shown: a rule that reads one is not followed, and what rests on it alone is `withheld`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.data.values import Value, encode_value, fitted, type_of
from engine.errors import ArityError, UnknownRelationError, shown
from engine.explain.absence import absence
from engine.explain.joins import Bindings
from engine.explain.matching import Matcher
from engine.explain.nodes import Key
from engine.explain.program import Plan, explained, parsed
from engine.explain.proof import SHOWN, Prover
from engine.explain.rendering import Namer, derivations, document
from engine.explain.rendering_absence import absence_document
from engine.explain.repair import Change, Limits, Repairs, Search
from engine.explain.source import Source
from engine.language.inference import infer_schemas
from engine.language.schema import Schema

Json = dict[str, Any]
Fact = tuple[str, list[Value], bool]
"""A relation, the values of a fact, and whether the tuple is there; a fact may only contribute to a fold."""
Origins = Callable[[Sequence[Fact]], Awaitable[Sequence[Mapping[str, Any]]]]
"""For facts, what else is known of each: its sources and transactions, say."""
Try = Callable[[Sequence[tuple[str, list[Value], int]]], Awaitable[bool]]
"""Whether the tuple in question is there after these changes of facts: (relation, tuple, weight)."""
ALLOWANCE = 5_000_000
"""The most tuples that one explanation reads and joins, unless said otherwise."""
SIZE = 200
"""The most tuples that one proof follows, unless said otherwise."""


class Explainer:
    """See the module. shown: how many contributions to an aggregate are listed. One explanation at a time."""

    def __init__(
        self,
        source: Source,
        readable: Collection[str] | None = None,
        allowance: int = ALLOWANCE,
        contributions: int = SHOWN,
        origins: Origins | None = None,
    ) -> None:
        self._source, self._readable, self._shown = source, readable, contributions
        self._matcher = Matcher(source, allowance)
        self._origins = origins
        self._follow(source.schemas)

    def _follow(self, schemas: Mapping[str, Schema]) -> None:
        """Explain by the rules over relations of these schemas."""
        self.program = explained(self._source.rules, schemas)
        self._prover = Prover(self._matcher, self.program, self._readable, self._shown)
        self._namer = Namer(self._matcher, self.program.schemas)

    async def key(self, relation: str, values: Sequence[Value]) -> Key:
        """A tuple as the explanation knows it; a symbol that occurs nowhere is allowed.

        Raises:
            UnknownRelationError, ArityError, TypeMismatchError, InvalidValueError: it does not fit the state.
        """
        schema = self.program.schemas.get(relation)
        if schema is None:
            raise UnknownRelationError(f"there is no relation {shown(relation)}", relation=relation)
        if len(values) != schema.arity:
            raise ArityError(
                f"the relation {schema} has {schema.arity} column{'' if schema.arity == 1 else 's'}, but the tuple has "
                f"{len(values)}",
                relation=relation,
                expected=schema.arity,
                got=len(values),
            )
        if any(column.type is None for column in schema.columns):
            schema = self._typed(schema, values)
        given = [fitted(value, schema, place) for place, value in enumerate(values)]
        await self._matcher.know({value for value in given if isinstance(value, str)})
        return relation, tuple(encode_value(value, self._matcher.symbols) for value in given)

    def _typed(self, schema: Schema, values: Sequence[Value]) -> Schema:
        """The schema of a relation in which nothing has ever been, with the types that it would have with this tuple;
        the rules carry them on to other relations."""
        pairs = zip(schema.columns, values, strict=True)
        typed = replace(
            schema, columns=tuple(replace(c, type=c.type or type_of(value)) for c, value in pairs)
        )
        fixed = {
            name: known
            for name, known in self._source.schemas.items()
            if all(column.type is not None for column in known.columns)
        }
        rules = parsed(self._source.rules)
        inferred = infer_schemas((), {**fixed, schema.relation: typed}, rules, self._source.schemas)
        self._follow({**self._source.schemas, **inferred})
        return self.program.schemas[schema.relation]

    async def holds(self, key: Key) -> bool:
        return await self._prover.state(key) is not None

    async def named(self, key: Key) -> tuple[str, list[Value]]:
        """A tuple as text, and its values as the relation holds them."""
        await self._namer.know(self._namer.terms_of(key))
        return self._namer.id(key), self._values(key)

    async def why(self, key: Key, size: int = SIZE) -> Json:
        """The proof of a tuple that holds."""
        found = await document(await self._prover.prove(key, size), self._namer)
        await self._add_origins(_facts(found["nodes"].values()))
        return {"holds": True, **found}

    async def alternatives(self, key: Key, start: int, limit: int) -> tuple[Json, int | None]:
        """A page of the ways in which a tuple is given, and where the next page starts: its fact, then the instances of
        rules, by rule and substitution. Of a tuple that rules fold these are the contributions to its group."""
        prover = self._prover
        node = await prover.node(key)
        ways: list[tuple[Plan, Bindings]] = []
        plans = prover.plans(key[0])
        for plan in filter(prover.may_show, plans):
            every = await prover.every(plan, key)
            ways += [(plan, every.take(slice(row, row + 1))) for row in await prover.in_order(plan, every)]
        facts: list[Json] = [{"weight": node.weight}] if node.weight else []
        first = max(start - len(facts), 0)
        last = max(start + limit - len(facts), 0)
        page = [await prover.derivation(plan, one) for plan, one in ways[first:last]]
        found = [*facts[start : start + limit], *await derivations(page, self._namer)]
        total = len(facts) + len(ways)
        await self._namer.know(self._namer.terms_of(key))
        fact = key[0], self._values(key), True
        await self._add_origins([(one, fact) for one in facts[start : start + limit]])
        document = {
            "holds": True,
            "root": self._namer.id(key),
            "derivations": found,
            "count": total,
            "withheld": not all(map(prover.may_show, plans)),
        }
        return document, start + limit if start + limit < total else None

    async def why_not(
        self,
        key: Key,
        attempt: Try | None = None,
        limits: Limits | None = None,
        writable: Callable[[str], bool] = lambda _: True,
    ) -> Json:
        """Why a tuple does not hold, and, with a way to try changes, which would make it hold."""
        found = await absence_document(await absence(self._prover, key), self._namer)
        if attempt is not None:
            repairs = await self._repairs(key, attempt, limits or Limits(), writable)
            changes = [change for repair in repairs.found for change in repair]
            await self._namer.know(term for _, one in changes for term in self._namer.terms_of(one))
            found["repairs"] = [self._repair(repair) for repair in repairs.found]
            found["search"] = {"complete": repairs.limit is None, "dry_runs": repairs.tried}
            if repairs.limit is not None:
                found["search"]["limit"] = repairs.limit
        return {"holds": False, **found}

    async def _repairs(
        self, key: Key, attempt: Try, limits: Limits, writable: Callable[[str], bool]
    ) -> Repairs:
        async def tried(changes: Sequence[Change]) -> bool:
            await self._namer.know(term for _, one in changes for term in self._namer.terms_of(one))
            return await attempt([(one[0], self._values(one), weight) for weight, one in changes])

        return await Search(self._prover, key, tried, limits, writable).run()

    def _values(self, key: Key) -> list[Value]:
        return [self._namer.value(term) for term in self._namer.terms_of(key)]

    def _repair(self, changes: Iterable[Change]) -> list[Json]:
        return [
            {
                "change": "add" if weight > 0 else "retract",
                "fact": self._namer.id(key),
                "relation": key[0],
                "tuple": self._values(key),
                "weight": weight,
            }
            for weight, key in changes
        ]

    async def _add_origins(self, facts: Iterable[tuple[Json, Fact]]) -> None:
        """Add what is known of facts to the places that tell their weights."""
        told = list(facts)
        if self._origins is not None and told:
            known = await self._origins([fact for _, fact in told])
            for (place, _), more in zip(told, known, strict=True):
                place.update(more)

    # ---- what two states have in common

    async def weight(self, relation: str, values: Sequence[Value]) -> int | None:
        """The weight of a fact, 0 if it is none; None if the tuple does not fit the state at all."""
        if relation not in self.program.schemas:
            return None
        held = await self._prover.state(await self.key(relation, values))
        return None if held is None else int(held.weights[0])

    async def matching(self, relation: str, bound: Mapping[int, Value], most: int = 3) -> list[str]:
        """The first tuples of a relation, as text, that have these values; none if it does not fit the state."""
        schema = self.program.schemas.get(relation)
        if schema is None or any(place >= schema.arity for place in bound):
            return []
        await self._matcher.know({value for value in bound.values() if isinstance(value, str)})
        among = {
            place: np.array([encode_value(value, self._matcher.symbols)], np.int64)
            for place, value in bound.items()
        }
        held = await self._matcher.held(relation, among)
        keys = [(relation, tuple(codes)) for codes in held.codes[:most].tolist()]
        await self._namer.know(term for key in keys for term in self._namer.terms_of(key))
        return [self._namer.id(key) for key in keys]

    def rules(self) -> set[str]:
        """The ids of the rules."""
        return {plan.id for plans in self.program.plans.values() for plan in plans}


def _facts(nodes: Iterable[Json]) -> Iterator[tuple[Json, Fact]]:
    """The places of a proof that tell the weight of a fact: a node, or a contribution to the fold of one, which differs
    from it in the folded column."""
    for node in nodes:
        relation, values = node["relation"], node["tuple"]
        if "weight" in node:
            yield node, (relation, values, True)
        for folded in node.get("folds", ()):
            for one in folded["contributions"]:
                if "weight" in one:
                    column = folded["column"]
                    row = [*values[:column], one["value"], *values[column + 1 :]]
                    yield one, (relation, row, row == values)
