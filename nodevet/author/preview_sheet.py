"""The preview of changed baselines as a sheet and as JUnit. Pure."""

# mypy: allow-untyped-calls

from collections import Counter
from collections.abc import Iterator

from junitparser import Error, Failure, Skipped, TestCase

from nodevet.author.preview import ChangedPart, Preview, VerdictChange
from nodevet.base.printable import plain
from nodevet.sheet import junit
from nodevet.sheet.model import Cell, Sheet, TableBlock
from nodevet.sheet.text import count, nodeset
from nodevet.vet.findings.words import difference, subjects_of

TONES = {
    VerdictChange.FAILS: "fail",
    VerdictChange.UNKNOWN: "unknown",
    VerdictChange.NOT_JUDGED: "warning",
    VerdictChange.WAIVED: "waived",
    VerdictChange.PASSES: "ok",
}


def preview_sheet(found: Preview) -> Sheet:
    """A row for each change; hosts with the same change share a row."""
    counts = Counter(one.change for one in found.changes)
    words = [f"{change.value}: {counts[change]:,}" for change in VerdictChange if counts[change]]
    still = f"as before: {found.still:,}" if found.still else ""
    unjudged = "no baseline judges any of them" if found.hosts and not found.judged else ""
    summary = " · ".join(filter(None, (*words, still, unjudged))) or "no verdict changes"
    rows = tuple(_rows(found))
    return Sheet(
        title=f"{count(found.hosts, 'host')} · {summary}",
        kind="preview",
        blocks=(TableBlock(heads=("", "check", "what", "hosts", "parts"), rows=rows),)
        if rows
        else (),
    )


def _rows(found: Preview) -> Iterator[tuple[Cell, ...]]:
    groups: dict[tuple[VerdictChange, str, str], list[ChangedPart]] = {}
    for one in found.changes:
        key = (one.change, one.finding.check, _difference_text(one))
        groups.setdefault(key, []).append(one)
    for (change, check, what), parts in groups.items():
        subjects, _ = subjects_of([(part.host, part.finding) for part in parts])
        yield (
            Cell(change.value, TONES[change]),
            Cell(plain(check)),
            Cell(what),
            Cell(nodeset(dict.fromkeys(part.host for part in parts))),
            Cell(subjects),
        )


def _difference_text(one: ChangedPart) -> str:
    return "" if one.change is VerdictChange.PASSES else difference(one.finding)[0]


def preview_junit(found: Preview) -> str:
    """A suite for each host with a change. A part that newly fails is a failure, a part that is
    newly unknown is an error, a part that is newly waived or no longer judged is skipped, and a
    part that newly passes passes."""
    hosts: dict[str, list[ChangedPart]] = {}
    for one in found.changes:
        hosts.setdefault(one.host, []).append(one)
    suites = (
        (junit.suite_of(host, "", (), (_case(one) for one in parts)), 0.0)
        for host, parts in hosts.items()
    )
    return "".join(junit.page("nodevet preview", suites, 0.0))


def _case(one: ChangedPart) -> TestCase:
    label = f"{one.finding.check} {one.finding.subject.label}".rstrip()
    case = TestCase(plain(label), classname=f"{plain(one.host)}.{plain(one.finding.check)}")
    kinds = {
        VerdictChange.FAILS: Failure,
        VerdictChange.UNKNOWN: Error,
        VerdictChange.NOT_JUDGED: Skipped,
        VerdictChange.WAIVED: Skipped,
    }
    if one.change in kinds:
        case.result = [kinds[one.change](difference(one.finding)[0], one.change.value)]
    return case
