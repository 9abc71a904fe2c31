"""Metrics of the feeds of one app."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0)


class FeedMetrics:
    """The collectors, named after what they count."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.listeners = Gauge("zedlog_feed_listeners", "Listeners of change feeds now.", registry=registry)
        self.queries = Gauge(
            "zedlog_feed_queries",
            "Views of queries that are kept up to date for listeners.",
            registry=registry,
        )
        self.lag = Gauge(
            "zedlog_feed_lag_epochs",
            "Epochs by which the slowest listener is behind the newest one.",
            registry=registry,
        )
        self.events = Counter("zedlog_feed_events", "Events sent to listeners.", ["event"], registry=registry)
        self.cut_off = Counter(
            "zedlog_feed_cut_off",
            "Listeners that were cut off because they were too slow.",
            registry=registry,
        )
        self.delay = Histogram(
            "zedlog_feed_delay_seconds",
            "Time from the publication of an epoch until a listener was sent its change.",
            buckets=_BUCKETS,
            registry=registry,
        )
