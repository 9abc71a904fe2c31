"""What the handlers of one app share: settings, the storage client, metrics. None of it is database state."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from fastapi import Request

from engine.storage.client import DatabaseClient
from service.access.tokens import TokenTable
from service.evaluation import Evaluator
from service.feeds.feeds import Feeds
from service.metrics import Metrics
from service.projection import ProjectionCache
from service.settings import Settings
from service.sparql.follower import Follower

log = logging.getLogger("zedlog.service")


class Readiness:
    """Logs when the service becomes ready or ceases to be ready, and why; each change once, however often it is
    asked."""

    def __init__(self) -> None:
        self._told = ""

    def note(self, kind: str, text: str) -> None:
        """Note the present state; `text` is logged if `kind` has changed."""
        if kind != self._told:
            log.warning("%s", text)
            self._told = kind


@dataclass(slots=True)
class Service:
    """Made once by `create_app`; handlers get it from `service_of`."""

    settings: Settings
    client: DatabaseClient
    metrics: Metrics
    projections: ProjectionCache
    evaluator: Evaluator
    tokens: TokenTable
    feeds: Feeds
    sparql: Follower
    readiness: Readiness = field(default_factory=Readiness)


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service
