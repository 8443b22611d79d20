"""The run as one HTML file that works without a network: totals, differences, hosts × checks.

Text from a node goes through `plain`, then either through Jinja's autoescape or
into the page as JSON that the script shows with textContent alone. The page's
policy runs exactly the script and style below, by hash.
"""

import base64
import hashlib
import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from nodevet.changes import Changes, changes
from nodevet.model import Finding, HostReport, Run, Status, Verdict
from nodevet.printable import brief, plain
from nodevet.report import table
from nodevet.report.ages import evidence_age, read_at
from nodevet.report.diff import value_lines
from nodevet.report.fold import Line, findings_in_words, lines, totals
from nodevet.report.hunks import hunks
from nodevet.report.text import count, duration, name, nodeset
from nodevet.report.words import difference, values

MOST_LINES = 200  # of one finding's differences in the page
LONGEST = 2000  # characters of one text in the page
_FINE = (Verdict.OK, Verdict.NOT_APPLICABLE)
_BLANK: tuple[object, ...] = ("", [])  # left out of the data


def render(run: Run, *, previous: Run | None = None) -> str:
    since = changes(previous, run) if previous else None
    style, script = _source("html_style.jinja"), _source("html_script.jinja")
    template = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    ).from_string(_source("html.jinja"))
    return template.render(
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704 - ours
        script=Markup(script),  # noqa: S704 - ours
        data=Markup(_embedded(_data(run, since))),  # noqa: S704 - no < > & left in it
        headline=_headline(run),
        facts=_facts(run),
        baselines=[(plain(key), plain(sha256)) for key, sha256 in run.baselines.items()],
        started=plain(run.started),
        told=findings_in_words(totals(run)),
        since=_since(since),
        text=table.render(run, previous=previous),
    )


def _source(file: str) -> str:
    return files("nodevet.report").joinpath(file).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src '{_hash(style)}'; script-src '{_hash(script)}'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _embedded(data: Any) -> str:
    """JSON that HTML cannot end early: ASCII, and without `<`, `>` and `&`."""
    text = json.dumps(data, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _headline(run: Run) -> str:
    found = totals(run)
    hosts = count(len(run.hosts), "host")
    if not run.hosts:
        return "No hosts: nothing was vetted"
    if found.all_ok:
        return f"All ok: {hosts}"
    if len(run.hosts) == 1:
        return f"{brief(name(run.hosts[0].host), 80)}: {run.hosts[0].outcome.words}"
    if wrong := found.hosts["fail"]:
        return f"{wrong:,} of {hosts} {'fails' if wrong == 1 else 'fail'}"
    unsaid = len(run.hosts) - found.hosts["ok"] - found.hosts["waived"]
    if unsaid:
        return f"{unsaid:,} of {hosts} could not be judged"
    return f"No failures: {found.hosts['waived']:,} of {hosts} under a waiver"


def _facts(run: Run) -> list[str]:
    facts = [
        f"took {duration(run.seconds)}",
        f"nodevet {plain(run.nodevet)}",
        f"fails on {run.fail_on.value}",
    ]
    more = (evidence_age(run), "interrupted" if run.interrupted else "")
    return [*facts, *filter(None, more)]


def _since(since: Changes | None) -> dict[str, Any] | None:
    if since is None:
        return None
    groups = {
        "New": [change.host for change in since.new],
        "Changed": [change.host for change in since.changed],
        "Fixed": [change.host for change in since.fixed],
        "No longer judged": [change.host for change in since.lost],
        "Judged again": [change.host for change in since.back],
        "Appeared": since.appeared,
        "Vanished": since.vanished,
    }
    rows = [(word, f"{len(hosts):,}", nodeset(hosts)) for word, hosts in groups.items() if hosts]
    return {"when": plain(since.since), "rows": rows, "words": since.words}


def _data(run: Run, since: Changes | None) -> dict[str, Any]:
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
        "outcomes": {word: number for word, number in totals(run).hosts.items() if number},
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
    """Lines that begin with `-` (wanted), `+` (actual) or a space (both)."""
    if finding.verdict in _FINE:
        return []
    bare = finding.actual is None and finding.expected is None
    unsaid = bare or finding.verdict is Verdict.UNKNOWN
    wanted = [] if finding.expected is None else value_lines(finding, finding.expected, 0)
    actual = [] if unsaid else value_lines(finding, finding.actual, 1)
    changed = list(hunks([(wanted, actual)], 1))
    marked = changed or [*(f"-{line}" for line in wanted), *(f"+{line}" for line in actual)]
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
        "took": duration(report.seconds),
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
        "advice": line.advice,
        "where": nodeset(line.hosts),
        "hosts": [places[host] for host in line.hosts],
        "subjects": line.subjects,
        "new": line.new,
        "count": line.count,
    }


def _text(text: str) -> str:
    return brief(text, LONGEST)
