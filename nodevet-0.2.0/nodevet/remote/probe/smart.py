"""Health of drives, from the JSON of nvme-cli and smartctl. Pure.

NVMe: NVM Express Base Specification, SMART / Health Information log. The programs name its fields
differently, and nvme-cli prints kelvins.
"""

import json
import re

from nodevet.remote.probe.files import quote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    T = TypeVar("T")

SMARTCTL_LOG = "nvme_smart_health_information_log"
FIELDS = (  # field, smartctl's name, nvme-cli's name
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
MOST = (1 << 63) - 1  # counters have 128 bits
FREEZING = 273  # kelvins
COLDEST_KELVIN = 200  # no drive is that hot in degrees


def parse_log(text: str) -> "dict[str, int | None]":
    """{field: number or None} of either program's output. Raises ValueError."""
    document = parsed_object(text)
    log: "dict[str, Any] | None" = document
    if SMARTCTL_LOG in document or "smartctl" in document:
        log = document.get(SMARTCTL_LOG)
    if not isinstance(log, dict) or not any(name in log for names in FIELDS[:3] for name in names):
        raise ValueError(error_message(document) or "the output has no health log")
    values = {}
    for names in FIELDS:
        value = number(log.get(names[1], log.get(names[2])))
        if names[0] == "temperature_c" and value is not None and value > COLDEST_KELVIN:
            value -= FREEZING
        values[names[0]] = value
    return values


ATTRIBUTES = (("reallocated", 5), ("pending", 197), ("uncorrectable", 198))  # of ATA, by number
SCSI_ERRORS = ("read", "write", "verify")
UNREAD = 0b11  # bits of smartctl's exit code: not understood, not opened
OPENED = 0b10  # the latter; also what `--nocheck=standby` ends with
NOT_REPORTED = "the drive does not report it"
COUNTS = ("reallocated", "pending", "uncorrectable", "percentage_used", "temperature_c",
          "power_on_hours")  # fmt: skip


def parse_drive(text: str, code: int) -> "dict[str, Any]":
    """{field: value or None} of smartctl's output for a SATA or SAS drive; the other bits of its
    exit code (smartctl(8)) are about the drive. Raises ValueError."""
    document = parsed_object(text)
    if code & UNREAD or "device" not in document:
        asleep = ": it could not be opened, or is asleep and was not woken" if code & OPENED else ""
        raise ValueError(error_message(document) or "smartctl ended with {}{}".format(code, asleep))
    values = dict.fromkeys(COUNTS)
    values.update(
        exit_bits=code,
        passed=value_below(document, "smart_status", "passed", bool),
        failing=None if value_below(document, "device", "protocol", str) == "ATA" else "",
        model=first_text(document, "model_name", "scsi_model_name"),
        serial=first_text(document, "serial_number"),
        firmware=first_text(document, "firmware_version", "scsi_revision", "revision"),
        temperature_c=number(value_below(document, "temperature", "current", int)),
        power_on_hours=number(value_below(document, "power_on_time", "hours", int)),
        percentage_used=number(value_below(document, "endurance_used", "current_percent", int)),
    )  # fmt: skip
    table = value_below(document, "ata_smart_attributes", "table", list)
    if table is not None:
        take_attributes(values, [row for row in table if isinstance(row, dict)])
    else:
        take_scsi(values, document)
    return values


def take_attributes(values: "dict[str, Any]", rows: "list[dict[str, Any]]") -> None:
    """Set the fields of an ATA drive; `when_failed` is now, past or empty."""
    raw = {row.get("id"): number(value_below(row, "raw", "value", int)) for row in rows}
    for field, attribute in ATTRIBUTES:
        values[field] = raw.get(attribute)
    names = [row.get("name") for row in rows if row.get("when_failed") == "now"]
    values["failing"] = ", ".join(str(name)[:64] for name in names[:32])


def take_scsi(values: "dict[str, Any]", document: "dict[str, Any]") -> None:
    """Set the fields of a SAS drive."""
    values["reallocated"] = number(document.get("scsi_grown_defect_list"))
    used = number(document.get("scsi_percentage_used_endurance_indicator"))
    values["percentage_used"] = values["percentage_used"] if used is None else used
    log = value_below(document, "scsi_error_counter_log", None, dict) or {}
    counts = [
        number(value_below(log, kind, "total_uncorrected_errors", int)) for kind in SCSI_ERRORS
    ]
    counts = [count for count in counts if count is not None]
    values["uncorrectable"] = sum(counts) if counts else None


def first_text(document: "dict[str, Any]", *keys: str) -> "str | None":
    return next((document[key] for key in keys if isinstance(document.get(key), str)), None)


def value_below(
    document: "dict[str, Any]", key: str, inner_key: "str | None", kind: "type[T]"
) -> "T | None":
    """A value of this type; None if there is none."""
    value = document.get(key)
    if inner_key is not None:
        value = value.get(inner_key) if isinstance(value, dict) else None
    return value if isinstance(value, kind) else None


def parse_scan(text: str) -> "list[tuple[str, str]]":
    """(name, type) of the drives of `smartctl --scan`. Raises ValueError.

    >>> parse_scan('{"devices": [{"name": "/dev/bus/0", "type": "megaraid,8"}]}')
    [('/dev/bus/0', 'megaraid,8')]
    """
    devices = value_below(parsed_object(text), "devices", None, list) or []
    pairs = [(row.get("name"), row.get("type")) for row in devices if isinstance(row, dict)]
    rows: "list[tuple[Any, Any]]" = pairs
    return [row for row in rows if all(isinstance(word, str) and WORD.match(word) for word in row)]


def parsed_object(text: str) -> "dict[str, Any]":
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("not JSON: {}".format(quote(text.strip())))
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


def number(value: object) -> "int | None":
    """A count: 5, 5.0, "5", "1,234", "3%", {"value": 5}; None for anything else."""
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


def error_message(document: "dict[str, Any]") -> str:
    """smartctl's error message; "" if there is none."""
    section = document.get("smartctl")
    messages = section if isinstance(section, dict) else document
    items = messages.get("messages")
    for message in items if isinstance(items, list) else ():
        if isinstance(message, dict) and message.get("severity") in (None, "error"):
            text = message.get("string")
            if isinstance(text, str):
                return text[:200]
    error = document.get("error")
    return error[:200] if isinstance(error, str) else ""
