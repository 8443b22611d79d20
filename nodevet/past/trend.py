"""How something went from run to run: on how many hosts a check fails, or what a field is. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import msgspec

from nodevet.model import HostOutcome, Status, Verdict
from nodevet.store.records.model import RecordedRun, RunState

UNITS = {
    "_c": "°C",
    "_mw": "mW",
    "_w": "W",
    "_mhz": "MHz",
    "_khz": "kHz",
    "_b": "B",
    "_kb": "KiB",
    "_percent": "%",
    "_ns": "ns",
    "_us": "µs",
    "_s": "s",
    "_gts": "GT/s",
    "_gbps": "Gb/s",
    "_mbps": "MB/s",
}
"""What the name of a field ends in, and what its values are counted in."""
NAMES = ("uuid", "serial", "bus_id", "address", "name", "id", "index", "number", "link")
"""The fields by which an item of a list is called, the best first."""
JUDGED = (HostOutcome.OK, HostOutcome.FAIL, HostOutcome.UNKNOWN, HostOutcome.WAIVED)


class CheckPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One run: on how many hosts a check failed."""

    run: str
    started: str
    judged: int  # hosts that were vetted
    failing: int
    unknown: int = 0
    waived: int = 0
    hosts: tuple[str, ...] = ()  # that fail
    unread: tuple[str, ...] = ()  # that failed when they were judged last, and were not judged here
    partial: bool = False  # some of these were not visited: how many fail is not known

    @property
    def known(self) -> bool:
        """Whether the number of failing hosts can be compared with that of other runs."""
        return bool(self.judged) and not self.partial


class CheckTrend(msgspec.Struct, frozen=True, kw_only=True):
    """Oldest run first."""

    check: str
    title: str = ""
    points: tuple[CheckPoint, ...]


class FieldPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One run: what a field was. Of numbers the range; of words how often each was read."""

    run: str
    started: str
    count: int  # values
    partial: bool = False  # the run did not visit all its hosts
    least: float | None = None
    median: float | None = None
    most: float | None = None
    values: Mapping[str, int] = {}


class PartSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One part of one host from run to run; None where it was not read."""

    name: str
    values: tuple[float | None, ...]


class FieldTrend(msgspec.Struct, frozen=True, kw_only=True):
    """Oldest run first."""

    field: str
    unit: str
    host: str = ""  # only of this one
    points: tuple[FieldPoint, ...]
    series: tuple[PartSeries, ...] = ()  # of one host: each part


def check_points(
    runs: Iterable[RecordedRun],
    vetted: Mapping[str, int],
    standing: Iterable[tuple[str, str, Verdict]],
    visits: Mapping[str, Mapping[str, Status]],
) -> tuple[CheckPoint, ...]:
    """`vetted`: hosts by run; `standing`: run, host and what the check said there; `visits`: by
    run, how the visits to the hosts that fail in any run ended."""
    hosts: dict[tuple[str, Verdict], set[str]] = defaultdict(set)
    for run, host, verdict in standing:
        hosts[run, verdict].add(host)
    unread = _unread(list(visits), hosts, visits)
    return tuple(
        CheckPoint(
            run=run.id,
            started=run.started,
            judged=vetted.get(run.id, 0),
            failing=len(hosts[run.id, Verdict.FAIL]),
            unknown=len(hosts[run.id, Verdict.UNKNOWN]),
            waived=len(hosts[run.id, Verdict.WAIVED]),
            hosts=tuple(sorted(hosts[run.id, Verdict.FAIL])),
            unread=tuple(sorted(unread.get(run.id, ()))),
            partial=any(
                visits[run.id].get(host, Status.INTERRUPTED) is Status.INTERRUPTED
                for host in unread.get(run.id, ())
            ),
        )
        for run in runs
    )


def _unread(
    runs: Iterable[str],
    hosts: Mapping[tuple[str, Verdict], set[str]],
    visits: Mapping[str, Mapping[str, Status]],
) -> dict[str, set[str]]:
    """By run, the hosts that it did not judge and that failed when they were judged last."""
    failing: set[str] = set()
    found = {}
    for run in runs:
        judged = {host for host, status in visits[run].items() if status is Status.VETTED}
        failing = failing - judged | hosts.get((run, Verdict.FAIL), set())
        found[run] = failing - judged
    return found


def judged(run: RecordedRun) -> int:
    """How many hosts of a run could be judged."""
    return sum(run.outcomes.get(outcome, 0) for outcome in JUDGED)


def unit_of(path: str) -> str:
    """What a field is counted in, by its name.

    >>> unit_of("gpu.gpus[].temperature_gpu_c"), unit_of("kernel.load_1")
    ('°C', '')
    """
    name = path.rpartition(".")[2]
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")


def values(data: Any, path: str, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values at a path of a section's data, each with what it is of: items of lists are called
    by their name, else their place.

    >>> list(values({"gpus": [{"index": 4, "temperature_gpu_c": 31}]}, "gpus[].temperature_gpu_c"))
    [('4', 31)]
    """
    field, _, rest = path.partition(".")
    if not isinstance(data, Mapping):
        return
    found = data.get(field.removesuffix("[]"))
    if field.endswith("[]"):
        for place, item in enumerate(found if isinstance(found, list) else ()):
            called = " ".join(filter(None, (name, _called(item, place))))
            yield from values(item, rest, called) if rest else [(called, item)]
    elif rest:
        yield from values(found, rest, name)
    else:
        yield name, found


def _called(item: Any, place: int) -> str:
    if isinstance(item, Mapping):
        for key in NAMES:
            if item.get(key) is not None:
                return str(item[key])
    return str(place)


def field_point(run: RecordedRun, found: Iterable[Any]) -> FieldPoint:
    """What a field was in a run, over all hosts and parts that tell it."""
    known = [value for value in found if value is not None]
    numbers = [float(each) for each in known if _is_number(each)]
    if len(numbers) == len(known):
        return FieldPoint(
            run=run.id,
            started=run.started,
            count=len(numbers),
            partial=run.state is not RunState.COMPLETE,
            least=min(numbers, default=None),
            median=median(numbers) if numbers else None,
            most=max(numbers, default=None),
        )
    counts = Counter(_word(each) for each in known)
    return FieldPoint(
        run=run.id,
        started=run.started,
        count=len(known),
        partial=run.state is not RunState.COMPLETE,
        values=dict(counts.most_common(20)),
    )


def _number(value: Any) -> float | None:
    return float(value) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)[:80]


def series(runs: Sequence[Mapping[str, Any]]) -> tuple[PartSeries, ...]:
    """Of one host: each part from run to run. `runs`: of each its values by part."""
    names = dict.fromkeys(name for each in runs for name in each)
    return tuple(
        PartSeries(name=name, values=tuple(_number(each.get(name)) for each in runs))
        for name in names
    )
