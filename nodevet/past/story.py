"""The story of a host: boots, faults from when to when, parts in and out, fixes, nights in which it
could not be vetted. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from nodevet.base.age import seconds_of
from nodevet.model import Finding, HostFacts, HostOutcome, Status, Verdict
from nodevet.past.fixed_by import fixed_by, fixed_since, proved
from nodevet.store.records.model import (
    FindingSpan,
    FixProof,
    Moment,
    Part,
    PartPlace,
    RecordedAction,
    RecordedFixRun,
    RecordedIncident,
    RecordedPlan,
    RecordedVisit,
    SpanEnd,
)


class StoryKind(str, Enum):
    """What happened; of one moment in this order."""

    FIRST = "first seen"
    LOST = "not vetted"
    BACK = "vetted again"
    REPLACED = "another machine"  # or re-imaged
    BOOTED = "booted"
    BASELINE = "baseline"
    PART_OUT = "part out"
    PART_IN = "part in"
    PLANNED = "planned"
    FIX = "fix"
    ROLLBACK = "rollback"
    FIXED = "fixed"
    RESOLVED = "resolved"  # it was unknown
    GONE = "gone"
    WAIVED = "waived"
    CHANGED = "changed"
    UNKNOWN = "unknown"
    FAILS = "fails"
    DIAGNOSED = "diagnosed"  # what its GPUs waited for


ORDER = tuple(StoryKind)


class StoryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a host, as a run saw it."""

    at: str  # UTC, ISO 8601
    run: str
    kind: StoryKind
    text: str = ""  # a reason, a name
    finding: Finding | None = None
    since: str = ""  # of what ends: when it had begun
    part: Part | None = None
    slot: str = ""
    elsewhere: str = ""  # of a part: the host that it came from, or went to
    outcome: str = ""  # of a run of fixes: how the host ended
    action: RecordedAction | None = None  # what was changed; of what is fixed: by what
    by: FixProof | None = None  # of what is fixed: what proved it, before a visit saw it
    after_plan: str = ""  # of what comes back: the plan whose run had proved it fixed


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """How one run ended for the host."""

    run: str
    at: str
    outcome: HostOutcome


class FixedSince(msgspec.Struct, frozen=True, kw_only=True):
    """What was wrong at the last visit, and an apply has fixed and verified since."""

    finding: FindingSpan
    by: FixProof


