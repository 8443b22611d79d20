"""The systemd units that a baseline asks for; `systemctl show`, which changes nothing."""

import os
import re

from nodevet.remote.probe.files import Absent, Reading, SectionError, quote, reason
from nodevet.remote.probe.program import find, printed

RUNNING = "/run/systemd/system"  # as sd_booted(3) has it
SYSTEMCTL = tuple(
    folder + "/systemctl"
    for folder in ("/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin")
)
SECONDS = 15
OUTPUT = 4 << 20  # bytes
NAME = re.compile(
    r"[A-Za-z0-9:_.\\@][A-Za-z0-9:_.\\@-]{0,240}"
    r"\.(?:service|socket|timer|target|path|mount|automount|swap|slice|device)\Z"
)
FIELDS = (  # field, property of systemd
    ("load_state", "LoadState"),
    ("active_state", "ActiveState"),
    ("sub_state", "SubState"),
    ("file_state", "UnitFileState"),
)
PROPERTIES = ("Id", "Names") + tuple(name for _, name in FIELDS)


def parse_show(text):
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


def unit(name, shown):
    """What systemd says of the unit that was asked for by this name."""
    record = Reading(name=name)
    fields = [field for field, _ in FIELDS]
    if name not in [shown.get("Id")] + shown.get("Names", "").split(" "):
        record.fail_all(fields, "systemctl answers for {}".format(quote(shown.get("Id", ""))))
        return record
    for field, key in FIELDS:
        if key in shown:
            record[field] = shown[key]
        else:
            record.fail(field, "systemctl shows no " + key)
    return record


def ask(units):
    """What systemctl prints of these units. Raises SectionError."""
    systemctl = find("systemctl", SYSTEMCTL)
    words = (systemctl, "show", "--no-pager", "--property=" + ",".join(PROPERTIES), "--")
    return printed(words + tuple(units), SECONDS, OUTPUT)


def collect(root, request):
    asked = sorted(set(request.get("asks", {}).get("services", ())))
    if root != "/":
        raise Absent("systemd is asked on a running machine only")
    if not os.path.isdir(RUNNING):
        raise Absent("systemd does not run here")
    good = [name for name in asked if NAME.match(name)]
    units = [unit(name, shown) for name, shown in zip(good, shown_of(good))]
    for name in sorted(set(asked).difference(good)):
        record = Reading(name=name)
        record.fail_all([field for field, _ in FIELDS], "not the name of a systemd unit")
        units.append(record)
    return Reading(units=units)


def shown_of(names):
    """What systemd says of each of these units. Raises SectionError."""
    if not names:
        return []
    try:
        found = parse_show(ask(names))
    except ValueError as error:
        raise SectionError(reason(error))
    if len(found) != len(names):
        raise SectionError("systemctl shows {} of {} units".format(len(found), len(names)))
    return found
