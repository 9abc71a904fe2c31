"""The prefixes of the database, for commands that read program text or shorten IRIs themselves."""

from __future__ import annotations

from engine.language.parser import parse_prefixes
from engine.language.prefixes import NO_PREFIXES, Prefixes, may_use_prefixes
from service.cli.client import ServiceClient


def declared_prefixes(client: ServiceClient) -> Prefixes:
    """All that the newest epoch declares."""
    return parse_prefixes(client.get("/v1/rules")["declarations"])


def prefixes_for(client: ServiceClient, text: str) -> Prefixes:
    """The same, if the text may use any."""
    return declared_prefixes(client) if may_use_prefixes(text) else NO_PREFIXES
