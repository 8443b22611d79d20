"""Recorded runs, and two of them compared, as sheets. Pure."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief, plain
from nodevet.model import Finding, HostOutcome, Severity
from nodevet.past.listing import RunLine, troubles
from nodevet.past.moves import PartMove
from nodevet.past.run_diff import FactDiff, FindingDiff, HostDiff, RunDiff
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
from nodevet.vet.findings.words import in_ranges

LONGEST = 120  # columns of one value
STATES = {RunState.COMPLETE: "quiet", RunState.RUNNING: "warning", RunState.INCOMPLETE: "warning"}
UUID = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}")
MOST_PARTS = 48  # rows of parts: two machines with all that is in them
KINDS = {"gpu": "GPU", "nic": "NIC", "nvme": "NVMe drive", "drive": "drive"}
SHORT = 12  # characters: GPU-2b40377d
NUMBERED = re.compile(r"(.*?\D)(\d{1,4})( .*)?")


def runs_sheet(found: Sequence[RunLine], store: str, clock: Clock, more: bool) -> Sheet:
    """The newest run is the first."""
    several = len({each.run.series for each in found}) > 1 or any(e.run.series for e in found)
    names = ("run", *(("series",) if several else ()), "started", "took", "hosts")
    resolved = any(each.resolved for each in found)
    heads: tuple[str, ...] = (*names, "outcomes", "new", "fixed", *(["resolved"] * resolved))
    if any(each.run.state is not RunState.COMPLETE for each in found):
        heads = (*heads, "state")
    return Sheet(
        title=count(len(found), "run") + (f" in {plain(store)}" if store else ""),
        kind="runs",
        blocks=(
            TableBlock(
                heads=heads,
                rows=tuple(_run_row(each, clock, several, resolved) for each in found),
            ),
        ),
        end="there are earlier ones: -n 100 shows more" if more else "",
    )


def _run_row(line: RunLine, clock: Clock, series: bool, resolved: bool) -> tuple[Cell, ...]:
    run = line.run
    told = outcomes(run)
    bad = any(outcome is not HostOutcome.OK for outcome in run.outcomes)
    return (
        Cell(line.ref),
        *((Cell(brief(run.series, 24) or "by hand", "" if run.series else "quiet"),) * series),
        Cell(clock.both(run.started)),
        Cell("" if run.seconds is None else elapsed(run.seconds), right=True),
        Cell(f"{run.hosts:,}", right=True),
        Cell(told, "fail" if bad else "ok"),
        Cell(_number(line.new), right=True, tone="fail" if line.new else "quiet"),
        *(
            Cell(_number(number), right=True, tone="ok" if number else "quiet")
            for number in (line.fixed, line.resolved)[: 1 + resolved]
        ),
        Cell(_state(run) if run.state is not RunState.COMPLETE else "", STATES[run.state]),
    )


def _state(run: RecordedRun) -> str:
    """`incomplete, 11 not visited`."""
    left = _left(run)
    return f"{run.state.value}, {left:,} not visited" if left else run.state.value


def _left(run: RecordedRun) -> int:
    """How many of its hosts a run that did not end did not come to."""
    return max(0, run.hosts - run.visited) if run.state is not RunState.COMPLETE else 0


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def outcomes(run: RecordedRun) -> str:
    """`10 ok, 8 fail`."""
    counts = [(each, run.outcomes.get(each, 0)) for each in HostOutcome]
    return ", ".join(f"{number:,} {each.words}" for each, number in counts if number) or "none"


def run_sheet(
    line: RunLine,
    visits: Sequence[RecordedVisit],
    spans: Iterable[FindingSpan],
    before: RunLine | None,
    clock: Clock,
    earlier: Sequence[RecordedRun] = (),
) -> Sheet:
    """One run: its hosts by outcome, and what is wrong with them since when."""
    run = line.run
    by_outcome: dict[HostOutcome, list[str]] = {}
    for visit in visits:
        by_outcome.setdefault(visit.outcome, []).append(visit.host)
    listed = [each for each in HostOutcome if each in by_outcome]
    found = [(span, span.finding) for span in spans if span.check and span.finding is not None]
    since = Since()
    for span, finding in found:
        since.add(span.host, finding, (span.since or span.first).at)
    told = troubles(
        run,
        [(visit.host, visit.status, visit.why) for visit in visits],
        [(span.host, finding) for span, finding in found],
    )
    about = [
        ("run", plain(run.id)),
        ("series", plain(run.series) or "by hand"),
        ("started", clock.both(run.started)),
        ("took", "" if run.seconds is None else elapsed(run.seconds)),
        ("state", _state(run)),
        ("exit code", "" if run.exit_code is None else str(run.exit_code)),
        ("baselines", ", ".join(f"{plain(k)} {v[:8]}" for k, v in run.baselines.items())),
        ("nodevet", plain(run.nodevet)),
    ]
    rows = tuple(
        (
            Cell(each.words, _tone(each)),
            Cell(f"{len(by_outcome[each]):,}", right=True),
            Cell(nodeset(by_outcome[each])),
        )
        for each in listed
    )
    parts: list[TableBlock | ChartBlock] = [TableBlock(title="Hosts", rows=rows)]
    if told.hosts:
        parts.append(findings("What is wrong", lines(told), since, clock, began=run.started))
    if len(earlier) > 1:
        parts.append(_course(earlier, clock))
    end = ""
    if before is not None:
        end = f"`nodevet diff {before.ref} {line.ref}` says what differs from the run before"
    return Sheet(
        title=f"{plain(run.series) or 'check'} of {clock.at(run.started).strip()}: {outcomes(run)}",
        kind="run",
        blocks=(FactBlock(rows=tuple(row for row in about if row[1])), *parts),
        end=end,
    )


def _course(runs: Sequence[RecordedRun], clock: Clock) -> ChartBlock:
    """How many hosts failed, or could not be judged, from run to run; the oldest first."""

    def line(name: str, tone: str, of: Iterable[HostOutcome]) -> ChartLine:
        counted = list(of)
        points = (
            ChartPoint(
                " ".join(clock.at(run.started).split()),
                None,
                float(sum(run.outcomes.get(each, 0) for each in counted))
                if run.state is RunState.COMPLETE
                else None,
                None,
            )
            for run in runs
        )
        return ChartLine(name=name, tone=tone, points=tuple(points))

    known = (HostOutcome.OK, HostOutcome.FAIL, HostOutcome.WAIVED)
    unsaid = [each for each in HostOutcome if each not in known]
    return ChartBlock(
        title=f"Hosts, the last {count(len(runs), 'run')}",
        lines=(
            line("fail", "fail", [HostOutcome.FAIL]),
            line("could not be judged", "unknown", unsaid),
        ),
        whole=True,
    )


class Since:
    """When findings began: of a folded line the first of them and the last."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], list[str]] = {}

    def add(self, host: str, finding: Finding, at: str) -> None:
        self._times.setdefault((host, finding.check), []).append(at)

    def new(self, line: Line, began: str, clock: Clock) -> bool:
        """Whether all of it is not older than a run."""
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
    """Folded findings; `over`: of what is no more; `began`: of a run that began then, so that what
    is new in it can be told."""

    def when(row: Line) -> str:
        return "new" if began and since.new(row, began, clock) else since.of(row, clock)

    told = tuple(
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
    return TableBlock(title=title, heads=heads, rows=told)


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
    """What was written."""
    told = tuple(
        (Cell(f"{name}.parquet"), Cell(f"{number:,}", right=True)) for name, number in rows.items()
    )
    table = TableBlock(heads=("file", "rows"), rows=told)
    return Sheet(title=f"written to {plain(folder)}", kind="export", blocks=(table,))


# --- two runs ---


def diff_sheet(found: RunDiff, refs: tuple[str, str], clock: Clock, *, newer: int = 0) -> Sheet:
    """What differs between two runs; `newer`: runs that were passed over."""
    before, after = found.before, found.after
    counts = {
        "new": len(found.new) + len(found.lost),
        "changed": len(found.changed),
        "fixed": len(found.fixed),
        "resolved": len(found.resolved),
        "no longer judged": len(found.gone),
        "hosts judged again": len(found.back),
        "hosts appeared": len(found.appeared),
        "hosts vanished": len(found.vanished),
        "hosts replaced": len(found.replaced),
    }
    told = [f"{word}: {number:,}" for word, number in counts.items() if number or word == "new"]
    told.append(f"still: {found.still:,}")
    parts = [
        _hosts("No longer judged: hosts", found.lost, "after"),
        _group("New", found.new, found, clock),
        _group("Changed", found.changed, found, clock),
        _group("Fixed", found.fixed, found, clock, over=True),
        _group("Resolved", found.resolved, found, clock, over=True),
        _group("No longer judged", found.gone, found, clock, over=True),
        _hosts("Judged again: hosts", found.back, "before"),
        _named(found),
        parts_table(found.parts),
        facts_table(found.facts),
    ]
    notes = [
        f"{ref} did not come to {count(left, 'host')}: what it lacks has not vanished or appeared"
        for ref, run in zip(refs, (before, after), strict=True)
        if (left := _left(run))
    ]
    if newer:
        notes.append(
            f"{count(newer, 'newer run')} passed over: incomplete, by hand or of other hosts; "
            "`nodevet runs` lists them"
        )
    if found.thinned:
        kept = count(found.thinned, "host")
        notes.append(f"of {kept} the evidence is not kept any more: their facts are not compared")
    return Sheet(
        title=f"{_called(before, clock)} → {_called(after, clock)}",
        kind="diff",
        facts=(f"{refs[0]} → {refs[1]}", *told),
        blocks=tuple(part for part in parts if part is not None),
        end="; ".join(notes) or ("nothing differs" if found.nothing else ""),
    )


def _called(run: RecordedRun, clock: Clock) -> str:
    return f"{plain(run.series) or 'check'} of {' '.join(clock.at(run.started).split())}"


def _group(
    title: str, some: Sequence[FindingDiff], found: RunDiff, clock: Clock, *, over: bool = False
) -> TableBlock | None:
    if not some:
        return None
    since = Since()
    told: list[tuple[str, Finding]] = []
    for each in some:
        finding = each.before if over else each.after
        if finding is not None:
            since.add(each.host, finding, each.since)
            told.append((each.host, _with_before(finding, each)))
    rows = lines(troubles(found.after, [], told))
    table = findings(title, rows, since, clock, over=over)
    if title in ("New", "Changed"):
        keep = 5 if title == "Changed" else 4
        return replace(table, heads=table.heads[:keep], rows=tuple(r[:keep] for r in table.rows))
    return replace(table, note="; ".join(filter(None, (table.note, _fixed_by(some, clock)))))


def _fixed_by(some: Sequence[FindingDiff], clock: Clock) -> str:
    """`cpu_governor on a100-02 by plan 5f1c00aa, Nov 18 14:10`: what fixed findings, if it is
    certain."""
    hosts: dict[tuple[str, str, str], list[str]] = {}
    for each in some:
        if each.by is not None:
            plan = f"plan {brief(each.by.plan, 24)}" if each.by.plan else "a plan"
            key = (each.by.fix, plan, " ".join(clock.at(each.by.at).split()))
            hosts.setdefault(key, []).append(each.host)
    return "; ".join(
        f"{brief(fix)} on {nodeset(sorted(set(named)))} by {plan}, {at}"
        for (fix, plan, at), named in hosts.items()
    )


def _with_before(finding: Finding, each: FindingDiff) -> Finding:
    """A finding that changed says what it was."""
    if each.before is None or each.after is None or each.before.actual == finding.actual:
        return finding
    was = f"was {each.before.text(each.before.actual)}"
    return replace(finding, why="; ".join(filter(None, (was, finding.why))))


def _hosts(title: str, some: Sequence[HostDiff], side: str) -> TableBlock | None:
    reasons: dict[str, list[str]] = {}
    for each in some:
        reasons.setdefault(getattr(each, side), []).append(each.host)
    rows = tuple(
        (Cell(nodeset(hosts)), Cell(brief(why, LONGEST), "unreached"))
        for why, hosts in reasons.items()
    )
    return TableBlock(title=title, rows=rows) if rows else None


def _named(found: RunDiff) -> TableBlock | None:
    told = {
        "appeared": found.appeared,
        "vanished": found.vanished,
        "another machine, or re-imaged": found.replaced,
        "booted": found.rebooted,
    }
    rows = tuple((Cell(nodeset(hosts)), Cell(word)) for word, hosts in told.items() if hosts)
    return TableBlock(title="Hosts", rows=rows) if rows else None


def parts_table(found: Sequence[PartMove]) -> TableBlock | None:
    """Parts that are not where they were; of very many the first."""
    rows = tuple(
        (
            Cell(f"{KINDS[each.kind.value]} {short(each.id)}"),
            Cell(
                "moved"
                if each.host_before and each.host_after
                else "new"
                if each.host_after
                else "gone"
            ),
            Cell(_place(each.host_before, each.slot_before)),
            Cell(_place(each.host_after, each.slot_after)),
        )
        for each in found[:MOST_PARTS]
    )
    more = len(found) - len(rows)
    note = f"and {count(more, 'more part')}: `--format json` has all of them" if more else ""
    heads = ("part", "", "from", "to")
    return TableBlock(title="Parts", heads=heads, rows=rows, note=note) if rows else None


def _place(host: str, slot: str) -> str:
    return f"{plain(host)}, {brief(slot, LONGEST)}" if host else ""


def facts_table(found: Iterable[FactDiff]) -> TableBlock | None:
    """What hosts are that they were not: of several parts of a host as one line."""
    rows = tuple(
        (
            Cell(what),
            Cell(short(before)),
            Cell(f"→ {short(after)}"),
            Cell(nodeset(hosts)),
        )
        for what, before, after, hosts in _joined(found)
    )
    return TableBlock(title="Facts", rows=rows) if rows else None


def short(value: str) -> str:
    """A value on one line; of a GPU's UUID so much as commands need."""
    if UUID.fullmatch(value):
        return value[:SHORT]
    return brief(value, LONGEST) or "none"


def _joined(found: Iterable[FactDiff]) -> Iterator[tuple[str, str, str, tuple[str, ...]]]:
    groups: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for each in found:
        numbered = NUMBERED.fullmatch(each.what)
        rest = (numbered[1], numbered[3] or "") if numbered else (each.what, "")
        key = ("\0".join(rest), each.before, each.after, each.hosts)
        groups.setdefault(key, []).append(each.what)
    for (_, before, after, hosts), names in groups.items():
        if len(names) == 1:
            yield plain(names[0]), before, after, hosts
            continue
        parts = [NUMBERED.fullmatch(name) for name in names]
        labels = [f"{part[1].strip()} {part[2]}" for part in parts if part]
        end = next((part[3] or "" for part in parts if part), "")
        yield plain(in_ranges(labels) + end), before, after, hosts
