"""One change, made and taken back by each strategy in turns: the work behind every table of updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.elastic import evaluating, weighted
from benchmarks.engine import Array
from benchmarks.papers.sections import Row, Target
from engine.data.transaction import Strategy
from engine.errors import InvalidRequestError
from zedlog import Reasoner

FIXED = "both are so short that the fixed cost of an epoch shows"


@dataclass(frozen=True, slots=True)
class Change:
    """There and back again: what `Reasoner.apply` is given for each. x: its size, for the plot."""

    name: str
    there: dict[str, Any]
    back: dict[str, Any]
    x: float | None = None
    verbs: tuple[str, str] = ("removed", "added")


def facts_away(name: str, relation: str, rows: Array, x: float | None = None) -> Change:
    return Change(
        name, {"facts": weighted(relation, rows, -1)}, {"facts": weighted(relation, rows, 1)}, x or len(rows)
    )


def rule_away(name: str, rules: Sequence[str]) -> Change:
    return Change(name, {"rules": [(rule, -1) for rule in rules]}, {"rules": [(rule, 1) for rule in rules]})


def compare(
    reasoner: Reasoner, change: Change, strategies: Sequence[Strategy], runs: int, left_out: list[str]
) -> list[Row]:
    """Two rows, there and back. Strategies that refuse the program are named in `left_out`.

    Raises:
        SystemExit: the strategies do not change the same number of tuples.
    """
    seconds: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    counts: dict[str, tuple[dict[str, tuple[int, int]], ...]] = {}
    able = list(strategies)
    # What ran before leaves its traces in the caches: each strategy follows each other one.
    for run in range(runs):
        turn = run % len(able)
        for strategy in [*able[turn:], *able[:turn]]:
            found = []
            try:
                for step, taken in zip((change.there, change.back), seconds, strict=True):
                    with evaluating() as spent:
                        found.append(reasoner.apply(**step, strategy=strategy).counts)
                    taken.setdefault(strategy, []).append(sum(spent))
            except InvalidRequestError as error:
                if strategy != "dred" or found:
                    raise
                able.remove(strategy)
                line = f"DRed: {error}"
                if line not in left_out:
                    left_out.append(line)
                continue
            counts[strategy] = tuple(found)
    if len({str(sorted(told.items())) for both in counts.values() for told in both[:1]}) > 1:
        raise SystemExit(f"{change.name}: the strategies do not agree: {counts}")
    note = _note(next(iter(counts.values()))[0])
    order: dict[str, int] = {name: i for i, name in enumerate(strategies)}
    return [
        Row(
            f"{change.name} {verb}",
            dict(sorted(taken.items(), key=lambda one: order[one[0]])),
            change.x,
            note,
        )
        for verb, taken in zip(change.verbs, seconds, strict=True)
    ]


def _note(counts: dict[str, tuple[int, int]]) -> str:
    inserted, deleted = (sum(pair[i] for pair in counts.values()) for i in (0, 1))
    changed = inserted + deleted
    return f"{changed:,} tuple{'s' * (changed != 1)} change{'s' * (changed == 1)}"


def crossing(rows: Sequence[Row], verb: str, one: str = "update", other: str = "bootstrap") -> str:
    """Until which row `one` is faster than `other`, in words."""
    chosen = [row for row in rows if row.name.endswith(verb) and {one, other} <= row.seconds.keys()]
    ahead = [row for row in chosen if row.median(one) <= row.median(other)]
    if not chosen:
        return ""
    if len(ahead) == len(chosen):
        return f"`{one}` is faster than `{other}` in every row that is {verb}."
    if not ahead:
        return f"`{other}` is faster than `{one}` in every row that is {verb}."
    behind = next(row for row in chosen if row.median(one) > row.median(other))
    return f"Of what is {verb}, the first row in which `{other}` is faster than `{one}` is: {behind.name}."


def gain(rows: Sequence[Row], one: str = "update", other: str = "bootstrap") -> str:
    """How many times as fast `one` is in the first row and in the last."""
    first, last = rows[0], rows[-1]
    ratios = [row.median(other) / row.median(one) for row in (first, last)]
    told = " to ".join(f"{ratio:,.3g}" for ratio in ratios)
    return f"From the first row to the last, `{other}` takes {told} times as long as `{one}`."


def against_dred(rows: Sequence[Row]) -> str:
    both = [row for row in rows if {"update", "dred"} <= row.seconds.keys()]
    if not both:
        return ""
    ratios = [row.median("dred") / row.median("update") for row in both]
    return f"DRed takes {min(ratios):.2g} to {max(ratios):.2g} times as long as `update`."


def small_is_cheap(rows: Sequence[Row], limit: float = 0.1) -> list[Target]:
    """That the smallest change costs at most a tenth of computing everything again."""
    row = rows[0]
    ratio = row.median("update") / row.median("bootstrap")
    return [
        Target(
            f"{row.name}: update / bootstrap", ratio, limit, reason="the change touches much of the result"
        )
    ]
