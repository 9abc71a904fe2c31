"""Why a tuple holds: a proof of least height.

In: a tuple, as codes. Out: a `Proof`: for each tuple that it needs what it rests on, each tuple once. Always: a step is
an instance of a rule whose body holds in the state; a tuple of a recursive stratum rests only on tuples of lower
height, so no tuple rests on itself; the same state gives the same proof.

A tuple of height h has an instance of a rule whose recursive body is below h (the height is one more than the largest
of its body), so the proof is found by descending, without search. Of the instances that fit, the one of the smallest
rule id is taken, and of that rule the smallest binding by the order of values. Where the state has no heights, or where
a recursive min or max has settled in another order than that of the last values, the heights are found by ranks.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import TypeAlias

import numpy as np

from engine.data.codes import Codes
from engine.data.values import Value
from engine.explain.folding import fold, result_type
from engine.explain.instances import (
    known_values,
    pattern,
    recursive_aggregates,
    shown_binding,
    takes_facts,
    unified,
)
from engine.explain.joins import Bindings, distinct, joined
from engine.explain.matching import Below, Matcher
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
    children,
)
from engine.explain.program import IN_PLACE, Folds, Plan, Program
from engine.explain.ranks import Option, rank
from engine.explain.source import Held
from engine.language.schema import Column, ColumnType
from engine.language.syntax import (
    Aggregate,
    Atom,
    Comparison,
    Constant,
    Literal,
    Negation,
    Variable,
    names_of,
    names_outside,
    walk_outside,
)
from engine.language.witnesses import is_copied

Way: TypeAlias = tuple[Plan | None, Bindings]
"""A rule with one binding, or without a rule: the tuple is a fact."""
SHOWN = 10
"""How many contributions to an aggregate are shown, unless asked otherwise."""
# Bindings among which the smallest is looked for; beyond, the first ones by their codes are taken.
_COMPARED = 20_000


class Prover:
    """Explains tuples of one source.

    readable: the relations that may be shown; None: all. shown: how many contributions of an aggregate are listed.
    """

    def __init__(
        self,
        matcher: Matcher,
        program: Program,
        readable: Collection[str] | None = None,
        shown: int = SHOWN,
    ) -> None:
        self.matcher, self.program = matcher, program
        self.readable, self.shown = readable, shown
        # What ranks.py found, for tuples whose heights do not descend; it was given up if there was too much.
        self._ranks: dict[Key, Way | None] = {}
        self._exhausted = False
        self._left_out = False
        self._searched = False
        self._by_rank: set[frozenset[str]] = set()

    def may_show(self, plan: Plan) -> bool:
        """Whether the rule reads only what may be shown."""
        return self.readable is None or plan.reads <= set(self.readable)

    def plans(self, relation: str) -> tuple[Plan, ...]:
        return self.program.plans.get(relation, ())

    async def state(self, key: Key) -> Held | None:
        """The tuple as it is held; None if it is not there."""
        relation, codes = key
        among = {column: np.array([code], np.int64) for column, code in enumerate(codes)}
        held = await self.matcher.held(relation, among)
        return held if len(held) else None

    async def prove(self, root: Key, size: int) -> Proof:
        """The proof of a tuple that is there, of at most `size` tuples; the others stay open."""
        while True:
            self._searched = False
            proof = await self._follow(root, size)
            turned = _cycle(proof) if self._searched else None
            if turned is None:
                return proof
            # Heights and ranks do not go together here: from now on this stratum has ranks alone.
            self._by_rank.add(self.program.stratum(turned[0]))

    async def _follow(self, root: Key, size: int) -> Proof:
        proof = Proof(root)
        waiting = deque([root])
        while waiting:
            key = waiting.popleft()
            if key in proof.nodes:
                continue
            node = Node(key, "open") if len(proof.nodes) >= size else await self.node(key)
            proof.nodes[key] = node
            if node.kind != "iterated":
                waiting.extend(children(node))
        for key in [child for node in proof.nodes.values() for child in children(node)]:
            proof.nodes.setdefault(key, Node(key, "open"))
        return proof

    async def node(self, key: Key) -> Node:
        """One tuple, and what it rests on."""
        held = await self.state(key)
        assert held is not None, "what a proof needs is there"
        node = Node(key, "open", int(held.weights[0]), bool(held.derived[0]), int(held.heights[0]))
        folds = self.program.folded(key[0])
        if node.weight and not any(map(takes_facts, folds)):
            node.kind = "fact"
            return node
        await self._explain(node, folds)
        return node

    async def _explain(self, node: Node, folds: Sequence[Folds]) -> None:
        relation = node.key[0]
        stratum = self.program.stratum(relation)
        plans = [plan for plan in self.plans(relation) if not plan.folds]
        below = Below(stratum, node.height) if stratum else None
        if below is None or (node.height and stratum not in self._by_rank):
            for plan in plans:
                if self.may_show(plan):
                    found = await self.smallest(plan, node.key, below)
                    if found is not None:
                        node.kind, node.derivations = "rule", (found,)
                        return
            for way in folds:
                if await self._fold(node, way, below):
                    return
        if node.weight:
            node.kind = "fact"
        elif not all(self.may_show(plan) for plan in self.plans(relation)):
            node.kind = "withheld"
        else:
            await self._ranked(node, folds)

    async def _ranked(self, node: Node, folds: Sequence[Folds]) -> None:
        """For a tuple without an instance below its height."""
        if node.key not in self._ranks and not self._exhausted:
            ranks = await rank(node.key, self._options)
            self._ranks |= ranks or {}
            self._exhausted = ranks is None
        found = self._ranks.get(node.key)
        if found is not None:
            node.searched = self._searched = True
            plan, one = found
            if plan is not None and not plan.folds:
                node.kind, node.derivations = "rule", (await self.derivation(plan, one),)
                return
            way = next(way for way in folds if takes_facts(way) and (plan is None or plan.folds == way))
            column = way[0][0]
            value = (node.key[1][column], self.program.schemas[node.key[0]].columns[column].type)
            deciding = Contribution(value, (), fact=node.weight)
            if plan is not None:
                made = await self.derivation(plan, one)
                deciding = Contribution(value, made.binding, made.steps, plan)
            node.kind, node.folds = "fold", (await self._in_place(node.key, way, deciding),)
        elif node.key not in self._ranks or (
            self._left_out and (not node.height or self.program.stratum(node.key[0]) in self._by_rank)
        ):
            node.kind = "unsettled"
        else:
            node.kind = "iterated"
            for way in folds:
                node.folds = node.folds or await self._folded(node.key, way, None)

    async def _options(self, key: Key) -> list[Option[Key, Way]]:
        """The instances of rules that give a tuple of a recursive stratum, and the tuples of the stratum that each
        needs. Folds over several contributions and aggregates over the stratum are left out: what they need depends on
        the heights."""
        held = await self.state(key)
        if held is None:
            return []
        if held.weights[0]:
            return [Option((None, Bindings(1, {})), frozenset())]
        stratum = self.program.stratum(key[0])
        found: list[Option[Key, Way]] = []
        for plan in self.plans(key[0]):
            left_out = (plan.folds and not takes_facts(plan.folds)) or any(
                recursive_aggregates(plan.body, stratum)
            )
            self._left_out |= bool(left_out)
            if left_out or not self.may_show(plan):
                continue
            every = joined(await self.instances(plan, key))
            for row in await self.in_order(plan, every):
                one = every.take(slice(row, row + 1))
                needs = frozenset(
                    (literal.relation, self.instantiated(literal, one))
                    for literal in plan.body
                    if isinstance(literal, Atom) and literal.relation in stratum
                )
                found.append(Option((plan, one), needs))
        return found

    # ---- instances of rules

    async def instances(
        self, plan: Plan, key: Key, below: Below | None = None, folded: bool = True
    ) -> list[Bindings]:
        """The bindings with which a rule gives a tuple. folded: the folded columns have the tuple's values, too."""
        await self.matcher.learn(plan)
        given = unified(plan, key[1], self.matcher, folded=folded)
        if given is None:
            return []
        return [part async for part in self.matcher.solve(plan, plan.body, given, below)]

    async def every(self, plan: Plan, key: Key) -> Bindings:
        """The instances of a rule that give a tuple; of a rule that folds, all contributions to its group."""
        return await self._contributions(plan, key) if plan.folds else joined(await self.instances(plan, key))

    async def smallest(self, plan: Plan, key: Key, below: Below | None) -> Derivation | None:
        """The instance with the smallest binding by the order of values."""
        await self.matcher.learn(plan)
        given = unified(plan, key[1], self.matcher, folded=True)
        if given is None:
            return None
        parts, total = [], 0
        async for part in self.matcher.solve(plan, plan.body, given, below):
            parts.append(part)
            total += part.n
            if total >= _COMPARED:
                break
        found = joined(parts)
        if not found.n:
            return None
        for row in [0] if found.n == 1 else await self.in_order(plan, found):
            one = found.take(slice(row, row + 1))
            if below is None or await self._descends(plan, one, below):
                return await self.derivation(plan, one, below)
        return None

    async def _descends(self, plan: Plan, one: Bindings, below: Below) -> bool:
        """Whether the aggregates of a body that read the relations of `below` have their values by what is below: a min
        or max by one contribution, others by all."""
        for node in recursive_aggregates(plan.body, below.relations):
            if any(recursive_aggregates(node.body, below.relations)):
                return False
            _, values = await self.matcher.contributions(plan, node, one, plan.scope)
            _, lower = await self.matcher.contributions(plan, node, one, plan.scope, below)
            kind = result_type(node, plan.types, folded=True)
            if len(lower) < len(values) and (
                node.function not in IN_PLACE or fold(node.function, values, kind) not in lower
            ):
                return False
        return True

    async def in_order(self, plan: Plan, found: Bindings) -> list[int]:
        """The numbers of bindings in the order of their values, by the variables in the order of the text."""
        names = [name for name in plan.names if name in found.columns]
        if not names:
            return list(range(found.n))
        rows = await self.values(plan, found, names)
        return sorted(range(found.n), key=rows.__getitem__)

    async def values(self, plan: Plan, found: Bindings, names: Sequence[str]) -> list[tuple[Value, ...]]:
        columns = [Column(name, plan.types[name]) for name in names]
        codes = np.column_stack([found.columns[name] for name in names])
        return await self.matcher.source.decode(codes, columns, self.matcher.new_symbols)

    async def derivation(self, plan: Plan, one: Bindings, below: Below | None = None) -> Derivation:
        steps = await self.steps(plan, plan.body, one, plan.scope, below)
        return Derivation(plan, shown_binding(plan, one), steps)

    async def steps(
        self,
        plan: Plan,
        body: Sequence[Literal],
        one: Bindings,
        scope: frozenset[str],
        below: Below | None = None,
    ) -> tuple[Step, ...]:
        """The literals of a body under one binding, without what only this package has added. below: what aggregates
        that read these relations may rest on."""
        steps: list[Step] = []
        for literal in body:
            match literal:
                case Atom():
                    if not literal.relation.startswith("@"):
                        steps.append(Child((literal.relation, self.instantiated(literal, one))))
                case Negation():
                    steps.append(
                        Absent(literal.atom.relation, pattern(literal.atom, one, plan, self.matcher))
                    )
                case Comparison():
                    inside = [node for node in walk_outside(literal) if isinstance(node, Aggregate)]
                    made = any(
                        isinstance(side, Variable) and (side.name.startswith("@") or is_copied(side.name))
                        for side in (literal.left, literal.right)
                    )
                    if inside or not made:
                        folded = [await self.aggregate(plan, one, node, scope, below) for node in inside]
                        steps.append(Checked(literal, known_values(plan, one), tuple(folded)))
        return tuple(steps)

    def instantiated(self, atom: Atom, one: Bindings) -> tuple[int, ...]:
        return tuple(
            self.matcher.code(term) if isinstance(term, Constant) else int(one.columns[term.name][0])  # type: ignore[union-attr]  # program.py leaves variables and constants
            for term in atom.terms
        )

    # ---- aggregates

    async def aggregate(
        self,
        plan: Plan,
        one: Bindings,
        aggregate: Aggregate,
        scope: frozenset[str],
        below: Below | None = None,
    ) -> Folded:
        """An aggregate of a body, with its first contributions. Of a min or max that reads relations of `below`, a
        contribution from below that decides comes first, and only its steps are part of the proof."""
        found, values = await self.matcher.contributions(plan, aggregate, one, scope)
        kind = result_type(aggregate, plan.types, folded=True)
        code = fold(aggregate.function, values, kind)
        assert code is not None, "an aggregate that holds has a value"
        inner = scope | names_outside(*aggregate.body)
        names = tuple(dict.fromkeys(n for n in _ordered(aggregate, found) if n not in one.columns))
        decides = (
            below is not None
            and aggregate.function in IN_PLACE
            and any(recursive_aggregates([Comparison("=", aggregate, aggregate)], below.relations))
        )
        listed = []
        if decides:
            lower, given = await self.matcher.contributions(plan, aggregate, one, scope, below)
            deciding = np.flatnonzero(given == code)
            row = (
                await self._first(
                    plan, lower.take(deciding), given[deciding], kind, aggregate.function, names
                )
            )[0]
            listed.append((lower.take(slice(int(deciding[row]), int(deciding[row]) + 1)), int(code), True))
        for row in await self._first(plan, found, values, kind, aggregate.function, names):
            each = found.take(slice(row, row + 1))
            if not (decides and each.row(0) == listed[0][0].row(0)):
                listed.append((each, int(values[row]), not decides))
        around = {n: c for n, c in one.columns.items() if n in scope}
        shown = []
        for each, given_value, followed in listed[: self.shown]:
            binding = Bindings(1, {**around, **each.columns})
            shown.append(
                Contribution(
                    None if aggregate.argument is None else (given_value, kind),
                    tuple(
                        (n, (int(each.columns[n][0]), plan.types.get(n)))
                        for n in names
                        if not n.startswith("@")
                    ),
                    await self.steps(plan, aggregate.body, binding, frozenset(inner), below)
                    if followed
                    else (),
                )
            )
        value = (code, result_type(aggregate, plan.types))
        return Folded(aggregate.function, aggregate, None, value, found.n, tuple(shown))

    async def _first(
        self,
        plan: Plan,
        found: Bindings,
        values: Codes,
        kind: ColumnType | None,
        function: str,
        names: Sequence[str],
    ) -> list[int]:
        """The numbers of the contributions that are listed: of a min or max those of its value first, then in the order
        of the values of their variables."""
        if not found.n:
            return []
        wanted = [name for name in names if name in found.columns]
        best = fold(function, values, kind) if function in IN_PLACE else None
        candidates = np.arange(found.n)
        if best is not None and found.n > _COMPARED:
            candidates = np.flatnonzero(values == best)
        candidates = candidates[:_COMPARED]
        rows = await self.values(plan, found.take(candidates), wanted) if wanted else [()] * len(candidates)
        order = sorted(
            range(len(candidates)),
            key=lambda i: (best is not None and values[candidates[i]] != best, rows[i]),
        )
        return [int(candidates[i]) for i in order[: self.shown]]

    async def _fold(self, node: Node, way: Folds, below: Below | None) -> bool:
        """Explain a tuple by the contributions to its group, as far as they are below; whether that is so."""
        if not all(self.may_show(plan) for plan in self._of(node.key[0], way)):
            return False
        if len(way) == 1 and way[0][1] in IN_PLACE:
            deciding = await self._deciding(node, way, below)
            if deciding is None:
                return False
            node.kind, node.folds = "fold", (await self._in_place(node.key, way, deciding),)
            return True
        folds = await self._folded(node.key, way, below)
        if not folds:
            return False
        node.kind, node.folds = "fold", folds
        return True

    def _of(self, relation: str, way: Folds) -> list[Plan]:
        return [plan for plan in self.plans(relation) if plan.folds == way]

    async def _deciding(self, node: Node, way: Folds, below: Below | None) -> Contribution | None:
        """The contribution that a min or max takes its value from: the fact itself, or a binding of lower height."""
        column = way[0][0]
        value = (node.key[1][column], self.program.schemas[node.key[0]].columns[column].type)
        if node.weight:
            return Contribution(value, (), fact=node.weight)
        for plan in self._of(node.key[0], way):
            found = await self.smallest(plan, node.key, below)
            if found is not None:
                return Contribution(value, found.binding, found.steps, plan)
        return None

    async def _in_place(self, key: Key, way: Folds, deciding: Contribution) -> Folded:
        """A min or max: the contribution that decides, then others, by their values."""
        (column, function), (relation, codes) = way[0], key
        kind = self.program.schemas[relation].columns[column].type
        others: list[Contribution] = []
        count = 0
        group = {i: np.array([code], np.int64) for i, code in enumerate(codes) if i != column}
        facts = await self.matcher.held(relation, group, hidden=True)
        facts = facts.where(facts.weights != 0)
        for row in range(len(facts)):
            count += 1
            if not (deciding.fact and int(facts.codes[row, column]) == codes[column]):
                others.append(
                    Contribution((int(facts.codes[row, column]), kind), (), fact=int(facts.weights[row]))
                )
        for plan in self._of(relation, way):
            found = await self._contributions(plan, key)
            count += found.n
            if not found.n:
                continue
            values = self._column(plan, found, column)
            for row in await self._first(plan, found, values, kind, function, plan.names):
                binding = shown_binding(plan, found.take(slice(row, row + 1)))
                if not (plan is deciding.plan and binding == deciding.binding):
                    others.append(Contribution((int(values[row]), kind), binding, plan=plan))
        listed = (deciding, *others[: max(self.shown - 1, 0)])
        return Folded(function, None, column, (codes[column], kind), count, listed)

    async def _folded(self, key: Key, way: Folds, below: Below | None) -> tuple[Folded, ...]:
        """The folds of a group, with all of its contributions counted. Empty unless they give the tuple's values and,
        with `below`, rest on nothing that is not below."""
        relation, codes = key
        columns = self.program.schemas[relation].columns
        gathered: list[tuple[Plan, Bindings]] = []
        for plan in self._of(relation, way):
            found = await self._contributions(plan, key)
            if found.n and below is not None and (await self._contributions(plan, key, below)).n < found.n:
                return ()
            if below is not None and any(recursive_aggregates(plan.body, below.relations)):
                rows = [found.take(slice(row, row + 1)) for row in range(found.n)]
                if not all([await self._descends(plan, one, below) for one in rows]):
                    return ()
            if found.n:
                gathered.append((plan, found))
        folds = []
        for column, function in way:
            values = [self._column(plan, found, column) for plan, found in gathered]
            kind = gathered[0][0].types.get(_head_name(gathered[0][0], column)) if gathered else None
            every = np.concatenate(values) if values else np.empty(0, np.int64)
            result = fold(function, every, kind)
            if below is not None and result != codes[column]:
                return ()
            listed: list[Contribution] = []
            for (plan, found), own in zip(gathered, values, strict=True):
                for row in await self._first(plan, found, own, kind, function, plan.names):
                    one = found.take(slice(row, row + 1))
                    listed.append(
                        Contribution(
                            (int(own[row]), kind),
                            shown_binding(plan, one),
                            await self.steps(plan, plan.body, one, plan.scope, below),
                            plan,
                        )
                    )
            value = (codes[column], columns[column].type)
            folds.append(Folded(function, None, column, value, len(every), tuple(listed[: self.shown])))
        return tuple(folds) if gathered else ()

    async def _contributions(self, plan: Plan, key: Key, below: Below | None = None) -> Bindings:
        """The distinct bindings that contribute to the group of a tuple. What witnesses of an aggregate were bound with
        (engine/language/witnesses.py) makes no difference between bindings."""
        found = joined(await self.instances(plan, key, below, folded=False))
        return distinct(found, [name for name in found.columns if not is_copied(name)])

    def _column(self, plan: Plan, found: Bindings, column: int) -> Codes:
        """The values that bindings contribute to a folded column."""
        term = plan.head.terms[column]
        if isinstance(term, Constant):
            return np.full(found.n, self.matcher.code(term), np.int64)
        return found.columns[_head_name(plan, column)]


def _head_name(plan: Plan, column: int) -> str:
    term = plan.head.terms[column]
    assert isinstance(term, Variable), "what is folded is a variable"
    return term.name


def _ordered(aggregate: Aggregate, found: Bindings) -> list[str]:
    """The variables of an aggregate that are bound, in the order of its text."""
    names = [
        node.name
        for literal in aggregate.body
        for node in walk_outside(literal)
        if isinstance(node, Variable) and node.name in found.columns
    ]
    return names or sorted(found.columns.keys() & names_of(aggregate))


def _cycle(proof: Proof) -> Key | None:
    """A tuple that rests on itself."""
    graph = {
        key: () if node.kind == "iterated" else tuple(children(node)) for key, node in proof.nodes.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: Key = error.args[1][0]
        return found
    return None
