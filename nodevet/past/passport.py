"""What an RMA form asks about a part: its identity, places, faults, repairs, and its counters
before and after. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from nodevet.model import Finding, Subject, Verdict
from nodevet.past.fixed_by import fixed_since, unix_time
from nodevet.store.records.model import (
    CounterPoint,
    FindingSpan,
    FixProof,
    Part,
    PartPlace,
    RecordedAction,
)

Names = Mapping[tuple[str, str], frozenset[str]]


class StayCounter(msgspec.Struct, frozen=True, kw_only=True):
    """A counter at both ends of one stay of a part."""

    name: str  # section.field
    subject: str = ""
    before: int  # when the part came there
    after: int  # when the counter was last read there


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """A part in one slot of one host."""

    host: str
    slot: str
    first: str  # ISO 8601
    last: str
    open: bool  # the part is still there
    counters: tuple[StayCounter, ...] = ()  # without those that were 0 at both ends


class PartFault(msgspec.Struct, frozen=True, kw_only=True):
    """One finding about the part, over the time in which it did not change."""

    host: str
    check: str
    verdict: Verdict
    severity: str
    finding: Finding
    first: str
    last: str
    open: bool
    by: FixProof | None = None  # of an open fault: the proof that it is fixed since


class Passport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the store knows of a part, the oldest first."""

    part: Part
    stays: tuple[Stay, ...]
    faults: tuple[PartFault, ...] = ()
    repairs: tuple[RecordedAction, ...] = ()  # changes that runs of fixes made to it
    around: tuple[RecordedAction, ...] = ()  # other changes to its host while it was there
    points: tuple[CounterPoint, ...] = ()  # each change of a counter

    @property
    def current_stay(self) -> Stay | None:
        """The current stay; None if the part is gone."""
        return next((stay for stay in reversed(self.stays) if stay.open), None)

    @property
    def at_once(self) -> tuple[Stay, ...]:
        """The stays that overlap: several parts have this id, or a place was not read after the
        part had left it."""
        return tuple(
            stay
            for number, stay in enumerate(self.stays)
            if any(
                unix_time(stay.first) <= unix_time(other.last)
                and unix_time(other.first) <= unix_time(stay.last)
                for place, other in enumerate(self.stays)
                if place != number
            )
        )


def passport(
    part: Part,
    places: Iterable[PartPlace],
    spans: Iterable[FindingSpan],
    points: Iterable[CounterPoint],
    actions: Iterable[RecordedAction],
    names: Names | None = None,
    proofs: Sequence[FixProof] = (),
) -> Passport:
    """The passport of a part. `spans`, `actions` and `proofs` are those of its hosts; the ones
    about the part, or of its time there, are used. `names`: its other names, by host and slot."""
    part_names = names or {}
    stays = sorted(places, key=lambda place: unix_time(place.first.at))
    recorded_actions = list(actions)
    counted = sorted(points, key=lambda point: unix_time(point.moment.at))
    faults = [
        PartFault(
            host=span.host,
            check=span.check,
            verdict=span.verdict,
            severity=span.severity.value,
            finding=span.finding,
            first=span.first.at,
            last=span.last.at,
            open=span.end is None,
            by=fixed_since(span, proofs),
        )
        for span in spans
        if span.finding is not None and any(_is_about(span, place, part_names) for place in stays)
    ]
    meanwhile = sorted(
        (
            action
            for action in recorded_actions
            if any(_is_in_place(action, place) for place in stays)
        ),
        key=lambda action: unix_time(action.at),
    )
    return Passport(
        part=part,
        stays=tuple(_stay(place, counted) for place in stays),
        faults=tuple(sorted(faults, key=lambda fault: unix_time(fault.first))),
        repairs=tuple(action for action in meanwhile if _is_own(action, stays, part_names)),
        around=tuple(action for action in meanwhile if not _is_own(action, stays, part_names)),
        points=tuple(counted),
    )


def _is_about(span: FindingSpan, place: PartPlace, names: Names) -> bool:
    """Whether a finding is about the part that was in this place at that time."""
    if span.host != place.host or span.finding is None:
        return False
    subject = span.finding.subject
    if subject.uuid:
        return subject.uuid == place.part.id
    is_in_time: bool = (
        unix_time(place.first.at) <= unix_time(span.first.at) <= unix_time(place.last.at)
    )
    return is_in_time and _has_name(subject, {place.slot, *names.get((place.host, place.slot), ())})


def _has_name(subject: Subject, names: set[str]) -> bool:
    """Whether a subject has one of these names: `mlx5_3:1` is a port of mlx5_3."""
    labels = {subject.bus_id or "", subject.id, subject.id.partition(":")[0]}
    return bool(names & labels - {""})


def _is_in_place(action: RecordedAction, place: PartPlace) -> bool:
    """Whether the part was in this place when the action ran."""
    at = unix_time(action.at)
    since = action.host == place.host and unix_time(place.first.at) <= at
    return since and (place.open or at <= unix_time(place.last.at))


def _is_own(action: RecordedAction, places: Iterable[PartPlace], names: Names) -> bool:
    """Whether an action changed the part itself: its resource names the part."""
    known = {
        name
        for place in places
        if _is_in_place(action, place)
        for name in (place.part.id, place.slot, *names.get((place.host, place.slot), ()))
    }
    return any(_names(action.resource, name) for name in known if name)


def _names(resource: str, name: str) -> bool:
    """Whether a resource belongs to this name: `nvme0n1` to nvme0, but `mlx5_30` not to mlx5_3."""
    return bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![0-9])", resource))


def _stay(place: PartPlace, points: Sequence[CounterPoint]) -> Stay:
    return Stay(
        host=place.host,
        slot=place.slot,
        first=place.first.at,
        last=place.last.at,
        open=place.open,
        counters=_counters(points, place.first.at, place.last.at),
    )


def _counters(points: Iterable[CounterPoint], first: str, last: str) -> tuple[StayCounter, ...]:
    """Each counter at two moments. Points exist only for changes of a counter."""
    begin, end = unix_time(first), unix_time(last)
    before: dict[tuple[str, str], int] = defaultdict(int)
    after: dict[tuple[str, str], int] = defaultdict(int)
    for point in points:
        at, key = unix_time(point.moment.at), (point.name, point.subject)
        if at <= begin:
            before[key] = point.value
        if at <= end:
            after[key] = point.value
    return tuple(
        StayCounter(name=name, subject=subject, before=before[name, subject], after=value)
        for (name, subject), value in after.items()
        if value or before[name, subject]
    )
