"""When a sweep last began and ended, as metrics, so that monitoring notices a missing sweep."""

from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from nodevet.base.files import read_input
from nodevet.base.outputs import file_errors, replace, try_out_regular

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
    """Write these, and keep what else the file says. Raises FileError."""
    try_out_regular(path)
    with file_errors(path):
        replace(path, text(name, {**_known(path, name), **values}))


def text(name: str, known: Mapping[str, float]) -> str:
    """The text of the file for one sweep."""
    rows = []
    for metric, help_text in METRICS.items():
        if metric in known:
            full = f"{PREFIX}{metric}"
            rows += [f"# HELP {full} {help_text}", f"# TYPE {full} gauge"]
            rows.append(f'{full}{{sweep="{name}"}} {known[metric]!r}')
    return "\n".join(rows) + "\n"


def _known(path: Path, name: str) -> dict[str, float]:
    """The values that the file has of this sweep; empty for a file that is not ours."""
    try:
        text = read_input(path, MOST_BYTES).decode()
        return {
            sample.name.removeprefix(PREFIX): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.labels.get("sweep") == name
        }
    except (OSError, ValueError):
        return {}
