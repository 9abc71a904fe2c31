"""The rules that an import adds with its triples.

In: the request, and the batch files of `triple`. Out: changes of rules and facts for the same transaction, and what the
job reports of them. Only what can be an axiom is read into memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from engine.bulk.batches import BatchStore
from engine.bulk.request import TRIPLE, ImportRequest
from engine.data.arrow import columns
from engine.data.transaction import FactChange, FactFiles, RuleChange
from engine.ontology import vocabulary as v
from engine.ontology.library import AXIOMS, OWL_RL, rule_set
from engine.ontology.triples import Triple

SHOWN = 10
"""How many axioms without rules a job lists."""
_OWL = v.owl("")[:-1]


@dataclass(frozen=True, slots=True)
class Added:
    """What is added with the triples. A negative weight of the import takes it away."""

    rules: tuple[RuleChange, ...]
    facts: tuple[FactChange, ...]
    report: dict[str, Any]


def added_rules(request: ImportRequest, store: BatchStore, batches: Sequence[FactFiles]) -> Added:
    """Raises InvalidRequestError: the triples of an expression of OWL are broken."""
    assert request.rules is not None
    axioms = _axioms(store, batches) if request.rules == OWL_RL else ()
    found = rule_set(request.rules, axioms)
    sign = 1 if request.weight > 0 else -1
    facts = (FactChange(TRIPLE, found.facts, request.weight),) if found.facts else ()
    report: dict[str, Any] = {"set": request.rules, "number": len(found.rules), "facts": len(found.facts)}
    if found.not_covered:
        report["not_covered"] = len(found.not_covered)
        report["for_example"] = list(found.not_covered[:SHOWN])
    return Added(tuple(RuleChange(rule, sign) for rule in found.rules), facts, report)


def _axioms(store: BatchStore, batches: Sequence[FactFiles]) -> Iterator[Triple]:
    for batch in batches:
        for one in batch.files:
            file = pq.ParquetFile(store.root / one.path)
            for part in file.iter_batches(columns=columns(3)):
                rows = part.filter(_may_be_axiom(part.column(1), part.column(2)))
                yield from zip(*(column.to_pylist() for column in rows.columns), strict=True)


def _may_be_axiom(predicate: pa.Array, object_: pa.Array) -> pa.Array:
    of_owl = pc.starts_with(predicate, _OWL)
    known = pc.is_in(predicate, pa.array(AXIOMS))
    typed = pc.and_(pc.equal(predicate, v.TYPE), pc.starts_with(object_, _OWL))
    return pc.or_(pc.or_(of_owl, known), typed)
