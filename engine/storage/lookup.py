"""Look-up: a page of one relation out of packed parts, or all tuples with certain codes, in the order of the codes.

In: the parts of a relation, the base first and the newest last, of which the newest row of a tuple is its state. Out:
what `scan` answers for the same relation. Always: the parts are looked at in steps, and a step ends at the smallest key
at which one of them stopped, so that within a step every row that could matter is there when the newest is picked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from engine.storage.packed import Part, Wanted, up_to
from engine.storage.rows import Key, Rows, concatenate, in_domain, merge

# Most rows of each part that are looked at without a pause.
_MOST_ROWS = 65_536


async def page(
    parts: Sequence[Part], arity: int, wanted: Wanted, domain: str, limit: int, after: Key | None
) -> tuple[Rows, bool]:
    """Up to `limit` live rows greater than `after`, and whether there are more."""
    found: list[Rows] = []
    count, low, most = 0, after, min(limit + 1, _MOST_ROWS)
    while True:
        selected = [part.select(wanted, low, most) for part in reversed(parts)]
        high = min((end for _, end in selected if end is not None), default=None)
        rows = merge([up_to(rows, high) for rows, _ in selected], arity, drop_tombstones=True)
        found.append(in_domain(rows, domain))
        count += len(found[-1])
        if high is None or count > limit:
            break
        low, most = high, min(4 * most, _MOST_ROWS)
        await asyncio.sleep(0)
    return concatenate(found, arity).part(0, limit), count > limit


def everything(parts: Sequence[Part], arity: int, wanted: Wanted, domain: str) -> Rows:
    """All live rows with the wanted codes."""
    rows = merge([part.everything(wanted) for part in reversed(parts)], arity, drop_tombstones=True)
    return in_domain(rows, domain)


def at_most(parts: Sequence[Part], wanted: Wanted) -> int:
    """No more tuples than these have the wanted codes."""
    return sum(part.count(wanted) for part in parts)
