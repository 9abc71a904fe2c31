"""How the engine evaluates, as it is typed: what reaches the engine process, and what is refused before it starts."""

from __future__ import annotations

from typing import Any

import pytest
import typer

from service.cli.choices import USUAL, USUAL_SECONDS, engine_options

NOTHING: dict[str, Any] = {
    "memory_budget": None,
    "epoch_seconds": USUAL_SECONDS,
    "max_height": None,
    "placement": "auto",
    "switch": USUAL,
    "spark_master": None,
    "spark_partitions": None,
    "spark_checkpoint_dir": None,
}


def test_what_is_not_asked_for_is_not_said() -> None:
    assert engine_options(**NOTHING) == ()


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"memory_budget": "1GiB"}, ("--memory-budget", str(2**30))),
        ({"epoch_seconds": "7.5"}, ("--epoch-seconds", "7.5")),
        ({"epoch_seconds": "none"}, ("--epoch-seconds", "none")),
        ({"placement": "spark"}, ("--placement", "spark")),
        ({"max_height": 2_000_000}, ("--max-height", "2000000")),
        ({"switch": "none"}, ("--switch", "none")),
        ({"switch": "0"}, ("--switch", "0")),
        (
            {
                "spark_master": "spark://master:7077",
                "spark_partitions": 4,
                "spark_checkpoint_dir": "/srv/state",
            },
            (
                "--spark-master",
                "spark://master:7077",
                "--spark-partitions",
                "4",
                "--spark-checkpoint-dir",
                "/srv/state",
            ),
        ),
    ],
)
def test_an_option_reaches_the_engine(given: dict[str, Any], options: tuple[str, ...]) -> None:
    assert engine_options(**{**NOTHING, **given}) == options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"memory_budget": "much"}, '"much" is not a size'),
        ({"epoch_seconds": "long"}, '"long" is not a number of seconds above 0'),
        ({"epoch_seconds": "0"}, '"0" is not a number of seconds above 0'),
        ({"placement": "cloud"}, "choose one of auto, resident, spark"),
        ({"switch": "often"}, 'not "often"'),
        ({"switch": "-0.1"}, "0 or more"),
        ({"spark_master": "here"}, "the Spark master must be"),
    ],
)
def test_what_is_wrong_is_refused_at_once(given: dict[str, Any], message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        engine_options(**{**NOTHING, **given})
