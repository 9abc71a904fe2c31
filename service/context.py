"""What the handlers of one app share: settings, the storage client, metrics. None of it is state of the
database."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from engine.storage.client import DatabaseClient
from service.evaluation import Evaluator
from service.metrics import Metrics
from service.projection import ProjectionCache
from service.settings import Settings


@dataclass(slots=True)
class Service:
    """Made once by `create_app`, found by handlers through `service_of`."""

    settings: Settings
    client: DatabaseClient
    metrics: Metrics
    projections: ProjectionCache
    evaluator: Evaluator


def service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service
