"""Which findings of a host follow from another one: one fault is one piece of news. Pure.

A finding follows from a failed one of the same host and subject if its check says so (`cause` names
the failed finding's check), or if it is unknown for the very reason that the failed one shows:
a GPU that answers NVML_ERROR_GPU_IS_LOST is lost once, not once for each check that asks it.
What nothing shows on its own counts no less: a finding that counts for the exit code never follows
from one that does not, nor a failed one from a lesser one, nor what is new from what is not.
"""

from collections.abc import Iterable, Iterator, Mapping

from nodevet.changes import Marks
from nodevet.model import NODE, Finding, HostReport, Severity, Verdict

SHORTEST = 8  # characters of a reason that says something by itself: EACCES may be anything's


def causes_of(report: HostReport, fail_on: Severity, marks: Marks) -> Mapping[int, int]:
    """The places of the findings that follow from another one, and that one's place."""
    failed = _Failed(report.findings)
    found = {}
    for place, finding in enumerate(report.findings):
        cause = failed.told_by(finding)
        if cause is None or cause == place:
            continue
        told = report.findings[cause]
        least = finding.severity.rank
        if finding.verdict is Verdict.UNKNOWN:
            least = fail_on.rank if least >= fail_on.rank else 0
        new = (report.host, place) in marks.findings and (report.host, cause) not in marks.findings
        if told.severity.rank >= least and not new:
            found[place] = cause
    return found


Part = tuple[str, str]  # kind and id of a subject
ANYWHERE: Part = ("", "")


class _Failed:
    """The failed findings of a host, by what may follow from them; of several the worst, and of
    those the first. As fast for many as for few."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._findings = tuple(findings)
        self._by_check: dict[tuple[Part, str], int] = {}
        self._by_reason: dict[tuple[Part, str], int] = {}
        for place, finding in enumerate(self._findings):
            if finding.verdict is not Verdict.FAIL or finding.cause:
                continue
            part = _part(finding)
            self._keep(self._by_check, (part, finding.check), place)
            self._keep(self._by_check, (ANYWHERE, finding.check), place)
            for text in {finding.why, *_texts(finding.actual)}:
                if len(text) >= SHORTEST:
                    self._keep(self._by_reason, (part, text), place)

    def _keep(self, places: dict[tuple[Part, str], int], key: tuple[Part, str], place: int) -> None:
        known = places.setdefault(key, place)
        if self._findings[place].severity.rank > self._findings[known].severity.rank:
            places[key] = place

    def told_by(self, finding: Finding) -> int | None:
        """The place of the failed finding that this one follows from, if there is one."""
        if finding.verdict not in (Verdict.FAIL, Verdict.UNKNOWN):
            return None
        if finding.cause:
            part = ANYWHERE if finding.subject == NODE else _part(finding)
            return self._by_check.get((part, finding.cause))
        if finding.verdict is Verdict.UNKNOWN:
            return self._by_reason.get((_part(finding), finding.why.rpartition(": ")[2]))
        return None


def _part(finding: Finding) -> Part:
    return finding.subject.kind, finding.subject.id


def _texts(value: object) -> Iterator[str]:
    """The parts of a value that are text, as `a, b` or as a list."""
    if isinstance(value, str):
        yield from value.split(", ")
    elif isinstance(value, (list, tuple)):
        yield from (each for each in value if isinstance(each, str))
