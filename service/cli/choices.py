"""How the engine evaluates, as options of `zedlog serve` and `zedlog engine`: budgets, placement, strategy, Spark.

In: what was typed, or stands in the environment. Out: options of the engine process. Always: what the engine would
refuse is refused here, before anything is started.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from engine.data.transaction import PLACEMENTS
from engine.errors import InvalidRequestError, shown
from engine.maintenance.memory import parse_size
from engine.maintenance.placement import EPOCH_SECONDS, MAX_HEIGHT, parse_seconds
from engine.maintenance.policy import SWITCH, Policy, parse_switch
from engine.spark.session.session import SparkOptions

T = TypeVar("T")

MemoryBudget = Annotated[
    str | None,
    typer.Option(
        envvar="ZEDLOG_MEMORY_BUDGET",
        metavar="SIZE",
        help="What the tuples of the resident placement may need, for example 4GiB (default: half of the memory). "
        "Beyond it, `auto` goes on with Spark; without Spark a transaction is refused.",
    ),
]
EpochSeconds = Annotated[
    str,
    typer.Option(
        envvar="ZEDLOG_EPOCH_SECONDS",
        metavar="SECONDS",
        help="Refuse a transaction that computes for longer; none: no limit.",
    ),
]
MaxHeight = Annotated[
    int | None,
    typer.Option(
        envvar="ZEDLOG_MAX_HEIGHT",
        min=1,
        metavar="N",
        help="Refuse a transaction whose recursion goes through more heights, that is, whose shortest derivations are "
        f"longer (default: {MAX_HEIGHT}).",
    ),
]
PlacementChoice = Annotated[
    str,
    typer.Option(
        envvar="ZEDLOG_PLACEMENT",
        metavar="auto|resident|spark",
        help="Where the state is: in the engine process, on Spark, or there as long as it fits.",
    ),
]
SwitchChoice = Annotated[
    str,
    typer.Option(
        envvar="ZEDLOG_SWITCH",
        metavar="FRACTION",
        help="The fraction of a bootstrap's cost after which an update may be abandoned for a bootstrap; "
        "0: always bootstrap what changes; none: never.",
    ),
]
SparkMaster = Annotated[
    str | None,
    typer.Option(
        envvar="ZEDLOG_SPARK_MASTER",
        help=f"local[n], spark://host:port or sc://host:port (default: {SparkOptions().master}).",
    ),
]
SparkPartitions = Annotated[
    int | None,
    typer.Option(
        envvar="ZEDLOG_SPARK_PARTITIONS",
        min=1,
        help=f"Partitions of the state and of every exchange (default: {SparkOptions().partitions}).",
    ),
]
SparkCheckpointDir = Annotated[
    str | None,
    typer.Option(
        envvar="ZEDLOG_SPARK_CHECKPOINT_DIR",
        help="A directory that all executors share: state that is kept there survives their loss.",
    ),
]
USUAL = str(SWITCH)
USUAL_SECONDS = f"{EPOCH_SECONDS:g}"


def read_option(parse: Callable[[str], T], text: str) -> T:
    """What was typed, as the engine reads it.

    Raises:
        typer.BadParameter: the engine would refuse it.
    """
    try:
        return parse(text)
    except InvalidRequestError as error:
        raise typer.BadParameter(error.message) from None


def engine_options(
    memory_budget: str | None,
    epoch_seconds: str,
    max_height: int | None,
    placement: str,
    switch: str,
    spark_master: str | None,
    spark_partitions: int | None,
    spark_checkpoint_dir: str | None,
) -> tuple[str, ...]:
    """The options of the engine process.

    Raises:
        typer.BadParameter: a size is none, there is no such placement, or the like.
    """
    options: list[str] = []
    if memory_budget is not None:
        options += ["--memory-budget", str(read_option(parse_size, memory_budget))]
    if placement not in PLACEMENTS:
        raise typer.BadParameter(
            f"{shown(placement)} is not a placement; choose one of {', '.join(PLACEMENTS)}"
        )
    read_option(parse_seconds, epoch_seconds)
    try:
        Policy(switch=parse_switch(switch))
        SparkOptions(spark_master or SparkOptions().master)
    except InvalidRequestError as error:
        raise typer.BadParameter(error.message) from None
    chosen = {
        "epoch-seconds": None if epoch_seconds == USUAL_SECONDS else epoch_seconds,
        "max-height": max_height,
        "placement": None if placement == "auto" else placement,
        "switch": None if switch == USUAL else switch,
        "spark-master": spark_master,
        "spark-partitions": spark_partitions,
        "spark-checkpoint-dir": spark_checkpoint_dir,
    }
    for name, value in chosen.items():
        if value is not None:
            options += [f"--{name}", str(value)]
    return tuple(options)
