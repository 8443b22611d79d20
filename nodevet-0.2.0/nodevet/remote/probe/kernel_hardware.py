"""Kernel log lines about errors of CPU, memory and PCIe, from Linux 3.10 to 6.x.

Sources, below the kernel tree: arch/x86/kernel/cpu/mce/core.c (print_mce; the prefix is `mce: `,
`core: ` or none), drivers/edac/mce_amd.c, drivers/edac/edac_mc.c, mm/memory-failure.c,
drivers/pci/pcie/aer.c, err.c and dpc.c, drivers/acpi/apei/ghes.c and bert.c with
drivers/firmware/efi/cper.c. A line that begins like one of these but is not known becomes an event
without a severity.
"""

import re
from collections import namedtuple

from nodevet.remote.probe.patterns import NAME, NAME_BYTES, Pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, Match


class LineFacts(namedtuple("LineFacts", "kind code address severity detail")):
    """A line's kind of event, the number of an Xid, PCI address, severity (fatal, nonfatal,
    corrected), and detail: a process, a device, a part of a GPU."""

    __slots__ = ()

    def __new__(
        cls,
        kind: str,
        code: "int | None" = None,
        address: "str | None" = None,
        severity: "str | None" = None,
        detail: "str | None" = None,
    ) -> "LineFacts":
        return super().__new__(cls, kind, code, address, severity, detail)


ADDRESS = r"(?:PCI:)?(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?"
PLACE = Pattern(r"(?<![0-9a-zA-Z:])" + ADDRESS + r"(?![0-9a-zA-Z])")
MOST_OPEN = 16  # reports of one kind that are not yet complete
TEXT = 300  # characters of a line

# mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 8: 8c00004000010090
HARDWARE = Pattern(
    r"(?:(?:mce|core|amd|intel|inject|severity|mce_amd|BERT|GHES|RAS): )?"
    r"(?:\{([0-9]{1,10})\})?\[Hardware Error\]: ?(.*)\Z"
)
STATUS = Pattern(
    r"Machine Check(?: Exception| Event)?: [0-9a-fA-F]{1,16} Bank [0-9]{1,3}: ([0-9a-fA-F]{16})\b"
    r"|MC[0-9]{1,3}_STATUS\[[^\]]{0,100}\]: 0x([0-9a-fA-F]{16})\b"  # AMD's
)
UNCORRECTED, CORRUPT, DEFERRED = 1 << 61, 1 << 57, 1 << 44  # UC, PCC, AMD's, of MCi_STATUS
# CPU 0: Machine Check: 0 Bank 8; AMD's CPU:2 (19:1:1) MC17_STATUS
BANK = Pattern(r"CPU[ :]([0-9]{1,5})\b[^\[]{0,40}?(?:\bBank ([0-9]{1,3}):|\bMC([0-9]{1,3})_STATUS)")
LOGGED = "Machine check events logged"
WORDS = (
    ("fatal", Pattern(r"System Fatal error|Processor context corrupt|Fatal")),
    ("nonfatal", Pattern(r"(?:Error Status: )?(?:Uncorrect|Deferred )")),
    ("corrected", Pattern(r"(?:Error Status: )?Corrected error")),
)
# lines that follow one with a severity
MCE_DETAILS = Pattern(
    r"TSC |RIP|PROCESSOR |SYND|IPID|PPIN|Error Addr|Syndrome|cache level|MISC|ADDR|FRU"
    r"|Run the above through|MC[0-9]{1,3}(?: Error|_ADDR|_MISC)|[\w ,/-]{1,60} Ext\. Error Code"
    r"|(?:Combined Unit|Data Cache|Instruction Cache|Bus Unit|Load Store|Northbridge|Fixed Issue"
    r"|Execution Unit|Floating Point Unit)\b"
)
# EDAC MC0: 1 CE memory read error on CPU_SrcID#0 (...), EDAC MC0: CE page 0x1
OF_EDAC = r"EDAC (?:\w{1,20} )?(?:MC|DEVICE|PCI)[0-9]*:? "
EDAC = Pattern(
    OF_EDAC + r"(?:- )?(?:([0-9]{1,7}) )?([CU]E)(?: [\w ,./()#-]{0,80}?\bon [^\[]"
    r"| page 0x| ERROR_ADDRESS=|: [\w .-]{1,64} instance: )"
)
# the controller, and the label of the broken part
EDAC_PART = Pattern(
    r"EDAC (?:\w{1,20} )?(MC[0-9]{1,4})\b(?:.{0,100}?\bon ([\w#./:-]{1,64})(?= \(|\Z))?"
)
LOCATION = Pattern(r"DIMM location: (?!not present)(\S.{0,63})")
EDAC_OTHER = Pattern(
    OF_EDAC + r"[\w ,.()#=-]*(?:\b[CU]E\b|uncorrect|fatal|parity error|system error)",
    re.IGNORECASE,
)
MEMORY_WORDS = ("Memory failure:", "MCE", "mce: Uncorrected hardware")
KILLED_FOR_MEMORY = r"illing " + NAME + r"?:[0-9]{1,10} due to hardware memory corruption"
MEMORY_FAILURE = Pattern(
    r"Memory failure: 0x[0-9a-f]{1,16}: |mce: Uncorrected hardware |MCE: K"
    + KILLED_FOR_MEMORY
    # up to 3.19
    + r"|MCE 0x[0-9a-f]{1,16}: (?:K"
    + KILLED_FOR_MEMORY
    + r"|[\w ,()-]{1,60}: (?:Recovered|Failed|Ignored"
    r"|Delayed)\Z)"
)

