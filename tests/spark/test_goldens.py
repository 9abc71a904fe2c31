"""The goldens and the program library on Spark: by default two for each manner of working, chosen so that they have
different features; all of them with `ZEDLOG_FULL=1`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.full import FULL
from tests.library.case import LibraryCase, cases
from tests.programs.case import case_paths, read_case
from tests.programs.test_goldens import check_golden, excerpt
from tests.spark.compare import apply_both, assert_same_state
from tests.spark.conftest import patient
from zedlog import Reasoner

Make = Callable[..., Reasoner]
MANNERS = [("small", 2), ("mixed", 5), ("large", 1)]
CHOSEN = {
    "small": ("strings", "rules_come_and_go"),
    "mixed": ("negation_of_closure", "weights"),
    "large": ("head_min_next_best", "floats_arithmetic"),
}


def manner_of(name: str) -> tuple[str, int]:
    """How a golden is run: as it was chosen for, or else in turns."""
    chosen = (pair for pair in MANNERS if name in CHOSEN[pair[0]])
    return next(chosen, MANNERS[len(name) % 3])


GOLDENS = [p for p in case_paths() if FULL or any(p.name in names for names in CHOSEN.values())]
LIBRARY = [case for case in cases() if FULL or case.name == "delivery"]


pytestmark = patient


@pytest.mark.slow
@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.name)
def test_golden_on_spark(on_spark: Make, path: Path) -> None:
    check_golden(read_case(path), on_spark(*manner_of(path.name)))


@pytest.mark.slow
@pytest.mark.parametrize("case", LIBRARY, ids=lambda case: case.name)
def test_differential_of_the_library(on_spark: Make, case: LibraryCase) -> None:
    """The whole program, then without every third of its facts."""
    if case.lacking() is not None:
        pytest.skip("this version cannot evaluate it")
    program = case.program
    texts = [excerpt(case.text, span) for span in dict.fromkeys(rule.span for rule in program.rules)]
    facts = {name: sorted(rows) for name, rows in case.facts().items()}
    spark, resident = on_spark(*MANNERS[(len(case.name) + 1) % 3]), Reasoner()
    start = {
        "facts": {name: [(row, 1) for row in rows] for name, rows in facts.items()},
        "rules": [(text, 1) for text in texts],
        "declarations": "\n".join(
            line for line in case.text.splitlines() if line.startswith((".decl", ".type"))
        ),
    }
    apply_both(spark, resident, start)
    assert_same_state(spark, resident)
    less = {name: [(row, -1) for row in rows[::3]] for name, rows in facts.items()}
    apply_both(spark, resident, {"facts": less})
    assert_same_state(spark, resident)
    spark.check_invariants()
