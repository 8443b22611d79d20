"""Record a run while it goes on, and compare it with the history."""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from nodevet.evidence.document import Evidence
from nodevet.fleet import Visit
from nodevet.model import Host, HostOutcome, HostReport, Severity, Status, Verdict
from nodevet.model.changes import FindingNews, HostNews, News
from nodevet.model.run import Run
from nodevet.store.records.model import FindingSpan, RecordedRun, RunState, SpanEnd
from nodevet.vet.news import Before, news_of
from nodevet.vet.suspicion import suspicions
from nodevet.vet.use.judge_visit import Save
from nodevet.vet.use.listener import Prepare, VetListener

if TYPE_CHECKING:
    from nodevet.store import Recorder, Store
    from nodevet.store.errors import StoreError
    from nodevet.store.preparing import PreparedHost
    from nodevet.vet.use.listener import Waiting

TROUBLE = (Verdict.FAIL, Verdict.UNKNOWN)
ENDS = (SpanEnd.OK, SpanEnd.NOT_APPLICABLE, SpanEnd.GONE)


class Budget(Struct, frozen=True, kw_only=True):
    """When many hosts begin to fail one check at once; see nodevet.vet.suspicion."""

    percent: float
    hosts: int


class TakenUp(Struct, frozen=True, kw_only=True):
    """The part of a run that was recorded before it was killed."""

    recorded: RecordedRun
    recorder: "Recorder"
    reports: tuple[HostReport, ...]
    news: tuple[HostNews, ...]
    left: tuple[Host, ...]  # still to be visited


class Recording(VetListener):
    """A listener that records a run. An error of the store is in `broken` and does not end the run;
    `run` is the whole run, with its news.
    """

    def __init__(
        self,
        store: "Store",
        inner: VetListener,
        *,
        series: str = "",
        whole: bool = False,  # every host of the sweep is asked for: one that is not there is gone
        budget: Budget | None = None,
        addresses: Mapping[str, str] | None = None,
        fail_on_new: bool = False,
        alone: bool = False,  # no other run of this sweep may go on: StoreHeldError
        earlier: TakenUp | None = None,  # the part of this run that is recorded already
        keep: Save | None = None,
    ) -> None:
        self.broken: StoreError | None = None
        self.run: Run | None = None
        self._store = store
        self._inner = inner
        self._series = series
        self._whole = whole
        self._budget = budget
        self._addresses = addresses or {}
        self._fail_on_new = fail_on_new
        self._alone = alone
        self._over = threading.Event()
        self._earlier = earlier
        self._recorder: Recorder | None = earlier.recorder if earlier else None
        self._keep = keep
        self._evidence: dict[str, bytes | None] = {}
        self._decoded: dict[str, Evidence] = {}
        self._prepared: dict[str, PreparedHost] = {}
        self._news: dict[str, HostNews] = {}
        self._before = Before()

    def keep(self, visit: Visit, host: Host) -> None:
        """Keep the evidence of a visit until its report comes."""
        self._evidence[visit.host] = visit.evidence
        if self._keep is not None:
            self._keep(visit, host)

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def began(self, run: Run, hosts: tuple[str, ...]) -> None:
        from nodevet.store.errors import StoreError, StoreHeldError

        run = self._whole_run(run)
        try:
            self._before = previous_run(self._store, self._series, whole=self._whole, run=run)
            if self._recorder is None:
                run_begun = _run_record(run, self._series, len(hosts))
                self._recorder = self._store.begin(run_begun, alone=self._alone)
            self._recorder.expect(hosts)
            threading.Thread(target=self._live, daemon=True).start()
        except StoreHeldError:
            raise
        except StoreError as error:
            self.broken = error
        self._inner.began(run, hosts)

    def _live(self) -> None:
        """Show others that share the store that this run is alive, even while a host takes long."""
        from nodevet.store.runs import BEAT

        while self._recorder is not None and not self._over.wait(BEAT):
            self._recorder.beat()

    def visiting(self) -> None:
        self._inner.visiting()
        for report in self._earlier_reports:
            self._inner.took(report)

    def decoded(self, host: str, evidence: Evidence) -> None:
        self._decoded[host] = evidence
        self._inner.decoded(host, evidence)

    def preparing(self) -> Callable[[], Prepare]:
        store, resumed = self._store, self._earlier.recorded.id if self._earlier else ""

        def begin() -> Prepare:
            prepare = store.preparing_apart()
            return lambda report, evidence, decoded, run: prepare(
                report, evidence, decoded, resumed or run
            )

        return begin

    def prepared(self, host: "PreparedHost") -> None:
        self._prepared[host.report.host] = host

    def took_packed(self, host: str, whole: Callable[[], HostReport]) -> None:
        prepared = self._prepared.pop(host, None)
        if prepared is None or self._recorder is None or self.broken is not None:
            self.took(whole())
            return
        evidence = self._evidence.pop(host, None)
        self._news[host] = self._recorder.take_prepared(prepared, evidence, whole)
        self.broken = self._recorder.broken
        self._inner.took_packed(host, whole)

    def took(self, host: HostReport) -> None:
        evidence = self._evidence.pop(host.host, None)
        decoded = self._decoded.pop(host.host, None)
        about_it = host.status is not Status.NOT_VISITED  # which says nothing of the host
        if self._recorder is not None and self.broken is None and about_it:
            self._news[host.host] = self._recorder.take(host, evidence, decoded)
            self.broken = self._recorder.broken
        self._inner.took(host)

    def advanced(self, host: str) -> None:
        self._inner.advanced(host)

    def visited(self) -> None:
        self._inner.visited()

    def waiting(self, waiting: "Waiting") -> None:
        self._inner.waiting(waiting)

    def warned(self, text: str) -> None:
        self._inner.warned(text)

    def noted(self, text: str) -> None:
        self._inner.noted(text)

    def ended(self, run: Run) -> None:
        self._over.set()
        run = self._whole_run(run)
        self.run = run = run if self.broken else self._with_news(run)
        if self._recorder is not None:
            self._recorder.finish(_run_record(run, self._series, len(run.hosts), ended=True))
            self.broken = self.broken or self._recorder.broken
        self._inner.ended(run)

    @property
    def _earlier_reports(self) -> tuple[HostReport, ...]:
        return self._earlier.reports if self._earlier else ()

    def _whole_run(self, run: Run) -> Run:
        """The run as it began, if it was resumed."""
        if self._fail_on_new:
            run = structs.replace(run, fail_on_new=True)
        if self._earlier is None:
            return run
        recorded = self._earlier.recorded
        return structs.replace(
            run,
            id=recorded.id,
            started=recorded.started,
            baselines={**recorded.baselines, **run.baselines},
        )

    def _with_news(self, run: Run) -> Run:
        """The run with its news. Findings that could not be recorded are not compared."""
        from nodevet.store.errors import StoreError

        earlier = {news.host: news for news in self._earlier.news} if self._earlier else {}
        news_of_hosts = tuple((earlier | self._news).values())
        before = self._before
        if before.id:
            try:
                spans = ended_spans(self._store, before, run) if self._series else []
                before = self._with_last_reports(news_of_hosts, spans)
                news_of_hosts = tuple(_with_meanwhile(news_of_hosts, spans, run, before))
            except StoreError as error:
                self.broken = error
        news = news_of(run, news_of_hosts, before)
        if self._budget is not None:
            suspected = suspicions(
                run,
                news,
                self._before,
                percent=self._budget.percent,
                least=self._budget.hosts,
                addresses=self._addresses,
            )
            news = structs.replace(news, suspicions=suspected)
        return structs.replace(run, news=news)

    def _with_last_reports(
        self, news_of_hosts: Iterable[HostNews], spans: Iterable[FindingSpan]
    ) -> Before:
        """The run before, with when each host in trouble was reported last: that may have been in
        another one. Raises StoreError."""
        hosts = {news.host for news in news_of_hosts if news.findings} | {
            span.host for span in spans
        }
        seen = self._store.reported_visits(sorted(hosts), series=self._series or None)
        return structs.replace(self._before, seen=seen)


