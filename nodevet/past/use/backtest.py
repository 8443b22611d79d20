"""`nodevet backtest`: recorded nights under another baseline. No node is visited."""

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
from nodevet.evidence.document import EvidenceError
from nodevet.model import Host, Severity, Status
from nodevet.model.baseline import Baseline
from nodevet.past.backtest import Backtest, Judged, PastFailures, Tally
from nodevet.past.use.host_nights import HostFailures, HostNights
from nodevet.past.use.nights import usual_series
from nodevet.store.records.model import RecordedRun, RecordedVisit
from nodevet.vet.use.asks import sections_of
from nodevet.vet.use.context import VetContext
from nodevet.vet.use.listener import VetListener
from nodevet.vet.use.targets import Targets

if TYPE_CHECKING:
    from nodevet.store import Store
    from nodevet.store.evidence import KeptEvidence

BATCH = 32  # hosts that one process judges at a time, in all nights
EACH = 4  # batches of each process, at least: a slow batch holds up no other
WORTH = 128  # visits from which on several processes are worth starting


class Nights(msgspec.Struct, frozen=True, kw_only=True):
    """Which recorded runs to judge, and what of them."""

    store: str | None  # its URL; None: the user's own
    days: float  # that reach back from the last run
    series: str | None = None  # None: that of the last sweep
    checks: frozenset[str] | None = None  # None: all checks of the baselines
    targets: Targets = Targets()  # these hosts; none: all hosts
    fail_on: Severity = Severity.WARNING
    within_days: float = 14.0


_Batch = tuple[str, ...]  # hosts
_Done = list[tuple[str, list[Judged]]]  # their visits


def run_backtest(
    nights: Nights,
    context: VetContext,
    *,
    killed: Callable[[KilledProcess, Sequence[str]], None],
    watched: Callable[[int], AbstractContextManager[VetListener]] = lambda _: nullcontext(
        VetListener()
    ),
) -> Backtest:
    """These nights under the context's baselines, host by host; only sums stay in memory.

    `watched` gets the number of hosts. Raises StoreError, the errors of targets, and UserError if
    there is nothing to judge.
    """
    from nodevet.store import open_store

    context = _limit_checks(context, nights.checks)
    with open_store(nights.store, create=False) as store:
        runs = _runs(store, nights)
        visits, hosts = _hosts(store, runs, nights.targets)
        spans = [span for span in store.spans(after=runs[0].started) if span.host in hosts]
    if not visits:
        raise UserError("these runs have none of the named hosts")
    past_failures = PastFailures(spans, nights.checks)
    host_names = sorted(hosts)
    processes = cores() if visits >= WORTH else 1
    size = max(1, min(BATCH, len(host_names) // (processes * EACH)))
    batches_judged = spread(
        lambda: _start_judge(nights, context, runs, past_failures),
        batches(host_names, size),
        processes=processes,
        on_killed=killed,
        lost_result=_refuse_lost,
    )
    tally = Tally(runs)
    try:
        with watched(len(host_names)) as listener:
            listener.visiting()
            for judged_batch in batches_judged:
                for host, judged in judged_batch:
                    tally.add(host, judged)
                    listener.advanced(host)
    finally:
        batches_judged.close()
    baselines = {baseline.label: baseline.sha256 for baseline in context.baselines}
    return tally.result(spans, baselines=baselines, within_days=nights.within_days)


def _limit_checks(context: VetContext, checks: Collection[str] | None) -> VetContext:
    """The context with these checks only. Raises UserError for a check that no baseline has."""
    if checks is None:
        return context
    asked_checks = {
        expectation.check for document in context.baselines for expectation in document.expectations
    }
    for check in sorted(checks):
        context.catalog.path(check)
        if check not in asked_checks:
            raise UserError(f"--check {check}: no baseline of this backtest asks for it")

    def narrowed(baseline: Baseline) -> Baseline:
        expectations = tuple(
            expectation for expectation in baseline.expectations if expectation.check in checks
        )
        return replace(baseline, expectations=expectations)

    return replace(
        context,
        baselines=tuple(map(narrowed, context.baselines)),
        chosen=narrowed(context.chosen) if context.chosen else None,
        shipped_baselines=tuple,
    )


def _runs(store: "Store", nights: Nights) -> list[RecordedRun]:
    """The runs, the oldest first."""
    series = usual_series(store) if nights.series is None else nights.series
    newest = store.runs(series=series, limit=1)
    if not newest:
        raise UserError(f"no run of the sweep {series!r} is recorded; `nodevet runs` lists them")
    last_started = age.seconds_of(newest[0].started) or 0.0
    after = age.instant(last_started - timedelta(days=nights.days).total_seconds())
    return store.runs(series=series, after=after)[::-1]


def _hosts(
    store: "Store", runs: Sequence[RecordedRun], targets: Targets
) -> tuple[int, frozenset[str]]:
    """The number of visits of these runs to the targets, and the hosts. A limit goes by the groups
    of a host at its last visit."""
    visited = store.visited_hosts(run.id for run in runs)
    if targets:
        names = {host.name for host in targets.hosts()} & visited.keys()
    else:
        known = (Host(name=name, groups=frozenset(last)) for name, (_, last) in visited.items())
        names = {host.name for host in targets.hosts_within_limit(known)}
    return sum(visited[name][0] for name in names), frozenset(names)


def _start_judge(
    nights: Nights, context: VetContext, runs: Sequence[RecordedRun], past_failures: PastFailures
) -> Callable[[_Batch], _Done]:
    """A function that judges a batch, with a store of its own: each process calls this once."""
    from nodevet.store import open_store

    store = open_store(nights.store, create=False)
    sections = sections_of(context)
    places = {run.id: place for place, run in enumerate(runs)}
    starts = {run.id: age.seconds_of(run.started) or 0.0 for run in runs}
    alike = LastFew()

    def judge(host: str) -> list[Judged]:
        memory = HostNights(host, context, nights.fail_on, alike)
        visits = []
        for visit, kept in store.nights(host, places, sections):
            if visit.status is Status.INTERRUPTED:
                continue
            failures = _failures(memory, visit, kept)
            at = age.seconds_of(visit.arrived) or starts[visit.run]
            judged = Judged(
                run=places[visit.run],
                host=host,
                at=at,
                known=failures is not None,
                pruned=visit.status is Status.VETTED and kept is None,
                gpus=failures.gpus if failures else 0,
                fails=failures.fails if failures else (),
                then=past_failures.failing_keys(host, at, visit.baseline, nights.fail_on),
            )
            visits.append(judged)
        return visits

    return lambda hosts: [(host, judge(host)) for host in hosts]


def _failures(
    memory: HostNights, visit: RecordedVisit, kept: "KeptEvidence | None"
) -> HostFailures | None:
    """The failures of a visit; None if it cannot be judged."""
    if visit.status is not Status.VETTED or kept is None:
        return None
    try:
        return memory.failures(kept, frozenset(visit.groups))
    except EvidenceError:
        return None


def _refuse_lost(batch: _Batch) -> _Done:
    raise UserError("some nights cannot be judged: each process that tried was killed")
