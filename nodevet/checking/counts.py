"""Compares counters of an interface or port with a baseline's limits, in total or per hour."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nodevet.checking.aspects import Aspect, aspect_if
from nodevet.checking.before import Counts, CountsBefore, counts_before
from nodevet.checking.pace import none_meanwhile, pace, standstill
from nodevet.evidence.counters import Counter
from nodevet.evidence.document import Evidence
from nodevet.evidence.rates import Growth, Sample
from nodevet.model import Verdict

BYTE, WORD = 255, 65535
HIGHEST = {  # where a counter of an InfiniBand port stops: PortCounters of the specification
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
    """The limits of a baseline for counters, by name."""

    maximum: Mapping[str, int]
    maximum_per_hour: Mapping[str, float]
    advice: str
    still: tuple[str, ...] = ()
    """Counters without a limit that must not grow between two readings."""


class Counted(NamedTuple):
    """The counters of a subject, now and at an earlier reading."""

    now: tuple[Counter, ...] | None
    why: str  # if none were read
    before: CountsBefore | None  # None: no earlier reading


def counts_since_sample(
    counters: tuple[Counter, ...] | None,
    why: str,
    sample: Sample[Any] | None,
    earlier: tuple[Counter, ...] | None,
) -> Counted:
    """`earlier`: the counters of the same subject in the sample."""
    known = counts_before(sample, by_name(earlier), by_name(counters)) if sample else None
    return Counted(counters, why, known)


def by_name(counters: tuple[Counter, ...] | None) -> Counts:
    return {counter.name: counter.value for counter in counters or ()}


def counts(counted: Counted, limits: CountWish, evidence: Evidence) -> Iterator[Aspect]:
    """The aspects of the counters that the baseline names."""
    counters = {counter.name: counter for counter in counted.now or ()}
    for name, most in limits.maximum.items():
        value = value_of(name, counters, counted)
        if isinstance(value, Aspect):
            yield value
        elif most >= value == HIGHEST.get(name):
            yield full_aspect(name, value)
        else:
            yield limit_aspect(name, 0 <= value <= most, f"at most {most}", value, limits)
    for name, limit in limits.maximum_per_hour.items():
        value = value_of(name, counters, counted)
        yield (
            value
            if isinstance(value, Aspect)
            else hourly_aspect(name, value, limit, counted, limits, evidence)
        )
    if counted.before is None:
        return
    for name in limits.still:
        if name not in limits.maximum and name not in limits.maximum_per_hour:
            yield from still_aspects(name, counters, counted, counted.before, limits)


def still_aspects(
    name: str,
    counters: Mapping[str, Counter],
    counted: Counted,
    earlier: CountsBefore,
    limits: CountWish,
) -> Iterator[Aspect]:
    """The aspect: whether a counter stood still. None if this device does not have the counter."""
    if counted.now is not None and name not in counters and name not in earlier.then:
        return
    value = value_of(name, counters, counted)
    if isinstance(value, Aspect):
        yield value
    elif value == HIGHEST.get(name):
        yield full_aspect(name, value)
    else:
        grown = earlier.growth_of(name)
        if earlier.reading.look and (grown is None or grown.again):
            return  # an interface that was created since then counts its own first changes
        still_pace = standstill(grown or Growth())
        if still_pace.right is None:
            yield Aspect(Verdict.UNKNOWN, name, why=f"{name}, sampled: {still_pace.why}")
        else:
            expected = none_meanwhile(look=earlier.reading.look)
            yield limit_aspect(name, still_pace.right, expected, still_pace.actual, limits)


def value_of(name: str, counters: Mapping[str, Counter], counted: Counted) -> int | Aspect:
    """The value of a counter, or the unknown aspect that says why it was not read."""
    counter = counters.get(name)
    if counter is not None and counter.value is not None:
        return counter.value
    if counted.now is None:
        why = f"counters: {counted.why}"
    else:
        why = (
            f"{name}: "
            f"{counter.why('value') if counter else 'this device does not have this counter'}"
        )
    return Aspect(Verdict.UNKNOWN, name, why=why)


def full_aspect(name: str, value: int) -> Aspect:
    why = f"{name}: it is at {value}, its highest value; the true count may be higher"
    return Aspect(Verdict.UNKNOWN, name, why=why)


def limit_aspect(
    name: str, right: bool, expected: str, actual: object, limits: CountWish
) -> Aspect:
    return aspect_if(name, right, expected=expected, actual=actual, advice=limits.advice)


def hourly_aspect(
    name: str, value: int, most: float, counted: Counted, limits: CountWish, evidence: Evidence
) -> Aspect:
    """The aspect: how fast a counter grows, during the sample if that is long enough, else since
    boot."""
    label, expected = f"{name} per hour", f"at most {most:g}"
    full = value == HIGHEST.get(name)
    grown = counted.before.growth_of(name) if counted.before and not full else None
    hourly = pace(value, grown, most, evidence)
    if full and hourly.right is not False:
        return full_aspect(name, value)
    if hourly.right is None:
        sampled = f"{name}, sampled: " if grown is not None and grown.by is None else ""
        return Aspect(Verdict.UNKNOWN, label, why=f"{sampled}{hourly.why}")
    return limit_aspect(label, hourly.right, expected, hourly.actual, limits)
