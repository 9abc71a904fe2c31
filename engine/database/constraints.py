"""Integrity constraints: relations that are declared to stay empty.

    .decl violation(x: symbol) constraint
    violation(x) :- employee(x), !department_of(x, _).

In: a program, and what an epoch would change. Out: nothing, or the error that refuses it, with the first of the
tuples that such a relation would hold. Always: after every committed epoch all constraints are empty, so only a
relation that the epoch changed, or that becomes a constraint with it, is looked at.

Each transaction is checked against the constraints as if it were alone: one that breaks a constraint is refused even if
the next one in its group would repair that (sharing.py).
"""

from __future__ import annotations

import numpy as np

from engine.circuit.naming import name_of
from engine.data.codes import Codes
from engine.data.symbols import SymbolTable
from engine.data.values import decode, write_tuple
from engine.database.database import Database
from engine.database.program import Program
from engine.errors import ConstraintViolationError
from engine.maintenance.placement import Executed

SHOWN = 10
"""Offending tuples that an error names."""


def constraints_of(program: Program) -> frozenset[str]:
    """The relations that must stay empty."""
    return program.declared.constraints


def check_constraints(before: Database, program: Program, executed: Executed) -> None:
    """Refuse an executed epoch, which leads to `program`, if a constraint holds a tuple after it. The caller rolls it
    back.

    Raises:
        ConstraintViolationError: for the first such relation by name.
    """
    constraints = constraints_of(program)
    if not constraints:
        return
    new = constraints - constraints_of(before.program)
    changed = {name_of(key) for key in executed.relations}
    for relation in sorted(constraints & (changed | new)):
        number = before.placement.count(program.key(relation), "all")
        if number:
            codes, _ = before.placement.tuples(program.key(relation), {}, "all", SHOWN)
            raise _violation(relation, number, codes, program, before.symbols)


def _violation(
    relation: str, number: int, codes: Codes, program: Program, symbols: SymbolTable
) -> ConstraintViolationError:
    first = codes[np.lexsort(codes.T[::-1])[:SHOWN]] if codes.shape[1] else codes[:1]
    types = [column.type for column in program.schemas[relation].columns]
    tuples = decode(first, types, symbols)
    shown = ", ".join(f"{relation}{write_tuple(values)}" for values in tuples)
    more = f" and {number - len(tuples)} more" if number > len(tuples) else ""
    rules = [info for info, rule in program.rules.values() if rule.head.relation == relation]
    return ConstraintViolationError(
        f"{relation} is a constraint and must stay empty, but it would hold {shown}{more}",
        relation=relation,
        tuples=[list(t) for t in tuples],
        number=number,
        rules=[{"id": info.id, "rule": info.text} for info in rules],
    )
