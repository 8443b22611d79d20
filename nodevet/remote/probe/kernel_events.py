"""What a line of the kernel log says that nodevet can use, and its repeats folded.

Each pattern holds at the beginning of a message: what follows may be a process's own
name, and says nothing about the hardware.
"""

import re

from nodevet.remote.probe.files import Reading
from nodevet.remote.probe.kernel_hardware import ADDRESS, TEXT, Hardware, place, spelled

EVENTS = 1000  # different ones; a healthy node has few, a broken one tens
LONGEST = 1024  # characters that are looked at; no message of the kernel is longer

# NVRM: Xid (PCI:0000:19:00): 79, ... and, by age and MIG, (0000:19:00), (PCI:0000:19:00.0),
# PCI:0000:19:00, (PCI:0000:19:00 GPU-I:05 GPU-CI:00)
XID = re.compile(r"NVRM: Xid \(?" + ADDRESS + r"(?: [^)]{0,60})?\)?: ([0-9]{1,6})(?![0-9A-Za-z])")
SXID = re.compile(
    r"nvidia-nvswitch[0-9]+: SXid \(?" + ADDRESS + r"\)?: ([0-9]{1,6})(?![0-9A-Za-z])"
    r"(?:, (Fatal|Non-fatal|Severity [0-9]+)\b)?"
)
OTHERS = (
    ("oom", re.compile(r"(?:Memory cgroup o|O)ut of memory: ")),
    ("hung_task", re.compile(r"INFO: task .* blocked for more than ")),
)
SEVERITIES = {  # of an NVSwitch's error, in the driver's words
    "Fatal": "fatal",
    "Severity 1": "fatal",
    "Non-fatal": "nonfatal",
    "Severity 0": "nonfatal",
}


def classify(text):
    """(kind, code, address, severity) of a message, or None if it is of no use here."""
    if text.startswith("NVRM: Xid"):
        match = XID.match(text)
        if match:
            return "xid", int(match.group(5)), spelled(match), None
        return "xid", None, place(text), None
    if text.startswith("NVRM: ") and "fallen off the bus" in text:
        return "off_bus", None, place(text), None
    if text.startswith("nvidia-nvswitch") and ": SXid" in text:
        match = SXID.match(text)
        if match is None:
            return "sxid", None, place(text), None
        if text.startswith(", Data {", match.end(5)):  # belongs to the line before
            return None
        return "sxid", int(match.group(5)), spelled(match), SEVERITIES.get(match.group(6))
    for kind, pattern in OTHERS:
        if pattern.match(text):
            return kind, None, None, None
    return None


class LogReader(object):
    """Takes the messages of one log in their order, and gives what they say to `keep`."""

    def __init__(self, keep):
        self.keep = keep
        self.hardware = Hardware(keep)

    def add(self, seconds, text, *readings):
        """Take a message of the kernel, of so many seconds after boot or None.

        `readings`: what else its rows may mean, of which nothing is counted that a reading
        before has told with an address.
        """
        kinds = set()
        for reading in (text,) + readings:
            if self.hardware.take(seconds, reading[:LONGEST]):
                continue
            said = classify(reading[:LONGEST])
            if said is not None and (said[2] is not None or said[0] not in kinds):
                kinds.add(said[0])
                self.keep(said, seconds, reading)

    def end(self):
        """There is no further message."""
        self.hardware.end()


class Events(object):
    """The events of a log: those of one kind, code, address and severity as one."""

    def __init__(self):
        self.found = {}
        self.dropped = 0

    def reader(self):
        """A LogReader of one log, whose events are kept here."""
        return LogReader(self.keep)

    def keep(self, said, seconds, text, times=1):
        event = self.found.get(said)
        if event is None:
            if len(self.found) >= EVENTS:
                self.dropped += 1
                return
            self.found[said] = {
                "count": times,
                "first": seconds,
                "last": seconds,
                "text": text[:TEXT],
            }
            return
        event["count"] += times
        if seconds is not None:
            if event["first"] is None or seconds < event["first"]:
                event["first"], event["text"] = seconds, text[:TEXT]
            if event["last"] is None or seconds > event["last"]:
                event["last"] = seconds

    def records(self):
        """The events, by the time of their first."""
        ordered = sorted(self.found.items(), key=lambda item: item[1]["first"] or 0.0)
        return [record(said, event) for said, event in ordered]


def record(said, event):
    kind, code, address, severity = said
    found = Reading(kind=kind, count=event["count"], text=event["text"])
    for field, value, why in (
        ("code", code, "the line has no number"),
        ("bus_id", address, "the line names no PCI address"),
        ("severity", severity, "the line names no severity"),
        ("first_s", event["first"], "the line has no time"),
        ("last_s", event["last"], "the line has no time"),
    ):
        if value is None:
            found.fail(field, why)
        else:
            found[field] = value
    return found