# cper.c; up to 3.12 `severity: 2, corrected` and `section: 0, severity: 2, corrected`
RANK = {"fatal": "fatal", "recoverable": "nonfatal", "corrected": "corrected", "info": "info"}
GRADE = r"(?:[0-9], )?(fatal|recoverable|corrected|info)\b"
BLOCK = Pattern(r"(?:event )?severity: " + GRADE)
SECTION = Pattern(r"(?:Error [0-9]{1,4}, type|section: [0-9]{1,4}, severity): " + GRADE)
KIND = Pattern(r"section[_ ]type: (.{1,60})")
DEVICE_ID = Pattern(r"device_id: " + ADDRESS + r"\Z")
BEGINS = ("Hardware error from APEI", "event severity:", "APEI generic hardware error status")
BY_HARDWARE = "It has been corrected by h/w"

PCIE = Pattern(
    r"[\w.-]{1,40} ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])(?::pcie[0-9a-f]{2,4})?: "
    r"(AER: |DPC: |(?=DPC |(?:PCIe|CXL) Bus Err|aer_|broadcast \w+ message|device recovery))(.*)\Z"
)
REQUESTER = Pattern(r"(?:id=|source:0x)([0-9a-fA-F]{4})\b")
BUS_ERROR = Pattern(r"(?:PCIe|CXL) Bus Error: severity=(Unc|C)orrect\w+(?: \((Non-)?Fatal\))?")
RECEIVED = Pattern(
    r"(?:Multiple )?(Unc|C)orrect\w+(?: \((Non-)?Fatal\))? error (?:message )?received"
)
CONTAINED = Pattern(r"(?:DPC )?containment event, status:0x([0-9a-fA-F]{1,4})\b")
AER_STATUS = Pattern(r"aer_status: 0x([0-9a-fA-F]{1,8}), aer_mask: 0x([0-9a-fA-F]{1,8})")
UNCOR_SEVERITY = Pattern(r"aer_uncor_severity: 0x([0-9a-fA-F]{1,8})")
PCIE_DETAILS = Pattern(
    r" *(?:\[ *[0-9]{1,2}\]|device \[|TLP|Error of this Agent|broadcast|can't |found no error"
    r"|(?:DPC )?error containment capabilities|enabled with IRQ|(?:aer|rp_pio)_|RP PIO"
    r"|Non-Fatal errors signaled|[Dd]evice recovery successful"
    r"|(?:DPC )?(?:unmasked uncorrectable error|ERR_(?:NON)?FATAL|software trigger|reserved error)"
    r" detected)"
)


def format_address(match: "Match[str]") -> str:
    """A PCI address in sysfs's spelling, from a match that begins with ADDRESS's groups.

    >>> format_address(PLACE.search("PCI:0000:9B:00"))
    '0000:9b:00.0'
    """
    domain, bus, device, function = match.groups()[:4]
    return "{:04x}:{}:{}.{}".format(
        int(domain or "0", 16), bus.lower(), device.lower(), function or "0"
    )


def first_address(text: str) -> "str | None":
    """The first PCI address in a text, or None."""
    match = PLACE.search(text)
    return format_address(match) if match else None


def requester(port: str, number: int) -> str:
    """The function of a requester id in a port's domain; the port itself for 0.

    >>> requester("0000:00:01.0", 0x1900)
    '0000:19:00.0'
    """
    if not number:
        return port
    domain = port.split(":", maxsplit=1)[0]
    return "{}:{:02x}:{:02x}.{}".format(domain, number >> 8, number >> 3 & 31, number & 7)


