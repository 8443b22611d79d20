"""Metrics in Prometheus' text format, for the node exporter's textfile collector."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric


def page(metrics: Iterable[Metric]) -> str:
    """Metrics as a file of the textfile collector."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Metrics(metrics))
    return str(generate_latest(registry).decode())


class _Metrics:
    """What prometheus_client asks for metrics."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def gauge(metric: str, help_: str, value: float) -> Metric:
    return GaugeMetricFamily(metric, help_, value=value)
