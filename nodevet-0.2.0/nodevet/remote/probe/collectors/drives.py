"""SATA and SAS drives: /sys/block/sd*; and their health, if a baseline asks for it.

`smartctl` reads the health without changing anything or waking a drive in standby. It also knows
drives behind some RAID controllers, which the kernel does not list.
"""

import re

from nodevet.remote.probe.files import (
    Absent,
    Reading,
    attempt,
    line,
    names,
    no_note,
    quote,
    resolve,
)
from nodevet.remote.probe.smart import COUNTS, NOT_REPORTED, parse_drive, parse_scan
from nodevet.remote.program import ToolError, find_program, run

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BLOCK = "/sys/block"
DISK = re.compile(r"sd[a-z]{1,4}\Z")
HEALTH = "health"  # what a baseline asks for
NOT_ASKED = "the probe was not asked for it"
LARGEST = 256  # drives
SECONDS = 10  # for one drive: slow behind a RAID controller
OUTPUT = 1 << 20  # bytes
WORDS = ("--json", "--nocheck=standby", "--info", "--health", "--attributes", "--log=error")
TEXTS = ("model", "serial", "firmware")
VOLUME = re.compile(r"RAID controller|-d (?:megaraid|cciss|areca|3ware|aacraid|hpt|sssraid),?")
OF_THE_KERNEL = ("nvme", "scsi", "sat", "ata")  # types of drives in /sys/block


def ALONE(request: "dict[str, Any]") -> bool:  # noqa: N802
    """Asking drives is slow."""
    return is_asked(request)


def is_asked(request: "dict[str, Any]") -> bool:
    return HEALTH in request.get("asks", {}).get("drives", ())


def disks(root: str) -> "list[str]":
    """The fixed disks with a medium. Raises OSError, ValueError, Absent."""
    try:
        disk_names = [name for name in names(root, BLOCK) if DISK.match(name)]
    except FileNotFoundError:
        raise Absent("{} does not exist".format(BLOCK))
    fixed = [name for name in disk_names if is_fixed(root, "{}/{}".format(BLOCK, name))]
    return sorted(fixed, key=lambda name: (len(name), name))


def is_fixed(root: str, place: str) -> bool:
    """Whether it is no card reader, USB stick or virtual medium of the BMC."""
    removable, size = (attempt(line, root, place + file)[0] for file in ("/removable", "/size"))
    path = attempt(resolve, root, place)[0] or ""
    return removable != "1" and size != "0" and "/usb" not in path


def disk(root: str, name: str) -> "Reading":
    record = Reading(name=name, volume=False)
    folder = "{}/{}/device/".format(BLOCK, name)
    for field, file in (("vendor", "vendor"), ("model", "model"), ("state", "state")):
        record.take(field, line, root, folder + file)
    record.fail_all(("serial", "firmware"), NOT_ASKED)
    return record


def scan(smartctl: str) -> str:
    """The output of `smartctl --scan`. Raises ToolError."""
    code, text, stderr = run((smartctl, "--scan", "--json"), SECONDS, OUTPUT)
    if code and "UNRECOGNIZED OPTION" in text:
        raise ToolError("smartctl of this node is too old: --json needs smartmontools 7.0")
    if code:
        raise ToolError("smartctl ended with {}: {}".format(code, quote(stderr or text.strip())))
    return text


def members(smartctl: str) -> "list[tuple[Reading, tuple[str, ...]]]":
    """(record, smartctl's arguments) of drives behind RAID controllers. Raises ToolError,
    ValueError."""
    rows: "list[tuple[Reading, tuple[str, ...]]]" = []
    for device, kind in parse_scan(scan(smartctl)):
        if kind.split(",")[0] in OF_THE_KERNEL or DISK.match(device.rpartition("/")[2]):
            continue
        record = Reading(name="{} {}".format(device, kind), volume=False)
        record.fail_all(("vendor", "state") + TEXTS, "the kernel does not list it")
        rows.append((record, ("-d", kind, device)))
    return rows


def take_health(record: "Reading", smartctl: str, arguments: "tuple[str, ...]") -> None:
    """Set a drive's `health`. Raises ToolError."""
    code, text, _ = run((smartctl,) + WORDS + arguments, SECONDS, OUTPUT)
    try:
        values = parse_drive(text, code)
    except ValueError as error:
        record.fail("health", "smartctl: {}".format(error))
        record["volume"] = bool(VOLUME.search(str(error)))
        return
    for field in TEXTS:
        if values[field]:
            record["errors"].pop(field, None)
            record[field] = values[field][:256]
        elif record[field] is None:
            record.fail(field, NOT_REPORTED)
    log = Reading(exit_bits=values["exit_bits"])
    for field in ("passed", "failing") + COUNTS:
        log.put(field, values[field], NOT_REPORTED)
    record["health"] = log


def ask_drives(records: "list[Reading]", root: str) -> "list[Reading]":
    """Ask every drive, also those that only smartctl knows; returns all records."""
    why = "drives are asked on a running machine only" if root != "/" else ""
    rows: "list[tuple[Reading, tuple[str, ...]]]"
    rows = [(record, ("/dev/" + record["name"],)) for record in records]
    try:
        smartctl = "" if why else find_program("smartctl")
        rows += [] if why else members(smartctl)
    except (ToolError, ValueError) as error:
        why, smartctl = str(error), ""
    for record, arguments in rows:
        if not smartctl:
            record.fail("health", why)
            continue
        try:
            take_health(record, smartctl, arguments)
        except ToolError as error:
            record.fail("health", str(error))
    return [record for record, _ in rows]


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    records = [disk(root, name) for name in disks(root)]
    if is_asked(request):
        note("smartctl")
        records = ask_drives(records, root)
    else:
        for record in records:
            record.fail("health", NOT_ASKED)
    if len(records) > LARGEST:
        raise ValueError("more than {} drives".format(LARGEST))
    return Reading(drives=records, found=len(records))
