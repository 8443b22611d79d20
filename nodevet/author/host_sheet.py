"""One host of a run in full, as a sheet: its facts, and every finding with all details. Pure.

Findings with the same content are shown once, with all their subjects; nothing is cut.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from nodevet.base.printable import plain
from nodevet.base.ranges import in_ranges
from nodevet.model import Finding, HostReport, Severity, Status, Verdict
from nodevet.model.run import Run
from nodevet.sheet.model import (
    AnyBlock,
    Cell,
    FactBlock,
    GroupBlock,
    Medium,
    Sheet,
    TableBlock,
    TextBlock,
)
from nodevet.sheet.text import GAP, name
from nodevet.vet.findings.ages import read_at
from nodevet.vet.findings.causes import with_causes
from nodevet.vet.findings.counted import with_stand_ins
from nodevet.vet.findings.facts import baseline_of, rows
from nodevet.vet.findings.passed import passed
from nodevet.vet.findings.words import values

WORST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED)


class HostAnswer(Struct, frozen=True, kw_only=True):
    """One host of a run."""

    run: str  # its id
    host: HostReport


def host_sheet(run: Run, host: HostReport) -> Sheet:
    """The host with all of its findings."""
    return Sheet(
        title=_title(host),
        kind="explain",
        media=Medium.DOCUMENT,
        blocks=tuple(host_blocks(run, host)),
    )


def host_blocks(run: Run, host: HostReport, check: str = "") -> Iterator[AnyBlock]:
    """The host's facts and findings, or only the findings of one `check`."""
    shown = with_stand_ins(host)
    all_findings = (*with_causes(shown, run.fail_on), *(shown.shadow or ()))
    findings = [finding for finding in all_findings if not check or finding.check == check]
    if not check:
        facts = FactBlock(rows=tuple(_facts(run, host)))
        yield GroupBlock(title=_title(host), blocks=(facts,))
    yield from map(_finding, _grouped(findings))
    part = Run(
        id=run.id, nodevet=run.nodevet, started=run.started, seconds=0.0,
        hosts=(HostReport(host=host.host, status=host.status, findings=tuple(findings)),),
    )  # fmt: skip
    rows = tuple(
        tuple(map(Cell, (line.label, line.check, line.what, line.subjects)))
        for line in passed(part)
    )
    if rows:
        yield TableBlock(rows=rows)
    if not findings:
        source = f"the check {plain(check)}" if check else "any check"
        yield TextBlock(text=f"{name(host.host)}: no findings of {source}")


def _title(host: HostReport) -> str:
    counts: Counter[Verdict] = Counter()
    for (verdict, _), number in host.kinds.items():
        counts[verdict] += number
    order = (*WORST, Verdict.OK, Verdict.NOT_APPLICABLE)
    totals = [
        f"{counts[verdict]} {verdict.value.replace('_', ' ')}"
        for verdict in order
        if counts[verdict]
    ]
    return f"{name(host.host)}  {host.outcome.words.upper()}  {', '.join(totals)}".rstrip()


def _facts(run: Run, host: HostReport) -> Iterator[tuple[str, str]]:
    facts = {
        "why": host.why,
        "first try": host.first_try or "",
        "baseline": baseline_of(host) if host.baseline else "none",
        "groups": ", ".join(host.groups),
        **(dict(rows(host.facts)) if host.facts else {}),
        "machine id": host.machine_id or "",
        "boot id": host.boot_id or "",
        "read at": read_at(host) or "unknown",
        "run": f"{run.id}, started {run.started}" if run.id else "",
    }
    if host.status is not Status.VETTED:
        facts["baseline"] = host.baseline
    for label, text in facts.items():
        if text:
            yield label, plain(text)


def _grouped(findings: Sequence[Finding]) -> list[list[Finding]]:
    """The findings that are not ok, the worst first, in groups with the same content."""
    groups: dict[object, list[Finding]] = {}
    bad = [finding for finding in findings if finding.verdict in WORST]
    bad.sort(key=lambda finding: (WORST.index(finding.verdict), -finding.severity.rank))
    for item in bad:
        content = (
            item.verdict, item.check, item.severity, values(item), item.unit, item.why, item.advice,
            item.waiver, item.origin, str(item.cause), item.action,
        )  # fmt: skip
        groups.setdefault(content, []).append(item)
    return list(groups.values())


def _finding(group: Sequence[Finding]) -> GroupBlock:
    """All details of findings with the same content, each with a label."""
    first = group[0]
    lesser = first.verdict is Verdict.FAIL and first.severity is not Severity.CRITICAL
    subjects = plain(in_ranges(finding.subject.label for finding in group if finding.subject.label))
    expected, actual = values(first)
    has_values = not (first.expected is first.actual is None)
    facts = [
        ("expected", expected if has_values else ""),
        ("actual", actual if has_values else ""),
        ("why", plain(first.why)),
        ("follows", f"from what {plain(first.cause)} says" if first.cause else ""),
        ("action", first.action.words),
        ("advice", plain(first.own_advice if len(group) == 1 else first.advice)),
        ("waiver", plain(first.waiver)),
        *((plain(finding.subject.label) or "node", _part(finding)) for finding in group),
        ("from", plain(first.origin)),
    ]
    return GroupBlock(
        title=GAP.join(filter(None, (plain(first.check), subjects))),
        tag=Cell(first.verdict.value.upper(), "warning" if lesser else first.verdict.value),
        note=first.severity.value,
        blocks=(FactBlock(rows=tuple((label, text) for label, text in facts if text)),),
    )


def _part(finding: Finding) -> str:
    """The details of one part: its bus id and UUID, its serial, the time of the last event."""
    subject, details = finding.subject, finding.details or {}
    parts = [
        subject.bus_id or "",
        subject.uuid or "",
        *(f"{key} {value}" for key, value in details.items() if value != subject.bus_id),
        f"last at {finding.last}" if finding.last else "",
    ]
    return plain(", ".join(part for part in parts if part))
