"""What a line of the kernel log says that nodevet can use, and its repeats folded.

Each pattern holds from the beginning of a message on, and needs more of it than a process's own
name can have: the kernel begins many messages with such a name. Two kinds of message begin with
more that users choose: what netfilter logs in a network namespace, and a continued line with the
name of a control group. They are known by what the kernel prints behind it.
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

EVENTS = 1000  # different ones; a healthy node has few, a broken one tens
LONGEST = 1024  # characters that are looked at; no message of the kernel is longer

TIMES = 64  # of an event, the latest
BURST_S = 10.0  # lines with less than this between them are of one occurrence
DETAILS = 64  # that differ, of one kind and code: processes name themselves
REST = "others"  # what is told of the further ones
# net/netfilter/nf_log_syslog.c, kernel/cgroup/cpuset.c; more than a process's name has room for
BY_USERS = Pattern(
    r"IN=\S{0,15} OUT=\S{0,15} (?:\S{1,64} ){0,4}SRC=[0-9a-f.:]{3,39} DST=[0-9a-f.:]{3,39}(?: |\Z)"
    r"|,mems_allowed=[0-9,-]{1,512}(?:,global_oom|,oom_memcg=|\Z)"
)


def classify(text: str) -> "LineFacts | None":
    """The LineFacts of a message, or None if it is of no use here."""
    said = driver_line(text)
    if said is None or said.kind == UNMATCHED:
        return kernel_line(text) or nic_line(text) or said
    return said


class LogReader(object):
    """Takes the messages of one log in their order, and gives what they say to `keep`, but for
    what they say of the links of NICs."""

    def __init__(self, keep: "Callable[..., None]") -> None:
        self.keep = keep
        self.hardware = Hardware(keep)
        self.links = LoggedLinks()

    def add(self, seconds: "float | None", text: str, *readings: str) -> None:
        """Take a message of the kernel, of so many seconds after boot or None.

        `readings`: what else its rows may mean, of which nothing is counted that a reading
        before has told with an address.
        """
        kinds = set()
        for reading in (text,) + readings:
            chosen = " DST=" in reading or ",mems_allowed=" in reading
            if chosen and BY_USERS.search(reading):
                continue
            line = reading[:LONGEST]
            if self.hardware.take(seconds, line) or self.links.take(seconds, line):
                continue
            said = classify(line)
            if said is not None and (said.address is not None or said.kind not in kinds):
                kinds.add(said.kind)
                self.keep(said, seconds, reading)

    def end(self) -> None:
        """There is no further message."""
        self.hardware.end()


class Times(object):
    """When something occurred: the beginning and end of each burst of lines, the latest ones."""

    def __init__(self) -> None:
        self.starts: "list[float]" = []
        self.ends: "list[float]" = []

    def add(self, seconds: float) -> None:
        at = bisect_right(self.starts, seconds)
        if at and seconds <= self.ends[at - 1] + BURST_S:
            self.ends[at - 1] = max(seconds, self.ends[at - 1])
        elif at < len(self.starts) and seconds >= self.starts[at] - BURST_S:
            self.starts[at] = seconds
        else:
            self.starts.insert(at, seconds)
            self.ends.insert(at, seconds)
            if len(self.starts) > TIMES:
                del self.starts[0], self.ends[0]


class Event(object):
    """Lines that say the same."""

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
    """The events of a log: those of one kind, code, address, severity and detail as one."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.found: "dict[LineFacts, Event]" = {}
        # (kind, code) -> the details that are told apart
        self.details: "dict[tuple[str, int | None], set[str]]" = {}
        self.dropped = 0
        self.unmatched = 0  # lines

    def reader(self) -> "LogReader":
        """A LogReader of one log, whose events are kept here."""
        return LogReader(self.keep)

    def keep(self, said: "LineFacts", seconds: "float | None", text: str, times: int = 1) -> None:
        if said.kind == UNMATCHED:
            self.unmatched += times
            return
        if said.detail is not None:
            known = self.details.setdefault((said.kind, said.code), set())
            if len(known) < DETAILS:
                known.add(said.detail)
            elif said.detail not in known:
                said = said._replace(detail=REST)
        if said not in self.found:
            if len(self.found) >= EVENTS:
                self.dropped += 1
                return
            self.found[said] = Event()
        self.found[said].add(seconds, text, times)

    def records(self) -> "list[Reading]":
        """The events, by the time of their first."""
        ordered = sorted(self.found.items(), key=lambda item: item[1].first or 0.0)
        return [record(said, event) for said, event in ordered]


def record(said: "LineFacts", event: "Event") -> "Reading":
    found = Reading(kind=said.kind, count=event.count, text=event.text)
    found["times_s"] = event.times.starts
    for field, value, why in (
        ("code", said.code, "the line has no number"),
        ("bus_id", said.address, "the line names no PCI address"),
        ("severity", said.severity, "the line names no severity"),
        ("detail", said.detail, "the line names no process, device or unit"),
        ("first_s", event.first, "the line has no time"),
        ("last_s", event.last, "the line has no time"),
    ):
        if value is None:
            found.fail(field, why)
        else:
            found[field] = value
    return found
