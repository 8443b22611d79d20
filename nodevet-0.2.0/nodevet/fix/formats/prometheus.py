"""Metrics for the node exporter's textfile collector, in Prometheus' text format.

One series per host, and per host and check or fix; single GPUs are counted, not listed.
"""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import GaugeMetricFamily, Metric

from nodevet.base.age import seconds_of
from nodevet.base.printable import plain
from nodevet.fix import result_text
from nodevet.sheet import metrics
from nodevet.sheet.text import name

if TYPE_CHECKING:
    from nodevet.fixing.result import Result
    from nodevet.resource import Contents

ENDING = ".prom"
FIX_RUN = "nodevet_fix_run"


def render(result: "Result", contents: "Contents") -> str:
    return metrics.page([*_about_fix_run(result), *_about_fixed_hosts(result)])


def _about_fix_run(result: "Result") -> Iterator[Metric]:
    started = seconds_of(result.started)
    if started is not None:
        yield metrics.gauge(
            f"{FIX_RUN}_timestamp_seconds", "When the run started, Unix time.", started
        )
    yield metrics.gauge(f"{FIX_RUN}_duration_seconds", "How long the run took.", result.seconds)
    yield metrics.gauge(
        f"{FIX_RUN}_exit_code",
        "0 every host ended as asked, 1 failed, partial, refused or not attempted, "
        "3 rollback failed or unknown.",
        result.exit_code,
    )
    yield metrics.gauge(
        f"{FIX_RUN}_stopped",
        "1 if the run was stopped before every host was attempted.",
        int(bool(result.stopped)),
    )
    yield metrics.gauge(f"{FIX_RUN}_approvals", "Signatures that count.", len(result.approvals))
    labels = {"kind": result.kind, "plan": result.plan, "sha256": result.digest}
    labels |= {"author": result.author, "version": result.nodevet}
    info = GaugeMetricFamily(f"{FIX_RUN}_info", "The plan that was applied.", labels=list(labels))
    info.add_metric([plain(value) for value in labels.values()], 1)
    yield info
    nodes = GaugeMetricFamily(
        f"{FIX_RUN}_hosts", "Hosts of the run by outcome.", labels=["outcome"]
    )
    for outcome, number in result_text.tally(result).items():
        nodes.add_metric([outcome.value], number)
    yield nodes


def _about_fixed_hosts(result: "Result") -> Iterator[Metric]:
    outcomes = GaugeMetricFamily(
        "nodevet_fix_host_outcome",
        "How the host ended, as a label; always 1.",
        labels=["host", "outcome"],
    )
    steps = GaugeMetricFamily(
        "nodevet_fix_steps", "Steps of a fix by outcome.", labels=["host", "fix", "outcome"]
    )
    seconds = GaugeMetricFamily(
        "nodevet_fix_host_duration_seconds", "How long the host took.", labels=["host"]
    )
    for host in result.hosts:
        label = name(host.host)
        outcomes.add_metric([label, host.outcome.value], 1)
        seconds.add_metric([label], host.seconds)
        for (fix, outcome), number in Counter((s.fix, s.outcome) for s in host.steps).items():
            steps.add_metric([label, plain(fix), outcome.value], number)
    yield from (outcomes, steps, seconds)
