"""Which findings of a host follow from another one: one fault is one piece of news. Pure.

A finding follows from a failed one of the same host and subject if its check says so (`cause` names
the failed finding's check), or if it is unknown for the very reason that the failed one shows:
a GPU that answers NVML_ERROR_GPU_IS_LOST is lost once, not once for each check that asks it.
What nothing shows on its own counts no less: a finding that counts for the exit code never follows
from one that does not, nor one that is new from one that is not.
"""

from collections.abc import Iterator, Mapping

from nodevet.changes import Marks
from nodevet.model import NODE, Finding, HostReport, Severity, Subject, Verdict

SHORTEST = 8  # characters of a reason that says something by itself: EACCES may be anything's


def causes_of(report: HostReport, fail_on: Severity, marks: Marks) -> Mapping[int, int]:
    """The places of the findings that follow from another one, and that one's place."""
    failed: dict[Subject, list[int]] = {}
    for place, finding in enumerate(report.findings):
        if finding.verdict is Verdict.FAIL and not finding.cause:
            failed.setdefault(_subject(finding), []).append(place)
    if not failed:
        return {}
    found = {}
    for place, finding in enumerate(report.findings):
        if finding.verdict not in (Verdict.FAIL, Verdict.UNKNOWN):
            continue
        new = (report.host, place) in marks.findings
        for cause in _candidates(finding, failed):
            told = report.findings[cause]
            counts = finding.severity.rank < fail_on.rank or told.severity.rank >= fail_on.rank
            fresh = not new or (report.host, cause) in marks.findings
            if cause != place and counts and fresh and _follows(finding, told):
                found[place] = cause
                break
    return found


def _subject(finding: Finding) -> Subject:
    return Subject(kind=finding.subject.kind, id=finding.subject.id)


def _candidates(finding: Finding, failed: Mapping[Subject, list[int]]) -> Iterator[int]:
    """Failed findings of the same subject; of what the node as a whole lacks, of any."""
    if finding.cause and finding.subject == NODE:
        for places in failed.values():
            yield from places
    else:
        yield from failed.get(_subject(finding), ())


def _follows(finding: Finding, told: Finding) -> bool:
    if finding.cause:
        return finding.cause == told.check
    if finding.verdict is not Verdict.UNKNOWN:
        return False
    reason = finding.why.rpartition(": ")[2]
    return len(reason) >= SHORTEST and reason in (told.why, *_texts(told.actual))


def _texts(value: object) -> Iterator[str]:
    """The parts of a value that are text, as `a, b` or as a list."""
    if isinstance(value, str):
        yield from value.split(", ")
    elif isinstance(value, (list, tuple)):
        yield from (each for each in value if isinstance(each, str))
