"""Metrics in Prometheus' text format, for the node exporter's textfile collector."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric


def page(metrics: Iterable[Metric]) -> str:
    """A file of these metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(metrics))
    return str(generate_latest(registry).decode())


class _Metrics:
    """A collector as prometheus_client wants it."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def gauge(metric: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(metric, help_, value=value)
