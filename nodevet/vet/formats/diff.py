"""A unified diff for each host, from the expected to the actual state.

Each check has one or more hunks, with the place in the baseline behind `@@`. Hosts with the same
differences share one diff under their nodeset. Lines that start with `#` belong to no diff: hosts
without findings, and the totals.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import msgspec

from nodevet.base.printable import plain
from nodevet.model import Finding, HostReport, Severity, Verdict, show
from nodevet.model.changes import Marks
from nodevet.model.run import Run
from nodevet.sheet.hunks import Pair, labelled_hunks
from nodevet.sheet.text import nodeset, wrap
from nodevet.vet.findings.causes import causes_of
from nodevet.vet.findings.counted import FINE
from nodevet.vet.findings.fold import lines
from nodevet.vet.findings.totals import summary
from nodevet.vet.findings.words import listed, values

CONTEXT = 1  # unchanged lines around a difference
ROOM = 96  # columns of a line of advice


def pieces(run: Run) -> Iterator[str]:
    """The diffs in the order of the run, then the hosts without findings, then the totals."""
    diffs = [f"{group.text}\n" for group in groups(run)]
    notes = [
        f"# {line.label.lower()}: {nodeset(line.hosts)}: {line.what}"
        for line in lines(run)
        if not line.check
    ]
    yield "\n".join([*diffs, *notes, f"# {summary(run)}"]) + "\n"


class AlikeHosts(msgspec.Struct, frozen=True):
    """Hosts that differ from one baseline in the same way."""

    baseline: str
    hosts: tuple[str, ...]
    body: str  # hunks

    @property
    def text(self) -> str:
        """The hunks under their file header, without a newline at the end."""
        where = nodeset(self.hosts)
        origin = f" ({plain(self.baseline)})" if self.baseline else ""
        return f"--- {where} expected{origin}\n+++ {where} actual\n{self.body}"


def groups(run: Run) -> list[AlikeHosts]:
    """Every host that differs, once, in the order of the run."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for report in run.hosts:
        if body := "\n".join(hunks(report, run.fail_on)):
            hosts.setdefault((report.baseline, body), []).append(report.host)
    return [AlikeHosts(baseline, tuple(some), body) for (baseline, body), some in hosts.items()]


def documents(
    report: HostReport, fail_on: Severity = Severity.WARNING
) -> tuple[list[str], list[str]]:
    """The host as expected and as it is, line by line; `hunks` turn the first into the second."""
    pairs = [pair for _, some in _parts(report, fail_on) for pair in some]
    return [line for pair in pairs for line in pair[0]], [
        line for pair in pairs for line in pair[1]
    ]


def hunks(report: HostReport, fail_on: Severity = Severity.WARNING) -> Iterator[str]:
    """The hunks of one host, without file header; none if nothing differs."""
    if all(finding.verdict in FINE for finding in report.findings):
        return
    yield from labelled_hunks(_parts(report, fail_on), CONTEXT)


def _parts(report: HostReport, fail_on: Severity) -> Iterator[tuple[str, list[Pair]]]:
    """Effects are named below their cause, and have no hunk of their own."""
    causes = causes_of(report, fail_on, Marks())
    effects: dict[int, list[Finding]] = {}
    for place, cause in causes.items():
        effects.setdefault(cause, []).append(report.findings[place])
    entries = (
        (place, finding)
        for place, finding in enumerate(report.findings)
        if finding.verdict is not Verdict.NOT_APPLICABLE and place not in causes
    )
    for check, some in groupby(entries, key=lambda entry: entry[1].check):
        findings = list(some)
        origin = next(
            (f"  {plain(finding.origin)}" for _, finding in findings if finding.origin), ""
        )
        pairs = [_pair(finding, effects.get(place, ())) for place, finding in findings]
        yield f"{plain(check)}{origin}", pairs


def _pair(finding: Finding, effects: Sequence[Finding]) -> Pair:
    """A finding as expected and as it is: equal texts for ok, different ones for every other
    verdict. `effects`: findings that follow from it."""
    note = "; ".join(plain(note) for note in (finding.why, finding.waiver) if note)
    follows = [f"  {line}" for line in wrap(_effects_text(effects), ROOM)] if effects else []
    advice = [*follows, *_advice(finding)]
    verdict = finding.verdict
    bare = finding.expected is finding.actual is None
    if verdict is Verdict.OK:
        entry = ["ok"] if bare else value_lines(finding, finding.actual, 1)
        return _entry(finding, entry), _entry(finding, entry)
    expected = (
        []
        if finding.expected is None
        else _entry(finding, value_lines(finding, finding.expected, 0))
    )
    if verdict is Verdict.UNKNOWN or bare:
        return expected, [*_entry(finding, [verdict.value], note), *advice]
    if verdict is Verdict.WAIVED:
        note = f"waived; {note}" if note else "waived"
    actual = _entry(finding, value_lines(finding, finding.actual, 1), note)
    if actual == expected:
        actual = _entry(finding, [values(finding)[1]], verdict.value)
    return expected, [*actual, *advice]


def _effects_text(effects: Sequence[Finding]) -> str:
    """`with xid, gpu_count; unknown: ecc_mode, power_limit`."""
    failed, unsaid = (
        listed(sorted({finding.check for finding in effects if finding.verdict is verdict}))
        for verdict in (Verdict.FAIL, Verdict.UNKNOWN)
    )
    return f"with {'; '.join(filter(None, (failed, unsaid and f'unknown: {unsaid}')))}"


def _advice(finding: Finding) -> list[str]:
    """It is below its finding, on its own lines."""
    if not finding.advice:
        return []
    text = f"{finding.action.words or 'advice'}: {plain(finding.advice)}"
    return [f"  {line}" for line in wrap(text, ROOM)]


def _entry(finding: Finding, value: list[str], note: str = "") -> list[str]:
    """`pcie_link GPU 4: x8`, or the members of a mapping or list on lines of their own."""
    head = plain(f"{finding.check} {finding.subject.label}".rstrip())
    tail = f"  ({note})" if note else ""
    if len(value) == 1:
        return [f"{head}: {value[0]}{tail}"]
    return [f"{head}:{tail}", *(f"  {member}" for member in value)]


def value_lines(finding: Finding, value: Any, side: int) -> list[str]:
    """A value as expected (side 0) or as it is (side 1): one line, or one per member."""
    unit = f" {finding.unit}" if finding.unit else ""
    members: list[str] = []
    if isinstance(value, Mapping):
        members = [f"{key}: {show(item)}{unit}" for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        members = [f"{show(item)}{unit}" for item in value]
    if len(members) > 1:
        return [plain(member) for member in members]
    return [values(finding)[side]]
