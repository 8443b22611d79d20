"""Resource limits of systemd units and of logins, those that are asked for by name.

`systemctl show`; limits.conf(5) for users in general (`*`), and where that says nothing, what this
session has.
"""

import os
import re

from nodevet.remote.probe.collectors.services import NAME, RUNNING
from nodevet.remote.probe.files import Reading, attempt, integer, names, quote, read
from nodevet.remote.program import ToolError
from nodevet.remote.systemd import show

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

ASKED = True
ALONE = True
LOGIN = "login"
UNLIMITED = -1
FILE, FOLDER = "/etc/security/limits.conf", "/etc/security/limits.d"
LIMITS = (  # field, systemd's name, that of limits.conf and its unit, that of setrlimit(2)
    ("memlock_b", "MEMLOCK", "memlock", 1024, "RLIMIT_MEMLOCK"),
    ("nofile", "NOFILE", "nofile", 1, "RLIMIT_NOFILE"),
    ("nproc", "NPROC", "nproc", 1, "RLIMIT_NPROC"),
    ("stack_b", "STACK", "stack", 1024, "RLIMIT_STACK"),
)
FIELDS = tuple(each[0] for each in LIMITS)
PROPERTIES = ("Id", "Names", "LoadState") + tuple("Limit{}Soft".format(each[1]) for each in LIMITS)
WORDS = ("unlimited", "infinity", "-1", str((1 << 64) - 1))
ROW = re.compile(r"\*\s+(soft|-)\s+(\w+)\s+(-?\w+)\s*\Z")


def number(text: str, unit: int = 1) -> int:
    """A limit; UNLIMITED for none. Raises ValueError."""
    if text in WORDS:
        return UNLIMITED
    found = integer(text)
    if found < 0:
        raise ValueError("not a limit: {}".format(quote(text)))
    return found * unit


def unit_limits(name: str, shown: "dict[str, str]") -> "Reading":
    """What systemd says of the unit that was asked for by this name."""
    record = Reading(name=name, source="unit")
    if name not in [shown.get("Id")] + shown.get("Names", "").split(" "):
        told = "systemctl answered for {}".format(quote(shown.get("Id", "")))
        record.fail_all(("load_state",) + FIELDS, told)
        return record
    record["load_state"] = shown.get("LoadState", "")
    for field, key, _, _, _ in LIMITS:
        value = shown.get("Limit{}Soft".format(key))
        if value is None:
            record.fail(field, "systemctl did not show Limit{}Soft".format(key))
        else:
            record.take(field, number, value)
    return record


def of_units(asked: "Sequence[str]") -> "list[Reading]":
    """The limits of these units; where systemd cannot be asked, why of each."""
    good = [name for name in asked if NAME.match(name)]
    why = None if os.path.isdir(RUNNING) else "systemd does not run here"
    try:
        shown = show(good, PROPERTIES) if good and not why else ()
    except ToolError as error:
        shown, why = (), str(error)
    records = [unit_limits(name, each) for name, each in zip(good, shown)]
    for name in asked if why else sorted(set(asked).difference(good)):
        record = Reading(name=name, source="unit")
        record.fail_all(("load_state",) + FIELDS, why or "not a valid systemd unit name")
        records.append(record)
    return records


def parse_limits(text: str) -> "dict[str, str]":
    """{item: value} of the soft limits of `*` in a limits.conf; of equal ones the last. A row that
    pam_limits does not take is not taken here."""
    found = {}
    for row in text.splitlines():
        match = ROW.match(row.partition("#")[0].strip())
        if match:
            found[match.group(2)] = match.group(3)
    return found


def configured(root: str) -> "dict[str, str]":
    """{item: value} of all limits.conf files, in pam_limits' order. Raises OSError, ValueError."""
    texts = []
    try:
        texts.append(read(root, FILE))
    except FileNotFoundError:
        pass
    try:
        files = [name for name in names(root, FOLDER) if name.endswith(".conf")]
    except FileNotFoundError:
        files = []
    texts += [read(root, "{}/{}".format(FOLDER, name)) for name in files]
    found = {}
    for text in texts:
        found.update(parse_limits(text))
    return found


def of_session(name: str) -> int:
    """The soft limit that this process has. Raises ValueError, OSError."""
    import resource

    soft = resource.getrlimit(getattr(resource, name))[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def of_login(root: str) -> "Reading":
    """The limits of a user who logs in."""
    record = Reading(name=LOGIN, source="limits.conf", load_state="")
    found, why = attempt(configured, root)
    session = []
    for field, _, item, unit, name in LIMITS:
        if found is None:
            record.fail(field, why)
        elif item in found:
            record.take(field, number, found[item], unit)
        elif root == "/":
            session.append(item)
            record.take(field, of_session, name)
        else:
            record.fail(field, "limits.conf says nothing")
    if session:
        record["source"] = "limits.conf; this session for {}".format(" ".join(session))
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    asked = sorted(set(request.get("asks", {}).get("limits", ())))
    units = [name for name in asked if name != LOGIN]
    if root == "/":
        records = of_units(units)
    else:
        records = [Reading(name=name, source="unit") for name in units]
        for record in records:
            why = "systemd is queried on a running machine only"
            record.fail_all(("load_state",) + FIELDS, why)
    return Reading(limits=records + ([of_login(root)] if LOGIN in asked else []))
