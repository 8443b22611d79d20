"""What differs between two runs: what is new, gone or changed since last night. Pure."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import msgspec

from nodevet.model import Finding, HostReport, Run, Severity, Subject, Verdict

TROUBLE = (Verdict.FAIL, Verdict.UNKNOWN)


class FindingChange(msgspec.Struct, frozen=True, kw_only=True):
    """One finding of one host that is not what it was."""

    host: str
    check: str
    subject: Subject
    before: Finding | None = None  # None: no such trouble before
    after: Finding | None = None  # None: the check no longer speaks of this subject
    place: int = -1  # of `after` among the host's findings

    @property
    def fixed(self) -> bool:
        """Whether the check now says ok; not applicable, waived or no longer asked is not fixed."""
        return self.after is not None and self.after.verdict is Verdict.OK


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """What is new since an earlier run: findings by host and place, and hosts as a whole."""

    findings: frozenset[tuple[str, int]] = frozenset()
    hosts: frozenset[str] = frozenset()


class HostChange(msgspec.Struct, frozen=True, kw_only=True):
    """A host that could be judged in one of the runs and not in the other."""

    host: str
    before: str = ""  # why it could not be judged; empty: it could
    after: str = ""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is not as it was. A trouble is a failed or unknown finding."""

    since: str  # when the earlier run started, ISO 8601
    new: tuple[FindingChange, ...] = ()  # a trouble that was none before
    gone: tuple[
        FindingChange, ...
    ] = ()  # a trouble before, and none on a host that was judged again
    changed: tuple[FindingChange, ...] = ()  # a trouble in both, with other values
    lost: tuple[HostChange, ...] = ()  # hosts that can no longer be judged
    back: tuple[HostChange, ...] = ()  # hosts that can be judged again
    appeared: tuple[str, ...] = ()  # hosts of the later run alone
    vanished: tuple[str, ...] = ()  # hosts of the earlier run alone

    @property
    def fixed(self) -> tuple[FindingChange, ...]:
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


class News(str, Enum):
    """What a trouble of a host is, beside what is remembered of it."""

    NEW = "new"  # this verdict begins
    CHANGED = "changed"  # the same verdict, with other values
    STILL = "still"  # as it was
    FIXED = "fixed"  # the check says ok now
    GONE = "gone"  # no trouble now, nor ok: not applicable, waived, no longer asked, replaced


class FindingNews(msgspec.Struct, frozen=True, kw_only=True):
    """A trouble of a host, now or until now. Without a key: the host as a whole."""

    news: News
    key: str  # Finding.key
    check: str
    severity: Severity
    place: int = -1  # of what the check says now, among the host's findings; -1: nothing
    why: str = ""  # of the host as a whole: why it is not vetted
    before: Finding | None = None  # what was said of it before, if that was something else
    since: str  # when this verdict began, UTC, ISO 8601
    since_run: str
    began: int = 0  # if it is flapping: how often it began in the last ten judged visits


class HostNews(msgspec.Struct, frozen=True, kw_only=True):
    """What one visit tells of a host beside what is remembered of it."""

    host: str
    first: bool = False  # it was never met before
    replaced: bool = False  # another machine than the last time: nothing goes on
    findings: tuple[FindingNews, ...] = ()

    def of(self, *news: News) -> tuple[FindingNews, ...]:
        """Those that are one of these."""
        return tuple(each for each in self.findings if each.news in news)

    @property
    def new(self) -> tuple[FindingNews, ...]:
        return self.of(News.NEW)

    @property
    def flapping(self) -> tuple[FindingNews, ...]:
        """What began so often of late that its next end means little."""
        return tuple(each for each in self.findings if each.began)


def changes(before: Run, after: Run) -> Changes:
    """What is new, gone and changed in `after`.

    Findings are matched by host and `Finding.key`; if only one run knows a GPU's UUID, by its bus
    address, or else its index. A host that could not be judged keeps its earlier troubles.
    """
    earlier = {host.host: place for place, host in enumerate(before.summaries)}
    later = {host.host: place for place, host in enumerate(after.summaries)}
    new: list[FindingChange] = []
    gone: list[FindingChange] = []
    changed: list[FindingChange] = []
    lost: list[HostChange] = []
    back: list[HostChange] = []
    for host, place in later.items():
        report = after.hosts[place]
        old = before.hosts[earlier[host]] if host in earlier else None
        was, now = old.unjudged if old else "", report.unjudged
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


