"""The program analysis of the benchmarks, on a small program of two modules, against an independent solver."""

from __future__ import annotations

from benchmarks.analysis import RULES, facts, rules
from engine.language.parser import parse_program
from tests.oracle.clingo_dialect import solve_dialect
from zedlog import Reasoner


def test_analysis_of_two_modules_derives_what_an_independent_solver_derives() -> None:
    given = {name: [tuple(row) for row in rows.tolist()] for name, rows in facts(2).items()}
    weighted = {name: dict.fromkeys(rows, 1) for name, rows in given.items()}
    model = solve_dialect(parse_program(RULES.read_text()).rules, weighted)
    reasoner = Reasoner(threads=1)
    reasoner.apply(facts=facts(2), rules=[(rule, 1) for rule in rules()])
    derived = {name: set(reasoner.facts(name)) for name in reasoner.relations() if reasoner.count(name)}
    assert derived == {name: set(rows) for name, rows in model.items() if rows}
    assert len(derived["pointsTo"]) > 100
