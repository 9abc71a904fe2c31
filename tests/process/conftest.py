"""A real embedded server for the process tests; each test has a database of its own in it."""

from __future__ import annotations

from tests.embedded import client, database, server

__all__ = ["client", "database", "server"]
