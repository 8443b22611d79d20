"""What a line of the kernel log says that nodevet can use, and its repeats folded.

Each pattern holds at the beginning of a message: what follows may be a process's own
name, and says nothing about the hardware.
"""

import re

from nodevet.probe.files import Record

EVENTS = 1000  # different ones; a healthy node has few, a broken one tens
TEXT = 300  # characters of a line
LONGEST = 1024  # characters that are looked at; no message of the kernel is longer

ADDRESS = r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?"
PLACE = re.compile(r"(?<![0-9a-zA-Z:])" + ADDRESS + r"(?![0-9a-zA-Z])")
# NVRM: Xid (PCI:0000:19:00): 79, ... and, by age and MIG, (0000:19:00), (PCI:0000:19:00.0),
# PCI:0000:19:00, (PCI:0000:19:00 GPU-I:05 GPU-CI:00)
XID = re.compile(r"NVRM: Xid \(?" + ADDRESS + r"(?: [^)]{0,60})?\)?: ([0-9]{1,6})(?![0-9A-Za-z])")
SXID = re.compile(
    r"nvidia-nvswitch[0-9]+: SXid \(?" + ADDRESS + r"\)?: ([0-9]{1,6})(?![0-9A-Za-z])"
    r"(?:, (Fatal|Non-fatal|Severity [0-9]+)\b)?"
)
AER = re.compile(
    r"[\w-]+ [0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]: (?:AER|PCIe Bus Er)"
)
OTHERS = (
    ("mce", re.compile(r"(?:mce: )?(?:\{[0-9]+\})?\[Hardware Error\]: |EDAC \S+: [0-9]+ [CU]E ")),
    ("oom", re.compile(r"(?:Memory cgroup o|O)ut of memory: ")),
    ("hung_task", re.compile(r"INFO: task .* blocked for more than ")),
)
# mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 8: 8c00004000010090
STATUS = re.compile(
    r"Machine Check(?: Exception)?: [0-9a-fA-F]{1,16} Bank [0-9]{1,3}: ([0-9a-fA-F]{16})\b"
)
UNCORRECTED, CORRUPT = 1 << 61, 1 << 57  # UC and PCC of IA32_MCi_STATUS
MCE_WORDS = (  # EDAC's, APEI's and AMD's own
    ("fatal", re.compile(r"severity: fatal|: System Fatal error")),
    ("nonfatal", re.compile(r"EDAC \S+: [0-9]+ UE |severity: recoverable|: (?:Unc|Def)[a-z]+[, ]")),
    ("corrected", re.compile(r"EDAC \S+: [0-9]+ CE |severity: corrected|: Corrected error")),
)
SEVERITIES = {  # of an NVSwitch's error, in the driver's words
    "Fatal": "fatal",
    "Severity 1": "fatal",
    "Non-fatal": "nonfatal",
    "Severity 0": "nonfatal",
}


def spelled(match):
    """A PCI address as sysfs spells it, from a match that begins with ADDRESS's groups.

    >>> spelled(PLACE.search("PCI:0000:9B:00"))
    '0000:9b:00.0'
    """
    domain, bus, device, function = match.groups()[:4]
    return "{:04x}:{}:{}.{}".format(
        int(domain or "0", 16), bus.lower(), device.lower(), function or "0"
    )


def place(text):
    """The first PCI address in a text, or None."""
    match = PLACE.search(text)
    return spelled(match) if match else None


def aer_severity(text):
    """corrected, nonfatal or fatal, from any kernel's words for it; None where it has none.

    >>> aer_severity("AER: Multiple Uncorrected (Non-Fatal) error received: 0000:19:00.0")
    'nonfatal'
    """
    low = text.lower()
    for word, severity in (
        ("non-fatal", "nonfatal"),
        ("fatal", "fatal"),
        ("severity=correct", "corrected"),
        ("aer: correct", "corrected"),
        ("multiple correct", "corrected"),
    ):
        if word in low:
            return severity
    return None


def mce_severity(text):
    """corrected, nonfatal or fatal, by the status of a machine check or by words for it.

    >>> mce_severity("mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 8: 8c00004000010090")
    'corrected'
    """
    match = STATUS.search(text)
    if match:
        status = int(match.group(1), 16)
        if status & CORRUPT:
            return "fatal"
        return "nonfatal" if status & UNCORRECTED else "corrected"
    return next((severity for severity, words in MCE_WORDS if words.search(text)), None)


def classify(text):
    """(kind, code, address, severity) of a message, or None where it is of no use here."""
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
    if AER.match(text):
        if "rror" not in text:  # AER: enabled with IRQ 122
            return None
        matches = list(PLACE.finditer(text))
        return "aer", None, spelled(matches[-1]), aer_severity(text)
    for kind, pattern in OTHERS:
        if pattern.match(text):
            return kind, None, None, mce_severity(text) if kind == "mce" else None
    return None


class Events(object):
    """The events of a log: those of one kind, code, address and severity as one."""

    def __init__(self):
        self.found = {}
        self.dropped = 0

    def add(self, seconds, text, *readings):
        """Take a message of the kernel, of so many seconds after boot or None.

        `readings`: what else its rows may mean, of which nothing is counted that a reading
        before has told with an address.
        """
        kinds = set()
        for reading in (text,) + readings:
            said = classify(reading[:LONGEST])
            if said is not None and (said[2] is not None or said[0] not in kinds):
                kinds.add(said[0])
                self.keep(said, seconds, reading)

    def keep(self, said, seconds, text):
        event = self.found.get(said)
        if event is None:
            if len(self.found) >= EVENTS:
                self.dropped += 1
                return
            self.found[said] = {"count": 1, "first": seconds, "last": seconds, "text": text[:TEXT]}
            return
        event["count"] += 1
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
    found = Record(kind=kind, count=event["count"], text=event["text"])
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
