"""Pivots: an argument that a recursive stratum passes on unchanged, so that its fixpoint splits into independent parts.

In: a stratum. Out: for each of its relations one column, or None. Always: every recursive rule has exactly one atom of
the stratum, and the head's pivot column is the same variable as that atom's; in a relation folded in place it is a
column of the group. So all derivations of a tuple use only tuples of the stratum with the same pivot value:

    tc(x, z) :- tc(x, y), arc(y, z).     pivot: column 0 of tc

A placement may then compute the stratum in parts, one for each value or range of values of the pivot, and each part
needs no other (Cohen and Wolfson, "Why a single parallelization strategy is not enough in knowledge bases", PODS 1989;
Ganguly et al., SIGMOD 1990).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.language.syntax import Variable

if TYPE_CHECKING:
    from engine.circuit.circuit import Stratum

Link = tuple[str, str, frozenset[tuple[int, int]]]
"""For a recursive rule: the head, the atom's relation, and the pairs (head column, atom column) with equal
variables."""


@lru_cache(maxsize=256)
def pivot_of(stratum: Stratum) -> Mapping[str, int] | None:
    """The pivot column of each relation of a recursive stratum; among several choices the one with the lowest
    columns."""
    if not stratum.recursive or any(fold.sources for fold in stratum.folds):
        return None
    # What is folded in place is not part of its group, and a group must not fall apart.
    folded = {(fold.target, fold.place) for fold in stratum.folds}
    links = []
    for rule in stratum.rules:
        inner = [atom for atom in rule.atoms if atom.relation in stratum.relations]
        if len(inner) > 1:
            return None
        for atom in inner:
            pairs = {
                (i, j)
                for i, head in enumerate(rule.rule.head.terms)
                for j, term in enumerate(atom.terms)
                if isinstance(head, Variable) and isinstance(term, Variable) and head.name == term.name
                if (rule.head, i) not in folded and (atom.relation, j) not in folded
            }
            links.append((rule.head, atom.relation, frozenset(pairs)))
    return next(_choices(links, {}), None)


def _choices(links: list[Link], chosen: dict[str, int]) -> Iterator[dict[str, int]]:
    """All assignments of columns that agree with every link and extend `chosen`."""
    if not links:
        yield dict(sorted(chosen.items()))
        return
    # A stratum is connected, so there is a link from what is chosen to the rest as long as any is left.
    link = next((link for link in links if link[0] in chosen or link[1] in chosen), links[0])
    rest = [other for other in links if other is not link]
    head, relation, pairs = link
    for i, j in sorted(pairs):
        agrees = chosen.get(head, i) == i and chosen.get(relation, j) == j and (head != relation or i == j)
        if agrees:
            yield from _choices(rest, {**chosen, head: i, relation: j})
