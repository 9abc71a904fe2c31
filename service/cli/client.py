"""How the command line talks to a running service: the product's own client, without its models, so that commands start
quickly. Every command uses only this module, so errors look the same everywhere.
"""

from __future__ import annotations

from typing import Any

from zedlog.client.blocking import BlockingConnection
from zedlog.client.connection import ATTEMPTS, DEFAULT_URL, TOKEN_VARIABLE, Connection, new_key
from zedlog.client.drivers import blocking, same
from zedlog.client.errors import Json, Unreachable
from zedlog.client.errors import ServiceError as Refused

__all__ = ["ATTEMPTS", "DEFAULT_URL", "TOKEN_VARIABLE", "Json", "Refused", "ServiceClient", "Unreachable"]


class _Connection(Connection):
    hint = "give the URL of another one with --url or ZEDLOG_URL"


class ServiceClient(BlockingConnection):
    """A blocking client of one service. Use as a context manager."""

    Core = _Connection
    query = BlockingConnection.query_pages
    exchange = blocking(Connection.exchange, same)

    def transaction(self, body: Json, **options: Any) -> Json:
        """Post a transaction and wait for its epoch; options: those of `change`."""
        return self.change("/v1/transactions", body, **options)

    def sparql(self, query: str, accept: str, timeout: float | None = None) -> tuple[str, str, bytes]:
        """The media type, the epoch and the answer of a SPARQL query."""
        headers = {"accept": accept, "content-type": "application/sparql-query"}
        response = self.exchange("POST", "/sparql", {"timeout": timeout}, query, headers, repeatable=True)
        kind = response.headers.get("content-type", "").partition(";")[0]
        return kind, response.headers.get("zedlog-epoch", "?"), response.content

    def sparql_update(self, text: str, **options: Any) -> Json:
        """The outcome of a SPARQL update; options: those of `change`. It has a key of its own, so that a lost
        connection does no harm."""
        kind = "application/sparql-update"
        return self.change("/sparql", text, content_type=kind, key=new_key(), **options)
