"""Lines of the NVIDIA driver: Xids, SXids, GPUs off the bus, GPU resets.

Sources: src/nvidia/arch/nvalloc/unix/src/osinit.c, kernel-open/nvidia/nv.c and
kernel-open/nvidia/linux_nvswitch.c of the open kernel modules; the form of Xids 144 to 150 is
that of NVIDIA's Xid catalogue, of 154 that of the driver from 555 on. src/nvidia/src/kernel/gpu/rc/
kernel_rc.c writes a process's name into an Xid, and the kernel begins other lines with one. So a
line must have the whole form of a driver's line.
"""

from nodevet.remote.probe.kernel_hardware import ADDRESS, LineFacts, first_address, format_address
from nodevet.remote.probe.patterns import Pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Match

# NVRM: Xid (PCI:0000:19:00): 79, ... and, by age and MIG, (0000:19:00), (PCI:0000:19:00.0),
# PCI:0000:19:00, (PCI:0000:19:00 GPU-I:05 GPU-CI:00)
XID = Pattern(
    r"NVRM: Xid (?=\(|PCI:)\(?" + ADDRESS + r"(?: [^)]{0,60})?\)?: ([0-9]{1,6})(?=,|\s|\Z)"
)
SXID = Pattern(
    r"nvidia-nvswitch[0-9]{1,5}: SXid \(?" + ADDRESS + r"\)?: ([0-9]{1,6})(?=,|\s|\Z)"
    r"(?:, (Fatal|Non-fatal|Severity [0-9]+)\b)?"
)
PROBED = Pattern(r"nvidia-nvswitch[0-9]{1,5}: Probing device " + ADDRESS)
RESET_DONE = Pattern(
    r"[\w-]{0,16}vfio[\w-]{0,16} " + ADDRESS + r": reset done\Z"
)  # vfio_pci_core.c
# NVRM: GPU 0000:18:00.0: GPU has fallen off the bus. NVRM: GPU at PCI:0000:18:00 has ...
# NVRM: The NVIDIA GPU 0000:18:00.0\x0aNVRM: (PCI ID: ...) installed in this system has\x0aNVRM: ...
OFF_BUS = Pattern(
    r"NVRM: (?:(?:The NVIDIA )?GPU (?=at PCI:|[0-9a-fA-F:]{5,14}\.)(?:at )?" + ADDRESS + r"\b"
    r"[^\[\]\"'=]{0,160}?)?fallen off the bus\b"
)
SEVERITIES = {  # of an NVSwitch's error, in the driver's words
    "Fatal": "fatal",
    "Severity 1": "fatal",
    "Non-fatal": "nonfatal",
    "Severity 0": "nonfatal",
}
UNMATCHED = "unmatched"
"""A line that begins like an Xid or SXid but has another form, mostly a process's name."""
# a process's name is no longer than NAME, too short for the rest of a message
PROCESS = r"(?:, pid=(?:[0-9]{1,10}|'?<unknown>'?), name=.{0,100}?)?"
LINK_XIDS = range(144, 151)
# RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000040 ...): unit, severity, link, IntrInfo,
# ErrorStatus
LINK_UNIT = Pattern(
    PROCESS + r", ([A-Z][\w/]{1,40}(?: Degraded)?) +(Fatal|Nonfatal) +XC[0-9] +i[0-9] +"
    r"(?:Link +([0-9]{1,3}))?(?: *\((0x[0-9a-fA-F]{8}) +(0x[0-9a-fA-F]{8})\b)?"
)
RECOVERY = 154
ACTION = Pattern(
    PROCESS + r", GPU recovery action changed from 0x[0-9a-fA-F]{1,8} \([^)]{0,40}\)"
    r" to 0x([0-9a-fA-F]{1,4}) \(([\w -]{1,40})\)"
)


def driver_line(text: str) -> "LineFacts | None":
    """The LineFacts of a line of the NVIDIA driver, or None."""
    if text.startswith("NVRM: Xid"):
        match = XID.match(text)
        return xid(match, text) if match else LineFacts(UNMATCHED)
    if text.startswith("NVRM: "):
        if "fallen off the bus" in text and OFF_BUS.match(text):
            return LineFacts("off_bus", None, first_address(text))
        return LineFacts("driver_load") if text.startswith("NVRM: loading NVIDIA UNIX") else None
    if text.startswith("nvidia-nvswitch"):
        return switch_line(text)
    match = RESET_DONE.match(text) if ": reset done" in text else None
    return LineFacts("gpu_reset", None, format_address(match)) if match else None


def xid(match: "Match[str]", text: str) -> "LineFacts":
    code = int(match.group(5))
    severity = detail = None
    details = text[match.end() :]
    unit = LINK_UNIT.match(details) if code in LINK_XIDS else None
    action = ACTION.match(details) if code == RECOVERY else None
    if unit:
        severity = "fatal" if unit.group(2) == "Fatal" else "nonfatal"
        name, _, link, information, status = unit.groups()
        words = [name, "link {}".format(int(link)) if link else "", information, status]
        detail = " ".join(filter(None, words))
    elif action:
        detail = "0x{:x} {}".format(int(action.group(1), 16), action.group(2))
    return LineFacts("xid", code, format_address(match), severity, detail)


def switch_line(text: str) -> "LineFacts | None":
    probed = PROBED.match(text)
    if probed:
        return LineFacts("nvswitch_probe", None, format_address(probed))
    if ": SXid" not in text:
        return None
    match = SXID.match(text)
    if match is None:
        return LineFacts(UNMATCHED)
    if text.startswith(", Data {", match.end(5)):  # belongs to the line before
        return None
    severity = SEVERITIES.get(match.group(6))
    return LineFacts("sxid", int(match.group(5)), format_address(match), severity)
