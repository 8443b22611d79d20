"""Compare two recorded runs: what is new, fixed, gone, changed, lost and back. Pure."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import msgspec

from nodevet.model import NODE, Finding, Status, Verdict
from nodevet.past.fact_diffs import FactDiff
from nodevet.past.moves import PartMove
from nodevet.store.records.model import (
    FindingSpan,
    RecordedAction,
    RecordedRun,
    RecordedVisit,
    SpanEnd,
)
from nodevet.store.records.parts import SECTIONS
from nodevet.store.records.spans import SERIOUS

TROUBLE = (Verdict.FAIL, Verdict.UNKNOWN)

READS = (*SECTIONS, "host", "installed", "memory")
"""The sections that hold parts and facts."""


class FindingDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A trouble of a host that changed between the two runs."""

    host: str
    before: Finding | None = None  # None: no such trouble
    after: Finding | None = None
    since: str = ""  # when this verdict began, ISO 8601
    by: RecordedAction | None = None  # the change that fixed it, if that is certain


class HostDiff(msgspec.Struct, frozen=True, kw_only=True):
    """A host that one run could judge and the other could not."""

    host: str
    before: str = ""  # why it was not judged; empty: it was
    after: str = ""


class RunDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The differences between two runs."""

    before: RecordedRun
    after: RecordedRun
    new: tuple[FindingDiff, ...] = ()
    changed: tuple[FindingDiff, ...] = ()  # a trouble in both, with other values
    fixed: tuple[FindingDiff, ...] = ()  # the check says ok now
    resolved: tuple[FindingDiff, ...] = ()  # it was unknown, and the check says ok now
    gone: tuple[FindingDiff, ...] = ()  # waived, not applicable, no longer judged, replaced
    still: int = 0  # troubles that did not change
    lost: tuple[HostDiff, ...] = ()
    back: tuple[HostDiff, ...] = ()
    appeared: tuple[str, ...] = ()  # hosts of the later run only
    vanished: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()  # another machine answers to this name
    rebooted: tuple[str, ...] = ()
    parts: tuple[PartMove, ...] = ()
    facts: tuple[FactDiff, ...] = ()
    thinned: int = 0  # hosts whose facts are not compared: their evidence was pruned

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not any(
            getattr(self, name)
            for name in ("new", "changed", "fixed", "resolved", "gone", "lost", "back", "appeared")
        ) and not (self.vanished or self.replaced or self.rebooted or self.parts or self.facts)


class RunRecords(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded run with its visits and troubles. A host that it could not judge has those that
    no visit has ended."""

    run: RecordedRun
    visits: Mapping[str, RecordedVisit]
    spans: Mapping[str, tuple[FindingSpan, ...]]  # by host, without those of the host as a whole

    @staticmethod
    def of(
        run: RecordedRun, visits: Iterable[RecordedVisit], spans: Iterable[FindingSpan]
    ) -> "RunRecords":
        by_host: dict[str, list[FindingSpan]] = defaultdict(list)
        for span in spans:
            if span.check and span.verdict in TROUBLE:
                by_host[span.host].append(span)
        return RunRecords(
            run=run,
            visits={visit.host: visit for visit in visits},
            spans={host: tuple(host_spans) for host, host_spans in by_host.items()},
        )


VerdictsOf = Callable[[str], Mapping[str, Verdict]]
"""The verdicts of a host in the later run, by key."""
FixingAction = Callable[[FindingSpan], RecordedAction | None]
"""The change that fixed a finding, if that is certain."""


