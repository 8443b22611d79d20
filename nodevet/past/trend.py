"""Trends from run to run: the number of hosts that fail a check, or the values of a field. Pure."""

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
"""The unit of a field, by the end of its name."""
NAMES = ("uuid", "serial", "bus_id", "address", "name", "id", "index", "number", "link")
"""The fields that name an item of a list, the best first."""
JUDGED = (HostOutcome.OK, HostOutcome.FAIL, HostOutcome.UNKNOWN, HostOutcome.WAIVED)


class CheckPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One run: the hosts that failed a check."""

    run: str
    started: str
    judged: int  # hosts that were vetted
    failing: int
    unknown: int = 0
    waived: int = 0
    hosts: tuple[str, ...] = ()  # that failed
    unread: tuple[str, ...] = ()  # hosts not judged here that failed when last judged
    partial: bool = False  # some of `unread` were not visited: the number that fails is unknown

    @property
    def is_comparable(self) -> bool:
        """Whether the number of failing hosts can be compared with that of other runs."""
        return bool(self.judged) and not self.partial


class CheckTrend(msgspec.Struct, frozen=True, kw_only=True):
    """Oldest run first."""

    check: str
    title: str = ""
    points: tuple[CheckPoint, ...]


class FieldPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One run: the values of a field. Numbers have a range; words have a count each."""

    run: str
    started: str
    count: int  # values
    partial: bool = False  # the run did not visit all its hosts
    least: float | None = None
    median: float | None = None
    most: float | None = None
    values: Mapping[str, int] = {}


class PartSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One part of one host from run to run; None for a run that did not read it."""

    name: str
    values: tuple[float | None, ...]


class FieldTrend(msgspec.Struct, frozen=True, kw_only=True):
    """Oldest run first."""

    field: str
    unit: str
    host: str = ""  # empty: all hosts
    points: tuple[FieldPoint, ...]
    series: tuple[PartSeries, ...] = ()  # each part, if the trend is of one host


def check_points(
    runs: Iterable[RecordedRun],
    vetted: Mapping[str, int],
    standing: Iterable[tuple[str, str, Verdict]],
    visits: Mapping[str, Mapping[str, Status]],
) -> tuple[CheckPoint, ...]:
    """One point for each run. `vetted`: the number of hosts by run. `standing`: run, host, and the
    verdict of the check. `visits`: by run, how the visits to hosts that fail in any run ended."""
    hosts: dict[tuple[str, Verdict], set[str]] = defaultdict(set)
    for run, host, verdict in standing:
        hosts[run, verdict].add(host)
    unread = _unjudged_hosts(list(visits), hosts, visits)
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


def _unjudged_hosts(
    run_ids: Iterable[str],
    hosts: Mapping[tuple[str, Verdict], set[str]],
    visits: Mapping[str, Mapping[str, Status]],
) -> dict[str, set[str]]:
    """By run, the hosts that it did not judge and that failed when last judged."""
    failing: set[str] = set()
    unjudged = {}
    for run in run_ids:
        judged = {host for host, status in visits[run].items() if status is Status.VETTED}
        failing = failing - judged | hosts.get((run, Verdict.FAIL), set())
        unjudged[run] = failing - judged
    return unjudged


def count_judged(run: RecordedRun) -> int:
    """The number of hosts that a run judged."""
    return sum(run.outcomes.get(outcome, 0) for outcome in JUDGED)


def unit_of(path: str) -> str:
    """The unit of a field, by its name; empty if it has none.

    >>> unit_of("gpu.gpus[].temperature_gpu_c"), unit_of("kernel.load_1")
    ('°C', '')
    """
    name = path.rpartition(".")[2]
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")


def values(data: Any, path: str, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values at a path of a section's data, each with the names of its list items. An item
    without a name is called by its index.

    >>> list(values({"gpus": [{"index": 4, "temperature_gpu_c": 31}]}, "gpus[].temperature_gpu_c"))
    [('4', 31)]
    """
    field, _, rest = path.partition(".")
    if not isinstance(data, Mapping):
        return
    value = data.get(field.removesuffix("[]"))
    if field.endswith("[]"):
        for index, item in enumerate(value if isinstance(value, list) else ()):
            label = " ".join(filter(None, (name, _item_name(item, index))))
            yield from values(item, rest, label) if rest else [(label, item)]
    elif rest:
        yield from values(value, rest, name)
    else:
        yield name, value


def _item_name(item: Any, index: int) -> str:
    if isinstance(item, Mapping):
        for key in NAMES:
            if item.get(key) is not None:
                return str(item[key])
    return str(index)


def field_point(run: RecordedRun, field_values: Iterable[Any]) -> FieldPoint:
    """The values of a field in a run, over all hosts and parts that have one."""
    answers = [value for value in field_values if value is not None]
    numbers = [float(item) for item in answers if _is_number(item)]
    if len(numbers) == len(answers):
        return FieldPoint(
            run=run.id,
            started=run.started,
            count=len(numbers),
            partial=run.state is not RunState.COMPLETE,
            least=min(numbers, default=None),
            median=median(numbers) if numbers else None,
            most=max(numbers, default=None),
        )
    counts = Counter(_text_of(item) for item in answers)
    return FieldPoint(
        run=run.id,
        started=run.started,
        count=len(answers),
        partial=run.state is not RunState.COMPLETE,
        values=dict(counts.most_common(20)),
    )


def _number(value: Any) -> float | None:
    return float(value) if _is_number(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)[:80]


def series(runs: Sequence[Mapping[str, Any]]) -> tuple[PartSeries, ...]:
    """Each part of one host from run to run. `runs`: for each run its values by part."""
    names = dict.fromkeys(name for run_values in runs for name in run_values)
    return tuple(
        PartSeries(name=name, values=tuple(_number(run_values.get(name)) for run_values in runs))
        for name in names
    )
