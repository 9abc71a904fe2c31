"""The command `python -m engine.server`: the engine's options, read from the command line, and the process that has
them.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from engine.data.transaction import PLACEMENTS
from engine.errors import InvalidRequestError, shown
from engine.maintenance.memory import default_memory_budget, parse_size
from engine.maintenance.placement import EPOCH_SECONDS, MAX_HEIGHT, Budget, parse_seconds
from engine.maintenance.policy import SWITCH, Policy, parse_switch
from engine.resident.kernels import Compiling, telling
from engine.resident.warm import load_all
from engine.server.loop import EngineOptions, restore_reasoner, run_engine
from engine.storage.publisher import Retention

T = TypeVar("T")

logger = logging.getLogger("zedlog.engine")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `python -m engine.server`; returns its exit status."""
    # Here, because the readers' side imports this module's neighbours and has no use for them.
    from engine.bulk.options import job_options
    from engine.bulk.runner import JobRunner
    from engine.spark.session.session import SparkOptions, SparkSource

    parser = _parser()
    parsed = parser.parse_args(arguments)
    logging.basicConfig(level=parsed.log_level, format="%(asctime)s %(levelname)s %(message)s")
    try:
        options = EngineOptions(
            lease_seconds=parsed.lease_seconds,
            lease_wait=parsed.lease_wait,
            group_transactions=parsed.group_transactions,
            group_bytes=parsed.group_bytes,
            retention=Retention(parsed.retain_epochs, parsed.retain_seconds, parsed.retain_results),
        )
        budget = Budget(memory=parsed.memory_budget, seconds=parsed.epoch_seconds, height=parsed.max_height)
        chosen = {
            "master": parsed.spark_master,
            "partitions": parsed.spark_partitions,
            "checkpoint_dir": parsed.spark_checkpoint_dir,
        }
        spark = SparkSource(
            SparkOptions(**{name: value for name, value in chosen.items() if value is not None})
        )
        factory = partial(
            restore_reasoner, budget=budget, placement=parsed.placement, switch=parsed.switch, spark=spark
        )
        jobs = JobRunner(parsed.redis_url, parsed.database, job_options(parsed), spark)
        with telling(_log_compiling):
            # Before the engine says that it is ready, so that no transaction waits for them.
            load_all()
        try:
            return run_engine(parsed.redis_url, parsed.database, options, factory, spark, jobs)
        finally:
            jobs.close()
    except InvalidRequestError as error:
        parser.error(error.message)


def _log_compiling(now: Compiling) -> None:
    logger.info("%s", now)


def _parser() -> argparse.ArgumentParser:
    engine, kept = EngineOptions(), Retention()
    from engine.bulk.options import add_job_options

    parser = argparse.ArgumentParser(
        prog="python -m engine.server", description="The engine: the single writer of one database."
    )
    parser.add_argument("--redis-url", required=True, help="redis://HOST:PORT/N or unix:///PATH")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    options: list[tuple[str, Callable[[str], object], object, str]] = [
        ("database", str, "default", "its name"),
        ("lease-seconds", float, engine.lease_seconds, "how long a silent engine keeps the database"),
        ("lease-wait", float, engine.lease_wait, "seconds after which to give up on another engine's lease"),
        ("group-transactions", int, engine.group_transactions, "most transactions of one epoch"),
        ("group-bytes", int, engine.group_bytes, "most bytes of transactions of one epoch"),
        (
            "memory-budget",
            _typed(parse_size),
            default_memory_budget(),
            "bytes, or 4GiB: what needs more goes to Spark, or is refused",
        ),
        (
            "switch",
            _typed(_fraction),
            SWITCH,
            "fraction of a bootstrap after which an update may be abandoned, or none",
        ),
        ("spark-master", str, None, "local[n], spark://host:port or sc://host:port; without it a local one"),
        ("spark-partitions", int, None, "partitions of the state; without it two"),
        ("spark-checkpoint-dir", str, None, "a directory that all executors share; without it none"),
        (
            "epoch-seconds",
            _typed(parse_seconds),
            EPOCH_SECONDS,
            "an epoch that computes for longer is refused; or none",
        ),
        ("max-height", _typed(_height), MAX_HEIGHT, "a recursion that goes through more heights is refused"),
        ("retain-epochs", int, kept.epochs, "epochs whose snapshot stays readable"),
        ("retain-seconds", float, kept.seconds, "a younger snapshot stays readable in any case"),
        ("retain-results", int, kept.results, "transactions whose outcome can be looked up"),
    ]
    for name, kind, default, what in options:
        usual = "no limit" if default is None else "%(default)s"
        parser.add_argument(f"--{name}", type=kind, default=default, help=f"{what} (default: {usual})")
    parser.add_argument(
        "--placement", choices=PLACEMENTS, default="auto", help="where the state is (default: %(default)s)"
    )
    add_job_options(parser)
    return parser


def _typed(parse: Callable[[str], T]) -> Callable[[str], T]:
    """What reads an option, with the refusals that argparse expects."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except InvalidRequestError as error:
            raise argparse.ArgumentTypeError(error.message) from None

    return read


def _fraction(text: str) -> float:
    return Policy(switch=parse_switch(text)).switch


def _height(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InvalidRequestError(f"{shown(text)} is not a whole number from 1 on")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
