"""The verdicts that change between two runs that judge the same evidence. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

import msgspec

from nodevet.model import Finding, HostReport, Run, Severity, Verdict

Key = tuple[str, str]  # host, Finding.key; without a key: the host as a whole


class VerdictChange(str, Enum):
    """How the verdict of a check on a part changes, the worst change first."""

    FAILS = "newly fails"
    UNKNOWN = "newly unknown"
    NOT_JUDGED = "no longer judged"  # was failing or unknown
    WAIVED = "newly waived"  # was failing or unknown
    PASSES = "newly passes"  # was failing or unknown


class ChangedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a host whose verdict changes."""

    change: VerdictChange
    host: str
    finding: Finding  # by the new baselines, or by the old ones if no longer judged


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """The changes. `still` only counts the parts that fail or are unknown by both versions."""

    hosts: int
    judged: int  # hosts that the new version judges
    fail_on: Severity
    changes: tuple[ChangedPart, ...]
    still: int  # parts that fail or are unknown by both versions

    @property
    def exit_code(self) -> int:
        """1 if something newly fails, 3 if something is newly unknown or no host is judged, else
        0."""
        kinds = {one.change for one in self.changes}
        is_unknown = VerdictChange.UNKNOWN in kinds or not self.judged
        return 1 if VerdictChange.FAILS in kinds else 3 * is_unknown


def preview(before: Run, after: Run) -> Preview:
    """The changes from one run to another run that judges the same evidence."""
    least = after.fail_on
    old, new = worst_by_part(before.hosts, least), worst_by_part(after.hosts, least)
    changes = sorted(_changes(old, new), key=_order)
    still = sum(key in old and is_trouble(old[key]) and is_trouble(new[key]) for key in new)
    return Preview(
        hosts=len(after.hosts),
        judged=sum(is_judged(report) for report in after.hosts),
        fail_on=least,
        changes=tuple(changes),
        still=still,
    )


def worst_by_part(hosts: Iterable[HostReport], least: Severity) -> dict[Key, Finding]:
    """The worst finding of each check about each part. A failure below `least` counts as ok."""
    worst: dict[Key, Finding] = {}
    for report in hosts:
        for finding in _findings(report):
            if finding.severity is Severity.SHADOW:
                continue
            counting = _counting(finding, least)
            key = report.host, finding.key
            if key not in worst or _rank(counting) > _rank(worst[key]):
                worst[key] = counting
    return worst


def _counting(finding: Finding, least: Severity) -> Finding:
    is_minor = finding.severity.rank < least.rank and is_trouble(finding)
    return msgspec.structs.replace(finding, verdict=Verdict.OK) if is_minor else finding


def is_trouble(finding: Finding) -> bool:
    """Whether the finding fails or is unknown."""
    return finding.verdict in (Verdict.FAIL, Verdict.UNKNOWN)


def is_judged(report: HostReport) -> bool:
    """Whether a baseline judged anything on the host."""
    return not report.unjudged


def _findings(report: HostReport) -> Iterator[Finding]:
    if not is_judged(report):
        yield Finding(verdict=Verdict.UNKNOWN, check="visit", why=report.told or "nothing judged")
    yield from report.findings


def _rank(finding: Finding) -> int:
    order = (Verdict.NOT_APPLICABLE, Verdict.OK, Verdict.WAIVED, Verdict.UNKNOWN, Verdict.FAIL)
    return order.index(finding.verdict)


def _changes(old: Mapping[Key, Finding], new: Mapping[Key, Finding]) -> Iterator[ChangedPart]:
    for key in (*new, *(key for key in old if key not in new)):
        if change := _change(old.get(key), new.get(key)):
            finding = new[key] if key in new else old[key]
            yield ChangedPart(change=change, host=key[0], finding=finding)


def _change(old: Finding | None, new: Finding | None) -> VerdictChange | None:
    if new is None:
        return VerdictChange.NOT_JUDGED if old and is_trouble(old) else None
    if new.verdict is Verdict.FAIL:
        return None if old and old.verdict is Verdict.FAIL else VerdictChange.FAILS
    if new.verdict is Verdict.UNKNOWN:
        return None if old and is_trouble(old) else VerdictChange.UNKNOWN
    if old is None or not is_trouble(old):
        return None
    if new.verdict is Verdict.NOT_APPLICABLE:
        return VerdictChange.NOT_JUDGED
    return VerdictChange.WAIVED if new.verdict is Verdict.WAIVED else VerdictChange.PASSES


def _order(one: ChangedPart) -> tuple[int, str, str]:
    return tuple(VerdictChange).index(one.change), one.finding.check, one.host
