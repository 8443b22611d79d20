"""What an RMA asks of a part: what it is, where it was, what it had, what was done, and what it
counted before and after. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from nodevet.base.age import seconds_of
from nodevet.model import Finding, Subject, Verdict
from nodevet.past.fixed_by import fixed_since
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
    """A counter over one stay of a part."""

    name: str  # section.field
    subject: str = ""
    before: int  # when it came there
    after: int  # when it was last read there


class Stay(msgspec.Struct, frozen=True, kw_only=True):
    """A part in one slot of one host."""

    host: str
    slot: str
    first: str  # ISO 8601
    last: str
    open: bool  # it is there
    counters: tuple[StayCounter, ...] = ()  # those that are not zero


class PartFault(msgspec.Struct, frozen=True, kw_only=True):
    """What a check said of the part, for as long as it stayed the same."""

    host: str
    check: str
    verdict: Verdict
    severity: str
    finding: Finding
    first: str
    last: str
    open: bool
    by: FixProof | None = None  # of an open one: what proved it fixed since


class Passport(msgspec.Struct, frozen=True, kw_only=True):
    """All that is remembered of a part. The oldest is the first."""

    part: Part
    stays: tuple[Stay, ...]
    faults: tuple[PartFault, ...] = ()
    repairs: tuple[RecordedAction, ...] = ()  # what runs of fixes changed of it
    around: tuple[RecordedAction, ...] = ()  # and of its host, while it was there
    points: tuple[CounterPoint, ...] = ()  # every counter when it had moved

    @property
    def here(self) -> Stay | None:
        """Where it is now."""
        return next((stay for stay in reversed(self.stays) if stay.open), None)

    @property
    def at_once(self) -> tuple[Stay, ...]:
        """Those of its stays that overlap: several parts have this id, or a place could not be
        read when it had gone."""
        return tuple(
            stay
            for number, stay in enumerate(self.stays)
            if any(
                _seconds(stay.first) <= _seconds(other.last)
                and _seconds(other.first) <= _seconds(stay.last)
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
    """`spans`, `actions` and `proofs` of the hosts where it was: those about it, or of that time,
    are taken.

    `names`: by host and slot, what it is called there.
    """
    called = names or {}
    listed = sorted(places, key=lambda place: _seconds(place.first.at))
    done = list(actions)
    counted = sorted(points, key=lambda point: _seconds(point.moment.at))
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
        if span.finding is not None and any(is_about(span, place, called) for place in listed)
    ]
    meanwhile = sorted(
        (each for each in done if any(_was_there(each, place) for place in listed)),
        key=lambda each: _seconds(each.at),
    )
    return Passport(
        part=part,
        stays=tuple(_stay(place, counted) for place in listed),
        faults=tuple(sorted(faults, key=lambda fault: _seconds(fault.first))),
        repairs=tuple(each for each in meanwhile if _is_own(each, listed, called)),
        around=tuple(each for each in meanwhile if not _is_own(each, listed, called)),
        points=tuple(counted),
    )


def _seconds(at: str) -> float:
    return seconds_of(at) or 0.0


def is_about(span: FindingSpan, place: PartPlace, names: Names) -> bool:
    """Whether a finding is about the part that was in this place then."""
    if span.host != place.host or span.finding is None:
        return False
    subject = span.finding.subject
    if subject.uuid:
        return subject.uuid == place.part.id
    then: bool = _seconds(place.first.at) <= _seconds(span.first.at) <= _seconds(place.last.at)
    return then and _is_called(subject, {place.slot, *names.get((place.host, place.slot), ())})


def _is_called(subject: Subject, names: set[str]) -> bool:
    """Whether a subject is what is in a slot: `mlx5_3:1` is a port of mlx5_3."""
    named = {subject.bus_id or "", subject.id, subject.id.partition(":")[0]}
    return bool(names & named - {""})


def _was_there(action: RecordedAction, place: PartPlace) -> bool:
    """Whether the part was in this place when a host was fixed."""
    at = _seconds(action.at)
    since = action.host == place.host and _seconds(place.first.at) <= at
    return since and (place.open or at <= _seconds(place.last.at))


def _is_own(action: RecordedAction, places: Iterable[PartPlace], names: Names) -> bool:
    """Whether a fix changed the part itself: its resource names it."""
    known = {
        name
        for place in places
        if _was_there(action, place)
        for name in (place.part.id, place.slot, *names.get((place.host, place.slot), ()))
    }
    return any(_names(action.resource, name) for name in known if name)


def _names(resource: str, name: str) -> bool:
    """Whether a resource is of what has this name: `nvme0n1` is of nvme0, `mlx5_30` not of
    mlx5_3."""
    return bool(re.search(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![0-9])", resource))


def _stay(place: PartPlace, points: Sequence[CounterPoint]) -> Stay:
    return Stay(
        host=place.host,
        slot=place.slot,
        first=place.first.at,
        last=place.last.at,
        open=place.open,
        counters=counters(points, place.first.at, place.last.at),
    )


def counters(points: Iterable[CounterPoint], first: str, last: str) -> tuple[StayCounter, ...]:
    """What each counter was at two moments: points are there only where it had moved."""
    begin, end = _seconds(first), _seconds(last)
    before: dict[tuple[str, str], int] = defaultdict(int)
    after: dict[tuple[str, str], int] = defaultdict(int)
    for point in points:
        at, key = _seconds(point.moment.at), (point.name, point.subject)
        if at <= begin:
            before[key] = point.value
        if at <= end:
            after[key] = point.value
    return tuple(
        StayCounter(name=name, subject=subject, before=before[name, subject], after=value)
        for (name, subject), value in after.items()
        if value or before[name, subject]
    )
