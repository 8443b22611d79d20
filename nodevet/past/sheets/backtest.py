"""What another baseline would have said of recorded nights, as a sheet. Pure."""

from collections.abc import Iterator, Sequence

from nodevet.base.printable import plain
from nodevet.past.backtest import Backtest, BacktestNight, CheckDelta, Foreseen, LastNight
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, FactBlock, Sheet, TableBlock
from nodevet.sheet.text import count, nodeset

MOST = 30  # rows of failures


def backtest_sheet(found: Backtest, clock: Clock) -> Sheet:
    """Totals first, then nights, checks, the last night, failures."""
    names = ", ".join(plain(name) for name in found.baselines)
    nights = found.nights
    when = f"{clock.at(nights[0].started)} to {clock.at(nights[-1].started)}" if nights else ""
    return Sheet(
        title=f"{names} in {count(len(nights), 'recorded run')}",
        kind="backtest",
        facts=(when, count(found.hosts, "host")),
        blocks=(FactBlock(rows=tuple(_about(found))), *_parts(found, clock)),
    )


def _about(found: Backtest) -> Iterator[tuple[str, str]]:
    hosts = {host for night in found.nights for host in night.added}
    then, now = (sum(getattr(each, name) for each in found.nights) for name in ("then", "now"))
    judged = sum(night.judged for night in found.nights)
    yield "fails", f"{now:,} of {judged:,} visits that are judged; {then:,} then"
    yield "newly fails", f"{_listed(sorted(hosts))}"
    more = found.gpu_hours - found.gpu_hours_then
    change = f"{abs(more):,.0f} {'more' if more > 0 else 'fewer'} than then" if more else "as then"
    yield "takes out", f"{found.gpu_hours:,.0f} GPU-hours, {change}"
    removed = {host for line in found.removed for host in line.hosts}
    added = {host for line in found.added for host in line.hosts}
    yield (
        "last night",
        f"new alarms on {count(len(added), 'host')}, alarms gone on {count(len(removed), 'host')}",
    )
    yield "foresees", _foresees(found)
    if left := _left(found):
        yield "not judged", left


def _listed(hosts: Sequence[str]) -> str:
    return f"{count(len(hosts), 'host')}: {nodeset(hosts)}" if hosts else "no host"


def _left(found: Backtest) -> str:
    """What is no pass, for nobody knows."""
    missing = sum(night.hosts - night.judged - night.pruned for night in found.nights)
    pruned = sum(night.pruned for night in found.nights)
    told = []
    if missing:
        told.append(f"{count(missing, 'visit')} that brought no evidence")
    if pruned:
        told.append(f"{count(pruned, 'visit')} whose evidence was pruned")
    return ", ".join(told)


def _foresees(found: Backtest) -> str:
    foreseen = sum(bool(each.alarm) for each in found.failures)
    parts = [
        f"{foreseen:,} of {count(len(found.failures), 'failure')} within {found.within_days:g} d"
    ]
    if found.alarms_over:
        parts.append(f"{found.alarms_right:,} of {count(found.alarms_over, 'alarm')} right")
    if young := found.alarms - found.alarms_over:
        parts.append(f"{count(young, 'alarm')} too young to tell")
    if found.lead_days is not None:
        parts.append(f"{found.lead_days:.1f} d ahead (median)")
    return ", ".join(parts)


def _parts(found: Backtest, clock: Clock) -> Iterator[TableBlock]:
    yield TableBlock(
        title="Nights",
        heads=("started", "hosts", "judged", "failed then", "fail now", "newly", "no more"),
        rows=tuple(_night(night, clock) for night in found.nights),
    )
    if found.checks:
        yield TableBlock(
            title="Checks that differ",
            heads=("check", "newly fails", "on", "no more", "on"),
            rows=tuple(map(_check, found.checks)),
            note="Counted in visits.",
        )
    for title, lines in (
        ("New alarms of the last night", found.added),
        ("Alarms of the last night that are no more", found.removed),
    ):
        if lines:
            yield TableBlock(title=title, rows=tuple(map(_last, lines)))
    if found.failures:
        yield TableBlock(
            title="Failures, and what came before",
            heads=("host", "failed", "began", "alarm", "ahead"),
            rows=tuple(_failure(each, clock) for each in found.failures[:MOST]),
            note=" ".join(_doubts(found)),
        )


def _doubts(found: Backtest) -> Iterator[str]:
    if len(found.failures) > MOST:
        yield f"{len(found.failures) - MOST:,} more."
    alarmed = {host for night in found.nights for host in night.added}
    if 2 * len(alarmed) >= found.hosts and any(each.alarm for each in found.failures):
        hosts = count(found.hosts, "host")
        yield f"It alarms on {len(alarmed):,} of {hosts}: to foresee is easy so."


def _night(night: BacktestNight, clock: Clock) -> tuple[Cell, ...]:
    return (
        Cell(clock.at(night.started)),
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


def _failure(one: Foreseen, clock: Clock) -> tuple[Cell, ...]:
    ahead = f"{one.days:.1f} d" if one.days is not None else ""
    return (
        Cell(plain(one.host)),
        Cell(plain(one.check) or "not reached"),
        Cell(clock.at(one.began)),
        Cell(plain(one.alarm) or "none", "ok" if one.alarm else "quiet"),
        Cell(ahead, right=True),
    )