def severity_in(match: "Match[str]") -> str:
    """The severity in a match of BUS_ERROR or RECEIVED."""
    if match.group(1) == "C":
        return "corrected"
    return "nonfatal" if match.group(2) else "fatal"


def severity_of_status(match: "Match[str]") -> "tuple[str, bool]":
    """(severity, whether AMD's words repeat it) of a match of STATUS."""
    status = int(match.group(1) or match.group(2), 16)
    if status & CORRUPT:
        return "fatal", False
    if status & UNCORRECTED or (match.group(2) and status & DEFERRED):
        return "nonfatal", False
    return "corrected", match.group(2) is not None


def bank(body: str) -> "str | None":
    """The CPU and bank of a machine check; None if it does not name them.

    >>> bank("CPU 0: Machine Check: 0 Bank 8: 8c00004000010090")
    'CPU 0 bank 8'
    """
    match = BANK.match(body)
    return match and "CPU {} bank {}".format(match.group(1), match.group(2) or match.group(3))


def edac_part(text: str) -> "str | None":
    """The memory controller and DIMM of an EDAC line; None if it names none.

    >>> edac_part("EDAC MC0: 1 CE memory read error on CPU_SrcID#0_DIMM#0 (channel:0 slot:0)")
    'MC0 CPU_SrcID#0_DIMM#0'
    """
    match = EDAC_PART.match(text)
    return match and " ".join(part for part in match.groups() if part)


def machine_check(body: str) -> "LineFacts | None":
    """The LineFacts of the text after `[Hardware Error]: `; None if it is nothing new.

    >>> machine_check("CPU 0: Machine Check: 0 Bank 8: 8c00004000010090").severity
    'corrected'
    """
    match = STATUS.search(body)
    if match:
        severity, is_repeated = severity_of_status(match)
        return None if is_repeated else LineFacts("mce", severity=severity, detail=bank(body))
    if body.startswith(LOGGED):
        return LineFacts("mce_logged")
    for severity, words in WORDS:
        if words.match(body) or words.match(body.partition(": ")[2]):
            return LineFacts("mce", severity=severity)
    return None if MCE_DETAILS.match(body) else LineFacts("mce")


class Report(object):
    """A report of the firmware (APEI), with its sections."""

    def __init__(self, seconds: "float | None") -> None:
        self.seconds = seconds
        self.severity: "str | None" = None
        self.sections: "list[dict[str, Any]]" = []

    def take(self, body: str) -> None:
        text = body.strip()
        section, block = SECTION.match(text), BLOCK.match(text)
        if section:
            self.sections.append({"severity": RANK[section.group(1)], "lines": [text]})
            return
        if block:
            self.severity = RANK[block.group(1)]
        elif text.startswith(BY_HARDWARE):
            self.severity = self.severity or "corrected"
        kind, device = KIND.match(text), DEVICE_ID.match(text)
        location = LOCATION.match(text)
        if location and self.sections:
            self.sections[-1]["location"] = location.group(1)
        if kind and (not self.sections or "kind" in self.sections[-1]):
            self.sections.append({"severity": None, "lines": []})
        if kind or device:
            last = self.sections[-1] if self.sections else {}
            if kind:
                last["kind"] = kind.group(1)
            elif device:
                last["bus_id"] = format_address(device)
            last.setdefault("lines", []).append(text)

    def events(self) -> "Iterator[tuple[LineFacts, str]]":
        """(LineFacts, text) of each section except those of severity info."""
        for section in self.sections or [{"severity": None, "lines": []}]:
            severity = section["severity"] or self.severity
            pcie = section.get("kind", "").startswith("PCIe")
            text = "[Hardware Error]: firmware reports, severity {}: {}".format(
                severity or "not said", ", ".join(section["lines"]) or "nothing more"
            )
            if severity != "info":
                kind = "aer" if pcie else "mce"
                facts = LineFacts(
                    kind, None, section.get("bus_id"), severity, section.get("location")
                )
                yield facts, text[:TEXT]


