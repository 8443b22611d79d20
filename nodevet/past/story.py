"""The story of a host: boots, faults with their times, parts that came and went, fixes, and nights
in which it could not be vetted. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from nodevet.model import Finding, HostFacts, HostOutcome, Status, Verdict
from nodevet.past.fixed_by import find_proof, fixed_by, fixed_since, unix_time
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
    """What happened. Events of one moment are listed in this order."""

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
    RESOLVED = "resolved"  # a check that could not tell says ok
    GONE = "gone"
    WAIVED = "waived"
    CHANGED = "changed"
    UNKNOWN = "unknown"
    FAILS = "fails"
    DIAGNOSED = "diagnosed"  # `nodevet diagnose` found what its GPUs waited for


ORDER = tuple(StoryKind)


class StoryEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a host, as a run saw it."""

    at: str  # UTC, ISO 8601
    run: str
    kind: StoryKind
    text: str = ""  # a reason, a name
    finding: Finding | None = None
    since: str = ""  # when the thing that ends began
    part: Part | None = None
    slot: str = ""
    elsewhere: str = ""  # the host that a part came from, or went to
    outcome: str = ""  # how a run of fixes ended on the host
    action: RecordedAction | None = None  # the change; of FIXED: the change that fixed it
    by: FixProof | None = None  # of FIXED: the proof of a run of fixes, if no visit came first
    after_plan: str = ""  # of a fault that came back: the plan whose run proved it fixed


class Night(msgspec.Struct, frozen=True, kw_only=True):
    """How one run ended for the host."""

    run: str
    at: str
    outcome: HostOutcome


