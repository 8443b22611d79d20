"""Counters of an interface or a port against what a baseline says is the most: in all, or for each
hour."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nodevet.checking.aspects import Aspect, met
from nodevet.checking.before import Counts, CountsBefore, before
from nodevet.checking.pace import none_meanwhile, pace, standstill
from nodevet.evidence.counters import Counter
from nodevet.evidence.document import Evidence
from nodevet.evidence.rates import Growth, Sample
from nodevet.model import Verdict

BYTE, WORD = 255, 65535
HIGHEST = {  # at which a counter of an InfiniBand port stays: PortCounters of the specification
    "VL15_dropped": WORD,
    "excessive_buffer_overrun_errors": 15,
    "link_downed": BYTE,
    "link_error_recovery": BYTE,
    "local_link_integrity_errors": 15,
    "port_rcv_constraint_errors": BYTE,
    "port_rcv_errors": WORD,
    "port_rcv_remote_physical_errors": WORD,
    "port_rcv_switch_relay_errors": WORD,
    "port_xmit_constraint_errors": BYTE,
    "port_xmit_discards": WORD,
    "symbol_error": WORD,
}


class CountWish(NamedTuple):
    """What a baseline says of counters, by their names."""

    maximum: Mapping[str, int]
    maximum_per_hour: Mapping[str, float]
    advice: str
    still: tuple[str, ...] = ()
    """May not grow at all between two readings, where nothing else is said of them."""


class Counted(NamedTuple):
    """The counters of a subject now, and as they were before."""

    now: tuple[Counter, ...] | None
    why: str  # if none were read
    before: CountsBefore | None  # None: no earlier reading


def counted(
    counters: tuple[Counter, ...] | None,
    why: str,
    sample: Sample[Any] | None,
    earlier: tuple[Counter, ...] | None,
) -> Counted:
    """`earlier`: what the sample has of the same subject."""
    known = before(sample, by_name(earlier), by_name(counters)) if sample else None
    return Counted(counters, why, known)


def by_name(counters: tuple[Counter, ...] | None) -> Counts:
    return {counter.name: counter.value for counter in counters or ()}


def counts(counted: Counted, wish: CountWish, evidence: Evidence) -> Iterator[Aspect]:
    """Each counter that a baseline names."""
    found = {counter.name: counter for counter in counted.now or ()}
    for name, most in wish.maximum.items():
        value = value_of(name, found, counted)
        if isinstance(value, Aspect):
            yield value
        elif most >= value == HIGHEST.get(name):
            yield stands(name, value)
        else:
            yield above(name, 0 <= value <= most, f"at most {most}", value, wish)
    for name, limit in wish.maximum_per_hour.items():
        value = value_of(name, found, counted)
        yield (
            value
            if isinstance(value, Aspect)
            else paced(name, value, limit, counted, wish, evidence)
        )
    if counted.before is None:
        return
    for name in wish.still:
        if name not in wish.maximum and name not in wish.maximum_per_hour:
            yield from at_rest(name, found, counted, counted.before, wish)


def at_rest(
    name: str, found: Mapping[str, Counter], counted: Counted, before: CountsBefore, wish: CountWish
) -> Iterator[Aspect]:
    """Whether a counter stood still meanwhile; nothing of what is not counted here."""
    if counted.now is not None and name not in found and name not in before.then:
        return
    value = value_of(name, found, counted)
    if isinstance(value, Aspect):
        yield value
    elif value == HIGHEST.get(name):
        yield stands(name, value)
    else:
        grown = before.grown(name)
        if before.reading.look and (grown is None or grown.again):
            return  # as without: an interface that was created since counts its own first changes
        told = standstill(grown or Growth())
        if told.right is None:
            yield Aspect(Verdict.UNKNOWN, name, why=f"{name}, sampled: {told.why}")
        else:
            expected = none_meanwhile(look=before.reading.look)
            yield above(name, told.right, expected, told.actual, wish)


def value_of(name: str, found: Mapping[str, Counter], counted: Counted) -> int | Aspect:
    """Where a counter stands, or the unknown aspect that says why that is not known."""
    counter = found.get(name)
    if counter is not None and counter.value is not None:
        return counter.value
    if counted.now is None:
        why = f"counters: {counted.why}"
    else:
        why = f"{name}: {counter.why('value') if counter else 'it is not counted here'}"
    return Aspect(Verdict.UNKNOWN, name, why=why)


def stands(name: str, value: int) -> Aspect:
    why = f"{name}: it stands at {value}, which is as far as it counts"
    return Aspect(Verdict.UNKNOWN, name, why=why)


def above(name: str, right: bool, expected: str, actual: object, wish: CountWish) -> Aspect:
    return met(name, right, expected=expected, actual=actual, advice=wish.advice)


def paced(
    name: str, value: int, most: float, counted: Counted, wish: CountWish, evidence: Evidence
) -> Aspect:
    """How fast a counter grows: by a sample that is long enough to tell, else since boot."""
    label, expected = f"{name} per hour", f"at most {most:g}"
    full = value == HIGHEST.get(name)
    grown = counted.before.grown(name) if counted.before and not full else None
    found = pace(value, grown, most, evidence)
    if full and found.right is not False:
        return stands(name, value)
    if found.right is None:
        sampled = f"{name}, sampled: " if grown is not None and grown.by is None else ""
        return Aspect(Verdict.UNKNOWN, label, why=f"{sampled}{found.why}")
    return above(label, found.right, expected, found.actual, wish)
