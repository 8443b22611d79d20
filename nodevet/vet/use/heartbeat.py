"""When a sweep last began and ended, as metrics, so that monitoring notices a missing sweep."""

from collections.abc import Mapping
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from nodevet.base.files import read_input
from nodevet.base.outputs import file_errors, replace, try_out_regular
from nodevet.sheet.metrics import page

MOST_BYTES = 1 << 20
PREFIX = "nodevet_sweep_"
METRICS = {
    "start_timestamp_seconds": "When the sweep last began, Unix time.",
    "end_timestamp_seconds": "When the last sweep had written its reports, Unix time.",
    "exit_code": "Exit code of the last finished sweep: 0, 1, 2 or 3.",
    "hosts": "Hosts of the last finished sweep.",
    "vetted_hosts": "Vetted hosts of the last finished sweep.",
    "notify_failed": "Addresses that could not be notified.",
}


def beat(path: Path, name: str, values: Mapping[str, float]) -> None:
    """Write these, and keep what else the file says, of other sweeps too. Raises FileError."""
    try_out_regular(path)
    with file_errors(path):
        known = _file_values(path)
        replace(path, text({**known, name: {**known.get(name, {}), **values}}))


def text(sweeps: Mapping[str, Mapping[str, float]]) -> str:
    """The text of the file; the values of each sweep by metric."""
    return page(filter(lambda metric: metric.samples, (_gauge(name, sweeps) for name in METRICS)))


def _gauge(metric: str, sweeps: Mapping[str, Mapping[str, float]]) -> GaugeMetricFamily:
    gauge = GaugeMetricFamily(f"{PREFIX}{metric}", METRICS[metric], labels=["sweep"])
    for name, values in sweeps.items():
        if metric in values:
            gauge.add_metric([name], values[metric])
    return gauge


def _file_values(path: Path) -> dict[str, dict[str, float]]:
    """The values that the file has of each sweep; empty for a file that is not ours."""
    sweeps: dict[str, dict[str, float]] = {}
    try:
        text = read_input(path, MOST_BYTES).decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if "sweep" in sample.labels:
                    values = sweeps.setdefault(sample.labels["sweep"], {})
                    values[sample.name.removeprefix(PREFIX)] = sample.value
    except (OSError, ValueError):
        return {}
    return sweeps
