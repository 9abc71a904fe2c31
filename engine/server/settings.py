"""The settings of the engine that an operator may choose: each is declared once, with its default, its check and its
purpose.

The command line of the engine process, `zedlog serve` and `zedlog engine`, and the environment (`ZEDLOG_` and the name)
come from these classes (engine/server/options.py says how); docs/operations.md has the table. Sizes are bytes, times
are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from engine.data.transaction import PLACEMENTS, PlacementName
from engine.errors import InvalidRequestError
from engine.maintenance.limits import parse_seconds
from engine.maintenance.memory import default_memory_budget
from engine.maintenance.placement import MAX_HEIGHT
from engine.maintenance.policy import SWITCH, Policy, parse_switch
from engine.server.options import PREFIX, SIZE, Shown, one_of, seconds, typed, whole
from engine.spark.session.options import SparkOptions, parse_conf, parse_packages
from engine.storage.retention import Retention


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine runs. `group_transactions` and `group_bytes` limit a group, which always has at least one
    transaction.

    lease_wait: seconds to wait for another engine's lease; None: as long as it takes (a standby).
    """

    lease_seconds: float = 10.0
    lease_wait: float | None = None
    group_transactions: int = 256
    group_bytes: int = 16 << 20
    retention: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        if self.lease_seconds < 0.1 or self.group_transactions < 1 or self.group_bytes < 1:
            raise InvalidRequestError(
                "an engine needs a lease of at least 0.1 s, and groups of at least 1 transaction and 1 byte"
            )


_ENGINE, _KEPT, _SPARK = EngineOptions(), Retention(), SparkOptions()
_LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]
_PLACE, _EVALUATION, _ON_SPARK = "Where the database is", "Evaluation", "Spark"
_BULK, _PROCESS = "Bulk jobs", "The engine process"


