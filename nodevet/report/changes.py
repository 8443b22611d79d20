"""What differs between two runs: what is new, gone or changed since last night. Pure."""

from collections.abc import Iterable

import msgspec

from nodevet.model import Finding, HostReport, Run, Subject, Verdict
from nodevet.report.fold import Marks, plight
from nodevet.report.words import values

TROUBLE = (Verdict.WRONG, Verdict.UNKNOWN)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of one host that is not what it was."""

    host: str
    check: str
    subject: Subject
    before: Finding | None = None  # None: no such trouble before
    after: Finding | None = None  # None: the check no longer speaks of this subject
    place: int = -1  # of `after` among the host's findings

    @property
    def fixed(self) -> bool:
        """Whether the check now says ok; exempt, waived and no longer asked are not that."""
        return self.after is not None and self.after.verdict is Verdict.OK


class HostChange(msgspec.Struct, frozen=True, kw_only=True):
    """A host that could be judged in one of the runs and not in the other."""

    host: str
    before: str = ""  # why it could not be judged; empty: it could
    after: str = ""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is not as it was. A trouble is a wrong or unknown finding."""

    since: str  # when the earlier run started, ISO 8601
    new: tuple[Change, ...] = ()  # a trouble that was none before
    gone: tuple[Change, ...] = ()  # a trouble before, and none on a host that was judged again
    changed: tuple[Change, ...] = ()  # a trouble in both, with other values
    lost: tuple[HostChange, ...] = ()  # hosts that can no longer be judged
    back: tuple[HostChange, ...] = ()  # hosts that can be judged again
    appeared: tuple[str, ...] = ()  # hosts of the later run alone
    vanished: tuple[str, ...] = ()  # hosts of the earlier run alone

    @property
    def fixed(self) -> tuple[Change, ...]:
        return tuple(change for change in self.gone if change.fixed)

    @property
    def news(self) -> int:
        """New troubles: findings, and hosts that can no longer be judged."""
        return len(self.new) + len(self.lost)

    @property
    def words(self) -> str:
        """`new since last run: 3, fixed: 2`; what is zero is left out, but for `new`."""
        numbers = {
            "changed": len(self.changed),
            "fixed": len(self.fixed),
            "no longer judged": len(self.gone) - len(self.fixed),
            "hosts judged again": len(self.back),
            "hosts appeared": len(self.appeared),
            "hosts vanished": len(self.vanished),
        }
        told = [f"{word}: {number:,}" for word, number in numbers.items() if number]
        return ", ".join([f"new since last run: {self.news:,}", *told])

    @property
    def marks(self) -> Marks:
        return Marks(
            findings=frozenset((change.host, change.place) for change in self.new),
            hosts=frozenset(change.host for change in self.lost),
        )


def changes(before: Run, after: Run) -> Changes:
    """What is new, gone and changed in `after`.

    Findings are matched by host, check and subject: a GPU by its UUID where
    both runs know it, else by its index. A host that could not be judged keeps
    its earlier troubles: nobody has seen them go.
    """
    earlier = {report.host: report for report in before.hosts}
    later = {report.host: report for report in after.hosts}
    new: list[Change] = []
    gone: list[Change] = []
    changed: list[Change] = []
    lost: list[HostChange] = []
    back: list[HostChange] = []
    for host, report in later.items():
        old = earlier.get(host)
        was, now = plight(old) if old else "", plight(report)
        if now and not was:
            lost.append(HostChange(host=host, after=now))
        if was and not now:
            back.append(HostChange(host=host, before=was))
        if now:
            continue
        for change in _match(old.findings if old and not was else (), report):
            if change.before is None:
                new.append(change)
            elif change.after is None or change.after.verdict not in TROUBLE:
                gone.append(change)
            else:
                changed.append(change)
    return Changes(
        since=before.started,
        new=tuple(new),
        gone=tuple(gone),
        changed=tuple(changed),
        lost=tuple(lost),
        back=tuple(back),
        appeared=tuple(host for host in later if host not in earlier),
        vanished=tuple(host for host in earlier if host not in later),
    )


def _match(old: Iterable[Finding], report: HostReport) -> Iterable[Change]:
    """The troubles of one host that appeared, went or changed."""
    left = [finding for finding in old if finding.verdict in TROUBLE]
    fresh: list[tuple[int, Finding]] = []
    for place, finding in enumerate(report.findings):
        if finding.verdict not in TROUBLE:
            continue
        same = next((past for past in left if _same(past, finding) and _alike(past, finding)), None)
        if same is None:
            fresh.append((place, finding))
        else:
            left.remove(same)
    for place, finding in fresh:
        past = next((past for past in left if _same(past, finding)), None)
        if past is not None:
            left.remove(past)
        yield Change(
            host=report.host,
            check=finding.check,
            subject=finding.subject,
            before=past,
            after=finding,
            place=place,
        )
    for past in left:
        place, now = _settled(past, report)
        yield Change(
            host=report.host,
            check=past.check,
            subject=past.subject,
            before=past,
            after=now,
            place=place,
        )


def _settled(past: Finding, report: HostReport) -> tuple[int, Finding | None]:
    """What the check now says of the subject, apart from troubles of its own."""
    for place, finding in enumerate(report.findings):
        if finding.verdict not in TROUBLE and _same(past, finding):
            return place, finding
    return -1, None


def _same(one: Finding, other: Finding) -> bool:
    """Whether two findings ask the same question of the same subject."""
    if one.check != other.check or one.subject.kind != other.subject.kind:
        return False
    if one.subject.uuid and other.subject.uuid:
        return one.subject.uuid == other.subject.uuid
    return one.subject.id == other.subject.id


def _alike(one: Finding, other: Finding) -> bool:
    return (one.verdict, one.why, *values(one)) == (other.verdict, other.why, *values(other))
