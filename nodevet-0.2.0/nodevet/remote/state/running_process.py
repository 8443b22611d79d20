"""A process that runs: its name, user and start."""

import re

from nodevet.remote.look import absent, present
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.collectors.processes import parse_stat, parse_uid
from nodevet.remote.probe.files import parse_rows, read, split_stat

ENDED = ("Z", "X")  # it has ended, and its parent has not noticed yet


def look(root: str, pid: str) -> "dict[str, object]":
    """{name, uid, started_s: seconds after boot}; absent if it has ended."""
    if not re.match(r"[1-9][0-9]{0,6}\Z", pid):
        raise ValueError("not a valid process id")
    folder = "/proc/" + pid
    try:
        stat = read(root, folder + "/stat").strip()
        rows = parse_rows(read(root, folder + "/status"))
    except (FileNotFoundError, ProcessLookupError):
        return absent()
    if split_stat(stat)[1][0] in ENDED:
        return absent()
    name, started = parse_stat(stat)
    return present({"name": name, "uid": parse_uid(rows, "Uid"), "started_s": started})


def patterns(root: str, name: str) -> "Patterns":
    """Nothing else manages it: a service that would start it again is no setting."""
    return Patterns()
