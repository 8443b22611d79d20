"""Resume a run that was killed: its recorded visits are judged as if they came in now."""

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec import structs

from nodevet.base import age
from nodevet.base.errors import UserError
from nodevet.fleet import Visit
from nodevet.model import Host, HostReport, Verdict
from nodevet.model.changes import FindingNews, HostNews, News
from nodevet.store.records.model import FindingSpan, RecordedRun, RecordedVisit, RunState, SpanEnd
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.earlier import DAY
from nodevet.vet.use.judge_visit import judge_visit, recorded
from nodevet.vet.use.last_look import StoredLook
from nodevet.vet.use.recording import TROUBLE, TakenUp, ended_news

if TYPE_CHECKING:
    from nodevet.store import Store

LAST = "last"  # the last run that did not end
LOOKED = 50  # runs
OWN = "that evidence may be of the run itself"


def resumed(store: "Store", ref: str, context: VetContext, hosts: Sequence[Host]) -> TakenUp:
    """Continue an interrupted run. Raises UserError if there is none, or if its evidence is no
    longer what the hosts are; and StoreError."""
    if ref == LAST:
        unfinished = [run for run in store.runs(limit=LOOKED) if run.state is not RunState.COMPLETE]
        if not unfinished:
            raise UserError("--resume: every recorded run is complete; `nodevet runs` lists them")
        ref = unfinished[0].id
    run = store.run(ref)
    if why := age.run_refusal(run.started, now=time.time(), most=DAY):
        raise UserError(f"--resume {run.id}: {why}; start another run")
    _same_hosts(store, run, hosts)
    recorder, done = store.resume(run.id)
    known = {host.name: host for host in hosts}
    reports = []
    news = []
    for visit, evidence in store.evidence(run.id, hosts=done):
        host = known.get(visit.host, Host(name=visit.host, groups=frozenset(visit.groups)))
        report = _report(visit, evidence, host, context)
        reports.append(report)
        news.append(_news(store, run.id, report))
    return TakenUp(
        recorded=run,
        recorder=recorder,
        reports=tuple(reports),
        news=tuple(news),
        left=tuple(host for host in hosts if host.name not in done),
    )


def _same_hosts(store: "Store", run: RecordedRun, hosts: Sequence[Host]) -> None:
    """Refuse other hosts than those of the run: the store does not record which ones remain.
    Raises UserError."""
    known = {visit.host for visit in store.visits(run.id)}
    every = known | {host.name for host in hosts}
    if run.state is RunState.INCOMPLETE and (len(every) != run.hosts or len(hosts) != run.hosts):
        raise UserError(
            f"--resume: run {run.id} began with {run.hosts:,} hosts, and {len(hosts):,} are named "
            "now; name all hosts that it began with, or start another run"
        )


def _report(
    visit: RecordedVisit, evidence: bytes | None, host: Host, context: VetContext
) -> HostReport:
    again = Visit(
        visit.host,
        visit.status,
        visit.why,
        evidence,
        visit.seconds,
        age.seconds_of(visit.arrived),
    )
    plain = structs.replace(context, since=None) if evidence is None else context
    is_stored = isinstance(plain.since, StoredLook)
    return judge_visit(again, host, plain, recorded(again, plain) if is_stored else OWN).report


def _news(store: "Store", run: str, report: HostReport) -> HostNews:
    """The news of a host when it was recorded, from its spans."""
    visits = store.visits_of(report.host, limit=2)
    before = next((visit.run for visit in visits if visit.run != run), None)
    now = list(store.spans(host=report.host, run=run))
    spans = [
        span
        for span in store.spans(host=report.host)
        if span.ended is not None and span.ended.run == run
    ]
    return HostNews(
        host=report.host,
        first=before is None,
        replaced=any(span.end is SpanEnd.REPLACED for span in spans),
        findings=(*_standing(now, report, run), *_ended(spans, now)),
    )


def _standing(spans: Iterable[FindingSpan], report: HostReport, run: str) -> Iterator[FindingNews]:
    places: dict[tuple[str, Verdict], list[int]] = {}
    for place, finding in enumerate(report.findings):
        if finding.verdict in TROUBLE:
            places.setdefault((finding.key, finding.verdict), []).append(place)
    for span in spans:
        if span.verdict not in TROUBLE:
            continue
        waiting = places.get((span.key, span.verdict), [])
        since = span.since or span.first
        new = since.run == run
        changed = span.first.run == run and not new
        yield FindingNews(
            news=News.NEW if new else News.CHANGED if changed else News.STILL,
            key=span.key,
            check=span.check,
            severity=span.severity,
            place=waiting.pop(0) if waiting else -1,
            why=span.why,
            since=since.at,
            since_visit=span.since_visit,
            after_plan=span.after_plan,
        )


def _ended(spans: Iterable[FindingSpan], now: Iterable[FindingSpan]) -> Iterator[FindingNews]:
    open_keys = {span.key for span in now}
    for span in spans:
        if span.verdict in TROUBLE and span.key not in open_keys:
            yield ended_news(span)
