"""Recorded runs, and the files of an export, as sheets. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.model import HostOutcome
from nodevet.past.listing import RunLine
from nodevet.past.run_diff import unvisited_hosts
from nodevet.past.sheets.findings import span_table
from nodevet.past.sheets.parts import at_text
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import (
    Cell,
    ChartBlock,
    ChartLine,
    ChartPoint,
    FactBlock,
    Sheet,
    TableBlock,
)
from nodevet.sheet.text import count, nodeset
from nodevet.store.records.model import FindingSpan, RecordedRun, RecordedVisit, RunState

STATES = {RunState.COMPLETE: "quiet", RunState.RUNNING: "warning", RunState.INCOMPLETE: "warning"}


def runs_sheet(lines: Sequence[RunLine], store: str, clock: Clock, more: bool) -> Sheet:
    """The list of runs, the newest first."""
    has_series = len({line.run.series for line in lines}) > 1 or any(e.run.series for e in lines)
    names = ("run", *(("series",) if has_series else ()), "started", "took", "hosts")
    resolved = any(line.resolved for line in lines)
    heads: tuple[str, ...] = (*names, "outcomes", "new", "fixed", *(["resolved"] * resolved))
    if any(line.run.state is not RunState.COMPLETE for line in lines):
        heads = (*heads, "state")
    return Sheet(
        title=count(len(lines), "run") + (f" in {plain(store)}" if store else ""),
        kind="runs",
        blocks=(
            TableBlock(
                heads=heads,
                rows=tuple(_run_row(line, clock, has_series, resolved) for line in lines),
            ),
        ),
        end="there are earlier runs: -n 100 shows more" if more else "",
    )


def _run_row(line: RunLine, clock: Clock, has_series: bool, resolved: bool) -> tuple[Cell, ...]:
    run = line.run
    outcome_text = outcomes_text(run)
    has_trouble = any(outcome is not HostOutcome.OK for outcome in run.outcomes)
    return (
        Cell(line.ref),
        *((Cell(brief(run.series, 24) or "by hand", "" if run.series else "quiet"),) * has_series),
        Cell(clock.moment_and_age(run.started)),
        Cell("" if run.seconds is None else elapsed(run.seconds), right=True),
        Cell(f"{run.hosts:,}", right=True),
        Cell(outcome_text, "fail" if has_trouble else "ok"),
        Cell(_number(line.new), right=True, tone="fail" if line.new else "quiet"),
        *(
            Cell(_number(number), right=True, tone="ok" if number else "quiet")
            for number in (line.fixed, line.resolved)[: 1 + resolved]
        ),
        Cell(_state_text(run) if run.state is not RunState.COMPLETE else "", STATES[run.state]),
    )


def _state_text(run: RecordedRun) -> str:
    """`incomplete, 11 not visited`."""
    unvisited = unvisited_hosts(run)
    return f"{run.state.value}, {unvisited:,} not visited" if unvisited else run.state.value


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def outcomes_text(run: RecordedRun) -> str:
    """`10 ok, 8 fail`."""
    counts = [(outcome, run.outcomes.get(outcome, 0)) for outcome in HostOutcome]
    return (
        ", ".join(f"{number:,} {outcome.words}" for outcome, number in counts if number) or "none"
    )


def run_sheet(
    line: RunLine,
    visits: Sequence[RecordedVisit],
    spans: Iterable[FindingSpan],
    before: RunLine | None,
    clock: Clock,
    earlier: Sequence[RecordedRun] = (),
) -> Sheet:
    """One run: its hosts by outcome, and their troubles with the times since when they last."""
    run = line.run
    by_outcome: dict[HostOutcome, list[str]] = {}
    for visit in visits:
        by_outcome.setdefault(visit.outcome, []).append(visit.host)
    listed = [outcome for outcome in HostOutcome if outcome in by_outcome]
    about = [
        ("run", plain(run.id)),
        ("series", plain(run.series) or "by hand"),
        ("started", clock.moment_and_age(run.started)),
        ("took", "" if run.seconds is None else elapsed(run.seconds)),
        ("state", _state_text(run)),
        ("exit code", "" if run.exit_code is None else str(run.exit_code)),
        ("baselines", ", ".join(f"{plain(k)} {v[:8]}" for k, v in run.baselines.items())),
        ("nodevet", plain(run.nodevet)),
    ]
    rows = tuple(
        (
            Cell(outcome.words, _tone(outcome)),
            Cell(f"{len(by_outcome[outcome]):,}", right=True),
            Cell(nodeset(by_outcome[outcome])),
        )
        for outcome in listed
    )
    parts: list[TableBlock | ChartBlock] = [TableBlock(title="Hosts", rows=rows)]
    statuses = [(visit.host, visit.status, visit.why) for visit in visits]
    if table := span_table("What is wrong", run, spans, clock, statuses, began=run.started):
        parts.append(table)
    if len(earlier) > 1:
        parts.append(_course(earlier, clock))
    end = ""
    if before is not None:
        end = f"`nodevet diff {before.ref} {line.ref}` shows what differs from the run before"
    return Sheet(
        title=f"{run_title(run, clock)}: {outcomes_text(run)}",
        kind="run",
        blocks=(FactBlock(rows=tuple(row for row in about if row[1])), *parts),
        end=end,
    )


def _course(runs: Sequence[RecordedRun], clock: Clock) -> ChartBlock:
    """How many hosts failed, or could not be judged, from run to run, the oldest first."""

    def line(name: str, tone: str, outcomes_counted: Iterable[HostOutcome]) -> ChartLine:
        counted = list(outcomes_counted)
        points = (
            ChartPoint(
                at_text(run.started, clock),
                None,
                float(sum(run.outcomes.get(outcome, 0) for outcome in counted))
                if run.state is RunState.COMPLETE
                else None,
                None,
            )
            for run in runs
        )
        return ChartLine(name=name, tone=tone, points=tuple(points))

    known = (HostOutcome.OK, HostOutcome.FAIL, HostOutcome.WAIVED)
    unsaid = [outcome for outcome in HostOutcome if outcome not in known]
    return ChartBlock(
        title=f"Hosts, the last {count(len(runs), 'run')}",
        lines=(
            line("fail", "fail", [HostOutcome.FAIL]),
            line("could not be judged", "unknown", unsaid),
        ),
        whole=True,
    )


def _tone(outcome: HostOutcome) -> str:
    return {
        HostOutcome.OK: "ok",
        HostOutcome.FAIL: "fail",
        HostOutcome.UNKNOWN: "unknown",
        HostOutcome.WAIVED: "waived",
    }.get(outcome, "unreached")


def export_sheet(folder: str, rows: Mapping[str, int]) -> Sheet:
    """The files that an export wrote."""
    cells = tuple(
        (Cell(f"{name}.parquet"), Cell(f"{number:,}", right=True)) for name, number in rows.items()
    )
    table = TableBlock(heads=("file", "rows"), rows=cells)
    return Sheet(title=f"written to {plain(folder)}", kind="export", blocks=(table,))


def run_title(run: RecordedRun, clock: Clock) -> str:
    return f"{plain(run.series) or 'check'} of {at_text(run.started, clock)}"
