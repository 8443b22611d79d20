"""Watching a node for a while: when to look, and no more often than what the looks cost allows.

A section that watches is asked for with one object: seconds (how long), interval (seconds from one
look to the next), at_s (the controller's clock at which to begin, so that several hosts are watched
at the same time; null: at once).
"""

import math
import resource
import time

from nodevet.remote.probe.files import Absent, SectionError, is_this_machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Iterator, Mapping, TypeVar

    from nodevet.remote.probe.files import Reading

    T = TypeVar("T")

SHARE = 0.003  # of one core that looking may cost a section, if it does not say another
LONGEST = 600.0  # seconds
SHORTEST = 0.1  # seconds from one look to the next
LOOKS = 2048  # the first and the last included, nodevet/base/bounds.py
AHEAD = 60.0  # seconds at most to wait for the beginning
SPARE = 1.0  # seconds of the section that are left to answer in


def cpu_s() -> float:
    """CPU time of this process, the system's share included."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Watch(object):
    """When to look: `for at in watch.looks()` gives the seconds since the first look."""

    def __init__(
        self,
        name: str,
        root: str,
        request: "dict[str, Any]",
        often: float = 1,
        share: float = SHARE,
    ) -> None:
        """`often`: how many times it looks in each interval; `share` of one core that the looks
        may cost: those of all sections together stay below one percent. Raises Absent for the tree
        of another machine, SectionError if the wish is not valid."""
        if not is_this_machine(root, request.get("whole_machine", False)):
            raise Absent(
                "only a running machine can be watched, and {} is not this one".format(root)
            )
        wish = (request.get("asks", {}).get(name) or [{}])[0]
        wish = wish if isinstance(wish, dict) else {}
        self.share = share
        self.wanted = number(wish, "seconds", 10.0, LONGEST)
        interval = number(wish, "interval", 1.0, LONGEST) / often
        self.interval = max(SHORTEST, interval, self.wanted / (LOOKS - 1))
        self.at_s = number(wish, "at_s", None, math.inf)
        # how far this machine's clock is ahead of the controller's
        self.ahead_s = (request.get("arrived_s") or 0) - (request.get("asked_s") or 0)
        if not request.get("arrived_s") or not request.get("asked_s"):
            self.ahead_s = 0.0
        deadline = request.get("deadline", 30.0)
        self.end = request.get("end", time.monotonic() + deadline) - SPARE
        self.times: "list[float]" = []
        self.began_s = 0.0
        self.cost_s = 0.0
        self.spent = 0.0  # CPU time of this process when it began to look
        self.first_cost_s = 0.0
        self.is_last = False

    def spare_s(self) -> float:
        """CPU time that this look may take beside what each look takes: the last one costs as much
        as the first, and what is left of the share is spread over the time."""
        return (
            self.first_cost_s
            + self.between_s() * min(1.0, self.times[-1] / self.wanted)
            - (cpu_s() - self.spent)
        )

    def between_s(self) -> float:
        """CPU time that all looks between the first and the last may take."""
        return self.share * self.wanted - 2 * self.first_cost_s

    def wait(self) -> None:
        """Until the agreed moment."""
        left = (self.at_s or 0.0) + self.ahead_s - time.time()
        if 0 < left <= AHEAD:
            time.sleep(min(left, max(0.0, self.end - self.wanted - time.monotonic())))

    def looks(self) -> "Iterator[float]":
        """The seconds since the first look, at each look; `is_last` is set before the last."""
        self.wait()
        self.began_s = time.time()
        first = time.monotonic()
        self.spent = cpu_s()
        last = min(first + self.wanted, max(self.end, first))
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
        """The next multiple of the interval by which the cost so far is within its share; the last
        look, if nothing is left for more of them."""
        between, spent = self.between_s(), self.cost_s - self.first_cost_s
        another = spent / max(1, len(self.times) - 1)
        if between <= 0 or spent + another > between:
            return last
        earliest = max(time.monotonic(), first + self.wanted * spent / between)
        before = math.floor(self.times[-1] / self.interval + 1e-3)
        steps = max(before + 1, math.ceil((earliest - first) / self.interval))
        at = first + steps * self.interval
        # a look just before the last one would tell little
        return last if at > last - self.interval / 2 else at

    def look(self) -> "dict[str, object]":
        """The JSON form of nodevet.evidence.activity.Look."""
        return {
            "errors": {},
            "began_s": round(self.began_s, 3),
            "seconds": self.times[-1] if self.times else 0.0,
            "cost_s": round(self.cost_s, 4),
        }


def number(wish: "dict[str, Any]", key: str, default: "T", most: float) -> "float | T":
    """A number of a wish. Raises SectionError."""
    value = wish.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise SectionError("{} is not a number of seconds".format(key))
    if not 0 < value <= most or math.isnan(value):
        raise SectionError("{} is not between 0 and {:g} s".format(key, most))
    return float(value)


class Series(object):
    """Values of several fields, one for each look; a look at which one failed has null."""

    def __init__(self, fields: "Iterable[str]") -> None:
        self.values: "dict[str, list[object]]" = {field: [] for field in fields}
        self.why: "dict[str, Any]" = {}

    def take(
        self, found: "Mapping[str, object]", why: "Mapping[str, str | None] | None" = None
    ) -> None:
        """What one look found, {field: value}; `why`: {field: why not}."""
        for field, values in self.values.items():
            values.append(found.get(field))
        self.why.update(why or {})

    def into(self, record: "Reading") -> None:
        """Write them into a Reading: a field that no look found is null, and why."""
        for field, values in self.values.items():
            if any(value is not None for value in values):
                record[field] = values
            else:
                record.fail(field, self.why.get(field, "not found"))


def counted(
    record: "Reading",
    fields: "Iterable[str]",
    first: "Mapping[str, Any]",
    last: "Mapping[str, Any]",
) -> None:
    """Write counters into a Reading as [at the first look, at the last].

    `first`, `last`: {field: number}. What went back, or is not in both, is null, and why.
    """
    for field in fields:
        before, now = first.get(field), last.get(field)
        if before is None or now is None:
            record.fail(field, "not found")
        elif now < before:
            record.fail(field, "it went back from {} to {}".format(before, now))
        else:
            record[field] = [before, now]
