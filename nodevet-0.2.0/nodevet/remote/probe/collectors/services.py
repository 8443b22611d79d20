"""The systemd units that a baseline asks for: `systemctl show`."""

import os

from nodevet.remote.probe.files import Absent, Reading, quote
from nodevet.remote.probe.package_manager import BUSY, is_busy
from nodevet.remote.systemd import show, unit_name_pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RUNNING = "/run/systemd/system"  # as sd_booted(3) has it
NAME = unit_name_pattern(
    "service",
    "socket",
    "timer",
    "target",
    "path",
    "mount",
    "automount",
    "swap",
    "slice",
    "device",
)
FIELDS = (  # field, property of systemd
    ("load_state", "LoadState"),
    ("active_state", "ActiveState"),
    ("sub_state", "SubState"),
    ("file_state", "UnitFileState"),
)
PROPERTIES = ("Id", "Names") + tuple(name for _, name in FIELDS)


def unit(name: str, properties: "dict[str, str]") -> "Reading":
    """The record of a unit."""
    record = Reading(name=name)
    fields = [field for field, _ in FIELDS]
    if name not in [properties.get("Id")] + properties.get("Names", "").split(" "):
        record.fail_all(fields, "systemctl answered for {}".format(quote(properties.get("Id", ""))))
        return record
    for field, key in FIELDS:
        record.put(field, properties.get(key), "systemctl did not show " + key)
    return record


def unsettled(results: "dict[str, Any]") -> bool:
    """Whether a unit is starting or stopping, but not restarting repeatedly; or is stopped while
    the package manager is at work."""
    data = results.get("services", {}).get("data") or {}
    units = data.get("units") or ()
    return bool(data.get("busy")) or any(
        row.get("active_state") in ("activating", "deactivating")
        and row.get("sub_state") != "auto-restart"
        for row in units
    )


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    requested = sorted(set(request.get("asks", {}).get("services", ())))
    if root != "/":
        raise Absent("systemd is queried on a running machine only")
    if not os.path.isdir(RUNNING):
        raise Absent("systemd does not run here")
    valid_names = [name for name in requested if NAME.match(name)]
    units = [
        unit(name, properties)
        for name, properties in zip(
            valid_names, show(valid_names, PROPERTIES) if valid_names else ()
        )
    ]
    for name in sorted(set(requested).difference(valid_names)):
        record = Reading(name=name)
        record.fail_all([field for field, _ in FIELDS], "not a valid systemd unit name")
        units.append(record)
    is_stopped = any(row.get("active_state") == "inactive" for row in units)
    return Reading(units=units, busy=BUSY if is_stopped and is_busy(root) else "")
