"""Findings that passed or do not apply, as numbers: all that a saved run has of them without
`--all`. Every other finding stays as it is. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from nodevet.model import (
    CountedFindings,
    Finding,
    HostReport,
    HostSummary,
    Run,
    RunNews,
    Severity,
    Verdict,
)
from nodevet.sheet.text import count

FINE = (Verdict.OK, Verdict.NOT_APPLICABLE)


def with_counts(run: Run) -> Run:
    """The run with findings that are fine only counted; its news has their new places."""
    hosts = run.hosts
    short = tuple(map(counted, hosts)) if isinstance(hosts, tuple) else CountedHosts(hosts)
    return replace(run, news=_news(run), hosts=short)


def counted(report: HostReport) -> HostReport:
    """The report with findings that are fine only counted; itself if it lists none."""
    fine = [each for each in (*report.findings, *(report.shadow or ())) if each.verdict in FINE]
    if not fine:
        return report
    return replace(
        report,
        findings=_listed(report.findings),
        shadow=_listed(report.shadow or ()) or UNSET,
        counted=(*(report.counted or ()), *kinds(fine)),
    )


def kinds(findings: Iterable[Finding]) -> Iterator[CountedFindings]:
    """How many findings of each check have each verdict and severity."""
    numbers = Counter((each.check, each.verdict, each.severity) for each in findings)
    for (check, verdict, severity), number in numbers.items():
        yield CountedFindings(check=check, verdict=verdict, severity=severity, count=number)


def with_stand_ins(report: HostReport) -> HostReport:
    """The report with one finding in place of each number, to show it to people."""
    if not report.counted:
        return report
    findings = [
        Finding(
            verdict=each.verdict,
            check=each.check,
            severity=each.severity,
            why=f"{count(each.count, 'finding')}, saved without details",
        )
        for each in report.counted
    ]
    shown = (each for each in findings if each.severity is not Severity.SHADOW)
    shadow = (each for each in findings if each.severity is Severity.SHADOW)
    return replace(
        report,
        findings=(*report.findings, *shown),
        shadow=(*(report.shadow or ()), *shadow) or UNSET,
        counted=UNSET,
    )


class CountedHosts(Sequence[HostReport]):
    """Reports that are counted when they are read: many whole ones would not fit into memory."""

    def __init__(self, hosts: Sequence[HostReport]) -> None:
        self._hosts = hosts

    @property
    def summaries(self) -> Sequence[HostSummary] | None:
        """Those of the whole reports."""
        return getattr(self._hosts, "summaries", None)

    def __len__(self) -> int:
        return len(self._hosts)

    def __iter__(self) -> Iterator[HostReport]:
        return map(counted, self._hosts)

    @overload
    def __getitem__(self, place: int) -> HostReport: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[HostReport, ...]: ...
    def __getitem__(self, place: int | slice) -> HostReport | tuple[HostReport, ...]:
        hosts = self._hosts[place]
        return counted(hosts) if isinstance(hosts, HostReport) else tuple(map(counted, hosts))


def _listed(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.verdict not in FINE)


def _news(run: Run) -> RunNews | UnsetType:
    if not run.news:
        return run.news
    hosts = {trouble.host for trouble in run.news.standing if trouble.place >= 0}
    places = {
        summary.host: _places(run.hosts[at])
        for at, summary in enumerate(run.summaries)
        if summary.host in hosts
    }
    return replace(
        run.news,
        standing=tuple(
            replace(trouble, place=places.get(trouble.host, {}).get(trouble.place, trouble.place))
            for trouble in run.news.standing
        ),
    )


def _places(report: HostReport) -> Mapping[int, int]:
    """The new place of each finding that stays, by its old one."""
    stay = (place for place, each in enumerate(report.findings) if each.verdict not in FINE)
    return {old: new for new, old in enumerate(stay)}
