"""`nodevet blame`: since when hosts fail a check, and what changed at that time."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from nodevet.base import age
from nodevet.base.errors import UserError
from nodevet.base.processes import KilledProcess, batches, cores, spread
from nodevet.checking.catalog import Catalog
from nodevet.model import Status, Verdict
from nodevet.past.blame import (
    Blame,
    Change,
    DriftGroup,
    DriftLook,
    find_changes,
    group,
    shared_paths,
)
from nodevet.store.records.model import FindingSpan, Moment, RecordedRun, RecordedVisit, SpanEnd

if TYPE_CHECKING:
    from nodevet.store import Store

BATCH = 32  # hosts whose evidence one process holds at a time
WORTH = 64  # hosts from which on several processes are worth starting
DAY = 86400.0
Diffs = Mapping[str, frozenset[Change]]
KilledListener = Callable[[KilledProcess, Sequence[str]], None]


def blame(
    url: str | None,
    check: str,
    hosts: Collection[str] | None,
    catalog: Catalog,
    *,
    killed: KilledListener,
) -> Blame:
    """What changed when these hosts (None: all) began to fail a check. Raises StoreError,
    CatalogError, and UserError if none failed."""
    from nodevet.store import open_store

    reads = catalog.check(check).reads
    with open_store(url, create=False) as store:
        spans = list(store.spans(check=check))
        failing, now = _failing(spans, hosts)
        if not failing:
            whose = "these hosts" if hosts is not None else "any host"
            raise UserError(f"{check} did not fail on {whose} in any recorded run")
        looks = [_look(store, host, check, first, spans) for host, first in sorted(failing.items())]
        runs = {run.id: run for run in store.runs()}
        by_runs: dict[tuple[str, str], list[DriftLook]] = {}  # the others need visits in both
        for look in looks:
            if look.good is not None:
                by_runs.setdefault((look.bad.run, look.good.run), []).append(look)
        comparisons = [
            _Comparison(store, check, runs, group_looks, spans) for group_looks in by_runs.values()
        ]
    groups = (_group(url, comparison, reads, killed) for comparison in comparisons)
    return Blame(
        check=check,
        now=now,
        groups=tuple(
            sorted(groups, key=lambda comparison: (comparison.bad, comparison.good), reverse=True)
        ),
        always=tuple(look for look in looks if look.good is None and not look.pruned),
        unread=tuple(look for look in looks if look.good is None and look.pruned),
    )


def _failing(
    spans: Sequence[FindingSpan], hosts: Collection[str] | None
) -> tuple[dict[str, Moment], bool]:
    """Since when each host fails, and True. If none fails now: since when each failed last, and
    False."""
    fails = [
        span
        for span in spans
        if span.verdict is Verdict.FAIL and (hosts is None or span.host in hosts)
    ]
    open_spans = [span for span in fails if span.end is None]
    since: dict[str, Moment] = {}
    for span in open_spans or _last_failures(fails):
        first = _failing_since(span, fails)
        since[span.host] = min(since.get(span.host, first), first)
    return since, bool(open_spans)


def _failing_since(span: FindingSpan, fails: Sequence[FindingSpan]) -> Moment:
    """Since when it failed in every visit. A fault that came back after a fix began before the
    fix."""
    first = span.since or span.first
    before = (
        earlier_span
        for earlier_span in fails
        if earlier_span.end is SpanEnd.CAME_BACK
        and (earlier_span.host, earlier_span.baseline, earlier_span.key)
        == (span.host, span.baseline, span.key)
        and earlier_span.ended == first
    )
    earlier = next(before, None)
    return _failing_since(earlier, fails) if earlier else first


def _last_failures(fails: Sequence[FindingSpan]) -> list[FindingSpan]:
    """The last failures of each host."""
    ends: dict[str, Moment] = {}
    for span in fails:
        ends[span.host] = max(ends.get(span.host, span.last), span.last)
    return [span for span in fails if span.last == ends[span.host]]


def _look(
    store: "Store", host: str, check: str, first: Moment, spans: Sequence[FindingSpan]
) -> DriftLook:
    """The first visit at which a host failed, and the last one before at which the check was ok. A
    visit that did not judge the check, by another baseline say, is not a good one."""
    visits = store.visits_of(host)
    place = next((n for n, visit in enumerate(visits) if visit.run == first.run), 0)
    bad, pruned = first, 0
    for visit in reversed(visits[: place + 1]):
        if visit.evidence:
            bad = Moment(at=visit.arrived or first.at, run=visit.run)
            break
        pruned += visit.thinned
    else:
        return DriftLook(host=host, good=None, bad=first, pruned=max(1, pruned))
    troubled = [span for span in spans if span.host == host]
    for visit in visits[place + 1 :]:
        if visit.status is not Status.VETTED or _covers(troubled, visit):
            continue
        if not store.passed_hosts(visit.run, check, [host]):
            continue
        if visit.evidence:
            good = Moment(at=visit.arrived, run=visit.run)
            return DriftLook(host=host, good=good, bad=bad, pruned=pruned)
        pruned += 1
    return DriftLook(host=host, good=None, bad=bad, pruned=pruned)


def _covers(spans: Iterable[FindingSpan], visit: RecordedVisit) -> bool:
    """Whether any of these spans includes a visit."""
    return any(span.first.at <= visit.arrived <= span.last.at for span in spans)


class _Comparison:
    """The hosts that share a good run and a bad run, the hosts to compare them with, and what
    changed in judging."""

    def __init__(
        self,
        store: "Store",
        check: str,
        runs: Mapping[str, RecordedRun],
        looks: Sequence[DriftLook],
        spans: Sequence[FindingSpan],
    ) -> None:
        self.looks = looks
        self.bad = looks[0].bad.run
        self.good = looks[0].good.run if looks[0].good else ""
        self.others = tuple(self._other_hosts(store, check, spans))
        self.rule = tuple(self._rule(store, runs))

    def _other_hosts(
        self, store: "Store", check: str, spans: Sequence[FindingSpan]
    ) -> Iterator[str]:
        """The other hosts that both runs visited, and that passed in the later one."""
        drifted = {look.host for look in self.looks}
        by_host: dict[str, list[FindingSpan]] = {}
        for span in spans:
            by_host.setdefault(span.host, []).append(span)
        before = {visit.host for visit in store.visits(self.good) if visit.evidence}
        candidates = [
            visit.host
            for visit in store.visits(self.bad)
            if visit.evidence
            and visit.host in before
            and visit.host not in drifted
            and not _covers(by_host.get(visit.host, ()), visit)
        ]
        passed = store.passed_hosts(self.bad, check, candidates)
        yield from (host for host in candidates if host in passed)

    def _rule(self, store: "Store", runs: Mapping[str, RecordedRun]) -> Iterator[str]:
        """The baselines that changed, and nodevet if its version did."""
        before, after = runs[self.good], runs[self.bad]
        hosts = [look.host for look in self.looks]
        for name in sorted({visit.baseline for visit in store.visits(self.bad, hosts)} - {""}):
            if before.baselines.get(name) != after.baselines.get(name):
                yield f"baseline {name}"
        if before.nodevet != after.nodevet:
            yield f"nodevet {before.nodevet} → {after.nodevet}"


def _group(
    url: str | None, comparison: _Comparison, reads: Collection[str], killed: KilledListener
) -> DriftGroup:
    hosts = [look.host for look in comparison.looks]
    drifted = _differences(url, comparison.good, comparison.bad, hosts, None, killed)
    paths = shared_paths(drifted)
    others = _differences(url, comparison.good, comparison.bad, comparison.others, paths, killed)
    frequent = {
        host: frozenset(change for change in changes if change.path in paths)
        for host, changes in drifted.items()
    }
    return group(
        comparison.looks,
        frequent,
        list(others.values()),
        reads=reads,
        days=max(_days(look) for look in comparison.looks),
        rule=comparison.rule,
    )


def _days(look: DriftLook) -> float:
    good = age.seconds_of(look.good.at) if look.good else None
    bad = age.seconds_of(look.bad.at)
    return 0.0 if good is None or bad is None else (bad - good) / DAY


def _differences(
    url: str | None,
    good: str,
    bad: str,
    hosts: Sequence[str],
    paths: frozenset[str] | None,
    killed: KilledListener,
) -> Diffs:
    """The changes of each host between two runs."""
    batches_compared = spread(
        lambda: _start_comparison(url, good, bad, paths),
        batches(hosts, BATCH),
        processes=cores() if len(hosts) >= WORTH else 1,
        on_killed=killed,
        lost_result=_refuse_lost,
    )
    return {host: changes for batch in batches_compared for host, changes in batch.items()}


def _refuse_lost(hosts: Sequence[str]) -> Diffs:
    raise UserError("the evidence of some hosts cannot be compared: each try was killed")


def _start_comparison(
    url: str | None, good: str, bad: str, paths: frozenset[str] | None
) -> Callable[[Sequence[str]], Diffs]:
    from nodevet.store import open_store
    from nodevet.store.documents import split_document

    store = open_store(url, create=False)

    def steady(run: str, hosts: Sequence[str]) -> dict[str, Mapping[str, bytes]]:
        sections = {}
        for visit, document in store.evidence(run, hosts=hosts):
            parts = split_document(document) if document is not None else None
            if parts is not None:
                sections[visit.host] = parts.steady
        return sections

    def compare(hosts: Sequence[str]) -> Diffs:
        before, after = steady(good, hosts), steady(bad, hosts)
        return {
            host: find_changes(before[host], after[host], paths)
            for host in hosts
            if host in before and host in after
        }

    return compare
