"""Metrics for the node exporter's textfile collector: the run, each node, each fix on it."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily, Metric

from nodevet.age import seconds_of
from nodevet.printable import plain
from nodevet.remedy.report.words import tally
from nodevet.remedy.result import Result
from nodevet.report.prometheus import gauge, page
from nodevet.report.text import name

RUN = "nodevet_fix_run"


def render(result: Result) -> str:
    return page([*_about_run(result), *_about_hosts(result)])


def _about_run(result: Result) -> Iterator[Metric]:
    started = seconds_of(result.started)
    if started is not None:
        yield gauge(f"{RUN}_timestamp_seconds", "When the run started, Unix time.", started)
    yield gauge(f"{RUN}_duration_seconds", "How long the run took.", result.seconds)
    yield gauge(
        f"{RUN}_exit_code",
        "0 all right, 1 failed, refused or not attempted, 3 rollback failed or unknown.",
        result.exit_code,
    )
    yield gauge(f"{RUN}_stopped", "1 if nodes were not attempted.", int(bool(result.stopped)))
    yield gauge(f"{RUN}_approvals", "Signatures that count.", len(result.approvals))
    labels = {"kind": result.kind, "plan": result.plan, "sha256": result.digest}
    labels |= {"author": result.author, "version": result.nodevet}
    info = GaugeMetricFamily(f"{RUN}_info", "What was carried out.", labels=list(labels))
    info.add_metric([plain(value) for value in labels.values()], 1)
    yield info
    nodes = GaugeMetricFamily(f"{RUN}_hosts", "Nodes by how they ended.", labels=["outcome"])
    for outcome, number in tally(result).items():
        nodes.add_metric([outcome.value], number)
    yield nodes


def _about_hosts(result: Result) -> Iterator[Metric]:
    ended = GaugeMetricFamily(
        "nodevet_fix_host_outcome", "1 for how the node ended.", labels=["host", "outcome"]
    )
    steps = GaugeMetricFamily(
        "nodevet_fix_steps", "Steps of a fix by outcome.", labels=["host", "fix", "outcome"]
    )
    seconds = GaugeMetricFamily(
        "nodevet_fix_host_duration_seconds", "How long the node took.", labels=["host"]
    )
    for host in result.hosts:
        label = name(host.host)
        ended.add_metric([label, host.outcome.value], 1)
        seconds.add_metric([label], host.seconds)
        for (fix, outcome), number in Counter((s.fix, s.outcome) for s in host.steps).items():
            steps.add_metric([label, plain(fix), outcome.value], number)
    yield from (ended, steps, seconds)
