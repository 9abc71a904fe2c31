"""What an audit compared and found, as plain data for JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

LIMIT = 50
"""So many differences are named; all are counted."""
NAMED = 5
"""So many of one kind in one relation are named: the first ones, in the order of the codes."""
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference. kind: `object`, `manifest`, `program`, `digest`, `counts`, `tuple`, `weight`, `derived`,
    `hidden`, `height`, `support`, `entry`, `index`, `symbol` or `table`. place: `snapshot` (in Redis) or `memory` (of
    the engine). what: a sentence about it. tuple: its values, where it is about a tuple."""

    kind: str
    place: str
    what: str
    relation: str | None = None
    tuple: Sequence[Any] | None = None
    expected: Any = None
    found: Any = None


@dataclass(slots=True)
class Report:
    """Collects what an audit finds. tuples, supports: how many were recomputed and compared; objects, bytes: of the
    snapshot, read and compared with their names. uncompared: what was left out, and why, in words.
    """

    epoch: int
    relations: int = 0
    tuples: int = 0
    supports: int = 0
    entries: int = 0
    postings: int = 0
    objects: int = 0
    bytes: int = 0
    differing: int = 0
    differences: list[Difference] = field(default_factory=list)
    uncompared: list[str] = field(default_factory=list)
    _named: dict[tuple[str, str, str | None], int] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        place: str,
        what: str,
        relation: str | None = None,
        tuple: Sequence[Any] | None = None,
        expected: Any = None,
        found: Any = None,
    ) -> None:
        """Note one difference."""
        self.differing += 1
        key = kind, place, relation
        self._named[key] = self._named.get(key, 0) + 1
        if self._named[key] <= NAMED and len(self.differences) < LIMIT:
            cut = None if tuple is None else [_short(value) for value in tuple]
            self.differences.append(
                Difference(kind, place, what, relation, cut, _short(expected), _short(found))
            )

    def count(self, more: int) -> None:
        """Count further differences, which are not named."""
        self.differing += more

    def leave_out(self, why: str) -> None:
        """Say that something was not compared."""
        if why not in self.uncompared:
            self.uncompared.append(why)

    def to_json(self) -> dict[str, Any]:
        """The whole report. `limit` says how many differences are named at most."""
        names = ("epoch", "relations", "tuples", "supports", "entries", "postings", "objects", "bytes")
        return {
            **{name: getattr(self, name) for name in names},
            "differing": self.differing,
            "limit": LIMIT,
            "differences": [asdict(one) for one in self.differences],
            "uncompared": self.uncompared,
        }


def in_words(difference: Mapping[str, Any]) -> str:
    """One difference of a report, as a line."""
    about = difference["relation"] or ""
    if difference["tuple"] is not None:
        about += f"({', '.join(_written(value) for value in difference['tuple'])})"
    sides = ""
    if difference["expected"] is not None or difference["found"] is not None:
        sides = f"; expected {_written(difference['expected'])}, found {_written(difference['found'])}"
    place = "in memory" if difference["place"] == "memory" else "in the snapshot"
    return f"{place}: {f'{about}: ' if about else ''}{difference['what']}{sides}"


def _written(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _LONGEST:
        return value[:_LONGEST] + "..."
    return value