Key = tuple[Any, ...]
Names = tuple[str, ...]

NAMES: Names = ("uuid", "bus_id", "id")
"""How a subject can be named, the most lasting first; every subject has an id."""

KNOWN: tuple[Names, ...] = (NAMES, ("uuid", "id"), ("bus_id", "id"), ("id",))
"""What a run may know of a subject's names."""


class _Waiting:
    """Findings of the earlier run, each taken once; as fast for many as for few."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self._findings = tuple(findings)
        self._taken: set[int] = set()
        self._places: dict[Key, deque[int]] = {}
        for place, finding in enumerate(self._findings):
            said = _said(finding)
            for key in _known_by(finding):
                self._places.setdefault((key, None), deque()).append(place)
                self._places.setdefault((key, said), deque()).append(place)

    def take(self, finding: Finding, *, alike: bool) -> Finding | None:
        """The first that speaks of the same subject, and says the same if `alike`."""
        said = _said(finding) if alike else None
        places = [self._first((key, said)) for key in _asked_for(finding)]
        found = min((place for place in places if place is not None), default=None)
        if found is None:
            return None
        self._taken.add(found)
        return self._findings[found]

    def _first(self, key: Key) -> int | None:
        places = self._places.get(key, deque())
        while places and places[0] in self._taken:
            places.popleft()
        return places[0] if places else None

    @property
    def left(self) -> list[Finding]:
        return [finding for place, finding in enumerate(self._findings) if place not in self._taken]


def _known_by(finding: Finding) -> Iterator[Key]:
    """The keys under which a finding may be asked for."""
    yield (finding.key,)
    names = _names(finding.subject)
    for name in names:
        yield _by_name(finding, names, name)


def _asked_for(finding: Finding) -> Iterator[Key]:
    """Its own key; and if the other run knows other names, the most lasting that both know."""
    yield (finding.key,)
    names = _names(finding.subject)
    for known in KNOWN:
        if known != names:
            yield _by_name(finding, known, next(name for name in known if name in names))


def _by_name(finding: Finding, known: Names, name: str) -> Key:
    subject = finding.subject
    return finding.check, subject.kind, known, name, getattr(subject, name)


def _names(subject: Subject) -> Names:
    return tuple(name for name in NAMES if name == "id" or getattr(subject, name))


def _said(finding: Finding) -> Key:
    """What it says, as data: what a JSON document keeps apart stays apart."""
    values = finding.expected, finding.actual
    return finding.verdict, finding.why, finding.unit, *map(_hashable, values)


def _hashable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple((key, _hashable(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(map(_hashable, value))
    return type(value).__name__, str(value)


def _match(old: Iterable[Finding], report: HostReport) -> Iterator[FindingChange]:
    """The troubles of one host that appeared, went or changed."""
    waiting = _Waiting(finding for finding in old if finding.verdict in TROUBLE)
    fresh: list[tuple[int, Finding]] = []
    for place, finding in enumerate(report.findings):
        if finding.verdict in TROUBLE and waiting.take(finding, alike=True) is None:
            fresh.append((place, finding))
    for place, finding in fresh:
        yield FindingChange(
            host=report.host,
            check=finding.check,
            subject=finding.subject,
            before=waiting.take(finding, alike=False),
            after=finding,
            place=place,
        )
    left = waiting.left
    settled = _settled(report) if left else {}
    for past in left:
        place = min((settled[key] for key in _asked_for(past) if key in settled), default=-1)
        yield FindingChange(
            host=report.host,
            check=past.check,
            subject=past.subject,
            before=past,
            after=report.findings[place] if place >= 0 else None,
            place=place,
        )


def _settled(report: HostReport) -> dict[Key, int]:
    """The places of what the checks now say of each subject, apart from troubles."""
    settled: dict[Key, int] = {}
    for place, finding in enumerate(report.findings):
        if finding.verdict not in TROUBLE:
            for key in _known_by(finding):
                settled.setdefault(key, place)
    return settled
