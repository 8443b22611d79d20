"""The systemd units that have failed, and whether the system is still starting.

`systemctl show`, and `systemctl list-units` if there are some. While the node boots they are read
again.
"""

import os
import re

from nodevet.remote.probe.collectors.services import RUNNING
from nodevet.remote.probe.files import Absent, Reading, integer, quote
from nodevet.remote.program import ToolError, find, printed
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
    """The names in what `systemctl list-units --plain --no-legend` prints. Raises ValueError.

    >>> parse_list("a.service loaded failed failed Does a\\n")
    ['a.service']
    """
    names = []
    for row in text.splitlines():
        name = row.split(None, 1)[0] if row.strip() else ""
        if name and not NAME.match(name):
            raise ValueError("not a unit: {}".format(quote(row)))
        names += [name] if name else []
    return names


def listed() -> "list[dict[str, object]]":
    """The units that have failed. Raises ToolError, ValueError."""
    text = printed((find("systemctl"),) + LIST, SECONDS, OUTPUT)
    return [{"errors": {}, "name": name} for name in sorted(set(parse_list(text)))]


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    if root != "/":
        raise Absent("systemd is queried on a running machine only")
    if not os.path.isdir(RUNNING):
        raise Absent("systemd does not run here")
    words = (find("systemctl"), "show", "--no-pager", "--property=SystemState,NFailedUnits")
    try:
        shown = parse_show(printed(words, SECONDS, OUTPUT))[0]
    except ValueError as error:
        raise ToolError(str(error))
    found = Reading()
    for field, key, parse in (("state", "SystemState", str), ("count", "NFailedUnits", integer)):
        if shown.get(key):
            found.take(field, parse, shown[key])
        else:
            found.fail(field, "systemctl did not show " + key)
    if found["count"] == 0:
        found["units"] = []
    else:
        found.take("units", listed)
    return found
