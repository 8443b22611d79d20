"""What the script of the HTML page draws from: data whose texts are printable and bounded. Pure."""

from collections.abc import Iterable
from typing import Any

from nodevet.changes import Changes
from nodevet.durations import elapsed
from nodevet.model import Finding, HostReport, Run, Status, Verdict
from nodevet.printable import brief
from nodevet.report.diff import value_lines
from nodevet.report.parts.ages import read_at
from nodevet.report.parts.fold import Line, lines, totals
from nodevet.report.parts.hunks import hunks
from nodevet.report.parts.text import count, name, nodeset
from nodevet.report.parts.words import difference, values

MOST_LINES = 200  # of one finding's differences
LONGEST = 2000  # columns of one text
_FINE = (Verdict.OK, Verdict.NOT_APPLICABLE)
_BLANK: tuple[object, ...] = ("", [])  # left out


def data(run: Run, since: Changes | None) -> dict[str, Any]:
    """What the script draws from. Findings and sets of findings that hosts share are kept once."""
    marks = since.marks if since else None
    fresh: dict[str, list[int]] = {}
    for host, place in marks.findings if marks else ():
        fresh.setdefault(host, []).append(place)
    checks: dict[str, int] = {}
    findings: list[dict[str, Any]] = []
    known: dict[tuple[Any, ...], int] = {}
    sets: dict[tuple[int, ...], int] = {}
    hosts = []
    for report in run.hosts:
        keys = [_key(finding) for finding in report.findings]
        for key, finding in zip(keys, report.findings, strict=True):
            if key not in known:
                known[key] = len(findings)
                findings.append(_finding(finding, checks))
        members = tuple(known[key] for key in keys)
        new = sorted(fresh.get(report.host, ()))
        lost = marks is not None and report.host in marks.hosts
        hosts.append(_host(report, sets.setdefault(members, len(sets)), new, lost))
    places = {report.host: place for place, report in enumerate(run.hosts)}
    return {
        "checks": [_text(check) for check in checks],
        "findings": findings,
        "sets": list(sets),
        "hosts": hosts,
        "lines": [_line(line, places) for line in lines(run, marks)],
        "outcomes": dict(totals(run).told),
        "compared": since is not None,
        "fails": [
            severity.value for severity in type(run.fail_on) if severity.rank >= run.fail_on.rank
        ],
    }


def _key(finding: Finding) -> tuple[Any, ...]:
    """Findings with the same key look the same in the page, whatever their host."""
    expected, actual = finding.expected, finding.actual
    return (
        finding.check,
        finding.verdict,
        finding.severity,
        finding.subject.kind,
        finding.subject.id,
        type(expected),
        str(expected),
        type(actual),
        str(actual),
        finding.unit,
        finding.why,
        finding.waiver,
        finding.advice,
        finding.origin,
    )


def _finding(finding: Finding, checks: dict[str, int]) -> dict[str, Any]:
    fields = {
        "check": checks.setdefault(finding.check, len(checks)),
        "verdict": finding.verdict.value,
        "severity": finding.severity.value,
        "label": _text(finding.subject.label),
        "what": difference(finding)[0] if finding.verdict not in _FINE else "",
        "text": "" if finding.actual is None else _text(values(finding)[1]),
        "why": _text(finding.why),
        "waiver": _text(finding.waiver),
        "advice": _text(finding.advice),
        "origin": _text(finding.origin),
        "diff": list(_diff(finding)),
    }
    return {key: value for key, value in fields.items() if value not in _BLANK}


def _diff(finding: Finding) -> Iterable[str]:
    """Lines that begin with `-` (expected), `+` (actual) or a space (both)."""
    if finding.verdict in _FINE:
        return []
    bare = finding.actual is None and finding.expected is None
    unsaid = bare or finding.verdict is Verdict.UNKNOWN
    expected = [] if finding.expected is None else value_lines(finding, finding.expected, 0)
    actual = [] if unsaid else value_lines(finding, finding.actual, 1)
    changed = list(hunks([(expected, actual)], 1))
    marked = changed or [*(f"-{line}" for line in expected), *(f"+{line}" for line in actual)]
    if len(marked) > MOST_LINES:
        more = f" and {count(len(marked) - MOST_LINES, 'line')} more"
        marked = [*marked[:MOST_LINES], more]
    return [line[0] + _text(line[1:]) if line[0] in "+- " else "@" for line in marked]


def _host(report: HostReport, members: int, new: list[int], lost: bool) -> dict[str, Any]:
    gpus = {
        (finding.subject.label, finding.subject.uuid or "", finding.subject.bus_id or "")
        for finding in report.findings
        if finding.subject.uuid or finding.subject.bus_id
    }
    fields = {
        "name": name(report.host),
        "outcome": report.outcome.words,
        "why": _text(report.unjudged),
        "vetted": report.status is Status.VETTED,
        "set": members,
        "baseline": _text(report.baseline),
        "machine": _text(report.machine_id or ""),
        "boot": _text(report.boot_id or ""),
        "took": elapsed(report.seconds),
        "read": _text(read_at(report)),
        "groups": _text(", ".join(report.groups)),
        "gpus": sorted([_text(part) for part in gpu] for gpu in gpus),
        "new": new,
        "lost": lost,
    }
    return {
        key: value for key, value in fields.items() if value is not False and value not in _BLANK
    }


def _line(line: Line, places: dict[str, int]) -> dict[str, Any]:
    return {
        "label": line.label,
        "check": line.check,
        "severity": line.severity.value,
        "fails": line.fails,
        "what": line.what,
        "note": line.remark,
        "advice": line.advised,
        "where": nodeset(line.hosts),
        "hosts": [places[host] for host in line.hosts],
        "subjects": line.subjects,
        "new": line.new,
        "count": line.count,
    }


def _text(text: str) -> str:
    return brief(text, LONGEST)
