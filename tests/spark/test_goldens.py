"""The goldens and the program library on Spark. A few by default, all of them with `ZEDLOG_FULL=1`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import Reasoner
from tests.full import FULL
from tests.library.case import LibraryCase, cases
from tests.programs.case import case_paths, read_case
from tests.programs.test_goldens import check_golden, excerpt
from tests.spark.compare import apply_both, assert_same_state
from tests.spark.conftest import patient

Make = Callable[..., Reasoner]
GOLDENS = [p for p in case_paths() if FULL or p.name in ("head_min_next_best", "strings")]
LIBRARY = [case for case in cases() if FULL or case.name == "delivery"]
MANNERS = [("small", 2), ("mixed", 5), ("large", 1)]


pytestmark = patient


@pytest.mark.slow
@pytest.mark.parametrize("path", GOLDENS, ids=lambda path: path.name)
def test_golden_on_spark(on_spark: Make, path: Path) -> None:
    """The manners of working take turns."""
    check_golden(read_case(path), on_spark(*MANNERS[len(path.name) % 3]))


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
