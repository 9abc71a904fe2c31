"""The fuzzer's promise over the programs it starts from, over cases that once broke it, and over random edits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.target import check_text, seeds, text_of

SEEDS = seeds()


@pytest.mark.parametrize("path", SEEDS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_seeds_and_kept_cases(path: Path) -> None:
    check_text(text_of(path.read_bytes()))


def test_seeds_with_random_edits() -> None:
    """A poor man's fuzzer: pieces of programs cut, doubled and mixed."""
    rng = random.Random(7)
    texts = [path.read_bytes() for path in SEEDS]
    for _ in range(150):
        one, other = rng.choice(texts), rng.choice(texts)
        for _ in range(rng.randint(1, 4)):
            a, b = sorted(rng.randrange(len(one) + 1) for _ in range(2))
            c = rng.randrange(len(other) + 1)
            one = one[:a] + other[c : c + rng.randint(0, 12)] + one[rng.choice((a, b)) :]
        check_text(text_of(one[:3_000]))
