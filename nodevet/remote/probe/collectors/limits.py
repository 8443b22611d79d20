"""Resource limits of systemd units and of logins, by name.

`systemctl show`; limits.conf(5) for all users (`*`), else the limits of this session.
"""

import os
import re

from nodevet.remote.probe.collectors.services import NAME, RUNNING
from nodevet.remote.probe.files import Reading, attempt, integer, names, quote, read, text_lines
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
LIMITS = (  # field, name in systemd, in limits.conf with its unit, in setrlimit(2)
    ("memlock_b", "MEMLOCK", "memlock", 1024, "RLIMIT_MEMLOCK"),
    ("nofile", "NOFILE", "nofile", 1, "RLIMIT_NOFILE"),
    ("nproc", "NPROC", "nproc", 1, "RLIMIT_NPROC"),
    ("stack_b", "STACK", "stack", 1024, "RLIMIT_STACK"),
)
FIELDS = tuple(row[0] for row in LIMITS)
PROPERTIES = ("Id", "Names", "LoadState") + tuple("Limit{}Soft".format(row[1]) for row in LIMITS)
WORDS = ("unlimited", "infinity", "-1", str((1 << 64) - 1))
ROW = re.compile(r"\*\s+(soft|-)\s+(\w+)\s+(-?\w+)\s*\Z")


def number(text: str, unit: int = 1) -> int:
    """A limit; UNLIMITED for none. Raises ValueError."""
    if text in WORDS:
        return UNLIMITED
    limit = integer(text)
    if limit < 0:
        raise ValueError("not a limit: {}".format(quote(text)))
    return limit * unit


def unit_limits(name: str, properties: "dict[str, str]") -> "Reading":
    """The limits of a unit."""
    record = Reading(name=name, source="unit")
    if name not in [properties.get("Id")] + properties.get("Names", "").split(" "):
        why = "systemctl answered for {}".format(quote(properties.get("Id", "")))
        record.fail_all(("load_state",) + FIELDS, why)
        return record
    record["load_state"] = properties.get("LoadState", "")
    for field, key, _, _, _ in LIMITS:
        value = properties.get("Limit{}Soft".format(key))
        if value is None:
            record.fail(field, "systemctl did not show Limit{}Soft".format(key))
        else:
            record.take(field, number, value)
    return record


def unit_records(unit_names: "Sequence[str]") -> "list[Reading]":
    """The limits of these units."""
    valid_names = [name for name in unit_names if NAME.match(name)]
    why = None if os.path.isdir(RUNNING) else "systemd does not run here"
    try:
        rows = show(valid_names, PROPERTIES) if valid_names and not why else ()
    except ToolError as error:
        rows, why = (), str(error)
    records = [unit_limits(name, properties) for name, properties in zip(valid_names, rows)]
    for name in unit_names if why else sorted(set(unit_names).difference(valid_names)):
        record = Reading(name=name, source="unit")
        record.fail_all(("load_state",) + FIELDS, why or "not a valid systemd unit name")
        records.append(record)
    return records


def parse_limits(text: str) -> "dict[str, str]":
    """{item: value} of the soft limits of `*` in a limits.conf, as pam_limits reads it; the last
    wins."""
    limits = {}
    for row in text_lines(text):
        match = ROW.match(row.partition("#")[0].strip())
        if match:
            limits[match.group(2)] = match.group(3)
    return limits


def configured_limits(root: str) -> "dict[str, str]":
    """{item: value} of all limits.conf files. Raises OSError, ValueError."""
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
    limits = {}
    for text in texts:
        limits.update(parse_limits(text))
    return limits


def session_limit(name: str) -> int:
    """The soft limit of this process. Raises ValueError, OSError."""
    import resource

    soft = resource.getrlimit(getattr(resource, name))[0]
    return UNLIMITED if soft == resource.RLIM_INFINITY else soft


def login_record(root: str) -> "Reading":
    """The limits of a user who logs in."""
    record = Reading(name=LOGIN, source="limits.conf", load_state="")
    limits, why = attempt(configured_limits, root)
    from_session = []
    for field, _, item, unit, name in LIMITS:
        if limits is None:
            record.fail(field, why)
        elif item in limits:
            record.take(field, number, limits[item], unit)
        elif root == "/":
            from_session.append(item)
            record.take(field, session_limit, name)
        else:
            record.fail(field, "limits.conf says nothing")
    if from_session:
        record["source"] = "limits.conf; this session for {}".format(" ".join(from_session))
    return record


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    requested = sorted(set(request.get("asks", {}).get("limits", ())))
    units = [name for name in requested if name != LOGIN]
    if root == "/":
        records = unit_records(units)
    else:
        records = [Reading(name=name, source="unit") for name in units]
        for record in records:
            why = "systemd is queried on a running machine only"
            record.fail_all(("load_state",) + FIELDS, why)
    return Reading(limits=records + ([login_record(root)] if LOGIN in requested else []))
