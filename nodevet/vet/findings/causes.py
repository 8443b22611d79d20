"""Which findings of a host follow from another one, so that one fault is reported once. Pure.

A finding follows from a failed finding of the same host if its check says so in `cause`, with the
name of the check that fails on the same part, or with that name and the part: `services unit X`. An
unknown finding also follows from a failed one with the same reason: a GPU that answers
NVML_ERROR_GPU_IS_LOST is lost once, not once for each check, and a driver that is not loaded is
missing once. The effects of an effect follow from its cause. No effect hides behind a lesser cause:
a finding that counts for the exit code never follows from one that does not, a failure never from a
lesser one, and a new finding never from an old one.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from nodevet.model import NODE, Finding, HostReport, Severity, Verdict
from nodevet.model.changes import Marks

SHORTEST = 8  # characters of a reason that says something by itself: EACCES may be anything's


def causes_of(report: HostReport, fail_on: Severity, marks: Marks) -> Mapping[int, int]:
    """The places of the findings that follow from another one, and that one's place: of the first
    cause, which follows from none."""
    failed = _Failed(report.findings)
    direct = {}
    for place, finding in enumerate(report.findings):
        cause = failed.told_by(finding)
        if cause is None or cause == place:
            continue
        cause_finding = report.findings[cause]
        least = finding.severity.rank
        if finding.verdict is Verdict.UNKNOWN:
            least = fail_on.rank if least >= fail_on.rank else 0
        new = (report.host, place) in marks.findings and (report.host, cause) not in marks.findings
        if cause_finding.severity.rank >= least and not new:
            direct[place] = cause
    roots = {place: _root(place, direct) for place in direct}
    return {place: root for place, root in roots.items() if root is not None}


def _root(place: int, direct: Mapping[int, int]) -> int | None:
    """The last cause of a finding; None if the causes form a circle."""
    seen = {place}
    while place in direct:
        place = direct[place]
        if place in seen:
            return None
        seen.add(place)
    return place


def follows_from(report: HostReport, fail_on: Severity) -> Mapping[int, str]:
    """The places of the findings that follow from another one, and that one's name:
    `gpu_lost GPU 6`."""
    causes = causes_of(report, fail_on, Marks())
    named = {place: report.findings[cause] for place, cause in causes.items()}
    return {place: f"{one.check} {one.subject.label}".rstrip() for place, one in named.items()}


def with_causes(report: HostReport, fail_on: Severity) -> tuple[Finding, ...]:
    """The findings, with a cause if they follow from one here, and else with none."""
    causes = follows_from(report, fail_on)
    return tuple(
        replace(finding, cause=causes.get(place, UNSET))
        for place, finding in enumerate(report.findings)
    )


Part = tuple[str, str]  # kind and id of a subject
ANYWHERE: Part = ("", "")


class _Failed:
    """The failed findings of a host, by what may follow from them; of several the worst, and of
    those the first. As fast for many findings as for few."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._findings = tuple(findings)
        self._by_check: dict[tuple[Part, str], int] = {}
        self._by_name: dict[tuple[str, str], int] = {}
        self._by_reason: dict[tuple[Part, str], int] = {}
        for place, finding in enumerate(self._findings):
            if finding.verdict is not Verdict.FAIL:
                continue
            part = _part(finding)
            self._keep(self._by_check, (part, finding.check), place)
            self._keep(self._by_check, (ANYWHERE, finding.check), place)
            self._keep(self._by_name, (finding.check, finding.subject.label), place)
            for text in {*_parts_of(finding.why), *_texts(finding.actual)}:
                if len(text) >= SHORTEST:
                    self._keep(self._by_reason, (part, text), place)
                    self._keep(self._by_reason, (ANYWHERE, text), place)

    def _keep(self, places: dict[Any, int], key: Any, place: int) -> None:
        """Findings without a cause come first."""
        known = places.setdefault(key, place)
        if self._weight(place) > self._weight(known):
            places[key] = place

    def _weight(self, place: int) -> tuple[bool, int]:
        finding = self._findings[place]
        return not finding.cause, finding.severity.rank

    def told_by(self, finding: Finding) -> int | None:
        """The place of the failed finding that this one follows from, if there is one."""
        if finding.verdict not in (Verdict.FAIL, Verdict.UNKNOWN):
            return None
        if finding.cause:
            check, _, label = str(finding.cause).partition(" ")
            if label:
                return self._by_name.get((check, label))
            part = ANYWHERE if finding.subject == NODE else _part(finding)
            return self._by_check.get((part, check))
        if finding.verdict is Verdict.UNKNOWN:
            reason = finding.why.rpartition(": ")[2]
            place = self._by_reason.get((_part(finding), reason))
            if place is None and finding.subject == NODE:  # and so of no part alone
                place = self._by_reason.get((ANYWHERE, finding.why))
            return place
        return None


def _parts_of(why: str) -> Iterator[str]:
    """A reason, and the reasons that it consists of."""
    yield why
    yield from why.split("; ")


def _part(finding: Finding) -> Part:
    return finding.subject.kind, finding.subject.id


def _texts(value: object) -> Iterator[str]:
    """The parts of a value that are text, as `a, b` or as a list."""
    if isinstance(value, str):
        yield from value.split(", ")
    elif isinstance(value, (list, tuple)):
        yield from (item for item in value if isinstance(item, str))
