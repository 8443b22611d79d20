"""Recorded runs, and the differences of two, as sheets. Pure."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.model import Finding, HostOutcome, Severity, Status
from nodevet.past.listing import RunLine, troubles
from nodevet.past.run_diff import FindingDiff, HostDiff, RunDiff
from nodevet.past.sheets.parts import LONGEST, at_text, facts_table, parts_table
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
from nodevet.vet.findings.fold import Line, lines

STATES = {RunState.COMPLETE: "quiet", RunState.RUNNING: "warning", RunState.INCOMPLETE: "warning"}


def runs_sheet(lines: Sequence[RunLine], store: str, clock: Clock, more: bool) -> Sheet:
    """The list of runs, the newest first."""
    has_series = len({each.run.series for each in lines}) > 1 or any(e.run.series for e in lines)
    names = ("run", *(("series",) if has_series else ()), "started", "took", "hosts")
    resolved = any(each.resolved for each in lines)
    heads: tuple[str, ...] = (*names, "outcomes", "new", "fixed", *(["resolved"] * resolved))
    if any(each.run.state is not RunState.COMPLETE for each in lines):
        heads = (*heads, "state")
    return Sheet(
        title=count(len(lines), "run") + (f" in {plain(store)}" if store else ""),
        kind="runs",
        blocks=(
            TableBlock(
                heads=heads,
                rows=tuple(_run_row(each, clock, has_series, resolved) for each in lines),
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
        Cell(clock.both(run.started)),
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
    unvisited = _unvisited(run)
    return f"{run.state.value}, {unvisited:,} not visited" if unvisited else run.state.value


def _unvisited(run: RecordedRun) -> int:
    """The number of hosts that a run without an end did not reach."""
    return max(0, run.hosts - run.visited) if run.state is not RunState.COMPLETE else 0


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
        ("started", clock.both(run.started)),
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
        title=f"{_run_title(run, clock)}: {outcomes_text(run)}",
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


class Since:
    """When findings began. A folded line has the first and the last time."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], list[str]] = {}

    def add(self, host: str, finding: Finding, at: str) -> None:
        self._times.setdefault((host, finding.check), []).append(at)

    def new(self, line: Line, began: str, clock: Clock) -> bool:
        """Whether all findings of a line began with this run or later."""
        start = clock.local(began)
        times = [clock.local(at) for at in self._of(line)]
        return bool(start and times and all(at and at >= start for at in times))

    def _of(self, line: Line) -> list[str]:
        keys = ((host, check) for host in line.hosts for check in line.checks)
        return sorted({at for key in keys for at in self._times.get(key, ())})

    def of(self, line: Line, clock: Clock) -> str:
        """`Nov 18 02:00, 2 d ago`."""
        times = self._of(line)
        if not times:
            return ""
        first, last = clock.at(times[0]), clock.at(times[-1])
        return clock.both(times[0]) if first == last else f"{first} to {last}"


def findings(
    title: str,
    rows: Iterable[Line],
    since: Since,
    clock: Clock,
    *,
    over: bool = False,
    began: str = "",
) -> TableBlock:
    """Folded findings. `over`: they are no longer problems. `began`: when the run began; findings
    that began in it are marked as new."""

    def when(row: Line) -> str:
        return "new" if began and since.new(row, began, clock) else since.of(row, clock)

    cells = tuple(
        (
            *(() if over else (Cell(row.label, _label_tone(row)),)),
            Cell(row.check),
            Cell(row.what),
            Cell(where(row)),
            Cell(when(row), "quiet" if when(row) != "new" else "fail"),
        )
        for row in rows
    )
    heads: tuple[str, ...] = ("check", "was", "where", "from")
    if not over:
        heads = ("", "check", "what", "where", "since")
    return TableBlock(title=title, heads=heads, rows=cells)


def span_table(
    title: str,
    run: RecordedRun,
    spans: Iterable[FindingSpan],
    clock: Clock,
    visits: Iterable[tuple[str, Status, str]] = (),
    *,
    over: bool = False,
    began: str = "",
) -> TableBlock | None:
    """The findings of spans and the hosts without a verdict, folded; None if there are none."""
    since = Since()
    host_findings = []
    for span in spans:
        if span.check and span.finding is not None:
            since.add(span.host, span.finding, (span.since or span.first).at)
            host_findings.append((span.host, span.finding))
    troubled = troubles(run, visits, host_findings)
    if not troubled.hosts:
        return None
    return findings(title, lines(troubled), since, clock, over=over, began=began)


def where(row: Line) -> str:
    """`gpu005 GPU 0-7`, `gpu[005-006] 16 GPUs`."""
    return " ".join(filter(None, (nodeset(row.hosts), row.subjects)))


def _label_tone(row: Line) -> str:
    if row.label == "FAIL":
        return "fail" if row.severity is Severity.CRITICAL else "warning"
    return {"UNKNOWN": "unknown", "WAIVED": "waived"}.get(row.label, "unreached")


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


# --- two runs ---


