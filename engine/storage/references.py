"""Which objects are named by a retained manifest: reference counts, so that garbage is found at once.

An object is alive while a retained manifest, or another live object, names it. A count goes up and down once for each
naming parent; children are looked at only when an object becomes alive or dies. So an epoch costs its manifest's own
names and what changed below, not all blocks. The counts live in the writer's memory and are made again from the
retained manifests at start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

Children = Callable[[str], Iterable[str]]


class References:
    """Reference counts of objects; `children(name)` are the objects that an alive object names."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._counts: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._counts

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, names: Iterable[str]) -> list[str]:
        """A parent names these. Returns the objects that became alive."""
        born: list[str] = []
        stack = list(names)
        while stack:
            name = stack.pop()
            count = self._counts.get(name, 0)
            self._counts[name] = count + 1
            if count == 0:
                born.append(name)
                stack.extend(self._children(name))
        return born

    def remove(self, names: Iterable[str]) -> list[str]:
        """A parent that named these is gone. Returns the objects that died."""
        dead: list[str] = []
        stack = list(names)
        while stack:
            name = stack.pop()
            count = self._counts[name] - 1
            if count:
                self._counts[name] = count
                continue
            del self._counts[name]
            dead.append(name)
            stack.extend(self._children(name))
        return dead
