"""What the store takes and did, for Prometheus: for everybody, so not how many triples there are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from service.sparql.follower import Stats


class SparqlMetrics(Collector):
    """stats: what to show, each time."""

    def __init__(self, registry: CollectorRegistry, stats: Callable[[], Stats]) -> None:
        self._stats = stats
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        now = self._stats()
        yield GaugeMetricFamily(
            "zedlog_sparql_bytes",
            "Memory of the process of the SPARQL store; 0: there is none.",
            value=now.bytes,
        )
        yield CounterMetricFamily(
            "zedlog_sparql_fills", "How often the SPARQL store was filled.", value=now.filled
        )
        yield CounterMetricFamily(
            "zedlog_sparql_epochs", "Epochs whose changes the SPARQL store followed.", value=now.followed
        )
