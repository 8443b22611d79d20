"""Metrics for the node exporter's textfile collector, in Prometheus' text format.

A series for each host, each check, and each finding that is not ok; what is ok is only counted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from prometheus_client.core import GaugeMetricFamily, Metric

from nodevet.base.age import seconds_of
from nodevet.base.printable import brief, plain
from nodevet.model import CountedFindings, Finding, HostReport, Run, RunNews, Severity, Verdict
from nodevet.sheet import metrics
from nodevet.sheet.packed import PackedText
from nodevet.sheet.text import name
from nodevet.vet.findings.ages import read_at
from nodevet.vet.findings.counted import kinds
from nodevet.vet.findings.fold import totals

MOST_SAMPLES = 1000  # that are held before they are text
RANK = {
    Verdict.OK: 0,
    Verdict.NOT_APPLICABLE: 1,
    Verdict.WAIVED: 2,
    Verdict.UNKNOWN: 3,
    Verdict.FAIL: 4,
}
OPEN = frozenset({Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED})
IDENTITY = ("host", "check", "kind", "id", "uuid")
MOST_FINDINGS = 100
LONGEST_LABEL = 200
_RANKS = ", ".join(f"{rank} {verdict.value}" for verdict, rank in RANK.items())


def pieces(run: Run) -> Iterator[str]:
    """The run, some series at a time."""
    yield metrics.page(_about_run(run))
    checks, findings = _about_findings(run)
    yield metrics.page([checks])
    for series in (*_about_hosts(run), *findings):
        yield from series.pieces()


class _Series:
    """The samples of one large metric, as text, while they are computed."""

    def __init__(self, metric: str, help_: str, labels: Sequence[str]) -> None:
        self._fresh = partial(GaugeMetricFamily, metric, help_, labels=labels)
        self._metric = self._fresh()
        self._head = metrics.page([self._metric])
        self._text = PackedText()
        self.empty = True

    def add(self, labels: Sequence[str], value: float) -> None:
        self.empty = False
        self._metric.add_metric(labels, value)
        if len(self._metric.samples) >= MOST_SAMPLES:
            self._pack()

    def add_numbers(self, host: str, numbers: Iterable[CountedFindings]) -> None:
        """Of findings of severity shadow that are not ok, by check and verdict."""
        found: Counter[tuple[str, Verdict]] = Counter()
        for each in numbers:
            if each.severity is Severity.SHADOW and each.verdict in OPEN:
                found[each.check, each.verdict] += each.count
        for (check, verdict), number in found.items():
            self.add([host, plain(check), verdict.value], number)

    def pieces(self) -> Iterator[str]:
        self._pack()
        yield self._head
        yield from self._text

    def _pack(self) -> None:
        self._text.add(metrics.page([self._metric]).removeprefix(self._head))
        self._metric = self._fresh()


def _about_run(run: Run) -> Iterator[Metric]:
    started = seconds_of(run.started)
    if started is not None:
        yield metrics.gauge(
            "nodevet_run_timestamp_seconds", "When the run started, Unix time.", started
        )
    yield metrics.gauge("nodevet_run_duration_seconds", "How long the run took.", run.seconds)
    yield metrics.gauge(
        "nodevet_run_exit_code",
        "0 all ok, 1 a failure, 3 something could not be judged.",
        run.exit_code,
    )
    yield metrics.gauge(
        "nodevet_run_interrupted", "1 if the run was ended early.", int(run.interrupted)
    )
    info = GaugeMetricFamily("nodevet_run_info", "Version of nodevet.", labels=["version"])
    info.add_metric([plain(run.nodevet)], 1)
    yield info
    baselines = GaugeMetricFamily(
        "nodevet_baseline_info", "Baselines of the run.", labels=["baseline", "sha256"]
    )
    for baseline, sha256 in run.baselines.items():
        baselines.add_metric([plain(baseline), plain(sha256)], 1)
    yield baselines
    hosts = GaugeMetricFamily(
        "nodevet_run_hosts", "Hosts of the run by outcome.", labels=["outcome"]
    )
    for outcome, number in totals(run).hosts.items():
        hosts.add_metric([outcome.value], number)
    yield hosts
    if run.news:
        yield from _about_news(run.news)


def _about_news(news: RunNews) -> Iterator[Metric]:
    """Findings that began and ended since the last run, and since when each open finding stands."""
    new = GaugeMetricFamily(
        "nodevet_run_new", "Problems that began since the previous run.", labels=["severity"]
    )
    ended = GaugeMetricFamily(
        "nodevet_run_fixed", "Problems of the previous run that are ok now.", labels=["severity"]
    )
    begun = Counter(standing.severity for standing in news.standing if standing.new)
    over = Counter(ended.severity for ended in news.ended if ended.fixed)
    for severity in (Severity.INFO, Severity.WARNING, Severity.CRITICAL):
        new.add_metric([severity.value], begun[severity])
        ended.add_metric([severity.value], over[severity])
    since = GaugeMetricFamily(
        "nodevet_check_since_timestamp_seconds",
        "Since when the check has failed or been unknown on the host, Unix time; the check is "
        "empty for a host that was not vetted.",
        labels=["host", "check"],
    )
    flapping = GaugeMetricFamily(
        "nodevet_check_flapping",
        "How often the finding began in the last ten visits, if it is flapping.",
        labels=["host", "check"],
    )
    first: dict[tuple[str, str], float] = {}
    often: dict[tuple[str, str], int] = {}
    for family in news.standing:
        key = name(family.host), plain(family.check)
        if (at := seconds_of(family.since)) is not None:
            first[key] = min(at, first.get(key, at))
        if family.began:
            often[key] = max(family.began, often.get(key, 0))
    for key, at in first.items():
        since.add_metric(list(key), at)
    for key, number in often.items():
        flapping.add_metric(list(key), number)
    suspected = GaugeMetricFamily(
        "nodevet_run_suspicious",
        "Hosts that begin to fail the check at once: suspect the rule or the site first.",
        labels=["check"],
    )
    for suspicion in news.suspicions:
        for check in suspicion.checks or ("",):
            suspected.add_metric([plain(check)], len(suspicion.hosts))
    yield from (new, ended, since, flapping, suspected)


def _about_hosts(run: Run) -> Iterator[_Series]:
    status = _Series(
        "nodevet_host_status",
        "How the visit to the host ended, as a label; always 1.",
        labels=["host", "status"],
    )
    verdict = _Series(
        "nodevet_host_verdict",
        f"Worst verdict on the host: {_RANKS}. A host that was not vetted is unknown.",
        labels=["host"],
    )
    seconds = _Series(
        "nodevet_host_duration_seconds", "How long the visit to the host took.", labels=["host"]
    )
    read = _Series(
        "nodevet_host_evidence_timestamp_seconds",
        "When the evidence of the host was read, Unix time.",
        labels=["host"],
    )
    tries = _Series(
        "nodevet_host_tries",
        "Number of visits to the host; a host with one visit is left out.",
        labels=["host"],
    )
    for report in run.summaries:
        host = name(report.host)
        if report.first_try:
            tries.add([host], 2)
        status.add([host, report.status.value], 1)
        verdict.add([host], RANK[report.verdict])
        seconds.add([host], report.seconds)
        if (at := seconds_of(read_at(report))) is not None:
            read.add([host], at)
    told = [report for report in (read, tries) if not report.empty]
    yield from (status, verdict, seconds, *told)


def _about_findings(run: Run) -> tuple[Metric, tuple[_Series, ...]]:
    """How many hosts have each verdict, check by check; and one series for each part that is not
    ok, with numbers of everything else. Both in one pass: a host of a large run is unpacked."""
    hosts = GaugeMetricFamily(
        "nodevet_check_hosts",
        "Hosts by the worst verdict of the check; a verdict without hosts is left out.",
        labels=["check", "verdict"],
    )
    verdicts: Counter[tuple[str, Verdict]] = Counter()
    info = _Series(
        "nodevet_finding_info",
        f"A finding that is not ok; always 1. At most {MOST_FINDINGS} of a host.",
        labels=[*IDENTITY, "verdict"],
    )
    severity = _Series(
        "nodevet_finding_severity",
        "Severity of a finding that is not ok: 1 info, 2 warning, 3 critical.",
        labels=IDENTITY,
    )
    counts = _Series(
        "nodevet_host_findings",
        "Findings on the host by verdict; a verdict without findings is left out.",
        labels=["host", "verdict"],
    )
    shadow = _Series(
        "nodevet_shadow_findings",
        "Findings that are not ok of a check of severity shadow on the host, by verdict; they "
        "count nowhere else.",
        labels=["host", "check", "verdict"],
    )
    for report in run.hosts:
        host = name(report.host)
        open_findings = {
            (*_identity(host, finding), finding.verdict.value): finding.severity.rank
            for finding in report.findings
            if finding.verdict in OPEN and finding.severity is not Severity.SHADOW
        }
        for labels in islice(open_findings, MOST_FINDINGS):
            info.add(labels, 1)
        for labels, rank in islice(_highest(open_findings).items(), MOST_FINDINGS):
            severity.add(labels, rank)
        numbers = _numbers(report)
        for verdict, number in _by_verdict(numbers).items():
            counts.add([host, verdict.value], number)
        shadow.add_numbers(host, numbers)
        verdicts.update(_worst(numbers).items())
    for (check, verdict), number in verdicts.items():
        hosts.add_metric([plain(check), verdict.value], number)
    return hosts, (info, severity, counts, *([] if shadow.empty else [shadow]))


def _identity(host: str, finding: Finding) -> tuple[str, ...]:
    """The labels that stay the same as long as the finding stands."""
    subject = finding.subject
    parts = (finding.check, subject.kind, subject.id, subject.uuid or "")
    return (host, *(brief(part, LONGEST_LABEL) for part in parts))


def _highest(open_findings: Mapping[tuple[str, ...], int]) -> dict[tuple[str, ...], int]:
    """The highest rank of each identity, whatever its verdicts."""
    ranks: dict[tuple[str, ...], int] = {}
    for (*identity, _), rank in open_findings.items():
        ranks[tuple(identity)] = max(rank, ranks.get(tuple(identity), 0))
    return ranks


def _numbers(report: HostReport) -> tuple[CountedFindings, ...]:
    """All findings of a host, counted."""
    return (*kinds((*report.findings, *(report.shadow or ()))), *(report.counted or ()))


def _by_verdict(numbers: Iterable[CountedFindings]) -> Counter[Verdict]:
    found: Counter[Verdict] = Counter()
    for each in numbers:
        if each.severity is not Severity.SHADOW:
            found[each.verdict] += each.count
    return found


def _worst(numbers: Iterable[CountedFindings]) -> dict[str, Verdict]:
    """The worst verdict of each check."""
    worst: dict[str, Verdict] = {}
    for each in numbers:
        if each.severity is not Severity.SHADOW:
            before = worst.get(each.check, each.verdict)
            worst[each.check] = max(before, each.verdict, key=RANK.__getitem__)
    return worst
