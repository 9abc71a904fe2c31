"""What sources assert, as staging needs it: which sources a relation has, and the errors about them.

Always, after every epoch: the weight of a tuple in a relation is at least the sum of what its sources assert of it. The
rest was asserted without a source. So a source can take back all of its facts at any time, and nothing else can.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from engine.data.codes import Codes
from engine.data.sources import origin
from engine.errors import InvalidBackupError, NegativeWeightError, SourcedFactError, shown
from engine.language.schema import Schema


class Claims:
    """The hidden collections among the relations that hold facts (`stored`, of a program)."""

    def __init__(self, stored: Mapping[str, Schema]) -> None:
        self.stored = stored
        self._of: dict[str, list[str]] = {}
        for name in stored:
            found = origin(name)
            if found is not None:
                self._of.setdefault(found[0], []).append(name)

    def of_relation(self, relation: str) -> list[str]:
        """The hidden collections of a relation."""
        return self._of.get(relation, [])

    def of_source(self, source: str) -> Iterable[tuple[str, Schema]]:
        """The relations of which a source asserts facts, with the schemas of these."""
        for relation, names in self._of.items():
            for name in names:
                if origin(name) == (relation, source):
                    yield relation, self.stored[name]


def overdrawn(name: str, tuples: str, about: dict[str, Any], changes: Sequence[int]) -> NegativeWeightError:
    """A source retracts more than it asserts. name: of its hidden collection. tuples: the first of them, in words."""
    relation, source = origin(name) or (name, "")
    has = ", ".join(map(str, about["weights"]))
    detail = {**about, "relation": relation, "source": source}
    return NegativeWeightError(
        f"the source {shown(source)} would retract {tuples} more often than it asserts them; "
        f"the {'weight that it asserts is' if len(about['weights']) == 1 else 'weights that it asserts are'} {has}",
        **detail,
        changes=list(changes),
    )


def asserted_by(names: Iterable[str], tuples: str, about: dict[str, Any]) -> SourcedFactError:
    """A transaction without a source takes away what sources assert. names: of their hidden collections."""
    sources = sorted(source for _, source in filter(None, map(origin, names)))
    listed = ", ".join(map(shown, sources))
    which = f"source {listed} asserts" if len(sources) == 1 else f"sources {listed} assert"
    return SourcedFactError(
        f"the transaction would take away from {tuples} what the {which}; retract it with that source, or without one "
        "only as often as it was asserted without one",
        **about,
        sources=sources,
    )


def overclaimed(name: str, tuples: str, about: dict[str, Any], claimed: Codes) -> InvalidBackupError:
    """In a backup, a source asserts more than the relation has beside what other sources assert. name: of its hidden
    collection. tuples: the first of them, in words.
    """
    relation, source = origin(name) or (name, "")
    one = len(claimed) == 1
    wants, has = (", ".join(map(str, numbers)) for numbers in (claimed.tolist(), about["weights"]))
    return InvalidBackupError(
        f"the backup is not consistent: the source {shown(source)} asserts {tuples} with the "
        f"{'weight' if one else 'weights'} {wants}, but beside what other sources assert, the relation has only {has}",
        **{**about, "relation": relation, "source": source},
        claimed=claimed.tolist(),
    )
