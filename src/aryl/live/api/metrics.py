"""Metrics for Prometheus: the control plane's gauges and counters, and how the API answers.

Labels are route templates, never paths, so that their number is bounded and no job's name gets out. The
duration is that until the answer begins, since a stream of events may last for days.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from aryl.live.control import Control

PREFIX = "aryl"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
LABELS = ("method", "route", "status")
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """All that `/metrics` shows. Each has a registry of its own, so that one process may hold several."""

    def __init__(self, control: Control) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "http_requests", "Requests answered.", LABELS, namespace=PREFIX, registry=self.registry
        )
        self._durations = Histogram(
            "http_request_duration_seconds",
            "Time from a request's arrival until its answer begins.",
            LABELS,
            namespace=PREFIX,
            registry=self.registry,
            buckets=BUCKETS_S,
        )
        ProcessCollector(namespace=PREFIX, registry=self.registry)
        self.registry.register(_Gauges(control))
        self._children = lru_cache(maxsize=1024)(self._make_children)

    def observe(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count one answer."""
        counter, histogram = self._children(method if method in METHODS else "other", route, str(status))
        counter.inc()
        histogram.observe(duration_s)

    def text(self) -> bytes:
        """The whole page."""
        return generate_latest(self.registry)

    def _make_children(self, *labels: str) -> tuple[Counter, Histogram]:
        return self._requests.labels(*labels), self._durations.labels(*labels)


class _Gauges(Collector):
    """Asks the control plane at each scrape."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: the names are only known when asked for."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """One family a name; what ends in `_total` is a counter."""
        for name, values in sorted(self._control.gauges().items()):
            text = name.replace("_", " ")
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            labels = [label for label, _ in next(iter(values), ())]
            family = kind(f"{PREFIX}_{name}", text, labels=labels)
            for given, value in sorted(values.items()):
                family.add_metric([dict(given)[label] for label in labels], value)
            yield family
