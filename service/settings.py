"""The service's settings: from `ZEDLOG_*` environment variables, or given to `Settings(...)` by name.

They are read once, when the app is made. Sizes are bytes, times are seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from engine.bulk.batches import UPLOADS
from engine.server.options import SIZE, seconds, whole
from service.access.settings import AccessSettings

# The largest page that the API's description promises; `max_limit` may only be lower.
PAGE_LIMIT_CEILING = 100_000
# The same of a query's time, in seconds.
QUERY_TIMEOUT_CEILING = 60.0
# What a listener may ask for.
LEAST_HEARTBEAT, MOST_HEARTBEAT = 0.1, 300.0
_ABOVE_0 = seconds("above 0", lambda s: s > 0)


class Settings(AccessSettings):
    """What an operator may configure in the service."""

    max_body_bytes: Annotated[int, SIZE, Field(ge=1, description="The largest request body.")] = (
        64 * 1024 * 1024
    )
    wait_timeout: Annotated[
        float,
        _ABOVE_0,
        Field(description="Wait this long for an epoch; then answer a change with 202, a read with 503."),
    ] = 30.0
    default_limit: Annotated[
        int,
        whole(1, PAGE_LIMIT_CEILING),
        Field(description="Rows in a page that is asked for without `limit`."),
    ] = 1_000
    max_limit: Annotated[int, whole(1, PAGE_LIMIT_CEILING), Field(description="The most rows in a page.")] = (
        PAGE_LIMIT_CEILING
    )
    retry_after: Annotated[int, whole(1), Field(description="The Retry-After of a 503, in seconds.")] = 1
    query_cache_rows: Annotated[
        int,
        whole(0),
        Field(description="Rows of projected answers that are kept for the next pages of a query."),
    ] = 1_000_000
    query_timeout: Annotated[
        float, _ABOVE_0, Field(description="The time that a query without `timeout` may take.")
    ] = 10.0
    max_query_timeout: Annotated[
        float,
        seconds(f"above 0 and up to {QUERY_TIMEOUT_CEILING:g}", lambda s: 0 < s <= QUERY_TIMEOUT_CEILING),
        Field(description="The most time that a query may ask for."),
    ] = QUERY_TIMEOUT_CEILING
    query_tuples: Annotated[
        int, whole(1), Field(description="Tuples that one query may read and compute; about 100 bytes each.")
    ] = 5_000_000
    index_bytes: Annotated[
        int,
        SIZE,
        Field(
            ge=0,
            description="The most memory for indexes of large relations, which are made when a read has use for one; "
            "0: every read is a scan.",
        ),
    ] = 512 * 1024**2
    max_upload_bytes: Annotated[int, SIZE, Field(ge=1, description="The largest upload.")] = 16 * 1024**3
    feed_listeners: Annotated[
        int, whole(1), Field(description="The most listeners of change feeds at a time.")
    ] = 1_000
    feed_queries: Annotated[
        int, whole(0), Field(description="The most queries that are kept up to date at a time for listeners.")
    ] = 50
    feed_heartbeat: Annotated[
        float,
        seconds(
            f"from {LEAST_HEARTBEAT:g} to {MOST_HEARTBEAT:g}",
            lambda s: LEAST_HEARTBEAT <= s <= MOST_HEARTBEAT,
        ),
        Field(description="A feed without `heartbeat` sends an event at least this often."),
    ] = 15.0
    feed_send_timeout: Annotated[
        float,
        _ABOVE_0,
        Field(description="A listener that takes nothing for this long is cut off; it can come back."),
    ] = 10.0
    feed_seconds: Annotated[
        float,
        _ABOVE_0,
        Field(description="A feed ends after this time, and its listener comes back with a new request."),
    ] = 3_600.0
    feed_tuples: Annotated[int, whole(1), Field(description="The most tuples of one event of a feed.")] = (
        1_000_000
    )
    sparql_bytes: Annotated[
        int,
        SIZE,
        Field(
            ge=0,
            description="The most memory for the store that answers SPARQL, about 1 KB for a triple; 0: there is none.",
        ),
    ] = 4 * 1024**3
    sparql_query_bytes: Annotated[
        int, SIZE, Field(ge=1, description="The most memory that a SPARQL query takes beside the store.")
    ] = 1024**3
    sparql_answer_bytes: Annotated[
        int, SIZE, Field(ge=1, description="The largest answer of a SPARQL query.")
    ] = 256 * 1024**2
    sparql_update_triples: Annotated[
        int, whole(1), Field(description="The most triples that one SPARQL update deletes and inserts.")
    ] = 500_000
    sparql_idle: Annotated[
        float, _ABOVE_0, Field(description="A SPARQL store that nobody has asked for so long is dropped.")
    ] = 1_800.0
    query_workers: Annotated[
        int, whole(1), Field(description="Queries that are evaluated at the same time; others wait.")
    ] = 2

    @property
    def uploads(self) -> Path:
        """The folder that the engine reads uploads from."""
        return self.batches / self.database / UPLOADS

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
