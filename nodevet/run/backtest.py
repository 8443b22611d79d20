"""`nodevet backtest`: recorded nights under another baseline. No node is visited."""

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from nodevet import age
from nodevet.history.backtest import Backtest, Judged, SaidThen, backtest
from nodevet.history.model import RecordedRun
from nodevet.model import Baseline, Host, HostReport, Severity, Status, Verdict
from nodevet.run.context import VetContext
from nodevet.run.errors import UserError
from nodevet.run.from_run import sections_of, visit_of
from nodevet.run.processes import Killed, cores, spread
from nodevet.run.vet import judge_visit

if TYPE_CHECKING:
    from nodevet.store import Store

BATCH = 64  # hosts of one run that a process judges at a time
WORTH = 128  # visits, from which on processes of their own are worth starting


class Nights(msgspec.Struct, frozen=True, kw_only=True):
    """Which recorded runs, and what of them."""

    store: str | None  # its URL; None: the user's own
    days: float  # before the last run
    series: str | None = None  # None: that of the last run
    checks: frozenset[str] | None = None  # None: all that the baselines ask
    hosts: frozenset[str] | None = None
    fail_on: Severity = Severity.WARNING
    within_days: float = 14.0


class _Batch(NamedTuple):
    run: int  # its place among the runs
    hosts: tuple[str, ...]


def tried(
    nights: Nights,
    context: VetContext,
    *,
    killed: Callable[[Killed, Sequence[str]], None],
) -> Backtest:
    """These nights under the context's baselines.

    Raises StoreError, and UserError if nothing is to be judged.
    """
    from nodevet.store import open_store

    context = _only(context, nights.checks)
    with open_store(nights.store, create=False) as store:
        runs = _runs(store, nights)
        listed = [_hosts(store, run, nights.hosts) for run in runs]
        spans = list(store.spans(after=runs[0].started))
    if nights.hosts is not None:
        spans = [span for span in spans if span.host in nights.hosts]
    said = SaidThen(spans, nights.checks)
    batches = [
        _Batch(place, names[at : at + BATCH])
        for place, names in enumerate(listed)
        for at in range(0, len(names), BATCH)
    ]
    total = sum(map(len, listed))
    if not total:
        raise UserError("these runs have none of the hosts that are named")
    judged: list[Judged] = []
    done = spread(
        lambda: _judging(nights, context, runs, said),
        batches,
        processes=cores() if total >= WORTH else 1,
        killed=lambda gone, batch: killed(gone, batch.hosts),
        lost=_lost,
    )
    try:
        for some in done:
            judged += some
    finally:
        done.close()
    used = {one.name: one.sha256 for one in context.baselines}
    return backtest(runs, judged, spans, baselines=used, within_days=nights.within_days)


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
    last = store.run("last") if nights.series is None else None
    series = nights.series if last is None else last.series
    newest = store.runs(series=series, limit=1)
    if not newest:
        raise UserError(f"no run of the sweep {series!r} is recorded; `nodevet runs` lists them")
    begun = age.seconds_of(newest[0].started) or 0.0
    after = age.instant(begun - timedelta(days=nights.days).total_seconds())
    return store.runs(series=series, after=after)[::-1]


def _hosts(store: "Store", run: RecordedRun, wanted: Collection[str] | None) -> tuple[str, ...]:
    return tuple(
        visit.host
        for visit in store.visits(run.id)
        if visit.status is not Status.INTERRUPTED and (wanted is None or visit.host in wanted)
    )


def _judging(
    nights: Nights, context: VetContext, runs: Sequence[RecordedRun], said: SaidThen
) -> Callable[[_Batch], list[Judged]]:
    """What judges a batch, in a process with a store of its own."""
    from nodevet.store import open_store

    store = open_store(nights.store, create=False)
    sections = sections_of(context)

    def judge(batch: _Batch) -> list[Judged]:
        run = runs[batch.run]
        started = age.seconds_of(run.started) or 0.0
        found = []
        for visit, document in store.evidence(run.id, hosts=batch.hosts, sections=sections):
            met = visit_of(visit, document)
            host = Host(name=visit.host, groups=frozenset(visit.groups), expect_hostname=False)
            report = judge_visit(met, host, context).report
            at = age.seconds_of(visit.arrived) or started
            found.append(
                Judged(
                    run=batch.run,
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
        return found

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


def _lost(batch: _Batch) -> list[Judged]:
    raise UserError("some nights cannot be judged: each process that tried was killed")
