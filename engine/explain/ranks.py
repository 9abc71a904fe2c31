"""Heights found anew, for tuples whose recorded heights do not lead down.

In: a tuple of a recursive stratum, and what can be asked for each: its options, each of which needs some tuples of the
stratum. Out: for it, and for all tuples that it may rest on, the option of least rank; no option for a tuple that has
none. Always: an option that is chosen needs only tuples of lower rank, so following them ends.

It is needed where a state has no heights (it was written by a version that did not keep them), and in recursion through
a min or max whose values have settled in another order than that of the last heights. All options of all tuples that
can matter are collected, up to a limit; then ranks are given from the facts up, by Knuth's generalisation of Dijkstra's
algorithm (Information Processing Letters 6(1), 1977). Linear in the options and what they need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
MOST = 20_000
"""The most options that are collected."""


@dataclass(frozen=True, slots=True)
class Option(Generic[K, T]):
    """One way in which a tuple may hold, if all that it needs holds."""

    way: T
    needs: frozenset[K]


async def rank(
    root: K, options: Callable[[K], Awaitable[Sequence[Option[K, T]]]], most: int = MOST
) -> dict[K, T | None] | None:
    """See the module. None: there are more than `most` options."""
    found: dict[K, Sequence[Option[K, T]]] = {}
    waiting, total = deque([root]), 0
    while waiting:
        key = waiting.popleft()
        if key in found:
            continue
        found[key] = await options(key)
        total += len(found[key])
        if total > most:
            return None
        waiting.extend(need for option in found[key] for need in option.needs)
    users: dict[K, list[tuple[K, int]]] = {}
    missing: dict[tuple[K, int], int] = {}
    ready: list[tuple[K, int]] = []
    for key, several in found.items():
        for number, option in enumerate(several):
            missing[key, number] = len(option.needs)
            for need in option.needs:
                users.setdefault(need, []).append((key, number))
            if not option.needs:
                ready.append((key, number))
    chosen: dict[K, T | None] = {}
    while ready:
        # All of one rank, so the first option in order wins, whichever became ready first.
        new: dict[K, int] = {}
        for key, number in ready:
            if key not in chosen:
                new[key] = min(number, new.get(key, number))
        ready = []
        for key, number in new.items():
            chosen[key] = found[key][number].way
        for key in new:
            for user in users.get(key, ()):
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
    return {key: chosen.get(key) for key in found}