class FixedSince(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the last visit that `apply` has fixed and verified since."""

    finding: FindingSpan
    by: FixProof


class HostStory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the store knows of a host. Nights and events: the oldest first."""

    host: str
    facts: HostFacts | None = None  # of the newest kept evidence
    baseline: str = ""
    groups: tuple[str, ...] = ()
    boots: int = 0
    nights: tuple[Night, ...] = ()
    open: tuple[FindingSpan, ...] = ()  # troubles that last, without those of the host as a whole
    fixed: tuple[FixedSince, ...] = ()  # troubles of the last visit that are fixed since
    parts: tuple[PartPlace, ...] = ()  # that are there now
    events: tuple[StoryEvent, ...] = ()

    @property
    def vetted(self) -> int:
        """The number of runs that judged it."""
        return sum(night.outcome.value in {v.value for v in Verdict} for night in self.nights)


class HostRecords(msgspec.Struct, frozen=True, kw_only=True):
    """The records of a host."""

    visits: Sequence[RecordedVisit]  # oldest first
    started: Mapping[str, str]  # run -> when it started
    spans: Sequence[FindingSpan]
    places: Sequence[PartPlace] = ()  # of parts on this host
    elsewhere: Sequence[PartPlace] = ()  # of the same parts on other hosts
    actions: Sequence[RecordedAction] = ()
    proofs: Sequence[FixProof] = ()  # oldest first
    plans: Sequence[RecordedPlan] = ()  # with the fixes of this host only
    fix_runs: Sequence[RecordedFixRun] = ()  # with this host only
    incidents: Sequence[RecordedIncident] = ()
    facts: HostFacts | None = None


def host_story(host: str, records: HostRecords) -> HostStory:
    """The story of a host that was visited, or for which fixes were planned or applied."""
    visits = records.visits
    vetted = [visit for visit in visits if visit.status is Status.VETTED]
    events = [
        *_visits(visits, records.started),
        *_findings(records),
        *_parts(records),
        *_plans(host, records.plans),
        *_fixes(records),
        *_incidents(records.incidents),
    ]
    open_spans = [span for span in records.spans if span.end is None and span.check]
    pairs = [(span, fixed_since(span, records.proofs)) for span in open_spans]
    return HostStory(
        host=host,
        facts=records.facts,
        baseline=vetted[-1].baseline if vetted else "",
        groups=visits[-1].groups if visits else (),
        boots=len({(visit.machine_id, visit.boot_id) for visit in vetted}),
        nights=tuple(
            Night(run=visit.run, at=_arrival(visit, records.started), outcome=visit.outcome)
            for visit in visits
        ),
        open=tuple(span for span, proof in pairs if proof is None),
        fixed=tuple(FixedSince(finding=span, by=proof) for span, proof in pairs if proof),
        parts=tuple(sorted((p for p in records.places if p.open), key=_by_slot)),
        events=tuple(
            sorted(events, key=lambda event: (unix_time(event.at), ORDER.index(event.kind)))
        ),
    )


def _by_slot(place: PartPlace) -> tuple[str, int, str]:
    return place.part.kind.value, len(place.slot), place.slot


def _arrival(visit: RecordedVisit, started: Mapping[str, str]) -> str:
    return visit.arrived or started.get(visit.run, "")


def _visits(visits: Sequence[RecordedVisit], started: Mapping[str, str]) -> Iterator[StoryEvent]:
    """Events of visits: boots, other baselines, and times without a verdict."""
    first = True
    machine = boot = baseline = ""
    lost = False
    for visit in visits:
        at = _arrival(visit, started)
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


def _findings(records: HostRecords) -> Iterator[StoryEvent]:
    visits = _NextVisits(records)
    gone = {place.part.id for place in records.places if not place.open}
    for span in records.spans:
        if not span.check or span.finding is None:
            continue
        yield StoryEvent(
            at=span.first.at,
            run=span.first.run,
            kind=_kind_of_start(span),
            finding=span.finding,
            after_plan=span.after_plan if span.since in (None, span.first) else "",
        )
        if proof := _proved(span, records.proofs):
            yield StoryEvent(
                at=proof.at,
                run=proof.run,
                kind=StoryKind.RESOLVED if span.verdict is Verdict.UNKNOWN else StoryKind.FIXED,
                finding=span.finding,
                by=proof,
                since=(span.since or span.first).at,
            )
        elif span.end in (SpanEnd.OK, SpanEnd.GONE, SpanEnd.NOT_APPLICABLE, SpanEnd.REPLACED):
            after = visits.visit_after(span)
            yield StoryEvent(
                at=after.at,
                run=after.run,
                kind=_kind_of_end(span),
                finding=span.finding,
                text=_reason_gone(span.end, left=span.finding.subject.uuid in gone),
                action=fixed_by(span, records.actions),
                since=(span.since or span.first).at,
            )


def _proved(span: FindingSpan, proofs: Sequence[FixProof]) -> FixProof | None:
    """The proof that a finding was fixed; None if the next visit saw the finding again."""
    goes_on = span.end in (SpanEnd.CHANGED, SpanEnd.FAIL)
    return None if goes_on else find_proof(span, proofs)


def _kind_of_start(span: FindingSpan) -> StoryKind:
    if span.since is not None and span.since != span.first:
        return StoryKind.CHANGED
    return {
        Verdict.FAIL: StoryKind.FAILS,
        Verdict.UNKNOWN: StoryKind.UNKNOWN,
        Verdict.WAIVED: StoryKind.WAIVED,
    }[span.verdict]


def _kind_of_end(span: FindingSpan) -> StoryKind:
    if span.end is not SpanEnd.OK:
        return StoryKind.GONE
    return StoryKind.RESOLVED if span.verdict is Verdict.UNKNOWN else StoryKind.FIXED


def _reason_gone(end: SpanEnd, *, left: bool) -> str:
    return {
        SpanEnd.OK: "",
        SpanEnd.GONE: "it left with the part" if left else "the check no longer reports it",
        SpanEnd.NOT_APPLICABLE: "the check is no longer applicable",
        SpanEnd.REPLACED: "of the machine that was there before",
    }[end]


class _NextVisits:
    """The vetted visits of a host, to look up the first one after a moment."""

    def __init__(self, records: HostRecords) -> None:
        self._moments = [
            (unix_time(at), visit.baseline, Moment(at=at, run=visit.run))
            for visit in records.visits
            if visit.status is Status.VETTED and (at := _arrival(visit, records.started))
        ]

    def visit_after(self, span: FindingSpan) -> Moment:
        return self.next(span.last, span.baseline)

    def next(self, last: Moment, baseline: str = "") -> Moment:
        """The first vetted visit after `last`, by this baseline if there is one; else `last`
        itself."""
        later = [item for item in self._moments if item[0] > unix_time(last.at)]
        same = (moment for _, baseline_then, moment in later if baseline_then == baseline)
        return next(same, next((moment for _, _, moment in later), last))


def _parts(records: HostRecords) -> Iterator[StoryEvent]:
    """Events of parts that came after the first vetted visit, or went."""
    start = min((unix_time(place.first.at) for place in records.places), default=0.0)
    places_of: dict[str, list[PartPlace]] = defaultdict(list)
    for place in (*records.places, *records.elsewhere):
        places_of[place.part.id].append(place)
    visits = _NextVisits(records)
    for place in records.places:
        others = sorted(places_of[place.part.id], key=lambda other: unix_time(other.first.at))
        known: dict[str, Any] = {"part": place.part, "slot": place.slot}
        if unix_time(place.first.at) > start:
            before = [p for p in others if unix_time(p.last.at) < unix_time(place.first.at)]
            yield StoryEvent(
                at=place.first.at,
                run=place.first.run,
                kind=StoryKind.PART_IN,
                elsewhere=_describe_place(before[-1:], place),
                **known,
            )
        if not place.open:
            moment = visits.next(place.last)
            later = [p for p in others if unix_time(p.first.at) > unix_time(place.last.at)]
            yield StoryEvent(
                at=moment.at,
                run=moment.run,
                kind=StoryKind.PART_OUT,
                elsewhere=_describe_place(later[:1], place),
                **known,
            )


def _describe_place(places: Iterable[PartPlace], here: PartPlace) -> str:
    return next((f"{place.host}, {place.slot}" for place in places if place is not here), "")


def _plans(host: str, plans: Iterable[RecordedPlan]) -> Iterator[StoryEvent]:
    for plan in plans:
        text = f"{', '.join(plan.hosts.get(host, ()))}; plan {plan.id} of {plan.author}"
        yield StoryEvent(at=plan.created, run="", kind=StoryKind.PLANNED, text=text)


def _fixes(records: HostRecords) -> Iterator[StoryEvent]:
    """Each run of fixes that reached the host, with its changes there."""
    for run in records.fix_runs:
        kind = StoryKind.ROLLBACK if run.kind == "rollback" else StoryKind.FIX
        changed = [action for action in records.actions if action.run == run.id]
        known: dict[str, Any] = {"kind": kind, "run": run.id}
        for end in run.hosts:
            yield StoryEvent(
                at=min((action.at for action in changed), default=run.started, key=unix_time),
                text=_describe_fix_run(run, end.why),
                outcome=end.outcome,
                **known,
            )
        for action in changed:
            yield StoryEvent(at=action.at, action=action, **known)


def _describe_fix_run(run: RecordedFixRun, why: str) -> str:
    parts = [f"plan {run.plan} of {run.author}"]
    if run.approvals:
        parts.append(f"approved by {', '.join(run.approvals)}")
    parts.append(f"run by {run.by}")
    return ", ".join(parts) + (f": {why}" if why else "")


def _incidents(incidents: Iterable[RecordedIncident]) -> Iterator[StoryEvent]:
    for incident in incidents:
        yield StoryEvent(at=incident.at, run="", kind=StoryKind.DIAGNOSED, text=incident.cause)