class HostStory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is remembered of a host. Events and nights are the oldest first."""

    host: str
    facts: HostFacts | None = None  # of the last evidence that is kept
    baseline: str = ""
    groups: tuple[str, ...] = ()
    boots: int = 0
    nights: tuple[Night, ...] = ()
    open: tuple[FindingSpan, ...] = ()  # what is so since when; not the host as a whole
    fixed: tuple[FixedSince, ...] = ()  # what was so at the last visit, and is fixed since
    parts: tuple[PartPlace, ...] = ()  # that are there now
    events: tuple[StoryEvent, ...] = ()

    @property
    def vetted(self) -> int:
        """In how many runs it could be judged."""
        return sum(night.outcome.value in {v.value for v in Verdict} for night in self.nights)


class HostTold(msgspec.Struct, frozen=True, kw_only=True):
    """What is recorded of a host."""

    visits: Sequence[RecordedVisit]  # oldest first
    started: Mapping[str, str]  # run -> when it started
    spans: Sequence[FindingSpan]
    places: Sequence[PartPlace] = ()  # of the parts that were there
    elsewhere: Sequence[PartPlace] = ()  # of these parts, on other hosts
    actions: Sequence[RecordedAction] = ()
    proofs: Sequence[FixProof] = ()  # oldest first
    plans: Sequence[RecordedPlan] = ()  # with its fixes alone
    fix_runs: Sequence[RecordedFixRun] = ()  # with itself alone
    incidents: Sequence[RecordedIncident] = ()
    facts: HostFacts | None = None


def host_story(host: str, told: HostTold) -> HostStory:
    """The story of a host that was visited, or that fixes were planned or carried out on."""
    visits = told.visits
    vetted = [visit for visit in visits if visit.status is Status.VETTED]
    events = [
        *_visits(visits, told.started),
        *_findings(told),
        *_parts(told),
        *_plans(host, told.plans),
        *_fixes(told),
        *_incidents(told.incidents),
    ]
    still = [span for span in told.spans if span.end is None and span.check]
    by = [(span, fixed_since(span, told.proofs)) for span in still]
    return HostStory(
        host=host,
        facts=told.facts,
        baseline=vetted[-1].baseline if vetted else "",
        groups=visits[-1].groups if visits else (),
        boots=len({(visit.machine_id, visit.boot_id) for visit in vetted}),
        nights=tuple(
            Night(run=visit.run, at=_when(visit, told.started), outcome=visit.outcome)
            for visit in visits
        ),
        open=tuple(span for span, proof in by if proof is None),
        fixed=tuple(FixedSince(finding=span, by=proof) for span, proof in by if proof),
        parts=tuple(sorted((p for p in told.places if p.open), key=_by_slot)),
        events=tuple(sorted(events, key=lambda each: (_seconds(each.at), ORDER.index(each.kind)))),
    )


def _by_slot(place: PartPlace) -> tuple[str, int, str]:
    return place.part.kind.value, len(place.slot), place.slot


def _seconds(at: str) -> float:
    return seconds_of(at) or 0.0


def _when(visit: RecordedVisit, started: Mapping[str, str]) -> str:
    return visit.arrived or started.get(visit.run, "")


def _visits(visits: Sequence[RecordedVisit], started: Mapping[str, str]) -> Iterator[StoryEvent]:
    """Boots, baselines, and when it could not be vetted."""
    first = True
    machine = boot = baseline = ""
    lost = False
    for visit in visits:
        at = _when(visit, started)
        known: dict[str, Any] = {"at": at, "run": visit.run}
        if first:
            yield StoryEvent(kind=StoryKind.FIRST, **known)
        if visit.status is not Status.VETTED:
            if not lost and visit.status is not Status.INTERRUPTED:
                status = HostOutcome(visit.status.value).words
                yield StoryEvent(kind=StoryKind.LOST, text=f"{status}: {visit.why}", **known)
                lost = True
            first = False
            continue
        if lost:
            yield StoryEvent(kind=StoryKind.BACK, **known)
        if machine and visit.machine_id and visit.machine_id != machine:
            text = f"machine id {machine[:8]}…, now {visit.machine_id[:8]}…"
            yield StoryEvent(kind=StoryKind.REPLACED, text=text, **known)
        elif boot and visit.boot_id and visit.boot_id != boot:
            yield StoryEvent(kind=StoryKind.BOOTED, **known)
        if baseline and visit.baseline and visit.baseline != baseline:
            text = f"{visit.baseline}, no longer {baseline}"
            yield StoryEvent(kind=StoryKind.BASELINE, text=text, **known)
        machine, boot = visit.machine_id or machine, visit.boot_id or boot
        baseline, lost, first = visit.baseline or baseline, False, False


def _findings(told: HostTold) -> Iterator[StoryEvent]:
    ends = _Ends(told)
    gone = {place.part.id for place in told.places if not place.open}
    for span in told.spans:
        if not span.check or span.finding is None:
            continue
        yield StoryEvent(
            at=span.first.at,
            run=span.first.run,
            kind=_began(span),
            finding=span.finding,
            after_plan=span.after_plan if span.since in (None, span.first) else "",
        )
        if proof := _proved(span, told.proofs):
            yield StoryEvent(
                at=proof.at,
                run=proof.run,
                kind=StoryKind.RESOLVED if span.verdict is Verdict.UNKNOWN else StoryKind.FIXED,
                finding=span.finding,
                by=proof,
                since=(span.since or span.first).at,
            )
        elif span.end in (SpanEnd.OK, SpanEnd.GONE, SpanEnd.NOT_APPLICABLE, SpanEnd.REPLACED):
            after = ends.after(span)
            yield StoryEvent(
                at=after.at,
                run=after.run,
                kind=_ended(span),
                finding=span.finding,
                text=_why_gone(span.end, left=span.finding.subject.uuid in gone),
                action=fixed_by(span, told.actions),
                since=(span.since or span.first).at,
            )


def _proved(span: FindingSpan, proofs: Sequence[FixProof]) -> FixProof | None:
    """What proved that a finding was over, unless the next visit was taken to see it go on."""
    goes_on = span.end in (SpanEnd.CHANGED, SpanEnd.FAIL)
    return None if goes_on else proved(span, proofs)


def _began(span: FindingSpan) -> StoryKind:
    if span.since is not None and span.since != span.first:
        return StoryKind.CHANGED
    return {
        Verdict.FAIL: StoryKind.FAILS,
        Verdict.UNKNOWN: StoryKind.UNKNOWN,
        Verdict.WAIVED: StoryKind.WAIVED,
    }[span.verdict]


def _ended(span: FindingSpan) -> StoryKind:
    if span.end is not SpanEnd.OK:
        return StoryKind.GONE
    return StoryKind.RESOLVED if span.verdict is Verdict.UNKNOWN else StoryKind.FIXED


def _why_gone(end: SpanEnd, *, left: bool) -> str:
    return {
        SpanEnd.OK: "",
        SpanEnd.GONE: "it left with the part" if left else "the check says nothing of it any more",
        SpanEnd.NOT_APPLICABLE: "the check is no longer applicable",
        SpanEnd.REPLACED: "of the machine that was there before",
    }[end]


class _Ends:
    """When what was seen last was seen to be over: the next vetted visit."""

    def __init__(self, told: HostTold) -> None:
        self._moments = [
            (_seconds(at), visit.baseline, Moment(at=at, run=visit.run))
            for visit in told.visits
            if visit.status is Status.VETTED and (at := _when(visit, told.started))
        ]

    def after(self, span: FindingSpan) -> Moment:
        return self.next(span.last, span.baseline)

    def next(self, last: Moment, baseline: str = "") -> Moment:
        """The first that came after; rather one that was judged by this baseline."""
        later = [each for each in self._moments if each[0] > _seconds(last.at)]
        same = (moment for _, by, moment in later if by == baseline)
        return next(same, next((moment for _, _, moment in later), last))


def _parts(told: HostTold) -> Iterator[StoryEvent]:
    """Parts that came after the first vetted visit, and those that went."""
    start = min((_seconds(place.first.at) for place in told.places), default=0.0)
    stays: dict[str, list[PartPlace]] = defaultdict(list)
    for place in (*told.places, *told.elsewhere):
        stays[place.part.id].append(place)
    ends = _Ends(told)
    for place in told.places:
        others = sorted(stays[place.part.id], key=lambda each: _seconds(each.first.at))
        known: dict[str, Any] = {"part": place.part, "slot": place.slot}
        if _seconds(place.first.at) > start:
            before = [p for p in others if _seconds(p.last.at) < _seconds(place.first.at)]
            yield StoryEvent(
                at=place.first.at,
                run=place.first.run,
                kind=StoryKind.PART_IN,
                elsewhere=_named(before[-1:], place),
                **known,
            )
        if not place.open:
            left = ends.next(place.last)
            later = [p for p in others if _seconds(p.first.at) > _seconds(place.last.at)]
            yield StoryEvent(
                at=left.at,
                run=left.run,
                kind=StoryKind.PART_OUT,
                elsewhere=_named(later[:1], place),
                **known,
            )


def _named(places: Iterable[PartPlace], here: PartPlace) -> str:
    return next((f"{each.host}, {each.slot}" for each in places if each is not here), "")


def _plans(host: str, plans: Iterable[RecordedPlan]) -> Iterator[StoryEvent]:
    for plan in plans:
        text = f"{', '.join(plan.hosts.get(host, ()))}; plan {plan.id} of {plan.author}"
        yield StoryEvent(at=plan.created, run="", kind=StoryKind.PLANNED, text=text)


def _fixes(told: HostTold) -> Iterator[StoryEvent]:
    """Each run of fixes that came to the host, with what it changed there."""
    for run in told.fix_runs:
        kind = StoryKind.ROLLBACK if run.kind == "rollback" else StoryKind.FIX
        changed = [action for action in told.actions if action.run == run.id]
        known: dict[str, Any] = {"kind": kind, "run": run.id}
        for end in run.hosts:
            yield StoryEvent(
                at=min((action.at for action in changed), default=run.started, key=_seconds),
                text=_by_whom(run, end.why),
                outcome=end.outcome,
                **known,
            )
        for action in changed:
            yield StoryEvent(at=action.at, action=action, **known)


def _by_whom(run: RecordedFixRun, why: str) -> str:
    said = [f"plan {run.plan} of {run.author}"]
    if run.approvals:
        said.append(f"approved by {', '.join(run.approvals)}")
    said.append(f"run by {run.by}")
    return ", ".join(said) + (f": {why}" if why else "")


def _incidents(incidents: Iterable[RecordedIncident]) -> Iterator[StoryEvent]:
    for each in incidents:
        yield StoryEvent(at=each.at, run="", kind=StoryKind.DIAGNOSED, text=each.cause)