def diff_sheet(diff: RunDiff, refs: tuple[str, str], clock: Clock, *, newer: int = 0) -> Sheet:
    """The differences of two runs. `newer`: the number of newer runs that were passed over."""
    before, after = diff.before, diff.after
    counts = {
        "new": len(diff.new) + len(diff.lost),
        "changed": len(diff.changed),
        "fixed": len(diff.fixed),
        "resolved": len(diff.resolved),
        "no longer judged": len(diff.gone),
        "hosts judged again": len(diff.back),
        "hosts appeared": len(diff.appeared),
        "hosts vanished": len(diff.vanished),
        "hosts replaced": len(diff.replaced),
    }
    counts_text = [
        f"{word}: {number:,}" for word, number in counts.items() if number or word == "new"
    ]
    counts_text.append(f"still: {diff.still:,}")
    parts = [
        _hosts("No longer judged: hosts", diff.lost, "after"),
        _group("New", diff.new, diff, clock),
        _group("Changed", diff.changed, diff, clock),
        _group("Fixed", diff.fixed, diff, clock, over=True),
        _group("Resolved", diff.resolved, diff, clock, over=True),
        _group("No longer judged", diff.gone, diff, clock, over=True),
        _hosts("Judged again: hosts", diff.back, "before"),
        _changed_hosts(diff),
        parts_table(diff.parts),
        facts_table(diff.facts),
    ]
    notes = [
        f"{ref} did not visit {count(unvisited, 'host')}, not compared here"
        for ref, run in zip(refs, (before, after), strict=True)
        if (unvisited := _unvisited(run))
    ]
    if newer:
        notes.append(
            f"{count(newer, 'newer run')} skipped: incomplete, by hand or of other hosts; "
            "`nodevet runs` lists them"
        )
    if diff.thinned:
        pruned = count(diff.thinned, "host")
        notes.append(f"the evidence of {pruned} was pruned: their facts are not compared")
    return Sheet(
        title=f"{_run_title(before, clock)} → {_run_title(after, clock)}",
        kind="diff",
        facts=(f"{refs[0]} → {refs[1]}", *counts_text),
        blocks=tuple(part for part in parts if part is not None),
        end="; ".join(notes) or ("nothing differs" if diff.nothing else ""),
    )


def _run_title(run: RecordedRun, clock: Clock) -> str:
    return f"{plain(run.series) or 'check'} of {at_text(run.started, clock)}"


def _group(
    title: str, diffs: Sequence[FindingDiff], run: RunDiff, clock: Clock, *, over: bool = False
) -> TableBlock | None:
    if not diffs:
        return None
    since = Since()
    host_findings: list[tuple[str, Finding]] = []
    for diff in diffs:
        finding = diff.before if over else diff.after
        if finding is not None:
            since.add(diff.host, finding, diff.since)
            host_findings.append((diff.host, _with_before(finding, diff)))
    rows = lines(troubles(run.after, [], host_findings))
    table = findings(title, rows, since, clock, over=over)
    if title in ("New", "Changed"):
        keep = 5 if title == "Changed" else 4
        return replace(table, heads=table.heads[:keep], rows=tuple(r[:keep] for r in table.rows))
    return replace(table, note="; ".join(filter(None, (table.note, _fixed_by(diffs, clock)))))


def _fixed_by(diffs: Sequence[FindingDiff], clock: Clock) -> str:
    """`cpu_governor on a100-02 by plan 5f1c00aa, Nov 18 14:10`: the changes that fixed findings."""
    hosts: dict[tuple[str, str, str], list[str]] = {}
    for diff in diffs:
        if diff.by is not None:
            plan = f"plan {brief(diff.by.plan, 24)}" if diff.by.plan else "a plan"
            key = (diff.by.fix, plan, at_text(diff.by.at, clock))
            hosts.setdefault(key, []).append(diff.host)
    return "; ".join(
        f"{brief(fix)} on {nodeset(sorted(set(hosts_fixed)))} by {plan}, {at}"
        for (fix, plan, at), hosts_fixed in hosts.items()
    )


def _with_before(finding: Finding, diff: FindingDiff) -> Finding:
    """A finding whose reason names the value before, if that changed."""
    if diff.before is None or diff.after is None or diff.before.actual == finding.actual:
        return finding
    was = f"was {diff.before.text(diff.before.actual)}"
    return replace(finding, why="; ".join(filter(None, (was, finding.why))))


def _hosts(title: str, diffs: Sequence[HostDiff], side: str) -> TableBlock | None:
    reasons: dict[str, list[str]] = {}
    for diff in diffs:
        reasons.setdefault(getattr(diff, side), []).append(diff.host)
    rows = tuple(
        (Cell(nodeset(hosts)), Cell(brief(why, LONGEST), "unreached"))
        for why, hosts in reasons.items()
    )
    return TableBlock(title=title, rows=rows) if rows else None


def _changed_hosts(diff: RunDiff) -> TableBlock | None:
    hosts_by_change = {
        "appeared": diff.appeared,
        "vanished": diff.vanished,
        "another machine, or re-imaged": diff.replaced,
        "booted": diff.rebooted,
    }
    rows = tuple(
        (Cell(nodeset(hosts)), Cell(word)) for word, hosts in hosts_by_change.items() if hosts
    )
    return TableBlock(title="Hosts", rows=rows) if rows else None
