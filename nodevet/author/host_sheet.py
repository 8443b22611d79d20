"""One host of a run in full, as a sheet: what it is, and every finding with all that it says. Pure.

Findings that say the same are told once, with all their subjects; nothing is cut.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from nodevet.base.printable import plain
from nodevet.model import Finding, HostReport, Run, Severity, Status, Verdict
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
from nodevet.vet.findings.facts import baseline_of, rows
from nodevet.vet.findings.passed import passed
from nodevet.vet.findings.words import in_ranges, values

WORST = (Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED)


def host_sheet(run: Run, host: HostReport) -> Sheet:
    """The host with all of its findings."""
    return Sheet(
        title=_title(host),
        kind="explain",
        media=Medium.DOCUMENT,
        blocks=tuple(host_blocks(run, host)),
    )


def host_blocks(run: Run, host: HostReport, check: str = "") -> Iterator[AnyBlock]:
    """What the host is and its findings; only those of one check if `check` names it."""
    told = (*with_causes(host, run.fail_on), *(host.shadow or ()))
    findings = [one for one in told if not check or one.check == check]
    if not check:
        facts = FactBlock(rows=tuple(_facts(run, host)))
        yield GroupBlock(title=_title(host), blocks=(facts,))
    yield from map(_finding, _alike(findings))
    only = Run(
        id=run.id, nodevet=run.nodevet, started=run.started, seconds=0.0,
        hosts=(HostReport(host=host.host, status=host.status, findings=tuple(findings)),),
    )  # fmt: skip
    rows = tuple(
        tuple(map(Cell, (line.label, line.check, line.what, line.subjects)))
        for line in passed(only)
    )
    if rows:
        yield TableBlock(rows=rows)
    if not findings:
        what = f"the check {plain(check)}" if check else "any check"
        yield TextBlock(text=f"{name(host.host)}: nothing was said by {what}")


def _title(host: HostReport) -> str:
    counts = Counter(finding.verdict for finding in host.findings)
    order = (*WORST, Verdict.OK, Verdict.NOT_APPLICABLE)
    told = [f"{counts[each]} {each.value.replace('_', ' ')}" for each in order if counts[each]]
    return f"{name(host.host)}  {host.outcome.words.upper()}  {', '.join(told)}".rstrip()


def _facts(run: Run, host: HostReport) -> Iterator[tuple[str, str]]:
    known = {
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
        known["baseline"] = host.baseline
    for label, text in known.items():
        if text:
            yield label, plain(text)


def _alike(findings: Sequence[Finding]) -> list[list[Finding]]:
    """The findings that are no ok, the worst first; those that say the same together."""
    groups: dict[object, list[Finding]] = {}
    shown = [finding for finding in findings if finding.verdict in WORST]
    for one in sorted(shown, key=lambda one: (WORST.index(one.verdict), -one.severity.rank)):
        said = (
            one.verdict, one.check, one.severity, values(one), one.unit, one.why, one.advice,
            one.waiver, one.origin, str(one.cause),
        )  # fmt: skip
        groups.setdefault(said, []).append(one)
    return list(groups.values())


def _finding(group: Sequence[Finding]) -> GroupBlock:
    """All that the findings say, a label and a text each."""
    one = group[0]
    lesser = one.verdict is Verdict.FAIL and one.severity is not Severity.CRITICAL
    subjects = plain(in_ranges(each.subject.label for each in group if each.subject.label))
    expected, actual = values(one)
    valued = not (one.expected is one.actual is None)
    told = [
        ("expected", expected if valued else ""),
        ("actual", actual if valued else ""),
        ("why", plain(one.why)),
        ("follows", f"from what {plain(one.cause)} says" if one.cause else ""),
        ("advice", plain(one.advice)),
        ("waiver", plain(one.waiver)),
        *((plain(each.subject.label) or "node", _part(each)) for each in group),
        ("from", plain(one.origin)),
    ]
    return GroupBlock(
        title=GAP.join(filter(None, (plain(one.check), subjects))),
        tag=Cell(one.verdict.value.upper(), "warning" if lesser else one.verdict.value),
        note=one.severity.value,
        blocks=(FactBlock(rows=tuple((label, text) for label, text in told if text)),),
    )


def _part(finding: Finding) -> str:
    """What is of this part alone: where it is, its serial, when it last happened."""
    subject, details = finding.subject, finding.details or {}
    said = [
        subject.bus_id or "",
        subject.uuid or "",
        *(f"{key} {value}" for key, value in details.items() if value != subject.bus_id),
        f"last at {finding.last}" if finding.last else "",
    ]
    return plain(", ".join(part for part in said if part))
