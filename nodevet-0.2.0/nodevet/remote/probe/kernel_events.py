"""Events in the lines of the kernel log, with repeats folded.

A pattern matches from the start of a message, and more of it than a process's name can hold: many
messages begin with such a name. Users choose even more of two kinds of message: netfilter's log in
a network namespace, and a continued line with a cgroup's name. What the kernel prints behind it
identifies them.
"""

from bisect import bisect_right

from nodevet.remote.probe.files import Reading
from nodevet.remote.probe.kernel_faults import kernel_line
from nodevet.remote.probe.kernel_hardware import TEXT, Hardware
from nodevet.remote.probe.kernel_links import LoggedLinks
from nodevet.remote.probe.kernel_nics import nic_line
from nodevet.remote.probe.kernel_xids import UNMATCHED, driver_line
from nodevet.remote.probe.patterns import Pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

    from nodevet.remote.probe.kernel_hardware import LineFacts

EVENTS = 1000  # different ones; a broken node has tens
LONGEST = 1024  # characters, the kernel's limit

TIMES = 64  # of an event, the latest
BURST_S = 10.0  # lines closer than this are one occurrence
DETAILS = 64  # different ones of a kind and code: processes choose their names
OTHERS = "others"  # the detail of all further ones
# net/netfilter/nf_log_syslog.c, kernel/cgroup/cpuset.c; more than a process's name has room for
BY_USERS = Pattern(
    r"IN=\S{0,15} OUT=\S{0,15} (?:\S{1,64} ){0,4}SRC=[0-9a-f.:]{3,39} DST=[0-9a-f.:]{3,39}(?: |\Z)"
    r"|,mems_allowed=[0-9,-]{1,512}(?:,global_oom|,oom_memcg=|\Z)"
)


def classify(text: str) -> "LineFacts | None":
    """The LineFacts of a message; None if it has none."""
    facts = driver_line(text)
    if facts is None or facts.kind == UNMATCHED:
        return kernel_line(text) or nic_line(text) or facts
    return facts


class LogReader(object):
    """Takes the messages of one log in order, and passes their facts to `keep`, except those about
    links of NICs."""

    def __init__(self, keep: "Callable[..., None]") -> None:
        self.keep = keep
        self.hardware = Hardware(keep)
        self.links = LoggedLinks()

    def add(self, seconds: "float | None", text: str, *readings: str) -> None:
        """Take a message of the kernel; `seconds` after boot or None.

        `readings`: other texts that its rows may mean. A kind that an earlier reading had with an
        address does not count again.
        """
        kinds = set()
        for reading in (text,) + readings:
            may_be_forged = " DST=" in reading or ",mems_allowed=" in reading
            if may_be_forged and BY_USERS.search(reading):
                continue
            line = reading[:LONGEST]
            if self.hardware.take(seconds, line) or self.links.take(seconds, line):
                continue
            facts = classify(line)
            if facts is not None and (facts.address is not None or facts.kind not in kinds):
                kinds.add(facts.kind)
                self.keep(facts, seconds, reading)

    def end(self) -> None:
        """End the log."""
        self.hardware.end()


class Times(object):
    """The beginning and end of the latest bursts of lines."""

    def __init__(self) -> None:
        self.starts: "list[float]" = []
        self.ends: "list[float]" = []

    def add(self, seconds: float) -> None:
        index = bisect_right(self.starts, seconds)
        if index and seconds <= self.ends[index - 1] + BURST_S:
            self.ends[index - 1] = max(seconds, self.ends[index - 1])
        elif index < len(self.starts) and seconds >= self.starts[index] - BURST_S:
            self.starts[index] = seconds
        else:
            self.starts.insert(index, seconds)
            self.ends.insert(index, seconds)
            if len(self.starts) > TIMES:
                del self.starts[0], self.ends[0]


class Event(object):
    """Lines with the same facts."""

    def __init__(self) -> None:
        self.count = 0
        self.first: "float | None" = None
        self.last: "float | None" = None
        self.text: "str | None" = None
        self.times = Times()

    def add(self, seconds: "float | None", text: str, times: int) -> None:
        self.count += times
        if self.text is None:
            self.text = text[:TEXT]
        if seconds is None:
            return
        self.times.add(seconds)
        if self.first is None or seconds < self.first:
            self.first, self.text = seconds, text[:TEXT]
        if self.last is None or seconds > self.last:
            self.last = seconds


class Events(object):
    """The events of a log, by kind, code, address, severity and detail."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.events: "dict[LineFacts, Event]" = {}
        # (kind, code): its details
        self.details: "dict[tuple[str, int | None], set[str]]" = {}
        self.dropped = 0
        self.unmatched = 0  # lines

    def reader(self) -> "LogReader":
        """A LogReader of one log that adds its events."""
        return LogReader(self.keep)

    def keep(self, facts: "LineFacts", seconds: "float | None", text: str, times: int = 1) -> None:
        if facts.kind == UNMATCHED:
            self.unmatched += times
            return
        if facts.detail is not None:
            details = self.details.setdefault((facts.kind, facts.code), set())
            if len(details) < DETAILS:
                details.add(facts.detail)
            elif facts.detail not in details:
                facts = facts._replace(detail=OTHERS)
        if facts not in self.events:
            if len(self.events) >= EVENTS:
                self.dropped += 1
                return
            self.events[facts] = Event()
        self.events[facts].add(seconds, text, times)

    def records(self) -> "list[Reading]":
        """The events, by their first time."""
        events = sorted(self.events.items(), key=lambda item: item[1].first or 0.0)
        return [record(facts, event) for facts, event in events]


def record(facts: "LineFacts", event: "Event") -> "Reading":
    row = Reading(kind=facts.kind, count=event.count, text=event.text)
    row["times_s"] = event.times.starts
    for field, value, why in (
        ("code", facts.code, "the line has no number"),
        ("bus_id", facts.address, "the line names no PCI address"),
        ("severity", facts.severity, "the line names no severity"),
        ("detail", facts.detail, "the line names no process, device or unit"),
        ("first_s", event.first, "the line has no time"),
        ("last_s", event.last, "the line has no time"),
    ):
        row.put(field, value, why)
    return row
