"""SATA and SAS drives: /sys/block/sd*; and, if a baseline asks for it, what they say of themselves.

`smartctl` reads it, which changes nothing; a drive in standby is not woken. It also knows the
drives behind some RAID controllers, which the kernel does not list.
"""

import re

from nodevet.remote.probe.files import Absent, Reading, attempt, line, names, quote, resolve, silent
from nodevet.remote.probe.smart import COUNTS, NOT_TOLD, parse_drive, parse_scan
from nodevet.remote.program import ToolError, find, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BLOCK = "/sys/block"
DISK = re.compile(r"sd[a-z]{1,4}\Z")
HEALTH = "health"  # what a baseline asks for
NOT_ASKED = "the probe was not asked for it"
LARGEST = 256  # drives
SECONDS = 10  # for one drive: behind a RAID controller it takes its time
OUTPUT = 1 << 20  # bytes
WORDS = ("--json", "--nocheck=standby", "--info", "--health", "--attributes", "--log=error")
TEXTS = ("model", "serial", "firmware")
VOLUME = re.compile(r"RAID controller|-d (?:megaraid|cciss|areca|3ware|aacraid|hpt|sssraid),?")
OF_THE_KERNEL = ("nvme", "scsi", "sat", "ata")  # whose drives are in /sys/block, by their own names


def ALONE(request: "dict[str, Any]") -> bool:  # noqa: N802
    """Whether drives are asked, each of which takes its time."""
    return is_asked(request)


def is_asked(request: "dict[str, Any]") -> bool:
    return HEALTH in request.get("asks", {}).get("drives", ())


def disks(root: str) -> "list[str]":
    """The disks that are fixed and have a medium. Raises OSError, ValueError, Absent."""
    try:
        found = [name for name in names(root, BLOCK) if DISK.match(name)]
    except FileNotFoundError:
        raise Absent("{} does not exist".format(BLOCK))
    fixed = [name for name in found if is_fixed(root, "{}/{}".format(BLOCK, name))]
    return sorted(fixed, key=lambda name: (len(name), name))


def is_fixed(root: str, place: str) -> bool:
    """Whether it is not a card reader, a stick or a virtual medium of the BMC."""
    removable, size = (attempt(line, root, place + file)[0] for file in ("/removable", "/size"))
    path = attempt(resolve, root, place)[0] or ""
    return removable != "1" and size != "0" and "/usb" not in path


def disk(root: str, name: str) -> "Reading":
    record = Reading(name=name, volume=False)
    place = "{}/{}/device/".format(BLOCK, name)
    for field, file in (("vendor", "vendor"), ("model", "model"), ("state", "state")):
        record.take(field, line, root, place + file)
    record.fail_all(("serial", "firmware"), NOT_ASKED)
    return record


def scanned(smartctl: str) -> str:
    """What `smartctl --scan` prints. Raises ToolError."""
    code, text, complaint = run((smartctl, "--scan", "--json"), SECONDS, OUTPUT)
    if code and "UNRECOGNIZED OPTION" in text:
        raise ToolError("smartctl of this node is too old: --json needs smartmontools 7.0")
    if code:
        raise ToolError("smartctl ended with {}: {}".format(code, quote(complaint or text.strip())))
    return text


def members(smartctl: str) -> "list[tuple[Reading, tuple[str, ...]]]":
    """Records of drives behind RAID controllers, with their words for smartctl. Raises ToolError,
    ValueError."""
    found: "list[tuple[Reading, tuple[str, ...]]]" = []
    for device, kind in parse_scan(scanned(smartctl)):
        if kind.split(",")[0] in OF_THE_KERNEL or DISK.match(device.rpartition("/")[2]):
            continue
        record = Reading(name="{} {}".format(device, kind), volume=False)
        record.fail_all(("vendor", "state") + TEXTS, "the kernel does not list it")
        found.append((record, ("-d", kind, device)))
    return found


def take_health(record: "Reading", smartctl: str, words: "tuple[str, ...]") -> None:
    """What the drive says of itself."""
    code, text, _ = run((smartctl,) + WORDS + words, SECONDS, OUTPUT)
    try:
        told = parse_drive(text, code)
    except ValueError as error:
        record.fail("health", "smartctl: {}".format(error))
        record["volume"] = bool(VOLUME.search(str(error)))
        return
    for field in TEXTS:
        if told[field]:
            record["errors"].pop(field, None)
            record[field] = told[field][:256]
        elif record[field] is None:
            record.fail(field, NOT_TOLD)
    log = Reading(exit_bits=told["exit_bits"])
    for field in ("passed", "failing") + COUNTS:
        if told[field] is None:
            log.fail(field, NOT_TOLD)
        else:
            log[field] = told[field]
    record["health"] = log


def ask(records: "list[Reading]", root: str) -> "list[Reading]":
    """Have every drive asked, also those that only smartctl knows; all of them, in order."""
    why = "drives are asked on a running machine only" if root != "/" else ""
    rows: "list[tuple[Reading, tuple[str, ...]]]"
    rows = [(record, ("/dev/" + record["name"],)) for record in records]
    try:
        smartctl = "" if why else find("smartctl")
        rows += [] if why else members(smartctl)
    except (ToolError, ValueError) as error:
        why, smartctl = str(error), ""
    for record, words in rows:
        if not smartctl:
            record.fail("health", why)
            continue
        try:
            take_health(record, smartctl, words)
        except ToolError as error:
            record.fail("health", str(error))
    return [record for record, _ in rows]


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    records = [disk(root, name) for name in disks(root)]
    if is_asked(request):
        note("smartctl")
        records = ask(records, root)
    else:
        for record in records:
            record.fail("health", NOT_ASKED)
    if len(records) > LARGEST:
        raise ValueError("more than {} drives".format(LARGEST))
    return Reading(drives=records, found=len(records))
