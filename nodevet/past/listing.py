"""Runs as they are listed: the shortest name that is theirs alone, what began and ended. Pure."""

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
    ref: str  # what names it among those of the list
    new: int | None = None  # troubles that began in it; None: not known
    fixed: int | None = None  # failures that the check says are ok since
    resolved: int | None = None  # the same of what was unknown


def refs(ids: Sequence[str]) -> dict[str, str]:
    """What names each run: its second, or more of its id if others began then.

    >>> refs(["20261120T020000.000Z-5f1c0005", "20261119T020000.000Z-5f1c0004"]).popitem()
    ('20261119T020000.000Z-5f1c0004', '20261119T020000')
    """
    ordered = sorted(ids)
    found = {}
    for place, each in enumerate(ordered):
        near = ordered[max(0, place - 1) : place] + ordered[place + 1 : place + 2]
        shared = max((_shared(each, other) for other in near), default=0)
        found[each] = each[: max(SHORTEST, shared + 1)]
    return found


def _shared(one: str, other: str) -> int:
    """How many characters they begin with together."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def run_lines(
    runs: Sequence[RecordedRun], every: Iterable[str], spans: Iterable[FindingSpan]
) -> tuple[RunLine, ...]:
    """`every` id that there is; `spans`: whatever was so in these runs."""
    new: Counter[str] = Counter()
    over: dict[Verdict, Counter[str]] = {Verdict.FAIL: Counter(), Verdict.UNKNOWN: Counter()}
    for span in spans:
        if not span.check or span.verdict is Verdict.WAIVED:
            continue
        if span.since is None or span.since == span.first:
            new[span.first.run] += 1
        if span.end is SpanEnd.OK and span.ended is not None:
            over[span.verdict][span.ended.run] += 1
    named = refs([*every])
    return tuple(
        RunLine(
            run=run,
            ref=named.get(run.id, run.id),
            new=new[run.id],
            fixed=over[Verdict.FAIL][run.id],
            resolved=over[Verdict.UNKNOWN][run.id],
        )
        for run in runs
    )


def troubles(
    run: RecordedRun,
    visits: Iterable[tuple[str, Status, str]],
    found: Iterable[tuple[str, Finding]],
) -> Run:
    """A run of what is told of it: hosts with status and reason, and findings by host."""
    reports: dict[str, list[Finding]] = {}
    for host, finding in found:
        reports.setdefault(host, []).append(finding)
    told = {host: (status, why) for host, status, why in visits}
    hosts = [
        HostReport(host=host, status=status, why=why, findings=tuple(reports.pop(host, ())))
        for host, (status, why) in told.items()
        if host in reports or status is not Status.VETTED
    ]
    hosts += [
        HostReport(host=host, status=Status.VETTED, findings=tuple(some))
        for host, some in reports.items()
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
