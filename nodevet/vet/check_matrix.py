"""The hosts of a run and its checks as a matrix, with the findings of each cell. Pure."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from nodevet.base.durations import elapsed
from nodevet.base.printable import brief
from nodevet.base.ranges import in_ranges
from nodevet.model import Finding, HostOutcome, HostReport, Severity, Subject, Verdict
from nodevet.model.changes import Marks
from nodevet.model.run import Run
from nodevet.sheet.hunks import hunks
from nodevet.sheet.model import (
    AnyBlock,
    CodeBlock,
    MatrixBlock,
    MatrixColumn,
    MatrixEntry,
    MatrixRow,
    RowEntry,
    TextBlock,
)
from nodevet.sheet.text import count, name
from nodevet.vet.findings import facts
from nodevet.vet.findings.ages import read_at
from nodevet.vet.findings.causes import with_causes
from nodevet.vet.findings.counted import FINE, with_stand_ins
from nodevet.vet.findings.fold import came_back
from nodevet.vet.findings.totals import totals
from nodevet.vet.findings.words import difference, values
from nodevet.vet.formats.diff import value_lines
from nodevet.vet.news import marks_of, since_words

MOST_LINES = 200  # of one finding's differences
LONGEST = 2000  # columns of one text
RANKS = {
    Verdict.FAIL: 5,
    Verdict.UNKNOWN: 4,
    Verdict.WAIVED: 3,
    Verdict.OK: 2,
    Verdict.NOT_APPLICABLE: 1,
}
TONES = {
    HostOutcome.FAIL: "fail",
    HostOutcome.UNKNOWN: "unknown",
    HostOutcome.WAIVED: "waived",
    HostOutcome.OK: "ok",
}
"""The outcomes of judged hosts; a host with any other outcome was not judged."""
OUTCOMES = (*(outcome for outcome in HostOutcome if outcome is not HostOutcome.OK), HostOutcome.OK)
"""Worst first."""
LEGEND = (
    ("fail", "fail, critical"),
    ("warning", "fail, warning"),
    ("info", "fail, info"),
    ("unknown", "unknown"),
    ("waived", "waived"),
    ("not_applicable", "not applicable"),
    ("ok", "ok"),
)


class _Group(NamedTuple):
    """Findings of one host that differ only in their subject, and their places in its report."""

    findings: tuple[Finding, ...]
    places: tuple[int, ...]


class _Host(NamedTuple):
    report: HostReport
    groups: list[_Group]
    entries: list[int]


def matrix(run: Run) -> MatrixBlock:
    """Every host with every finding; the worst hosts first, and of the checks the worst."""
    places: dict[tuple[Any, ...], int] = {}
    shared: list[_Group] = []
    hosts = []
    for report in map(with_stand_ins, run.hosts):
        groups = _alike(with_causes(report, run.fail_on))
        entries = []
        for group in groups:
            key = (_key(group.findings[0]), tuple(finding.subject.id for finding in group.findings))
            if key not in places:
                places[key] = len(shared)
                shared.append(group)
            entries.append(places[key])
        hosts.append(_Host(report, groups, entries))
    checks = _columns(shared)
    marks = marks_of(run)
    hosts_by = totals(run).hosts
    return MatrixBlock(
        title="Hosts and checks",
        columns=tuple(MatrixColumn(text(check), fine) for check, fine in checks.items()),
        entries=tuple(_entry(group, list(checks), run) for group in shared),
        rows=tuple(_row(host, run, marks) for host in sorted(hosts, key=_worst_first)),
        outcomes=tuple((o.words, _tone(o), hosts_by[o]) for o in OUTCOMES if hosts_by[o]),
        fine=_fine([check for check, fine in checks.items() if fine], hosts),
        compared=bool(run.news and run.news.since),
        legend=LEGEND,
    )


def _tone(outcome: HostOutcome) -> str:
    return TONES.get(outcome, "unreached")


def _worst_first(host: _Host) -> tuple[int, int, list[tuple[int, str]]]:
    failed = [one for one in host.report.findings if one.verdict is Verdict.FAIL]
    weight = sum(100**one.severity.rank for one in failed)
    order = OUTCOMES.index(host.report.outcome)
    return order, -weight, _natural(host.report.host)


def _natural(host: str) -> list[tuple[int, str]]:
    """`gpu2` before `gpu10`."""
    return [(int(part or 0), word) for word, part in re.findall(r"(\D*)(\d{0,18})", host)]


def _columns(groups: Iterable[_Group]) -> dict[str, bool]:
    """The checks, those with the worst findings first, and whether nothing is wrong with one."""
    worst: dict[str, int] = {}
    for (finding, *_), _places in groups:
        rank = 0 if finding.verdict in FINE else _rank(finding)
        worst[finding.check] = max(worst.get(finding.check, 0), rank)
    return {check: not worst[check] for check in sorted(worst, key=lambda check: -worst[check])}


def _rank(finding: Finding) -> int:
    """Its rank by severity. A finding that follows from another one counts less."""
    return RANKS[finding.verdict] * 100 + finding.severity.rank * 10 - bool(finding.cause)


def _fine(checks: Sequence[str], hosts: Sequence[_Host]) -> str:
    """`42 checks ok on all hosts, 3 ok where they apply`."""
    ok = dict.fromkeys(checks, 0)
    for host in hosts:
        for check in {one.check for one in host.report.findings if one.verdict is Verdict.OK}:
            if check in ok:
                ok[check] += 1
    everywhere = sum(number == len(hosts) for number in ok.values())
    none = sum(number == 0 for number in ok.values())
    counts = (
        (everywhere, "ok on all hosts" if len(hosts) > 1 else "ok"),
        (len(ok) - everywhere - none, "ok wherever they were judged"),
        (none, "not applicable"),
    )
    words = [(number, what) for number, what in counts if number]
    texts = [f"{number:,} {what}" for number, what in words[1:]]
    return ", ".join([f"{count(words[0][0], 'check')} {words[0][1]}", *texts]) if words else ""


def text(of: str) -> str:
    return brief(of, LONGEST)


def _alike(findings: Iterable[Finding]) -> list[_Group]:
    """An entry for `GPU 0-7` and for 32 policies, in the order of the first of each."""
    groups: dict[str, list[tuple[Finding, int]]] = {}
    for place, finding in enumerate(findings):
        groups.setdefault(_key(finding), []).append((finding, place))
    return [
        _Group(tuple(one for one, _ in some), tuple(place for _, place in some))
        for some in groups.values()
    ]


def _key(finding: Finding) -> str:
    """Findings with the same key look the same in the page, whatever their host and subject."""
    anywhere = Subject(kind=finding.subject.kind)
    return repr(replace(finding, subject=anywhere, details=UNSET, last=UNSET))


def _entry(group: _Group, checks: Sequence[str], run: Run) -> MatrixEntry:
    finding = group.findings[0]
    verdict, severity = finding.verdict, finding.severity
    fine = verdict in FINE
    failing = verdict is Verdict.FAIL
    lesser = failing and severity is not Severity.CRITICAL
    counts = verdict is Verdict.WAIVED or severity.rank >= run.fail_on.rank
    value = text(finding.why) if finding.actual is None else text(values(finding)[1])
    return MatrixEntry(
        column=checks.index(finding.check),
        word=verdict.value.replace("_", " "),
        tone=severity.value if lesser else verdict.value,
        rank=_rank(finding),
        level=severity.value,
        label=text(in_ranges(finding.subject.label for finding in group.findings)),
        text=(text(finding.why) if _unsaid(finding) else value) if fine else difference(finding)[0],
        note="" if fine or counts else f"{severity.value}, does not fail the run",
        origin=text(finding.origin),
        blocks=() if fine else tuple(_finding_blocks(finding)),
        data={} if fine else _data(finding),
        command="" if fine else f"nodevet explain {shlex.quote(text(finding.check))}",
        fine=fine,
    )


def _unsaid(finding: Finding) -> bool:
    return finding.verdict in (Verdict.UNKNOWN, Verdict.NOT_APPLICABLE)


def _finding_blocks(finding: Finding) -> Iterator[AnyBlock]:
    """The difference, line by line, and the explanation."""
    if lines := list(_diff(finding)):
        yield CodeBlock(text="\n".join(lines), language="diff", sides=("expected", "actual"))
    if finding.why:
        yield TextBlock(text=text(finding.why))
    if finding.cause:
        yield TextBlock(text=f"Follows from what {text(finding.cause)} says.", tone="quiet")
    if finding.waiver:
        yield TextBlock(text=f"Waiver {text(finding.waiver)}")
    head = finding.action.words or ("advice" if finding.advice else "")
    if head:
        advised = f": {text(finding.own_advice)}" if finding.advice else ""
        yield TextBlock(text=f"{head[0].upper()}{head[1:]}{advised}")


def _diff(finding: Finding) -> Iterable[str]:
    """Lines that begin with `-` (expected), `+` (actual), a space (both) or `@` (a gap)."""
    bare = finding.actual is None and finding.expected is None
    unsaid = bare or finding.verdict is Verdict.UNKNOWN
    expected = [] if finding.expected is None else value_lines(finding, finding.expected, 0)
    actual = [] if unsaid else value_lines(finding, finding.actual, 1)
    changed = list(hunks([(expected, actual)], 1))
    marked = changed or [*(f"-{line}" for line in expected), *(f"+{line}" for line in actual)]
    if len(marked) > MOST_LINES:
        more = f" and {count(len(marked) - MOST_LINES, 'line')} more"
        marked = [*marked[:MOST_LINES], more]
    lines = [line[0] + text(line[1:]) if line[0] in "+- " else "@" for line in marked]
    return lines[1:] if lines[:1] == ["@"] else lines


def _data(finding: Finding) -> dict[str, Any]:
    """The finding as JSON, for whoever copies it; values are text if they are long."""
    raw = {"expected": finding.expected, "actual": finding.actual}
    texts = dict(zip(raw, values(finding), strict=True))
    bounded = {key: _bounded(value, texts[key]) for key, value in raw.items() if value is not None}
    facts = {
        "unit": finding.unit,
        "why": finding.why,
        "cause": finding.cause or "",
        "waiver": finding.waiver,
        "action": finding.action.value if finding.action.words else "",
        "advice": finding.advice,
        "origin": finding.origin,
    }
    return {
        "check": text(finding.check),
        "verdict": finding.verdict.value,
        "severity": finding.severity.value,
        **bounded,
        **{key: text(value) for key, value in facts.items() if value},
    }


def _bounded(value: Any, shown: str) -> Any:
    return _printable(value) if len(shown) <= LONGEST else text(shown)


def _printable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {text(str(key)): _printable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_printable(item) for item in value]
    return value if isinstance(value, (bool, int, float)) or value is None else text(str(value))


def _row(host: _Host, run: Run, marks: Marks) -> MatrixRow:
    report = host.report
    pairs = zip(host.entries, host.groups, strict=True)
    return MatrixRow(
        name=name(report.host),
        word=report.outcome.words,
        tone=_tone(report.outcome),
        why=text(report.why_unjudged),
        new=report.host in marks.hosts
        or any((report.host, place) in marks.findings for place in range(len(report.findings))),
        groups=tuple(text(group) for group in sorted(report.groups)),
        facts=tuple((label, value) for label, value in _facts(report) if value),
        ids=_ids(report),
        entries=tuple(_row_entry(entry, group, report, marks, run) for entry, group in pairs),
        data={"baseline": text(report.baseline)} if report.baseline else {},
    )


def _facts(report: HostReport) -> Iterator[tuple[str, str]]:
    """GPUs, driver, kernel and uptime of the host, as far as they were read, and its outcome."""
    yield "why", text(report.why_unjudged)
    yield from facts.rows(report.facts) if report.facts else ()
    yield "baseline", text(report.baseline)
    yield "groups", ", ".join(text(group) for group in sorted(report.groups))
    yield "machine id", text(report.machine_id or "")
    yield "boot id", text(report.boot_id or "")
    yield "read", text(read_at(report))
    yield "took", elapsed(report.seconds)
    yield "first try", text(report.first_try or "")


def _ids(report: HostReport) -> tuple[tuple[str, str], ...]:
    """Every part that has an address or an id of its own: `GPU 4`, `0000:19:00.0 · GPU-5f1c…`."""
    subjects = {finding.subject for finding in report.findings}
    labels = {(one.label, one.bus_id or "", one.uuid or "") for one in subjects}
    return tuple(
        (text(label), " · ".join(text(part_id) for part_id in ids if part_id))
        for label, *ids in sorted(labels)
        if any(ids)
    )


def _row_entry(entry: int, group: _Group, report: HostReport, marks: Marks, run: Run) -> RowEntry:
    keys = [(report.host, place) for place in group.places]
    known = [marks.standing.get(key) for key in keys]
    old = [trouble for trouble in known if trouble is not None and not trouble.new]
    words = since_words([trouble.since for trouble in old], run.started)
    flapping = "flapping" if any(trouble.began for trouble in old) else ""
    fine = group.findings[0].verdict in FINE
    return RowEntry(
        entry=entry,
        new=not marks.findings.isdisjoint(keys),
        since=", ".join(filter(None, (words, came_back(old), flapping))) if words else "",
        parts=() if fine else tuple(_parts(group.findings)),
    )


def _parts(findings: Iterable[Finding]) -> Iterator[tuple[str, str]]:
    """The part that is not as expected, and details of that part."""
    for finding in findings:
        subject, details = finding.subject, finding.details or {}
        if subject.uuid or subject.bus_id or details or finding.last:
            ids = (subject.bus_id, subject.uuid)
            texts = [f"{key} {value}" for key, value in details.items() if value not in ids]
            last = [f"last at {finding.last}"] if finding.last else []
            yield text(subject.label), text(", ".join([*texts, *last]))
