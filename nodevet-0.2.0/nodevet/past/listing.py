"""Runs as lists show them: their shortest unique name, what began and what ended. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import takewhile

import msgspec

from nodevet.model import Finding, HostReport, Run, Status, Verdict
from nodevet.store.records.model import FindingSpan, RecordedRun, SpanEnd

SHORTEST = 15  # characters of a run's id: its second


class RunLine(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a list."""

    run: RecordedRun
    ref: str  # its shortest unique name
    new: int | None = None  # troubles that began in it; None: not known
    fixed: int | None = None  # failures that the check says are ok since
    resolved: int | None = None  # the same of checks that could not tell


def refs(ids: Sequence[str]) -> dict[str, str]:
    """The shortest unique name of each run: its second, or more of its id if others began then.

    >>> refs(["20261120T020000.000Z-5f1c0005", "20261119T020000.000Z-5f1c0004"]).popitem()
    ('20261119T020000.000Z-5f1c0004', '20261119T020000')
    """
    ordered = sorted(ids)
    names = {}
    for index, run_id in enumerate(ordered):
        near = ordered[max(0, index - 1) : index] + ordered[index + 1 : index + 2]
        shared = max((_shared_length(run_id, other) for other in near), default=0)
        names[run_id] = run_id[: max(SHORTEST, shared + 1)]
    return names


def _shared_length(first: str, second: str) -> int:
    """The number of characters that both begin with."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def run_lines(
    runs: Sequence[RecordedRun], run_ids: Iterable[str], spans: Iterable[FindingSpan]
) -> tuple[RunLine, ...]:
    """The lines of a list. `run_ids`: all of the store. `spans`: those of the time of these
    runs."""
    new: Counter[str] = Counter()
    ended: dict[Verdict, Counter[str]] = {Verdict.FAIL: Counter(), Verdict.UNKNOWN: Counter()}
    for span in spans:
        if not span.check or span.verdict is Verdict.WAIVED:
            continue
        if span.since is None or span.since == span.first:
            new[span.first.run] += 1
        if span.end is SpanEnd.OK and span.ended is not None:
            ended[span.verdict][span.ended.run] += 1
    names = refs([*run_ids])
    return tuple(
        RunLine(
            run=run,
            ref=names.get(run.id, run.id),
            new=new[run.id],
            fixed=ended[Verdict.FAIL][run.id],
            resolved=ended[Verdict.UNKNOWN][run.id],
        )
        for run in runs
    )


def troubles(
    run: RecordedRun,
    visits: Iterable[tuple[str, Status, str]],
    findings: Iterable[tuple[str, Finding]],
) -> Run:
    """A run made of visits (host, status, reason) and of findings by host."""
    reports: dict[str, list[Finding]] = {}
    for host, finding in findings:
        reports.setdefault(host, []).append(finding)
    statuses = {host: (status, why) for host, status, why in visits}
    hosts = [
        HostReport(host=host, status=status, why=why, findings=tuple(reports.pop(host, ())))
        for host, (status, why) in statuses.items()
        if host in reports or status is not Status.VETTED
    ]
    hosts += [
        HostReport(host=host, status=Status.VETTED, findings=tuple(host_findings))
        for host, host_findings in reports.items()
    ]
    return Run(
        id=run.id,
        nodevet=run.nodevet,
        started=run.started,
        seconds=run.seconds or 0.0,
        fail_on=run.fail_on,
        baselines=run.baselines,
        hosts=tuple(hosts),
    )
