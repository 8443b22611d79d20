"""Findings as spans of time: which spans a visit opens and ends, and the news of it. Pure.

A span is a finding other than ok and not applicable, for as long as it stays the same. Its key
identifies it; several findings of one key are told apart by their digests. A failure that names a
new fault begins a new span: see `fault_names`.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from nodevet.model import NODE, Finding, HostReport, Severity, Status, Subject, Verdict
from nodevet.model.changes import FindingNews, HostNews, News
from nodevet.store.records.model import FixProof, Moment, SpanEnd

SPANNING = frozenset({Verdict.FAIL, Verdict.UNKNOWN, Verdict.WAIVED})
TROUBLE = frozenset({Verdict.FAIL, Verdict.UNKNOWN})
RECENT = 10  # judged visits; a finding that begins OFTEN times in them is flapping
OFTEN = 3


class OpenSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span that no visit has ended."""

    id: int
    baseline: str
    key: str  # empty: the host as a whole
    check: str
    verdict: Verdict
    severity: Severity
    said: int  # see `finding_digest`
    since: Moment  # when this verdict began
    since_visit: int  # by its number in the store
    finding: Finding | None = None  # None: the host as a whole
    fixed: FixProof | None = None  # a proof, since it was last seen, that it is fixed
    after_plan: str = ""  # it came back after a run of this plan proved it fixed


class SpanOpening(msgspec.Struct, frozen=True, kw_only=True):
    """A span that begins with this visit."""

    key: str
    check: str
    verdict: Verdict
    severity: Severity
    said: int
    finding: Finding | None  # None: the host as a whole, see `why`
    place: int = -1  # index of the finding in the report
    why: str = ""
    after: OpenSpan | None = None  # the span before it on the same subject
    inherits: bool = False  # the span before had the same verdict, so this is no beginning
    after_plan: str = ""  # it comes back after a run of this plan proved it fixed


class SpanEnding(msgspec.Struct, frozen=True, kw_only=True):
    """A span that ends with this visit."""

    span: OpenSpan
    end: SpanEnd
    place: int = -1  # index of the finding on its subject now


class SpanStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one visit does to the open spans of its host."""

    opened: tuple[SpanOpening, ...] = ()
    ended: tuple[SpanEnding, ...] = ()
    still: tuple[tuple[OpenSpan, int], ...] = ()  # each with the index of its finding


def step(spans: Sequence[OpenSpan], report: HostReport, *, replaced: bool = False) -> SpanStep:
    """What the next report of a host does to its open spans.

    `replaced`: another machine answered under this name, so all open spans end.
    """
    ended: list[SpanEnding] = []
    if replaced:
        ended = [SpanEnding(span=span, end=SpanEnd.REPLACED) for span in spans]
        spans = ()
    host_spans = [span for span in spans if not span.check]
    if report.status is Status.INTERRUPTED:  # it says nothing about the host
        return SpanStep(ended=tuple(ended))
    if report.status is not Status.VETTED:
        opening = _host_opening(report)
        return _match(host_spans, [opening], lambda _span: (SpanEnd.GONE, -1), ended)
    ended += (SpanEnding(span=span, end=SpanEnd.OK) for span in host_spans)
    judged = [span for span in spans if span.check and span.baseline == report.baseline]
    ends: dict[str, tuple[SpanEnd, int]] = {}

    def follows(span: OpenSpan) -> tuple[SpanEnd, int]:
        if not ends:
            for place, finding in reversed([*enumerate(report.findings)]):
                ends[finding.key] = SpanEnd(finding.verdict.value), place
        return ends.get(span.key) or _end_by_parts(span, report) or (SpanEnd.GONE, -1)

    now_open = [
        SpanOpening(
            key=finding.key,
            check=finding.check,
            verdict=finding.verdict,
            severity=finding.severity,
            said=finding_digest(finding),
            finding=finding,
            place=place,
        )
        for place, finding in enumerate(report.findings)
        if finding.verdict in SPANNING
    ]
    return _match(judged, now_open, follows, ended)


def _match(
    spans: Sequence[OpenSpan],
    now: Sequence[SpanOpening],
    follows: Callable[[OpenSpan], tuple[SpanEnd, int]],
    ended: list[SpanEnding],
) -> SpanStep:
    """Match each finding with the span that it continues: first equal ones, then those of the same
    subject with other values, the same verdict before another. A finding that is more severe now,
    names a new fault, or was proved to be fixed since, begins a new span.
    """
    waiting: dict[str, list[OpenSpan]] = defaultdict(list)
    for span in spans:
        waiting[span.key].append(span)
    continued: list[tuple[OpenSpan, int]] = []
    opened: list[SpanOpening] = []

    def take(opening: SpanOpening, is_alike: Callable[[OpenSpan], bool]) -> OpenSpan | None:
        candidates = waiting.get(opening.key, [])
        match = next((span for span in candidates if is_alike(span)), None)
        if match:
            candidates.remove(match)
        return match

    unmatched: list[SpanOpening] = []
    for opening in now:
        same = take(
            opening,
            lambda span, said=opening.said: span.said == said and not span.fixed,  # type: ignore[misc]
        )
        if same:
            continued.append((same, opening.place))
        else:
            unmatched.append(opening)
    new: list[SpanOpening] = []
    for opening in unmatched:
        verdict = opening.verdict
        rank = opening.severity.rank
        names = fault_names(opening.finding)

        def goes_on(
            span: OpenSpan,
            verdict: Verdict = verdict,
            rank: int = rank,
            names: frozenset[str] = names,
        ) -> bool:
            same = span.verdict is verdict and span.severity.rank >= rank
            return same and names <= fault_names(span.finding) and not span.fixed

        earlier = take(opening, goes_on)
        if earlier is None:
            new.append(opening)
            continue
        ended.append(SpanEnding(span=earlier, end=SpanEnd.CHANGED, place=opening.place))
        changes = {"after": earlier, "inherits": True, "after_plan": earlier.after_plan}
        opened.append(msgspec.structs.replace(opening, **changes))
    for opening in new:
        earlier = take(opening, lambda _span: True)
        plan = ""
        if earlier:
            plan = (
                earlier.fixed.plan if earlier.fixed and earlier.verdict is opening.verdict else ""
            )
            end = SpanEnd.CAME_BACK if plan else SpanEnd(opening.verdict.value)
            ended.append(SpanEnding(span=earlier, end=end, place=opening.place))
        opened.append(msgspec.structs.replace(opening, after=earlier, after_plan=plan))
    for span in [span for candidates in waiting.values() for span in candidates]:
        end, place = follows(span)
        if end.value == span.verdict.value:  # another finding of its key has that verdict
            end = SpanEnd.GONE
        ended.append(SpanEnding(span=span, end=end, place=place))
    return SpanStep(opened=tuple(opened), ended=tuple(ended), still=tuple(continued))


SERIOUS = (
    Verdict.FAIL,
    Verdict.UNKNOWN,
    Verdict.WAIVED,
    Verdict.OK,
    Verdict.NOT_APPLICABLE,
)


def _end_by_parts(span: OpenSpan, report: HostReport) -> tuple[SpanEnd, int] | None:
    """The worst verdict of the parts of a subject that was unknown as a whole, and the index of
    that finding; None if the check has none."""
    if span.finding is None or span.verdict is not Verdict.UNKNOWN:
        return None
    unread = span.finding.subject
    ranks = [
        (SERIOUS.index(finding.verdict), place)
        for place, finding in enumerate(report.findings)
        if finding.check == span.check and is_within(finding.subject, unread)
    ]
    if not ranks:
        return None
    worst, place = min(ranks)
    return SpanEnd(SERIOUS[worst].value), place


def is_within(subject: Subject, unread: Subject) -> bool:
    """Whether a subject is `unread` by another name, or a part of it."""
    if unread.kind == NODE.kind:
        return True
    is_same_kind = subject.kind == unread.kind and not unread.uuid
    return is_same_kind and (
        subject.bus_id == unread.bus_id if unread.bus_id else subject.id == unread.id
    )


def _host_opening(report: HostReport) -> SpanOpening:
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
_WORD = re.compile(r"[^\W\d_]{5,}")  # shorter words are units or say nothing


def fault_names(finding: Finding | None) -> frozenset[str]:
    """The faults that a failure names, without their numbers.

    They are the items of a list (`[48, 79]`), the names of values that are not as expected
    (`volatile_uncorrected: 2`), and the words of a text with a limit (`2 uncorrected`, expected
    none). A single value (a state, a version, a count) names no fault.
    """
    if finding is None or finding.verdict is not Verdict.FAIL:
        return frozenset()
    expected, actual = finding.expected, finding.actual
    if isinstance(actual, Mapping):
        expected_values = expected if isinstance(expected, Mapping) else {}
        pairs = actual.items()
        return frozenset(str(name) for name, value in pairs if expected_values.get(name) != value)
    if isinstance(actual, (list, tuple, set, frozenset)):
        return frozenset(str(item).partition(" (")[0] for item in actual)
    if isinstance(actual, str) and isinstance(expected, str) and expected.startswith(LIMITS):
        return frozenset(_WORD.findall(actual))
    return frozenset()


def finding_digest(finding: Finding) -> int:
    """A digest of 64 bits of what a finding says, without its source and the time of the last
    event."""
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
    span_step: SpanStep,
    *,
    now: Moment,
    began: Mapping[str, int],
    first: bool,
) -> HostNews:
    """The news of one visit to a host.

    `began`: how often each key began in the last RECENT judged visits before this one. `first`:
    the host was never visited before.
    """
    return HostNews(
        host=report.host,
        first=first,
        replaced=any(ending.end is SpanEnd.REPLACED for ending in span_step.ended),
        findings=tuple(_finding_news(span_step, now, began)),
    )


FOLLOWED = ("changed", "fail", "unknown", "came_back")
"""The ends of spans that another trouble follows."""


def _finding_news(
    span_step: SpanStep, now: Moment, began: Mapping[str, int]
) -> Iterator[FindingNews]:
    def times_if_flapping(key: str, more: int) -> int:
        times = began.get(key, 0) + more
        return times if times >= OFTEN else 0

    for opening in span_step.opened:
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
            began=times_if_flapping(
                opening.key, 0 if opening.inherits or opening.after_plan else 1
            ),
            after_plan=opening.after_plan,
        )
    for ending in span_step.ended:
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
            began=times_if_flapping(span.key, 0),
        )
    for span, place in span_step.still:
        if span.verdict in TROUBLE:
            yield FindingNews(
                news=News.STILL,
                key=span.key,
                check=span.check,
                severity=span.severity,
                place=place,
                since=span.since.at,
                since_visit=span.since_visit,
                began=times_if_flapping(span.key, 0),
                after_plan=span.after_plan,
            )


def judged(findings: Iterable[Finding]) -> Mapping[str, Sequence[tuple[str, ...]]]:
    """The findings that are ok or not applicable: check, and kind and id of each subject."""
    by_verdict: dict[Verdict, list[tuple[str, ...]]] = {Verdict.OK: [], Verdict.NOT_APPLICABLE: []}
    for finding in findings:
        findings_of = by_verdict.get(finding.verdict)
        if findings_of is not None:
            subject = finding.subject
            findings_of.append((finding.check, subject.kind, subject.stable_id))
    return {verdict.value: findings_of for verdict, findings_of in by_verdict.items()}


def judged_keys(findings: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """The keys of such findings; see Finding.key."""
    for check, kind, subject in findings:
        yield Finding(verdict=Verdict.OK, check=check, subject=Subject(kind=kind, id=subject)).key
