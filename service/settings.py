"""The service's settings: from `ZEDLOG_*` environment variables, or given to `Settings(...)` by name.

They are read once, when the app is made. Nothing here says anything about the engine: the two meet in Redis
only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.bulk.batches import UPLOADS

# The largest page that the API's description promises; `max_limit` may only be lower.
PAGE_LIMIT_CEILING = 100_000
# The same of a query's time, in seconds.
QUERY_TIMEOUT_CEILING = 60.0


class Settings(BaseSettings):
    """What an operator may choose. Sizes are bytes, times are seconds."""

    model_config = SettingsConfigDict(env_prefix="ZEDLOG_", extra="ignore")

    redis_url: Annotated[str, Field(description="Where the epoch log and the snapshot live.")] = (
        "redis://127.0.0.1:6379/0"
    )
    database: Annotated[str, Field(min_length=1, description="Its name is the start of every key.")] = (
        "default"
    )
    host: Annotated[str, Field(description="Where `python -m service` listens.")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8321
    max_body_bytes: Annotated[int, Field(ge=1)] = 64 * 1024 * 1024
    wait_timeout: Annotated[
        float, Field(gt=0, description="Wait this long for an epoch; then answer 202, or 503 to a read.")
    ] = 30.0
    default_limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_CEILING)] = 1_000
    max_limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_CEILING)] = PAGE_LIMIT_CEILING
    retry_after: Annotated[int, Field(ge=1, description="The Retry-After of a 503.")] = 1
    query_cache_rows: Annotated[
        int, Field(ge=0, description="Rows of projected answers kept between the pages of cursor chains.")
    ] = 1_000_000

    query_timeout: Annotated[
        float, Field(gt=0, description="The time that a query has without `timeout`.")
    ] = 10.0
    max_query_timeout: Annotated[float, Field(gt=0, le=QUERY_TIMEOUT_CEILING)] = QUERY_TIMEOUT_CEILING
    query_tuples: Annotated[
        int, Field(ge=1, description="Tuples that one query may read and compute; about 100 bytes each.")
    ] = 5_000_000
    batch_dir: Annotated[
        Path | None,
        Field(
            description="Where uploads go: the engine's batch directory. Default: `batches` in ZEDLOG_DATA_DIR."
        ),
    ] = None
    data_dir: Path = Path(".zedlog")
    max_upload_bytes: Annotated[int, Field(ge=1)] = 16 * 1024**3
    query_workers: Annotated[int, Field(ge=1, description="Queries that are evaluated at the same time.")] = 2

    @property
    def uploads(self) -> Path:
        """The folder that the engine reads uploads from."""
        return (self.batch_dir or self.data_dir / "batches").absolute() / self.database / UPLOADS

    @model_validator(mode="after")
    def _limits_agree(self) -> Settings:
        if self.default_limit > self.max_limit:
            raise ValueError(
                f"default_limit ({self.default_limit}) is larger than max_limit ({self.max_limit})"
            )
        if self.query_timeout > self.max_query_timeout:
            raise ValueError(
                f"query_timeout ({self.query_timeout}) is larger than max_query_timeout "
                f"({self.max_query_timeout})"
            )
        return self