def ended_spans(store: "Store", before: Before, run: Run) -> list[FindingSpan]:
    """Troubles that ended after the run before. Raises StoreError."""
    return [
        span
        for span in store.spans(ended_after=before.id)
        if span.check
        and span.verdict in TROUBLE
        and span.severity is not Severity.SHADOW
        and span.end in ENDS
        and span.ended is not None
        and span.ended.run != run.id
    ]


def _with_meanwhile(
    news_of_hosts: Iterable[HostNews], spans: Iterable[FindingSpan], run: Run, before: Before
) -> Iterator[HostNews]:
    """With what was so in the sweep before, and was seen to have ended by a check by hand since."""
    ended: dict[tuple[str, str], list[FindingSpan]] = {}
    for span in spans:
        if span.since_visit <= before.seen.get(span.host, 0) < (span.ended_visit or 0):
            ended.setdefault((span.host, span.baseline), []).append(span)
    places = {summary.host: place for place, summary in enumerate(run.summaries)} if ended else {}
    for news in news_of_hosts:
        place = places.get(news.host)
        report = run.hosts[place] if place is not None else None
        past = ended.get((news.host, report.baseline), []) if report else []
        if report is not None and report.status is Status.VETTED and past:
            now = {finding.key for finding in report.findings if finding.verdict in TROUBLE}
            now |= {finding.key for finding in news.findings}
            fixed = tuple(ended_news(span) for span in past if span.key not in now)
            yield structs.replace(news, findings=(*news.findings, *fixed))
        else:
            yield news


def ended_news(span: FindingSpan) -> FindingNews:
    since = span.since or span.first
    return FindingNews(
        news=News.FIXED if span.end is SpanEnd.OK else News.GONE,
        key=span.key,
        check=span.check,
        severity=span.severity,
        why=span.why,
        before=span.finding,
        since=since.at,
        since_visit=span.since_visit,
    )


def _run_record(run: Run, series: str, hosts: int, *, ended: bool = False) -> RecordedRun:
    outcomes: dict[HostOutcome, int] = {}
    for report in run.summaries:
        outcomes[report.outcome] = outcomes.get(report.outcome, 0) + 1
    ended_as = {report.status for report in run.summaries}
    is_incomplete = (
        run.interrupted or Status.INTERRUPTED in ended_as or ended_as == {Status.NOT_VISITED}
    )
    state = RunState.INCOMPLETE if is_incomplete else RunState.COMPLETE
    return RecordedRun(
        id=run.id,
        series=series,
        started=run.started,
        seconds=run.seconds if ended else None,
        state=state if ended else RunState.RUNNING,
        nodevet=run.nodevet,
        fail_on=run.fail_on,
        hosts=hosts,
        visited=len(run.hosts),
        outcomes=outcomes,
        baselines=run.baselines,
    )


def previous_run(store: "Store", series: str, *, whole: bool, run: Run) -> Before:
    """The last run whose reports were written: of the same sweep, or for a check by hand any."""
    last = store.last_reported(before=run.id, series=series or None)
    if last is None:
        return Before()
    hosts = (visit.host for visit in store.visits(last.id)) if whole and series else ()
    return Before(
        id=last.id,
        started=last.started,
        nodevet=last.nodevet,
        baselines=last.baselines,
        hosts=frozenset(hosts),
    )