class DatabaseSettings(BaseSettings):
    """Where a database is; its engine and its services must agree on these settings."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore")

    redis_url: Annotated[
        str,
        Field(description="The Redis that holds the database: redis://HOST:PORT/N or unix:///PATH."),
        Shown("URL", _PLACE),
    ] = "redis://127.0.0.1:6379/0"
    database: Annotated[
        str,
        Field(min_length=1, description="The database's name; one Redis may hold several."),
        Shown("NAME", _PLACE),
    ] = "default"
    data_dir: Annotated[
        Path,
        Field(
            description="The folder for files that are kept, and for the data and the log of `zedlog serve`."
        ),
        Shown("FOLDER", _PLACE),
    ] = Path(".zedlog")
    batch_dir: Annotated[
        Path | None,
        Field(description="Where uploads go, and where imports keep their facts until they are applied."),
        Shown("FOLDER", _BULK, "`batches` in the data directory"),
    ] = None

    @property
    def batches(self) -> Path:
        return (self.batch_dir or self.data_dir / "batches").absolute()


class EngineSettings(DatabaseSettings):
    """How the engine of a database runs."""

    placement: Annotated[
        PlacementName,
        one_of("a placement", PLACEMENTS),
        Field(
            description="Where the state is held: in the engine process (`resident`), on Spark (`spark`), or in the "
            "engine process as long as it fits and on Spark beyond that (`auto`)."
        ),
        Shown("|".join(PLACEMENTS), _EVALUATION),
    ] = "auto"
    memory_budget: Annotated[
        int,
        SIZE,
        Field(
            description="The most memory for the tuples and symbols of the resident placement, for example 4GiB. "
            "Beyond it, `auto` moves to Spark; without Spark the transaction is refused.",
            default_factory=default_memory_budget,
        ),
        Shown("SIZE", _EVALUATION, "half of the memory"),
    ]
    epoch_seconds: Annotated[
        float | None,
        typed(parse_seconds),
        Field(description="Refuse a transaction that computes for longer; none: no limit."),
        Shown("SECONDS", _EVALUATION),
    ] = 600.0
    max_height: Annotated[
        int | None,
        whole(1),
        Field(
            description="Refuse a transaction whose recursion needs more heights than this, that is, in which the "
            "shortest derivation of some tuple is longer. Without it, only a recursion that computes or folds values "
            f"is limited, to {MAX_HEIGHT:,}."
        ),
        Shown("N", _EVALUATION, "none"),
    ] = None
    switch: Annotated[
        float,
        typed(lambda text: Policy(switch=parse_switch(text)).switch),
        Field(
            description="The fraction of a bootstrap's cost after which an update may be abandoned for a bootstrap; "
            "0: always bootstrap what changes; none: never."
        ),
        Shown("FRACTION", _EVALUATION),
    ] = SWITCH
    spark_master: Annotated[
        str,
        typed(lambda text: SparkOptions(text).master),
        Field(description="The Spark master: local[n], spark://host:port or sc://host:port."),
        Shown("MASTER", _ON_SPARK),
    ] = _SPARK.master
    spark_partitions: Annotated[
        int,
        whole(1),
        Field(description="Partitions of the state and of every exchange."),
        Shown("N", _ON_SPARK),
    ] = _SPARK.partitions
    spark_checkpoint_dir: Annotated[
        str | None,
        Field(
            min_length=1,
            description="A directory that all executors share; state that is kept there survives their loss.",
        ),
        Shown("FOLDER", _ON_SPARK),
    ] = _SPARK.checkpoint_dir
    spark_packages: Annotated[
        tuple[str, ...],
        NoDecode,
        typed(parse_packages),
        Field(
            description="A package of Maven that Spark fetches when it starts, group:artifact:version: a connector, a "
            "format of tables, a driver of a database. The option may be repeated; in the variable, commas separate "
            "the values.",
        ),
        Shown("PACKAGE", _ON_SPARK, "none", flag="spark-packages", repeated=True),
    ] = ()
    spark_conf: Annotated[
        Mapping[str, str],
        NoDecode,
        typed(parse_conf),
        Field(
            description="A setting of Spark, such as spark.driver.memory=8g; it precedes Zedlog's own. The "
            "option may be repeated; in the variable, commas separate the values.",
            default_factory=dict,
        ),
        Shown("KEY=VALUE", _ON_SPARK, "none", repeated=True),
    ]
    import_root: Annotated[
        Path | None,
        Field(description="Imports may read only files below this folder."),
        Shown("FOLDER", _BULK, "none: only uploads are read"),
    ] = None
    export_root: Annotated[
        Path | None,
        Field(description="Exports may write only below this folder."),
        Shown("FOLDER", _BULK, "none: no files are written"),
    ] = None
    bulk_schemes: Annotated[
        frozenset[str],
        NoDecode,
        typed(lambda text: frozenset(filter(None, text.split(",")))),
        AfterValidator(lambda schemes: frozenset(s.lower().removesuffix(":") for s in schemes)),
        Field(
            description="A further file system of Spark that imports and exports may use, such as s3a or hdfs. The "
            "option may be repeated; in the variable, commas separate the values."
        ),
        Shown("SCHEME", _BULK, flag="bulk-scheme", repeated=True),
    ] = frozenset()
    connections: Annotated[
        Path | None,
        Field(
            description="A folder of files NAME.properties, each with the URL, user, password and options of a "
            "database or broker, for imports that name one."
        ),
        Shown("FOLDER", _BULK, "none: no import names one"),
    ] = None
    checkpoint_dir: Annotated[
        str | None,
        Field(
            min_length=1,
            description="The folder for the checkpoint of the state in the engine process, with which a restart does "
            "not have to derive everything again; none: no checkpoints.",
        ),
        Shown("FOLDER", _PROCESS, "`checkpoint` in the data directory, if that is named"),
    ] = None
    lease_seconds: Annotated[
        float,
        seconds("from 0.1 on", lambda s: s >= 0.1),
        Field(description="How long an engine that gives no sign of life stays the writer of the database."),
        Shown("SECONDS", _PROCESS),
    ] = _ENGINE.lease_seconds
    lease_wait: Annotated[
        float | None,
        seconds("from 0 on", lambda s: s >= 0),
        Field(description="Seconds after which to give up on another engine's lease."),
        Shown("SECONDS", _PROCESS, "no limit"),
    ] = _ENGINE.lease_wait
    group_transactions: Annotated[
        int, whole(1), Field(description="The most transactions of one epoch."), Shown("N", _PROCESS)
    ] = _ENGINE.group_transactions
    group_bytes: Annotated[
        int,
        SIZE,
        Field(ge=1, description="The most bytes of transactions of one epoch."),
        Shown("SIZE", _PROCESS),
    ] = _ENGINE.group_bytes
    retain_epochs: Annotated[
        int,
        whole(1),
        Field(description="The number of epochs whose snapshot stays readable."),
        Shown("N", _PROCESS),
    ] = _KEPT.epochs
    retain_seconds: Annotated[
        float,
        seconds("from 0 on", lambda s: s >= 0),
        Field(description="A snapshot that is younger than this stays readable in any case."),
        Shown("SECONDS", _PROCESS),
    ] = _KEPT.seconds
    retain_results: Annotated[
        int,
        whole(1),
        Field(description="The number of transactions whose outcome can be looked up."),
        Shown("N", _PROCESS),
    ] = _KEPT.results
    retain_subscribed_epochs: Annotated[
        int,
        whole(0),
        Field(
            description="The most epochs that stay readable for subscriptions that have not acknowledged them."
        ),
        Shown("N", _PROCESS),
    ] = _KEPT.subscribed_epochs
    retain_subscribed_bytes: Annotated[
        int,
        SIZE,
        Field(ge=0, description="The most that the epochs which stay for subscriptions may have written."),
        Shown("SIZE", _PROCESS),
    ] = _KEPT.subscribed_bytes
    audit_every: Annotated[
        float | None,
        typed(parse_seconds),
        Field(
            description="Audit the database every so many seconds, in the background: derive everything again, compare "
            "it, and verify the snapshot in Redis; none: only when asked to (zedlog audit)."
        ),
        Shown("SECONDS", _PROCESS),
    ] = None
    log_level: Annotated[
        _LogLevel,
        one_of("a level of the log", get_args(_LogLevel)),
        Field(description="The least severe messages that the engine logs."),
        Shown("LEVEL", _PROCESS),
    ] = "INFO"

    @property
    def checkpoints(self) -> Path | None:
        """The folder for checkpoints; None: there are to be none."""
        if self.checkpoint_dir is not None:
            return None if self.checkpoint_dir == "none" else Path(self.checkpoint_dir).absolute()
        return (self.data_dir / "checkpoint").absolute() if "data_dir" in self.model_fields_set else None
