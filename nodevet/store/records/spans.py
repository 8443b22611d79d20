"""Findings as spans of time: what one more visit opens and ends, and what is news in it. Pure.

A span is a finding other than ok and not applicable for as long as it stays the same. It is known
by its key; several findings of one key are told apart by what they say, and a failure that names
something which the one before did not name begins anew: see `named`.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from nodevet.checking.changes import FindingNews, HostNews, News
from nodevet.model import NODE, Finding, HostReport, Severity, Status, Subject, Verdict
from nodevet.store.records.model import FixProof, Moment, SpanEnd

SPANNING = frozenset({Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED})
TROUBLE = frozenset({Verdict.FAIL, Verdict.UNKNOWN})
RECENT = 10  # judged visits in which a finding that begins OFTEN times is flapping
OFTEN = 3


class OpenSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span that no visit has ended yet."""

    id: int
    baseline: str
    key: str  # empty: the host as a whole
    check: str
    verdict: Verdict
    severity: Severity
    said: int  # see `said`
    since: Moment  # when this verdict began
    since_visit: int  # by its number in the store
    finding: Finding | None = None  # None: the host as a whole
    fixed: FixProof | None = None  # what a run of fixes proved of it since it was last seen
    after_plan: str = ""  # it came back after a run of this plan had proved it fixed


class SpanOpening(msgspec.Struct, frozen=True, kw_only=True):
    """A span that begins with this visit."""

    key: str
    check: str
    verdict: Verdict
    severity: Severity
    said: int
    finding: Finding | None  # None: the host as a whole, see `why`
    place: int = -1  # of the finding in the report
    why: str = ""
    after: OpenSpan | None = None  # what it follows on the same subject
    inherits: bool = False  # the same verdict went before, so this is no beginning
    after_plan: str = ""  # it comes back after a run of this plan had proved it fixed


class SpanEnding(msgspec.Struct, frozen=True, kw_only=True):
    """A span that was not there any more."""

    span: OpenSpan
    end: SpanEnd
    place: int = -1  # of what is said of its subject now


class SpanStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one visit does to the open spans of its host."""

    opened: tuple[SpanOpening, ...] = ()
    ended: tuple[SpanEnding, ...] = ()
    still: tuple[tuple[OpenSpan, int], ...] = ()  # with the place of its finding


def step(spans: Sequence[OpenSpan], report: HostReport, *, replaced: bool = False) -> SpanStep:
    """The open spans of a host and its next report.

    `replaced`: another machine answered under this name; nothing that was open goes on.
    """
    ended: list[SpanEnding] = []
    if replaced:
        ended = [SpanEnding(span=span, end=SpanEnd.REPLACED) for span in spans]
        spans = ()
    whole = [span for span in spans if not span.check]
    if report.status is Status.INTERRUPTED:  # which says nothing of the host
        return SpanStep(ended=tuple(ended))
    if report.status is not Status.VETTED:
        now = _unvetted(report)
        return _matched(whole, [now], lambda _span: (SpanEnd.GONE, -1), ended)
    ended += (SpanEnding(span=span, end=SpanEnd.OK) for span in whole)
    judged = [span for span in spans if span.check and span.baseline == report.baseline]
    settled: dict[str, tuple[SpanEnd, int]] = {}

    def follows(span: OpenSpan) -> tuple[SpanEnd, int]:
        if not settled:
            for place, finding in reversed([*enumerate(report.findings)]):
                settled[finding.key] = SpanEnd(finding.verdict.value), place
        return settled.get(span.key) or _read_now(span, report) or (SpanEnd.GONE, -1)

    now_open = [
        SpanOpening(
            key=finding.key,
            check=finding.check,
            verdict=finding.verdict,
            severity=finding.severity,
            said=said(finding),
            finding=finding,
            place=place,
        )
        for place, finding in enumerate(report.findings)
        if finding.verdict in SPANNING
    ]
    return _matched(judged, now_open, follows, ended)


def _matched(
    spans: Sequence[OpenSpan],
    now: Sequence[SpanOpening],
    follows: Callable[[OpenSpan], tuple[SpanEnd, int]],
    ended: list[SpanEnding],
) -> SpanStep:
    """Each finding with the span that it continues: first those that say the same, then those
    that say something else of the same subject, the same verdict before another. What is more
    severe now, names what was not there, or was proved to be fixed since, is another: it begins.
    """
    waiting: dict[str, list[OpenSpan]] = defaultdict(list)
    for span in spans:
        waiting[span.key].append(span)
    still: list[tuple[OpenSpan, int]] = []
    opened: list[SpanOpening] = []

    def take(opening: SpanOpening, alike: Callable[[OpenSpan], bool]) -> OpenSpan | None:
        listed = waiting.get(opening.key, [])
        found = next((span for span in listed if alike(span)), None)
        if found:
            listed.remove(found)
        return found

    left: list[SpanOpening] = []
    for opening in now:
        same = take(
            opening,
            lambda span, said=opening.said: span.said == said and not span.fixed,  # type: ignore[misc]
        )
        if same:
            still.append((same, opening.place))
        else:
            left.append(opening)
    last: list[SpanOpening] = []
    for opening in left:
        verdict = opening.verdict
        rank = opening.severity.rank
        names = named(opening.finding)

        def goes_on(
            span: OpenSpan,
            verdict: Verdict = verdict,
            rank: int = rank,
            names: frozenset[str] = names,
        ) -> bool:
            same = span.verdict is verdict and span.severity.rank >= rank
            return same and names <= named(span.finding) and not span.fixed

        before = take(opening, goes_on)
        if before is None:
            last.append(opening)
            continue
        ended.append(SpanEnding(span=before, end=SpanEnd.CHANGED, place=opening.place))
        goes = {"after": before, "inherits": True, "after_plan": before.after_plan}
        opened.append(msgspec.structs.replace(opening, **goes))
    for opening in last:
        before = take(opening, lambda _span: True)
        back = ""
        if before:
            back = before.fixed.plan if before.fixed and before.verdict is opening.verdict else ""
            end = SpanEnd.CAME_BACK if back else SpanEnd(opening.verdict.value)
            ended.append(SpanEnding(span=before, end=end, place=opening.place))
        opened.append(msgspec.structs.replace(opening, after=before, after_plan=back))
    for span in [span for listed in waiting.values() for span in listed]:
        end, place = follows(span)
        if end.value == span.verdict.value:  # others of its key say that still
            end = SpanEnd.GONE
        ended.append(SpanEnding(span=span, end=end, place=place))
    return SpanStep(opened=tuple(opened), ended=tuple(ended), still=tuple(still))


SERIOUS = (
    Verdict.FAIL,
    Verdict.UNKNOWN,
    Verdict.WAIVED,
    Verdict.OK,
    Verdict.NOT_APPLICABLE,
)


def _read_now(span: OpenSpan, report: HostReport) -> tuple[SpanEnd, int] | None:
    """What the check says, part by part, of what was unknown as a whole: the worst of it, and its
    place."""
    if span.finding is None or span.verdict is not Verdict.UNKNOWN:
        return None
    then = span.finding.subject
    found = [
        (SERIOUS.index(finding.verdict), place)
        for place, finding in enumerate(report.findings)
        if finding.check == span.check and is_within(finding.subject, then)
    ]
    if not found:
        return None
    worst, place = min(found)
    return SpanEnd(SERIOUS[worst].value), place


def is_within(subject: Subject, then: Subject) -> bool:
    """Whether a subject is one that could not be read, by another name, or a part of it."""
    if then.kind == NODE.kind:
        return True
    same = subject.kind == then.kind and not then.uuid
    return same and (subject.bus_id == then.bus_id if then.bus_id else subject.id == then.id)


def _unvetted(report: HostReport) -> SpanOpening:
    why = report.why or "no reason was recorded"
    return SpanOpening(
        key="",
        check="",
        verdict=Verdict.UNKNOWN,
        severity=Severity.CRITICAL,
        said=_digest([report.status.value, why]),
        finding=None,
        why=f"{report.outcome.words}: {why}",
    )


LIMITS = ("none", "at most ")
_WORD = re.compile(r"[^\W\d_]{5,}")  # what is shorter is a unit, or says nothing


def named(finding: Finding | None) -> frozenset[str]:
    """The faults that a failure names, without their figures.

    Of a list what it lists (`[48, 79]`), of several values the names of those that are not as
    expected (`volatile_uncorrected: 2`), of a text that is held against a limit its words
    (`2 uncorrected`, expected none). A value by itself (a state, a version, a count) names nothing.
    """
    if finding is None or finding.verdict is not Verdict.FAIL:
        return frozenset()
    expected, actual = finding.expected, finding.actual
    if isinstance(actual, Mapping):
        wanted = expected if isinstance(expected, Mapping) else {}
        pairs = actual.items()
        return frozenset(str(name) for name, value in pairs if wanted.get(name) != value)
    if isinstance(actual, (list, tuple, set, frozenset)):
        return frozenset(str(each).partition(" (")[0] for each in actual)
    if isinstance(actual, str) and isinstance(expected, str) and expected.startswith(LIMITS):
        return frozenset(_WORD.findall(actual))
    return frozenset()


def said(finding: Finding) -> int:
    """What a finding says, as 64 bits: neither where its params stand nor when it last happened."""
    return _digest(
        [
            finding.verdict.value,
            finding.severity.value,
            finding.expected,
            finding.actual,
            finding.unit,
            finding.why,
        ]
    )


_ENCODER = msgspec.json.Encoder(order="deterministic")


def _digest(values: list[object]) -> int:
    try:
        text = _ENCODER.encode(values)
    except (TypeError, ValueError, OverflowError):  # a check may put anything into its values
        text = repr(values).encode("utf-8", "backslashreplace")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def news(
    report: HostReport,
    taken: SpanStep,
    *,
    now: Moment,
    began: Mapping[str, int],
    first: bool,
) -> HostNews:
    """What one visit tells of its host.

    `began`: how often each key began in the last RECENT judged visits before this one. `first`:
    the host was never met before.
    """
    return HostNews(
        host=report.host,
        first=first,
        replaced=any(each.end is SpanEnd.REPLACED for each in taken.ended),
        findings=tuple(_told(taken, now, began)),
    )


FOLLOWED = ("changed", "fail", "unknown", "came_back")
"""The ends of what another trouble follows."""


def _told(taken: SpanStep, now: Moment, began: Mapping[str, int]) -> Iterator[FindingNews]:
    def often(key: str, more: int) -> int:
        times = began.get(key, 0) + more
        return times if times >= OFTEN else 0

    for opening in taken.opened:
        if opening.verdict not in TROUBLE:
            continue
        before = opening.after if opening.inherits else None
        yield FindingNews(
            news=News.CHANGED if opening.inherits else News.NEW,
            key=opening.key,
            check=opening.check,
            severity=opening.severity,
            place=opening.place,
            why=opening.why,
            before=opening.after.finding if opening.after else None,
            since=before.since.at if before else now.at,
            since_visit=before.since_visit if before else 0,
            began=often(opening.key, 0 if opening.inherits or opening.after_plan else 1),
            after_plan=opening.after_plan,
        )
    for ending in taken.ended:
        span = ending.span
        if span.verdict not in TROUBLE or ending.end.value in FOLLOWED:
            continue
        yield FindingNews(
            news=News.FIXED if ending.end is SpanEnd.OK else News.GONE,
            key=span.key,
            check=span.check,
            severity=span.severity,
            place=ending.place,
            before=span.finding,
            since=span.since.at,
            since_visit=span.since_visit,
            began=often(span.key, 0),
        )
    for span, place in taken.still:
        if span.verdict in TROUBLE:
            yield FindingNews(
                news=News.STILL,
                key=span.key,
                check=span.check,
                severity=span.severity,
                place=place,
                since=span.since.at,
                since_visit=span.since_visit,
                began=often(span.key, 0),
                after_plan=span.after_plan,
            )


def judged(findings: Iterable[Finding]) -> Mapping[str, Sequence[tuple[str, ...]]]:
    """What was ok and what was not applicable: check, kind and id of each subject."""
    found: dict[Verdict, list[tuple[str, ...]]] = {Verdict.OK: [], Verdict.NOT_APPLICABLE: []}
    for finding in findings:
        listed = found.get(finding.verdict)
        if listed is not None:
            subject = finding.subject
            listed.append((finding.check, subject.kind, subject.stable_id))
    return {verdict.value: listed for verdict, listed in found.items()}


def judged_keys(listed: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """The keys of such findings; see Finding.key."""
    for check, kind, subject in listed:
        yield Finding(verdict=Verdict.OK, check=check, subject=Subject(kind=kind, id=subject)).key
