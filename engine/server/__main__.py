"""The command `python -m engine.server`: the engine process, with the settings of its command line and environment."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial

from engine.bulk.runner import JobOptions, JobRunner
from engine.bulk.sources import Places
from engine.errors import InvalidRequestError
from engine.maintenance.placement import Budget
from engine.resident.kernels import Compiling, telling
from engine.resident.warm import load_all
from engine.server.audits import Audits
from engine.server.checkpoints import Checkpoints
from engine.server.loop import restore_reasoner, run_engine
from engine.server.options import options, read_settings
from engine.server.settings import EngineOptions, EngineSettings
from engine.spark.session.session import SparkOptions, SparkSource
from engine.storage.retention import Retention

logger = logging.getLogger("zedlog.engine")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command `python -m engine.server`; returns its exit status."""
    parser = _parser()
    given = vars(parser.parse_args(arguments))
    try:
        return _run(read_settings(EngineSettings, given))
    except InvalidRequestError as error:
        parser.error(error.message)


def _log_compiling(now: Compiling) -> None:
    logger.info("%s", now)


def _run(settings: EngineSettings) -> int:
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(message)s")
    retention = Retention(
        settings.retain_epochs,
        settings.retain_seconds,
        settings.retain_results,
        subscribed_epochs=settings.retain_subscribed_epochs,
        subscribed_bytes=settings.retain_subscribed_bytes,
    )
    engine = EngineOptions(
        settings.lease_seconds,
        settings.lease_wait,
        settings.group_transactions,
        settings.group_bytes,
        retention,
    )
    spark = SparkSource(
        SparkOptions(
            settings.spark_master,
            settings.spark_partitions,
            settings.spark_checkpoint_dir,
            conf=settings.spark_conf,
            packages=settings.spark_packages,
        )
    )
    url, database = settings.redis_url, settings.database
    checkpoints = None
    if settings.checkpoints is not None and settings.placement != "spark":
        checkpoints = Checkpoints(settings.checkpoints, database)
        checkpoints.read_ahead()
    factory = partial(
        restore_reasoner,
        budget=Budget(
            memory=settings.memory_budget, seconds=settings.epoch_seconds, height=settings.max_height
        ),
        placement=settings.placement,
        switch=settings.switch,
        spark=spark,
        checkpoints=checkpoints,
    )
    places = Places(
        settings.import_root, settings.export_root, None, settings.bulk_schemes, settings.connections
    )
    jobs = JobRunner(url, database, JobOptions(settings.batches, places), spark)
    audits = Audits(url, database, settings.audit_every, settings.memory_budget)
    with telling(_log_compiling):
        # Before the engine says that it is ready, so that no transaction waits for them.
        load_all()
    try:
        return run_engine(url, database, engine, factory, spark, jobs, checkpoints, audits)
    finally:
        jobs.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m engine.server",
        description="The engine: the single writer of one database. An option that is left out takes its value from an "
        "environment variable: ZEDLOG_ and the option's name, for example ZEDLOG_MEMORY_BUDGET.",
        argument_default=argparse.SUPPRESS,
    )
    groups = {}
    for option in options(EngineSettings):
        if option.panel not in groups:
            groups[option.panel] = parser.add_argument_group(option.panel)
        groups[option.panel].add_argument(
            option.flag,
            dest=option.field,
            metavar=option.metavar,
            action="append" if option.repeated else "store",
            help=option.help.replace("%", "%%"),
        )
    return parser


if __name__ == "__main__":
    sys.exit(main())
