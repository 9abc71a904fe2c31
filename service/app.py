"""The HTTP service: `create_app` combines settings, storage client, calls and errors.

In: settings. Out: an ASGI app. Always: the app holds no state of the database, so any number of apps may serve one
database; it starts, and stays up, whether or not Redis and the engine are available.

    uvicorn --factory service.app:create_app

There are two middlewares: one counts for the metrics, and inside of it the guard decides who makes a request. The size
of bodies is limited where they are read, so that requests without a body cost nothing more.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from engine.server.options import read_settings
from engine.storage.client import DatabaseClient
from service import problems, reference
from service.access.guard import Guard
from service.access.log import configure
from service.access.openid import Provider
from service.access.roles import Decisions
from service.access.sessions import Sessions
from service.access.tokens import TokenTable
from service.console.mount import mount
from service.context import Service
from service.description import describe
from service.evaluation import Evaluator
from service.feeds.feeds import Feeds
from service.metrics import Metrics, MetricsMiddleware
from service.projection import ProjectionCache
from service.routes import (
    audits,
    backups,
    changes,
    explain,
    exports,
    history,
    imports,
    insight,
    jobs,
    query,
    relations,
    rules,
    sources,
    sparql,
    subscriptions,
    tokens,
    transactions,
    whoami,
)
from service.settings import Settings
from service.sparql.follower import Follower, Limits
from service.sparql.metrics import SparqlMetrics

_CALLS = (
    transactions,
    rules,
    relations,
    query,
    explain,
    changes,
    subscriptions,
    imports,
    exports,
    jobs,
    audits,
    backups,
    insight,
    history,
    sources,
    tokens,
    whoami,
    sparql,
)


def create_app(settings: Settings | None = None, client: DatabaseClient | None = None) -> FastAPI:
    """An app for one database. `client` is for tests and for embedding; by default it is made from the settings.

    Raises:
        InvalidRequestError: without `settings`, a variable of the environment has a wrong value.
    """
    settings = settings or read_settings(Settings, {})
    client = client or DatabaseClient.connect(
        settings.redis_url, settings.database, index_bytes=settings.index_bytes
    )
    projections = ProjectionCache(settings.query_cache_rows)
    table = TokenTable(client.tokens)
    metrics, evaluator = Metrics(), Evaluator(settings)
    feeds = Feeds(settings, client, evaluator, metrics)
    limits = Limits(
        settings.sparql_bytes, settings.sparql_query_bytes, settings.sparql_idle, settings.wait_timeout
    )
    follower = Follower(client, limits)
    SparqlMetrics(metrics.registry, lambda: follower.stats)
    service = Service(settings, client, metrics, projections, evaluator, table, feeds, follower)
    configure(settings.access_log)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Beside the first requests: only a query that is more than one atom waits for it.
        loading = asyncio.create_task(_load(service))
        yield
        await asyncio.gather(loading, return_exceptions=True)
        if console is not None:
            await console.close()
        await service.feeds.close()
        await service.sparql.close()
        await service.client.close()

    app = FastAPI(title="Zedlog", lifespan=lifespan, redirect_slashes=False, docs_url=None, redoc_url=None)
    app.state.service = service
    routers = [module.router for module in _CALLS]
    sessions = None if settings.no_console else Sessions()
    app.add_middleware(
        Guard,
        settings=settings,
        tokens=table,
        provider=_provider(settings),
        decisions=Decisions(routers),
        sessions=sessions,
    )
    app.add_middleware(MetricsMiddleware, metrics=service.metrics)
    problems.install(app)
    for router in routers:
        app.include_router(router)
    describe(app)
    reference.install(app)
    console = None if sessions is None else mount(app, sessions, settings.tls_cert is not None)
    return app


def _provider(settings: Settings) -> Provider | None:
    if settings.jwt_keys is None:
        return None
    return Provider(
        settings.jwt_keys,
        settings.jwt_audience,
        settings.jwt_issuer,
        settings.jwt_roles,
        settings.jwt_name,
    )


async def _load(service: Service) -> None:
    await service.evaluator.load()
    # What is there now stays. Otherwise the garbage collector would look at all of it from time to time, and every
    # request would wait meanwhile, some 50 ms.
    gc.freeze()
