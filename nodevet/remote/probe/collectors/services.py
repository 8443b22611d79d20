"""The systemd units that a baseline asks for; `systemctl show`, which changes nothing."""

import os

from nodevet.remote.probe.files import Absent, Reading, quote
from nodevet.remote.systemd import show, unit_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

RUNNING = "/run/systemd/system"  # as sd_booted(3) has it
NAME = unit_names(
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


def unit(name: str, shown: "dict[str, str]") -> "Reading":
    """What systemd says of the unit that was asked for by this name."""
    record = Reading(name=name)
    fields = [field for field, _ in FIELDS]
    if name not in [shown.get("Id")] + shown.get("Names", "").split(" "):
        record.fail_all(fields, "systemctl answered for {}".format(quote(shown.get("Id", ""))))
        return record
    for field, key in FIELDS:
        if key in shown:
            record[field] = shown[key]
        else:
            record.fail(field, "systemctl did not show " + key)
    return record


def unsettled(results: "dict[str, Any]") -> bool:
    """Whether a unit is being started or stopped, and not again and again."""
    units = (results.get("services", {}).get("data") or {}).get("units") or ()
    return any(
        each.get("active_state") in ("activating", "deactivating")
        and each.get("sub_state") != "auto-restart"
        for each in units
    )


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    asked = sorted(set(request.get("asks", {}).get("services", ())))
    if root != "/":
        raise Absent("systemd is queried on a running machine only")
    if not os.path.isdir(RUNNING):
        raise Absent("systemd does not run here")
    good = [name for name in asked if NAME.match(name)]
    units = [unit(name, shown) for name, shown in zip(good, show(good, PROPERTIES) if good else ())]
    for name in sorted(set(asked).difference(good)):
        record = Reading(name=name)
        record.fail_all([field for field, _ in FIELDS], "not a valid systemd unit name")
        units.append(record)
    return Reading(units=units)
