"""Prometheus metrics of one app, and the ASGI middleware that counts its requests.

Each app has its own registry, so that two apps in one process do not interfere. Requests are labelled with the route's
template, never with the path itself, so that the number of series stays bounded whatever clients ask for. The
middleware is plain ASGI (no task, no copy of the body) and costs some microseconds a request.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine.storage.audits import LastAudit
from engine.storage.indexes import IndexStats

_BUCKETS = (0.001, 0.0025, 0.005, 0.0075, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Counted(Collector):
    """A counter that is kept elsewhere: `now` is the value read last; before the first reading nothing is shown."""

    def __init__(self, name: str, documentation: str, registry: CollectorRegistry) -> None:
        self._name, self._documentation = name, documentation
        self.now: int | None = None
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        if self.now is not None:
            yield CounterMetricFamily(self._name, self._documentation, value=self.now)


class IndexMetrics(Collector):
    """What the indexes of this process take and took; `now` is the value read last."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.now = IndexStats()
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        now = self.now
        yield GaugeMetricFamily("zedlog_index_bytes", "Memory of indexes of relations.", value=now.bytes)
        yield GaugeMetricFamily("zedlog_index_running", "Indexes that are being made.", value=now.running)
        builds = "Parts of relations that were packed or sorted for an index."
        yield CounterMetricFamily("zedlog_index_builds", builds, value=now.builds)
        seconds = "Seconds that this took, beside other work."
        yield CounterMetricFamily("zedlog_index_build_seconds", seconds, value=now.seconds)


class AuditMetrics(Collector):
    """The last self-audits that have ended, by kind; `now` is what was read last."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.now: Mapping[str, LastAudit] = {}
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        passed = GaugeMetricFamily(
            "zedlog_audit_passed",
            "1 if the last self-audit found no difference; 0 if it found one, or could not be completed.",
            labels=["kind"],
        )
        differing = GaugeMetricFamily(
            "zedlog_audit_differences", "Differences that the last self-audit found.", labels=["kind"]
        )
        finished = GaugeMetricFamily(
            "zedlog_audit_finished_timestamp_seconds", "When the last self-audit ended.", labels=["kind"]
        )
        age = GaugeMetricFamily(
            "zedlog_audit_age_seconds", "Seconds since the last self-audit ended.", labels=["kind"]
        )
        for kind, last in sorted(self.now.items()):
            passed.add_metric([kind], int(last.status == "passed"))
            if last.differing is not None:
                differing.add_metric([kind], last.differing)
            finished.add_metric([kind], last.finished)
            age.add_metric([kind], max(0.0, time.time() - last.finished))
        yield from (passed, differing, finished, age)


class Metrics:
    """The collectors, named after what they count."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "zedlog_http_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "zedlog_http_request_seconds",
            "Time from a request's first byte to the last byte of the answer.",
            ["method", "route"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.transactions = Counter(
            "zedlog_transactions",
            "Transactions answered by this process, by outcome (pending: answered 202).",
            ["outcome"],
            registry=self.registry,
        )
        self.epoch = Gauge("zedlog_epoch", "The newest committed epoch.", registry=self.registry)
        self.lag = Gauge(
            "zedlog_log_lag", "Transactions in the log without an outcome.", registry=self.registry
        )
        self.engine_up = Gauge(
            "zedlog_engine_up", "1 while an engine serves the database.", registry=self.registry
        )
        self.epoch_running = Gauge(
            "zedlog_epoch_running_seconds",
            "Seconds for which the current epoch has been evaluated; 0 while none is.",
            registry=self.registry,
        )
        self.faults = Counted(
            "zedlog_internal_errors",
            "Transactions of the database that were refused because of bugs in Zedlog itself.",
            self.registry,
        )
        self.indexes = IndexMetrics(self.registry)
        self.audits = AuditMetrics(self.registry)
        self.storage_up = Gauge("zedlog_storage_up", "1 while Redis can be reached.", registry=self.registry)


class MetricsMiddleware:
    """Counts each request, with its route's template and its time."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status = 500
        started = time.perf_counter()

        async def observe(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, observe)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route = getattr(scope.get("route"), "path", "unmatched")
            self.metrics.requests.labels(method, route, str(status)).inc()
            self.metrics.seconds.labels(method, route).observe(time.perf_counter() - started)
