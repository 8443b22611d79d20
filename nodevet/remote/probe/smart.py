"""What drives say of their health, as nvme-cli and smartctl print it in JSON. Pure.

Of NVMe drives see the NVM Express Base Specification, SMART / Health Information log; both name its
fields in their own way, and nvme-cli tells kelvins.
"""

import json
import re

from nodevet.remote.probe.files import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

OF_SMARTCTL = "nvme_smart_health_information_log"
FIELDS = (  # field, as smartctl calls it, as nvme-cli does
    ("critical_warning", "critical_warning", "critical_warning"),
    ("percentage_used", "percentage_used", "percent_used"),
    ("spare_percent", "available_spare", "avail_spare"),
    ("spare_threshold_percent", "available_spare_threshold", "spare_thresh"),
    ("media_errors", "media_errors", "media_errors"),
    ("unsafe_shutdowns", "unsafe_shutdowns", "unsafe_shutdowns"),
    ("power_on_hours", "power_on_hours", "power_on_hours"),
    ("temperature_c", "temperature", "temperature"),
    ("warning_temperature_min", "warning_temp_time", "warning_temp_time"),
    ("critical_temperature_min", "critical_comp_time", "critical_comp_time"),
)
WORD = re.compile(r"[A-Za-z0-9/][A-Za-z0-9/,+_.:-]{0,63}\Z")  # never an option of a program
NUMBER = re.compile(r"(?:-?[0-9]{1,40}|0x[0-9a-fA-F]{1,32})\Z")
MOST = (1 << 63) - 1  # counters of 128 bits are told up to here
FREEZING = 273  # kelvins
COLDEST_KELVIN = 200  # nothing at work is that hot in degrees


def parse_log(text: str) -> "dict[str, int | None]":
    """{field: number, or why there is none} of what either program printed. Raises ValueError."""
    told = parsed_object(text)
    log: "dict[str, Any] | None" = told
    if OF_SMARTCTL in told or "smartctl" in told:
        log = told.get(OF_SMARTCTL)
    if not isinstance(log, dict) or not any(name in log for names in FIELDS[:3] for name in names):
        raise ValueError(complaint(told) or "no health log in what was printed")
    found = {}
    for names in FIELDS:
        value = number(log.get(names[1], log.get(names[2])))
        if names[0] == "temperature_c" and value is not None and value > COLDEST_KELVIN:
            value -= FREEZING
        found[names[0]] = value
    return found


ATTRIBUTES = (("reallocated", 5), ("pending", 197), ("uncorrectable", 198))  # of ATA, by number
SCSI_ERRORS = ("read", "write", "verify")
UNREAD = 0b11  # bits of smartctl's exit code: not understood, not opened
OPENED = 0b10  # the latter; also what `--nocheck=standby` ends with
NOT_TOLD = "the drive does not report it"
COUNTS = ("reallocated", "pending", "uncorrectable", "percentage_used", "temperature_c",
          "power_on_hours")  # fmt: skip


def parse_drive(text: str, code: int) -> "dict[str, Any]":
    """What smartctl printed of a SATA or SAS drive, {field: value, None: not told}; the other bits
    of its exit code (smartctl(8)) are facts of the drive. Raises ValueError."""
    told = parsed_object(text)
    if code & UNREAD or "device" not in told:
        asleep = ": it could not be opened, or is asleep and was not woken" if code & OPENED else ""
        raise ValueError(complaint(told) or "smartctl ended with {}{}".format(code, asleep))
    found = dict.fromkeys(COUNTS)
    found.update(
        exit_bits=code,
        passed=inner(told, "smart_status", "passed", bool),
        failing=None if inner(told, "device", "protocol", str) == "ATA" else "",
        model=first_text(told, "model_name", "scsi_model_name"),
        serial=first_text(told, "serial_number"),
        firmware=first_text(told, "firmware_version", "scsi_revision", "revision"),
        temperature_c=number(inner(told, "temperature", "current", int)),
        power_on_hours=number(inner(told, "power_on_time", "hours", int)),
        percentage_used=number(inner(told, "endurance_used", "current_percent", int)),
    )  # fmt: skip
    table = inner(told, "ata_smart_attributes", "table", list)
    if table is not None:
        take_attributes(found, [row for row in table if isinstance(row, dict)])
    else:
        take_scsi(found, told)
    return found


