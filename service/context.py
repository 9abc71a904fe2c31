"""What the handlers of one app share: settings, the storage client, metrics. None of it is state of the
database."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from fastapi import Request

from engine.storage.client import DatabaseClient
from service.evaluation import Evaluator
from service.metrics import Metrics
from service.projection import ProjectionCache
from service.settings import Settings

log = logging.getLogger("zedlog.service")


class Readiness:
    """Tells the log when the service becomes ready, or is so no longer, and why: once, however often it is asked."""

    def __init__(self) -> None:
        self._told = ""

    def note(self, kind: str, text: str) -> None:
        """How it is now; `text` is logged where the kind is another one than before."""
        if kind != self._told:
            log.warning("%s", text)
            self._told = kind


@dataclass(slots=True)
class Service:
    """Made once by `create_app`, found by handlers through `service_of`."""

    settings: Settings
    client: DatabaseClient
    metrics: Metrics
    projections: ProjectionCache
    evaluator: Evaluator
    readiness: Readiness = field(default_factory=Readiness)


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service
