"""The Python packages installed on this machine, as facts.

Out: `requires(package, dependency)`, `version(package, version)` and `licence(package, licence)`, read from the
metadata that pip and its like leave beside each package. Names are canonical (`Typing_Extensions` is
`typing-extensions`). A requirement counts if its marker is true on this interpreter; one that belongs to an extra
counts if some installed package asks for that extra (`redis[hiredis]`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

UNKNOWN_LICENCE = "unknown"
# A licence field that is longer than this holds the licence's text and not its name.
_LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class PackageFacts:
    """Distinct tuples, sorted."""

    requires: tuple[tuple[str, str], ...]
    version: tuple[tuple[str, str], ...]
    licence: tuple[tuple[str, str], ...]

    @property
    def total(self) -> int:
        return len(self.requires) + len(self.version) + len(self.licence)


def installed(path: Sequence[str] | None = None) -> PackageFacts:
    """The facts of every package that this interpreter can import, or of those in the folders `path`."""
    found: dict[str, Distribution] = {}
    for distribution in distributions(path=list(path)) if path is not None else distributions():
        name = distribution.metadata["Name"]
        if name:
            # The first one on the path is the one that is imported.
            found.setdefault(canonicalize_name(name), distribution)
    return PackageFacts(
        requires=tuple(sorted(_requires(found))),
        version=tuple(sorted((name, d.version) for name, d in found.items())),
        licence=tuple(sorted((name, licence_of(d)) for name, d in found.items())),
    )


def _requires(found: dict[str, Distribution]) -> set[tuple[str, str]]:
    """The edges in force. An extra that one package asks for can add requirements of another package, and so on."""
    stated = {name: list(_requirements(d.requires or ())) for name, d in found.items()}
    extras: dict[str, set[str]] = defaultdict(lambda: {""})
    edges: set[tuple[str, str]] = set()
    before = -1
    while before != (before := len(edges) + sum(map(len, extras.values()))):
        for name, requirements in stated.items():
            for requirement in requirements:
                if any(_applies(requirement, extra) for extra in sorted(extras[name])):
                    dependency = canonicalize_name(requirement.name)
                    edges.add((name, dependency))
                    extras[dependency] |= requirement.extras
    return edges


def _requirements(texts: Iterable[str]) -> Iterator[Requirement]:
    for text in texts:
        try:
            yield Requirement(text)
        except InvalidRequirement:
            # Old packages hold requirements that no tool understands any more; pip ignores them too.
            continue


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({"extra": extra})


def licence_of(distribution: Distribution) -> str:
    """The licence's name: the SPDX expression, otherwise the classifier, otherwise a short licence field."""
    metadata = distribution.metadata
    if "License-Expression" in metadata:
        return metadata["License-Expression"]
    for classifier in metadata.get_all("Classifier") or ():
        parts = [part.strip() for part in str(classifier).split("::")]
        if parts[0] == "License" and len(parts) > 1 and parts[-1] != "OSI Approved":
            return parts[-1]
    named = metadata["License"].strip() if "License" in metadata else ""
    return named if named and "\n" not in named and len(named) <= _LONGEST_NAME else UNKNOWN_LICENCE
