"""Watching a node: when to look, within a limit of CPU time.

The request has one object for a section that watches: seconds (duration), interval (seconds between
looks), at_s (the controller's time to begin, the same for several hosts; null: now).
"""

import math
import os
import resource
import time

from nodevet.remote.probe.files import Absent, SectionError, is_this_machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator, Mapping, TypeVar

    from nodevet.remote.probe.files import Reading

    T = TypeVar("T")

HZ = os.sysconf("SC_CLK_TCK")  # of the counters of CPU time
SHARE = 0.003  # of one core, for the looks of a section
PAID_S = 10.0  # seconds of a watch from which on its looks get no more, until it lasts FREE_S:
FREE_S = 30.0  # a longer watch takes at most 1 % of a core with its login and its start
LONGEST = 600.0  # seconds
SHORTEST = 0.1  # seconds between looks
LOOKS = 2048  # with the first and the last, nodevet/base/bounds.py
AHEAD = 60.0  # most seconds to wait for the beginning
SPARE = 1.0  # seconds of the section for its answer


def cpu_s() -> float:
    """User and system CPU time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def budget_s(share: float, duration_s: float) -> float:
    """CPU time for all looks of a section: `share` of a core; a watch of 30 s gets no more than one
    of 10 s."""
    return share * (min(duration_s, PAID_S) + max(0.0, duration_s - FREE_S))


class Watch(object):
    """When to look: `for seconds in watch.looks()`, since the first look."""

    def __init__(
        self,
        name: str,
        root: str,
        request: "dict[str, Any]",
        looks_per_interval: float = 1,
        share: float = SHARE,
    ) -> None:
        """`share`: of one core for the looks; all sections together stay below one percent. Raises
        Absent for the tree of another machine, SectionError for invalid options."""
        if not is_this_machine(root, request.get("whole_machine", False)):
            raise Absent(
                "only a running machine can be watched, and {} is not this one".format(root)
            )
        options = (request.get("asks", {}).get(name) or [{}])[0]
        options = options if isinstance(options, dict) else {}
        self.options = options
        self.share = share
        self.duration_s = number(options, "seconds", 10.0, LONGEST)
        interval = number(options, "interval", 1.0, LONGEST) / looks_per_interval
        self.interval = max(SHORTEST, interval, self.duration_s / (LOOKS - 1))
        self.at_s = number(options, "at_s", None, math.inf)
        # this machine's clock minus the controller's
        self.ahead_s = (request.get("arrived_s") or 0) - (request.get("asked_s") or 0)
        if not request.get("arrived_s") or not request.get("asked_s"):
            self.ahead_s = 0.0
        deadline = request.get("deadline", 30.0)
        self.end = request.get("end", time.monotonic() + deadline) - SPARE
        self.times: "list[float]" = []
        self.began_s = 0.0
        self.cost_s = 0.0
        self.spent = 0.0  # CPU time of this process at the first look
        self.first_cost_s = 0.0
        self.once_s = 0.0  # of the first look's CPU time; the last look does not take it
        self.is_last = False

    def spare_s(self) -> float:
        """CPU time left for this look: the last look costs as much as the first, and the rest of
        the share is spread over the duration."""
        return (
            self.first_cost_s
            + self.between_s() * min(1.0, self.times[-1] / self.duration_s)
            - (cpu_s() - self.spent)
        )

    def between_s(self) -> float:
        """CPU time for all looks between the first and the last."""
        return budget_s(self.share, self.duration_s) - 2 * self.first_cost_s + self.once_s

    def wait(self) -> None:
        """Wait until at_s."""
        delay = (self.at_s or 0.0) + self.ahead_s - time.time()
        if 0 < delay <= AHEAD:
            time.sleep(min(delay, max(0.0, self.end - self.duration_s - time.monotonic())))

    def looks(self) -> "Iterator[float]":
        """Seconds since the first look, at each look; `is_last` at the last."""
        self.wait()
        self.began_s = time.time()
        first = time.monotonic()
        self.spent = cpu_s()
        last = min(first + self.duration_s, max(self.end, first))
        at = first
        while True:
            self.is_last = at >= last
            self.times.append(round(time.monotonic() - first, 4))
            yield self.times[-1]
            self.cost_s = cpu_s() - self.spent
            self.first_cost_s = self.first_cost_s or self.cost_s
            if self.is_last:
                return
            at = self.next_look(first, last)
            time.sleep(max(0.0, at - time.monotonic()))

    def next_look(self, first: float, last: float) -> float:
        """The next multiple of the interval at which the cost is within its share; the last look if
        nothing is left."""
        between, spent = self.between_s(), self.cost_s - self.first_cost_s
        cost_per_look = spent / max(1, len(self.times) - 1)
        if between <= 0 or spent + cost_per_look > between:
            return last
        earliest = max(time.monotonic(), first + self.duration_s * spent / between)
        last_step = math.floor(self.times[-1] / self.interval + 1e-3)
        steps = max(last_step + 1, math.ceil((earliest - first) / self.interval))
        at = first + steps * self.interval
        # not just before the last look
        return last if at > last - self.interval / 2 else at

    def look(self) -> "dict[str, object]":
        """The JSON form of nodevet.evidence.activity.Look."""
        return {
            "errors": {},
            "began_s": round(self.began_s, 3),
            "seconds": self.times[-1] if self.times else 0.0,
            "cost_s": round(self.cost_s, 4),
        }


def number(options: "dict[str, Any]", key: str, default: "T", most: float) -> "float | T":
    """An option's number. Raises SectionError."""
    value = options.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SectionError("{} is not a number of seconds".format(key))
    if not 0 < value <= most or math.isnan(value):
        raise SectionError("{} is not between 0 and {:g} s".format(key, most))
    return float(value)


class Series(object):
    """Values of several fields at each look; None where a look failed."""

    def __init__(self, fields: "Iterable[str]") -> None:
        self.values: "dict[str, list[object]]" = {field: [] for field in fields}
        self.why: "dict[str, Any]" = {}

    def take(
        self, values_by_field: "Mapping[str, object]", why: "Mapping[str, str | None] | None" = None
    ) -> None:
        """Add one look's values; `why`: {field: why it is missing}."""
        for field, values in self.values.items():
            values.append(values_by_field.get(field))
        self.why.update(why or {})

    def into(self, record: "Reading") -> None:
        """Write them into a Reading; a field without any value is null, with a reason."""
        for field, values in self.values.items():
            if any(value is not None for value in values):
                record[field] = values
            else:
                record.fail(field, self.why.get(field, "not found"))


def put_counts(
    record: "Reading",
    fields: "Iterable[str]",
    first: "Mapping[str, Any]",
    last: "Mapping[str, Any]",
) -> None:
    """Write counters into a Reading as [at the first look, at the last]; null with a reason if one
    went back or is missing. `first`, `last`: {field: number}."""
    for field in fields:
        first_value, last_value = first.get(field), last.get(field)
        if first_value is None or last_value is None:
            record.fail(field, "not found")
        elif last_value < first_value:
            record.fail(field, "it went back from {} to {}".format(first_value, last_value))
        else:
            record[field] = [first_value, last_value]
