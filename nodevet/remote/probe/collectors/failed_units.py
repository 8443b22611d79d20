"""The failed systemd units, and whether the system is still starting.

It runs `systemctl show`, and `systemctl list-units` if there are some. While the node boots it is
read again.
"""

import os
import re

from nodevet.remote.probe.collectors.services import RUNNING
from nodevet.remote.probe.files import Absent, Reading, integer, quote, text_lines
from nodevet.remote.program import ToolError, find_program, output_of
from nodevet.remote.systemd import OUTPUT, SECONDS, parse_show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
ALONE = True
AGAIN = ("failed_units",)
STARTING = ("initializing", "starting")
YOUNG = 300.0  # seconds since boot
NAME = re.compile(r"[A-Za-z0-9:_.\\@-]{1,255}\Z")
LIST = ("list-units", "--state=failed", "--all", "--plain", "--no-legend", "--no-pager", "--full")


def unsettled(results: "dict[str, Any]") -> bool:
    """Whether a node that has just booted is still starting its units."""
    state = (results.get("failed_units", {}).get("data") or {}).get("state")
    uptime = (results.get("host", {}).get("data") or {}).get("uptime_s")
    return state in STARTING and uptime is not None and uptime < YOUNG


def parse_list(text: str) -> "list[str]":
    """The names in `systemctl list-units --plain --no-legend`. Raises ValueError.

    >>> parse_list("a.service loaded failed failed Does a\\n")
    ['a.service']
    """
    names = []
    for row in text_lines(text):
        name = row.split(None, 1)[0] if row.strip() else ""
        if name and not NAME.match(name):
            raise ValueError("not a unit: {}".format(quote(row)))
        names += [name] if name else []
    return names


def failed_units() -> "list[dict[str, object]]":
    """The failed units. Raises ToolError, ValueError."""
    text = output_of((find_program("systemctl"),) + LIST, SECONDS, OUTPUT)
    return [{"errors": {}, "name": name} for name in sorted(set(parse_list(text)))]


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    if root != "/":
        raise Absent("systemd is queried on a running machine only")
    if not os.path.isdir(RUNNING):
        raise Absent("systemd does not run here")
    argv = (find_program("systemctl"), "show", "--no-pager", "--property=SystemState,NFailedUnits")
    try:
        properties = parse_show(output_of(argv, SECONDS, OUTPUT))[0]
    except ValueError as error:
        raise ToolError(str(error))
    section = Reading()
    for field, key, parse in (("state", "SystemState", str), ("count", "NFailedUnits", integer)):
        if properties.get(key):
            section.take(field, parse, properties[key])
        else:
            section.fail(field, "systemctl did not show " + key)
    if section["count"] == 0:
        section["units"] = []
    else:
        section.take("units", failed_units)
    return section