def run_diff(
    before: RunRecords,
    after: RunRecords,
    verdicts_of: VerdictsOf,
    facts: Iterable[FactDiff] = (),
    parts: Iterable[PartMove] = (),
    thinned: int = 0,
    fixing_action: FixingAction = lambda span: None,
) -> RunDiff:
    """The differences. A host that could not be judged keeps its earlier troubles."""
    new: list[FindingDiff] = []
    changed: list[FindingDiff] = []
    ended: dict[Verdict, list[FindingDiff]] = {Verdict.FAIL: [], Verdict.UNKNOWN: []}
    gone: list[FindingDiff] = []
    lost, back, replaced, rebooted = [], [], [], []
    unchanged = 0
    for host, visit in after.visits.items():
        visit_before = before.visits.get(host)
        reason_after, reason_before = (
            _reason_unjudged(visit),
            _reason_unjudged(visit_before) if visit_before else "",
        )
        if reason_after and visit_before and not reason_before:
            lost.append(HostDiff(host=host, after=reason_after))
        if reason_before and not reason_after:
            back.append(HostDiff(host=host, before=reason_before))
        if reason_after:
            continue
        is_other_machine = visit_before is not None and _other_machine(visit_before, visit)
        if is_other_machine:
            replaced.append(host)
        elif (
            visit_before
            and visit_before.boot_id
            and visit.boot_id
            and visit_before.boot_id != visit.boot_id
        ):
            rebooted.append(host)
        matched = _EarlierSpans(
            span
            for span in before.spans.get(host, ())
            if not reason_before or span.baseline == visit.baseline
        )
        for span in after.spans.get(host, ()):
            earlier = None if is_other_machine else matched.take(span)
            if earlier is None:
                new.append(_diff(host, None, span))
            elif earlier.finding == span.finding:
                unchanged += 1
            else:
                changed.append(_diff(host, earlier, span))
        unmatched = matched.remaining
        verdicts = verdicts_of(host) if unmatched and not is_other_machine else {}
        for earlier in unmatched:
            diff = _diff(host, earlier, None)
            replaced_since = is_other_machine or earlier.end is SpanEnd.REPLACED
            verdict = None if replaced_since else _verdict_now(earlier, verdicts)
            if verdict in (None, Verdict.WAIVED, Verdict.NOT_APPLICABLE):
                gone.append(diff)
            elif verdict is Verdict.OK:
                if earlier.ended and earlier.ended.run == after.run.id:
                    diff = msgspec.structs.replace(diff, by=fixing_action(earlier))
                ended[earlier.verdict].append(diff)
    return RunDiff(
        before=before.run,
        after=after.run,
        new=tuple(new),
        changed=tuple(changed),
        fixed=tuple(ended[Verdict.FAIL]),
        resolved=tuple(ended[Verdict.UNKNOWN]),
        gone=tuple(gone),
        still=unchanged,
        lost=tuple(lost),
        back=tuple(back),
        appeared=_only_in(after, before),
        vanished=_only_in(before, after),
        replaced=tuple(replaced),
        rebooted=tuple(rebooted),
        parts=tuple(parts),
        facts=tuple(facts),
        thinned=thinned,
    )


def unvisited_hosts(run: RecordedRun) -> int:
    """The number of hosts that a run did not reach, or not visit for a reason on the controller."""
    return max(0, run.hosts - run.visited)


def _only_in(records: RunRecords, other: RunRecords) -> tuple[str, ...]:
    """The hosts that the other run lacks; none if it just did not visit so many."""
    hosts = tuple(host for host in records.visits if host not in other.visits)
    return hosts if len(hosts) > unvisited_hosts(other.run) else ()


def _verdict_now(earlier: FindingSpan, verdicts_by_key: Mapping[str, Verdict]) -> Verdict | None:
    """The verdict of the check in the later run; None if there is none, or if it is a trouble,
    which is listed as such. A node that was unknown as a whole has the worst verdict of the check.
    """
    current = verdicts_by_key.get(earlier.key)
    if current is not None or earlier.verdict is not Verdict.UNKNOWN:
        return current if current not in TROUBLE else None
    if earlier.finding is None or earlier.finding.subject.kind != NODE.kind:
        return Verdict.OK if earlier.end is SpanEnd.OK else None
    verdicts = [
        verdict
        for key, verdict in verdicts_by_key.items()
        if key.startswith(earlier.key.removesuffix(NODE.kind))
    ]
    return min(verdicts, key=SERIOUS.index, default=None)


def _diff(host: str, before: FindingSpan | None, after: FindingSpan | None) -> FindingDiff:
    span = after or before
    since = (span.since or span.first).at if span else ""
    return FindingDiff(
        host=host,
        before=before.finding if before else None,
        after=after.finding if after else None,
        since=since,
    )


def _reason_unjudged(visit: RecordedVisit) -> str:
    if visit.status is Status.VETTED:
        return ""
    return visit.why or visit.status.value.replace("_", " ")


def _other_machine(before: RecordedVisit, after: RecordedVisit) -> bool:
    known = before.machine_id and after.machine_id
    return bool(known and before.machine_id != after.machine_id)


class _EarlierSpans:
    """The spans of the earlier run. Each is matched once, with an equal finding if there is one."""

    def __init__(self, spans: Iterable[FindingSpan]) -> None:
        self._waiting: dict[str, list[FindingSpan]] = defaultdict(list)
        for span in spans:
            self._waiting[span.key].append(span)

    def take(self, span: FindingSpan) -> FindingSpan | None:
        """The span that goes on as this one; none of a machine that was replaced since."""
        waiting = self._waiting[span.key]
        candidates = [one for one in waiting if one == span or one.end is not SpanEnd.REPLACED]
        equal = (one for one in candidates if one.finding == span.finding)
        match = next(equal, next(iter(candidates), None))
        if match:
            waiting.remove(match)
        return match

    @property
    def remaining(self) -> list[FindingSpan]:
        return [span for waiting in self._waiting.values() for span in waiting]
