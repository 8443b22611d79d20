"""Findings of a run as a table: folded, with since when. Pure."""

from collections.abc import Iterable

from nodevet.model import Finding, Severity, Status
from nodevet.past.listing import troubles
from nodevet.sheet.clock import Clock
from nodevet.sheet.model import Cell, TableBlock
from nodevet.sheet.text import nodeset
from nodevet.store.records.model import FindingSpan, RecordedRun
from nodevet.vet.findings.fold import Line, lines


class Since:
    """When findings began. A folded line has the first and the last time."""

    def __init__(self) -> None:
        self._times: dict[tuple[str, str], list[str]] = {}

    def add(self, host: str, finding: Finding, at: str) -> None:
        self._times.setdefault((host, finding.check), []).append(at)

    def is_new(self, line: Line, began: str, clock: Clock) -> bool:
        """Whether all findings of a line began with this run or later."""
        start = clock.local(began)
        times = [clock.local(at) for at in self._line_times(line)]
        return bool(start and times and all(at and at >= start for at in times))

    def _line_times(self, line: Line) -> list[str]:
        keys = ((host, check) for host in line.hosts for check in line.checks)
        return sorted({at for key in keys for at in self._times.get(key, ())})

    def times_text(self, line: Line, clock: Clock) -> str:
        """`Nov 18 02:00, 2 d ago`."""
        times = self._line_times(line)
        if not times:
            return ""
        first, last = clock.moment_text(times[0]), clock.moment_text(times[-1])
        return clock.moment_and_age(times[0]) if first == last else f"{first} to {last}"


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

    def begun_text(row: Line) -> str:
        return "new" if began and since.is_new(row, began, clock) else since.times_text(row, clock)

    cells = tuple(
        (
            *(() if over else (Cell(row.label, _label_tone(row)),)),
            Cell(row.check),
            Cell(row.what),
            Cell(location_text(row)),
            Cell(begun_text(row), "quiet" if begun_text(row) != "new" else "fail"),
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


def location_text(row: Line) -> str:
    """`gpu005 GPU 0-7`, `gpu[005-006] 16 GPUs`."""
    return " ".join(filter(None, (nodeset(row.hosts), row.subjects)))


def _label_tone(row: Line) -> str:
    if row.label == "FAIL":
        return "fail" if row.severity is Severity.CRITICAL else "warning"
    return {"UNKNOWN": "unknown", "WAIVED": "waived"}.get(row.label, "unreached")
