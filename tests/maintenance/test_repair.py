"""Which strata DRed maintains, and how an epoch tells what it did."""

from __future__ import annotations

from engine.maintenance.repair import Repaired, repaired, told
from zedlog import Reasoner


class _Elsewhere:
    """The work on a stratum in a placement that has no DRed."""


class _Here:
    def repair(self) -> tuple[int, int]:
        return 1204, 1101


def test_only_what_can_be_done_is_done() -> None:
    reasoner = Reasoner("resident")
    reasoner.apply(
        rules=[
            ("tc(x, y) :- arc(x, y).", 1),
            ("tc(x, z) :- tc(x, y), tc(y, z).", 1),
            ("far(x, max(d)) :- reach(x, d).", 1),
            ("far(y, max(d)) :- far(x, d), arc(x, y).", 1),
            ("number(count(x)) :- tc(x, _).", 1),
        ]
    )
    of = reasoner.database.program.circuit.stratum_of
    assert repaired(of["tc"], _Here()) == Repaired(("tc",), 1204, 1101)
    # What a count reads is below it.
    assert repaired(of["number"], _Here()) == Repaired(("number",), 1204, 1101)
    assert repaired(of["far"], _Here()) == Repaired(("far",), instead="aggregates its own tuples")
    assert repaired(of["tc"], _Elsewhere()) == Repaired(("tc",), instead="is not in the engine process")
    assert repaired(of["arc"], _Here()) is None


def test_what_was_done_is_summed_up_and_what_was_not_is_named() -> None:
    done = (
        Repaired(("a",), 1204, 1101),
        Repaired(("b", "c"), instead="aggregates its own tuples"),
        Repaired(("d",), 1, 0),
        Repaired(("e",), instead="is not in the engine process"),
    )
    assert told(done) == (
        "over-deleted 1,205 tuples, re-derived 1,101; updated {b, c}, which aggregates its own tuples; "
        "updated {e}, which is not in the engine process"
    )
    assert told((Repaired(("d",), 1, 1),)) == "over-deleted 1 tuple, re-derived 1"
    assert told(()) == ""
