"""systemd: the folders and names of units, and `systemctl show`."""

import re

from nodevet.remote.probe.files import quote
from nodevet.remote.program import ToolError, find_program, output_of

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
"""systemd deletes these files when it unloads the unit."""
UNIT_NAME = r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,250}"
"""A unit's name without its type."""
SECONDS = 15
OUTPUT = 4 << 20  # bytes


def unit_name_pattern(*types: str) -> "re.Pattern[str]":
    """A regular expression of the names of units of these types.

    >>> [bool(unit_name_pattern("swap").match(name)) for name in ("dev-sda2.swap", "a.mount")]
    [True, False]
    """
    return re.compile(r"{}\.(?:{})\Z".format(UNIT_NAME, "|".join(types)))


def parse_show(text: str) -> "list[dict[str, str]]":
    """{property: value} of each unit, in the order of the text. Raises ValueError.

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
    """{property: value} of each of these units, in their order. Raises ToolError."""
    systemctl, names = find_program("systemctl"), ",".join(properties)
    argv = (systemctl, "show", "--no-pager", "--property=" + names, "--") + tuple(units)
    text = output_of(argv, SECONDS, OUTPUT)
    try:
        rows = parse_show(text)
    except ValueError as error:
        raise ToolError(str(error))
    if len(rows) != len(units):
        raise ToolError("systemctl shows {} of {} units".format(len(rows), len(units)))
    return rows


def show_one(unit: str, properties: "Sequence[str]") -> "dict[str, str]":
    """All of these properties of one unit. Raises ToolError."""
    (rows,) = show((unit,), properties)
    if not set(properties) <= set(rows):
        raise ToolError("systemctl does not show {}".format(ascii(unit)))
    return rows