def take_attributes(found: "dict[str, Any]", rows: "list[dict[str, Any]]") -> None:
    """Those of an ATA drive: `when_failed` is now, past or nothing."""
    raw = {row.get("id"): number(inner(row, "raw", "value", int)) for row in rows}
    for field, attribute in ATTRIBUTES:
        found[field] = raw.get(attribute)
    names = [row.get("name") for row in rows if row.get("when_failed") == "now"]
    found["failing"] = ", ".join(str(name)[:64] for name in names[:32])


def take_scsi(found: "dict[str, Any]", told: "dict[str, Any]") -> None:
    """The same of a SAS drive."""
    found["reallocated"] = number(told.get("scsi_grown_defect_list"))
    used = number(told.get("scsi_percentage_used_endurance_indicator"))
    found["percentage_used"] = found["percentage_used"] if used is None else used
    log = inner(told, "scsi_error_counter_log", None, dict) or {}
    counts = [number(inner(log, each, "total_uncorrected_errors", int)) for each in SCSI_ERRORS]
    counts = [count for count in counts if count is not None]
    found["uncorrectable"] = sum(counts) if counts else None


def first_text(told: "dict[str, Any]", *keys: str) -> "str | None":
    return next((told[key] for key in keys if isinstance(told.get(key), str)), None)


def inner(told: "dict[str, Any]", key: str, below: "str | None", kind: "type[T]") -> "T | None":
    """A value of this type; None if there is none."""
    value = told.get(key)
    if below is not None:
        value = value.get(below) if isinstance(value, dict) else None
    return value if isinstance(value, kind) else None


def parse_scan(text: str) -> "list[tuple[str, str]]":
    """(name, type) of the drives that `smartctl --scan` knows. Raises ValueError.

    >>> parse_scan('{"devices": [{"name": "/dev/bus/0", "type": "megaraid,8"}]}')
    [('/dev/bus/0', 'megaraid,8')]
    """
    devices = inner(parsed_object(text), "devices", None, list) or []
    found = [(row.get("name"), row.get("type")) for row in devices if isinstance(row, dict)]
    rows: "list[tuple[Any, Any]]" = found
    return [row for row in rows if all(isinstance(word, str) and WORD.match(word) for word in row)]


def parsed_object(text: str) -> "dict[str, Any]":
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("not JSON: {}".format(quote(text.strip())))
    if not isinstance(told, dict):
        raise ValueError("not a JSON object")
    return told


def number(value: object) -> "int | None":
    """A count as a program may have written it: 5, 5.0, "5", "1,234", "3%", {"value": 5}; None if
    it is not one."""
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, str):
        text = value.strip().rstrip("%").replace(",", "")
        value = int(text, 16 if text.startswith("0x") else 10) if NUMBER.match(text) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float):
        if not abs(value) < 1e40 or value != int(value):
            return None
        value = int(value)
    return max(-1, min(value, MOST))


def complaint(told: "dict[str, Any]") -> str:
    """What smartctl says went wrong; empty if it does not say."""
    inside = told.get("smartctl")
    messages = inside if isinstance(inside, dict) else told
    listed = messages.get("messages")
    for message in listed if isinstance(listed, list) else ():
        if isinstance(message, dict) and message.get("severity") in (None, "error"):
            text = message.get("string")
            if isinstance(text, str):
                return text[:200]
    said = told.get("error")
    return said[:200] if isinstance(said, str) else ""