class Hardware(object):
    """Takes the messages of one log in order, and passes their facts to
    `keep(facts, seconds, text, times)`."""

    def __init__(self, keep: "Callable[..., None]") -> None:
        self.keep = keep
        # of the firmware, by number; "" for those of the boot before
        self.reports: "dict[str, Report]" = {}
        # address -> [seconds, text, status, whether the last line was seen]
        self.states: "dict[str, list[Any]]" = {}

    def take(self, seconds: "float | None", text: str) -> bool:
        """Take a message; False if it is not about hardware."""
        hardware = HARDWARE.match(text) if "[Hardware Error]" in text else None
        pcie = PCIE.match(text)
        if hardware:
            self.error(seconds, text, *hardware.groups())
        elif pcie:
            self.pcie(seconds, text, *pcie.groups())
        elif text.startswith("EDAC "):
            return self.edac(seconds, text)
        elif text.startswith(MEMORY_WORDS) and MEMORY_FAILURE.match(text):
            self.keep(LineFacts("mce", severity="nonfatal"), seconds, text)
        else:
            return False
        return True

    def edac(self, seconds: "float | None", text: str) -> bool:
        """Take a line of EDAC; False if it is not about an error."""
        match, other = EDAC.match(text), EDAC_OTHER.match(text)
        if match:
            severity = "corrected" if match.group(2) == "CE" else "nonfatal"
            times = max(1, int(match.group(1) or 1))
            facts = LineFacts("mce", severity=severity, detail=edac_part(text))
            self.keep(facts, seconds, text, times)
            return True
        if other is None or other.end() <= NAME_BYTES:
            return False
        self.keep(LineFacts("mce"), seconds, text)
        return True

    def error(self, seconds: "float | None", text: str, number: "str | None", body: str) -> None:
        """Take a line with `[Hardware Error]: `; `number`: of a firmware's report."""
        key = number or ""
        if body.startswith(BEGINS[0]) or (not number and body.startswith(BEGINS[1:])):
            self.report_ends(key)
        elif not number and not (key in self.reports and body.startswith(" ")):
            facts = machine_check(body)
            if facts:
                self.keep(facts, seconds, text)
            return
        if key not in self.reports:
            if len(self.reports) >= MOST_OPEN:
                self.report_ends(next(iter(self.reports)))
            self.reports[key] = Report(seconds)
        self.reports[key].take(body)

    def report_ends(self, key: str) -> None:
        report = self.reports.pop(key, None)
        if report is None:
            return
        for facts, text in report.events():
            self.keep(facts, report.seconds, text)

    def pcie(self, seconds: "float | None", text: str, port: str, _: str, body: str) -> None:
        """Take a line of the AER or DPC service, or about a function's errors."""
        port = port.lower()
        received, contained = RECEIVED.match(body), CONTAINED.match(body)
        bus_error, state = BUS_ERROR.match(body), AER_STATUS.match(body)
        severities = UNCOR_SEVERITY.match(body) if port in self.states else None
        if received or contained:
            addresses, number = list(PLACE.finditer(body)), REQUESTER.search(body)
            address = format_address(addresses[-1]) if addresses else port
            if number:
                address = requester(port, int(number.group(1), 16))
            severity = severity_in(received) if received else "fatal"
            if contained:
                trigger = int(contained.group(1), 16) >> 1 & 3  # PCI_EXP_DPC_STATUS_TRIGGER_RSN
                severity = "nonfatal" if trigger == 1 else "fatal"
                address = address if trigger in (1, 2) else port
            self.keep(LineFacts("aer", None, address, severity), seconds, text)
        elif bus_error:
            self.keep(LineFacts("aer", None, port, severity_in(bus_error)), seconds, text)
        elif state:
            self.state_ends(port)
            if len(self.states) >= MOST_OPEN:
                self.state_ends(next(iter(self.states)))
            self.states[port] = [seconds, text, int(state.group(1), 16), False]
        elif body.startswith("aer_layer=") and port in self.states:
            self.states[port][3] = True
        elif severities:
            fatal = int(severities.group(1), 16)
            self.state_ends(port, "fatal" if self.states[port][2] & fatal else "nonfatal")
        elif body.startswith("device recovery failed"):
            self.keep(LineFacts("aer", None, port, "nonfatal"), seconds, text)
        elif "rror" in body and not PCIE_DETAILS.match(body):
            self.keep(LineFacts("aer", None, port), seconds, text)

    def state_ends(self, port: str, severity: "str | None" = None) -> None:
        """Keep an aer_status; aer_layer without aer_uncor_severity means corrected."""
        state = self.states.pop(port, None)
        if state:
            severity = severity or ("corrected" if state[3] else None)
            self.keep(LineFacts("aer", None, port, severity), state[0], state[1])

    def end(self) -> None:
        """End the log."""
        for key in list(self.reports):
            self.report_ends(key)
        for port in list(self.states):
            self.state_ends(port)
