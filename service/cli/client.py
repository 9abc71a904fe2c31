"""How the command line talks to a running service: the product's own client, without its models, so that commands start
quickly. Every command uses only this module, so errors look the same everywhere.
"""

from __future__ import annotations

from typing import Any

from zedlog.client.blocking import BlockingConnection
from zedlog.client.connection import ATTEMPTS, DEFAULT_URL, TOKEN_VARIABLE, Connection
from zedlog.client.errors import Json, Unreachable
from zedlog.client.errors import ServiceError as Refused

__all__ = ["ATTEMPTS", "DEFAULT_URL", "TOKEN_VARIABLE", "Json", "Refused", "ServiceClient", "Unreachable"]


class _Connection(Connection):
    hint = "give the URL of another one with --url or ZEDLOG_URL"


class ServiceClient(BlockingConnection):
    """A blocking client of one service. Use as a context manager."""

    Core = _Connection
    query = BlockingConnection.query_pages

    def transaction(self, body: Json, **options: Any) -> Json:
        """Post a transaction and wait for its epoch; options: those of `change`."""
        return self.change("/v1/transactions", body, **options)
