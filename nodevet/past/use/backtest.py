"""`nodevet backtest`: recorded nights under another baseline. No node is visited."""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from nodevet.base import age
from nodevet.base.errors import UserError
from nodevet.base.last_few import LastFew
from nodevet.base.processes import KilledProcess, batches, cores, spread
from nodevet.model import Baseline, Host, HostReport, Severity, Status, Verdict
from nodevet.past.backtest import Backtest, Judged, SaidThen, Tally
from nodevet.past.use.nights import usual_series
from nodevet.store.records.model import RecordedRun
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.from_run import sections_of, visit_of
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.targets import Targets
from nodevet.vet.use.vet import judge_visit

if TYPE_CHECKING:
    from nodevet.store import Store

BATCH = 32  # hosts, all of whose nights one process judges at a time
EACH = 4  # batches of each process, at least: one that is slow holds up no other
WORTH = 128  # visits, from which on processes of their own are worth starting


class Nights(msgspec.Struct, frozen=True, kw_only=True):
    """Which recorded runs, and what of them."""

    store: str | None  # its URL; None: the user's own
    days: float  # before the last run
    series: str | None = None  # None: that of the last sweep
    checks: frozenset[str] | None = None  # None: all that the baselines ask
    targets: Targets = Targets()  # of these hosts; none named: of all
    fail_on: Severity = Severity.WARNING
    within_days: float = 14.0


_Batch = tuple[str, ...]  # hosts
_Done = list[tuple[str, list[Judged]]]  # their visits


def tried(
    nights: Nights,
    context: VetContext,
    *,
    killed: Callable[[KilledProcess, Sequence[str]], None],
    watched: Callable[[int], AbstractContextManager[VetListener]] = lambda _: nullcontext(
        VetListener()
    ),
) -> Backtest:
    """These nights under the context's baselines, host by host: what is kept of a host are sums.

    `watched` hears of so many hosts. Raises StoreError, what targets raise, and UserError if
    nothing is to be judged.
    """
    from nodevet.store import open_store

    context = _only(context, nights.checks)
    with open_store(nights.store, create=False) as store:
        runs = _runs(store, nights)
        visits, hosts = _hosts(store, runs, nights.targets)
        spans = [span for span in store.spans(after=runs[0].started) if span.host in hosts]
    if not visits:
        raise UserError("these runs have none of the hosts that are named")
    said = SaidThen(spans, nights.checks)
    names = sorted(hosts)
    many = cores() if visits >= WORTH else 1
    size = max(1, min(BATCH, len(names) // (many * EACH)))
    done = spread(
        lambda: _judging(nights, context, runs, said),
        batches(names, size),
        processes=many,
        on_killed=killed,
        lost_result=_lost,
    )
    tally = Tally(runs)
    try:
        with watched(len(names)) as listener:
            listener.visiting()
            for some in done:
                for host, judged in some:
                    tally.add(host, judged)
                    listener.advanced(host)
    finally:
        done.close()
    used = {one.label: one.sha256 for one in context.baselines}
    return tally.result(spans, baselines=used, within_days=nights.within_days)


def _only(context: VetContext, checks: Collection[str] | None) -> VetContext:
    """The context with these checks alone. Raises UserError for one that no baseline asks."""
    if checks is None:
        return context
    asked = {wish.check for one in context.baselines for wish in one.expectations}
    for check in sorted(checks):
        context.catalog.path(check)
        if check not in asked:
            raise UserError(f"--check {check}: no baseline of this backtest asks for it")

    def narrowed(baseline: Baseline) -> Baseline:
        kept = tuple(wish for wish in baseline.expectations if wish.check in checks)
        return replace(baseline, expectations=kept)

    return replace(
        context,
        baselines=tuple(map(narrowed, context.baselines)),
        chosen=narrowed(context.chosen) if context.chosen else None,
        shipped=tuple,
    )


def _runs(store: "Store", nights: Nights) -> list[RecordedRun]:
    """The runs, the oldest first."""
    series = usual_series(store) if nights.series is None else nights.series
    newest = store.runs(series=series, limit=1)
    if not newest:
        raise UserError(f"no run of the sweep {series!r} is recorded; `nodevet runs` lists them")
    begun = age.seconds_of(newest[0].started) or 0.0
    after = age.instant(begun - timedelta(days=nights.days).total_seconds())
    return store.runs(series=series, after=after)[::-1]


def _hosts(
    store: "Store", runs: Sequence[RecordedRun], targets: Targets
) -> tuple[int, frozenset[str]]:
    """How many visits these runs have of which hosts; a limit takes the groups that a host was in
    when it was last recorded."""
    groups: dict[str, tuple[str, ...]] = {}
    visits: Counter[str] = Counter()
    for run in runs:
        for visit in store.visits(run.id):
            if visit.status is not Status.INTERRUPTED:
                groups[visit.host] = visit.groups
                visits[visit.host] += 1
    if targets:
        found = {host.name for host in targets.hosts()} & groups.keys()
    else:
        known = (Host(name=name, groups=frozenset(some)) for name, some in groups.items())
        found = {host.name for host in targets.limited(known)}
    return sum(visits[name] for name in found), frozenset(found)


def _judging(
    nights: Nights, context: VetContext, runs: Sequence[RecordedRun], said: SaidThen
) -> Callable[[_Batch], _Done]:
    """What judges a batch, in a process with a store of its own."""
    from nodevet.store import open_store

    store = open_store(nights.store, create=False)
    sections = sections_of(context)
    alike = LastFew() if sections is not None else None  # see nodevet.vet.use.from_run

    def judge(hosts: _Batch) -> _Done:
        found: dict[str, list[Judged]] = {host: [] for host in hosts}
        for place, run in enumerate(runs):
            started = age.seconds_of(run.started) or 0.0
            for visit, document in store.evidence(run.id, hosts=hosts, sections=sections):
                if visit.status is Status.INTERRUPTED:
                    continue
                met = visit_of(visit, document)
                host = Host(name=visit.host, groups=frozenset(visit.groups), expect_hostname=False)
                report = judge_visit(met, host, context, alike=alike).report
                at = age.seconds_of(visit.arrived) or started
                found[visit.host].append(
                    Judged(
                        run=place,
                        host=visit.host,
                        at=at,
                        known=report.status is Status.VETTED,
                        pruned=visit.status is Status.VETTED and document is None,
                        gpus=_gpus(report),
                        fails=_failing(report, nights.fail_on),
                        then=said.at(visit.host, at, visit.baseline, nights.fail_on),
                        outcome=report.outcome.value,
                    )
                )
        return [*found.items()]

    return judge


def _gpus(report: HostReport) -> int:
    return sum(report.facts.gpus.values()) if report.facts else 0


def _failing(report: HostReport, bar: Severity) -> tuple[str, ...]:
    return tuple(
        {
            finding.key: None
            for finding in report.findings
            if finding.verdict is Verdict.FAIL and finding.severity.rank >= bar.rank
        }
    )


def _lost(batch: _Batch) -> _Done:
    raise UserError("some nights cannot be judged: each process that tried was killed")
