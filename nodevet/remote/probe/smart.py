"""The health log of an NVMe drive as nvme-cli and smartctl print it in JSON. Pure.

See the NVM Express Base Specification, SMART / Health Information log; both name its fields in
their own way, and nvme-cli tells kelvins.
"""

import json
import re

from nodevet.remote.probe.files import quote

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
NUMBER = re.compile(r"-?[0-9]{1,40}\Z")
MOST = (1 << 63) - 1  # counters of 128 bits are told up to here
FREEZING = 273  # kelvins
COLDEST_KELVIN = 200  # nothing at work is that hot in degrees


def parse_log(text):
    """{field: number, or why there is none} of what either program printed. Raises ValueError."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("not JSON: {}".format(quote(text.strip())))
    if not isinstance(told, dict):
        raise ValueError("not a JSON object")
    log, column = told, 2
    if OF_SMARTCTL in told or "smartctl" in told:
        log, column = told.get(OF_SMARTCTL), 1
    if not isinstance(log, dict) or not any(names[column] in log for names in FIELDS[:3]):
        raise ValueError(complaint(told) or "no health log in what was printed")
    found = {}
    for names in FIELDS:
        value = number(log.get(names[column]))
        if names[0] == "temperature_c" and value is not None and value > COLDEST_KELVIN:
            value -= FREEZING
        found[names[0]] = value
    return found


def number(value):
    """A count as a program may have written it: 5, 5.0, "5", "1,234", "3%", {"value": 5}; None if
    it is not one."""
    if isinstance(value, dict):
        value = value.get("value")
    if isinstance(value, str):
        text = value.strip().rstrip("%").replace(",", "")
        value = int(text) if NUMBER.match(text) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float):
        if not abs(value) < 1e40 or value != int(value):
            return None
        value = int(value)
    return max(-1, min(value, MOST))


def complaint(told):
    """What smartctl says went wrong; empty if it does not say."""
    messages = told.get("smartctl") if isinstance(told.get("smartctl"), dict) else told
    listed = messages.get("messages")
    for message in listed if isinstance(listed, list) else ():
        if isinstance(message, dict) and message.get("severity") in (None, "error"):
            if isinstance(message.get("string"), str):
                return message["string"][:200]
    said = told.get("error")
    return said[:200] if isinstance(said, str) else ""
