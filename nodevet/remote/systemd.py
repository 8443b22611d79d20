"""systemd: where its units lie, how they are named, and what `systemctl show` says of them."""

import re

from nodevet.remote.probe.files import quote
from nodevet.remote.program import ToolError, find, printed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Sequence

UNIT_PATH = (  # first wins: systemd.unit(5), Unit File Load Path
    "/etc/systemd/system.control",  # systemctl set-property
    "/run/systemd/system.control",
    "/run/systemd/transient",  # systemd-run
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",  # portablectl
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
TRANSIENT = "/run/systemd/transient/"
"""What is there is loaded: the file goes with the unit."""
UNIT_NAME = r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,250}"
"""A unit's name without its type."""
SECONDS = 15
OUTPUT = 4 << 20  # bytes


def unit_names(*types: str) -> "re.Pattern[str]":
    """The regular expression of the whole names of units of these types.

    >>> bool(unit_names("swap").match("dev-sda2.swap")), bool(unit_names("swap").match("a.mount"))
    (True, False)
    """
    return re.compile(r"{}\.(?:{})\Z".format(UNIT_NAME, "|".join(types)))


def parse_show(text: str) -> "list[dict[str, str]]":
    """A dict for each unit, in the order in which they were named. Raises ValueError.

    >>> parse_show("Id=a.service\\nSubState=dead\\n\\nId=c.service\\nSubState=running")[1]
    {'Id': 'c.service', 'SubState': 'running'}
    """
    units = []
    for block in text.strip("\n").split("\n\n"):
        rows = [row.partition("=") for row in block.split("\n")]
        if not all(equals for _, equals, _ in rows):
            raise ValueError("not a row of systemctl show: {}".format(quote(block)))
        units.append({key: value for key, _, value in rows})
    return units


def show(units: "Sequence[str]", properties: "Sequence[str]") -> "list[dict[str, str]]":
    """What systemd says of each of these units, in their order. Raises ToolError."""
    words = (find("systemctl"), "show", "--no-pager", "--property=" + ",".join(properties), "--")
    text = printed(words + tuple(units), SECONDS, OUTPUT)
    try:
        found = parse_show(text)
    except ValueError as error:
        raise ToolError(str(error))
    if len(found) != len(units):
        raise ToolError("systemctl shows {} of {} units".format(len(found), len(units)))
    return found


def show_all(unit: str, properties: "Sequence[str]") -> "dict[str, str]":
    """All of these properties of one unit. Raises ToolError."""
    (rows,) = show((unit,), properties)
    if not set(properties) <= set(rows):
        raise ToolError("systemctl does not show {}".format(ascii(unit)))
    return rows
