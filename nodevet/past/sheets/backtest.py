"""A backtest as a sheet. Pure."""

from collections.abc import Iterator, Sequence

from nodevet.base.printable import plain
from nodevet.past.backtest import Backtest, BacktestNight, CheckDelta, Foreseen, LastNight
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, FactBlock, Sheet, TableBlock
from nodevet.sheet.text import count, nodeset

MOST = 30  # rows of failures


def backtest_sheet(backtest: Backtest, clock: Clock) -> Sheet:
    """Totals first; then nights, checks, the last night and failures."""
    names = ", ".join(plain(name) for name in backtest.baselines)
    nights = backtest.nights
    when = (
        f"{clock.moment_text(nights[0].started)} to {clock.moment_text(nights[-1].started)}"
        if nights
        else ""
    )
    return Sheet(
        title=f"{names} in {count(len(nights), 'recorded run')}",
        kind="backtest",
        facts=(when, count(backtest.hosts, "host")),
        blocks=(FactBlock(rows=tuple(_about(backtest))), *_parts(backtest, clock)),
    )


def _about(backtest: Backtest) -> Iterator[tuple[str, str]]:
    hosts = {host for night in backtest.nights for host in night.added}
    failed_then, fail_now = (
        sum(getattr(run, name) for run in backtest.nights) for name in ("then", "now")
    )
    judged = sum(night.judged for night in backtest.nights)
    yield "fails", f"{fail_now:,} of {judged:,} judged visits; {failed_then:,} then"
    yield "newly fails", f"{_hosts_text(sorted(hosts))}"
    more = backtest.gpu_hours - backtest.gpu_hours_then
    change = f"{abs(more):,.0f} {'more' if more > 0 else 'fewer'} than then" if more else "as then"
    yield "takes out", f"{backtest.gpu_hours:,.0f} GPU-hours, {change}"
    removed = {host for line in backtest.removed for host in line.hosts}
    added = {host for line in backtest.added for host in line.hosts}
    yield (
        "last night",
        f"new alarms on {count(len(added), 'host')}, alarms gone on {count(len(removed), 'host')}",
    )
    yield "foresees", _foresees_text(backtest)
    if unjudged := _unjudged_text(backtest):
        yield "not judged", unjudged


def _hosts_text(hosts: Sequence[str]) -> str:
    return f"{count(len(hosts), 'host')}: {nodeset(hosts)}" if hosts else "no host"


def _unjudged_text(backtest: Backtest) -> str:
    """The visits that cannot be judged."""
    missing = sum(night.hosts - night.judged - night.pruned for night in backtest.nights)
    pruned = sum(night.pruned for night in backtest.nights)
    parts = []
    if missing:
        parts.append(f"{count(missing, 'visit')} without evidence")
    if pruned:
        parts.append(f"{count(pruned, 'visit')} with pruned evidence")
    return ", ".join(parts)


def _foresees_text(backtest: Backtest) -> str:
    foreseen = sum(bool(failure.alarm) for failure in backtest.failures)
    failures = count(len(backtest.failures), "failure")
    parts = [f"{foreseen:,} of {failures} within {backtest.within_days:g} d"]
    if backtest.alarms_over:
        parts.append(f"{backtest.alarms_right:,} of {count(backtest.alarms_over, 'alarm')} right")
    if unfinished := backtest.alarms - backtest.alarms_over:
        parts.append(f"{count(unfinished, 'alarm')} too young to judge")
    if backtest.lead_days is not None:
        parts.append(f"{backtest.lead_days:.1f} d ahead (median)")
    return ", ".join(parts)


def _parts(backtest: Backtest, clock: Clock) -> Iterator[TableBlock]:
    yield TableBlock(
        title="Nights",
        heads=("started", "hosts", "judged", "failed then", "fail now", "newly", "no longer"),
        rows=tuple(_night(night, clock) for night in backtest.nights),
    )
    if backtest.checks:
        yield TableBlock(
            title="Checks that differ",
            heads=("check", "newly fails", "on", "no longer", "on"),
            rows=tuple(map(_check, backtest.checks)),
            note="Counted in visits.",
        )
    for title, lines in (
        ("New alarms of the last night", backtest.added),
        ("Alarms of the last night that are gone", backtest.removed),
    ):
        if lines:
            yield TableBlock(title=title, rows=tuple(map(_last, lines)))
    if backtest.failures:
        yield TableBlock(
            title="Failures, and what came before",
            heads=("host", "failed", "began", "alarm", "ahead"),
            rows=tuple(_failure(failure, clock) for failure in backtest.failures[:MOST]),
            note=" ".join(_doubts(backtest)),
        )


def _doubts(backtest: Backtest) -> Iterator[str]:
    if len(backtest.failures) > MOST:
        yield f"{len(backtest.failures) - MOST:,} more."
    alarmed = {host for night in backtest.nights for host in night.added}
    if 2 * len(alarmed) >= backtest.hosts and any(failure.alarm for failure in backtest.failures):
        hosts = count(backtest.hosts, "host")
        yield f"It alarms on {len(alarmed):,} of {hosts}, so foreseeing is easy."


def _night(night: BacktestNight, clock: Clock) -> tuple[Cell, ...]:
    return (
        Cell(clock.moment_text(night.started)),
        *(Cell(f"{n:,}", right=True) for n in (night.hosts, night.judged, night.then, night.now)),
        Cell(_number(night.added), "fail" if night.added else "", right=True),
        Cell(_number(night.cleared), "ok" if night.cleared else "", right=True),
    )


def _number(hosts: Sequence[str]) -> str:
    return f"{len(hosts):,}" if hosts else ""


def _check(delta: CheckDelta) -> tuple[Cell, ...]:
    return (
        Cell(plain(delta.check)),
        Cell(f"{delta.added:,}" if delta.added else "", "fail", right=True),
        Cell(nodeset(delta.hosts_added)),
        Cell(f"{delta.removed:,}" if delta.removed else "", "ok", right=True),
        Cell(nodeset(delta.hosts_removed)),
    )


def _last(line: LastNight) -> tuple[Cell, ...]:
    return Cell(plain(line.check)), Cell(nodeset(line.hosts))


def _failure(failure: Foreseen, clock: Clock) -> tuple[Cell, ...]:
    ahead = f"{failure.days:.1f} d" if failure.days is not None else ""
    return (
        Cell(plain(failure.host)),
        Cell(plain(failure.check) or "not reached"),
        Cell(clock.moment_text(failure.began)),
        Cell(plain(failure.alarm) or "none", "ok" if failure.alarm else "quiet"),
        Cell(ahead, right=True),
    )
