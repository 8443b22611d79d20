"""Processes that are blocked in the kernel (D) and do not come back, and zombies.

/proc/<pid>/{stat,status,wchan}, by proc(5). How long a process has been blocked is written
nowhere; so those that are found blocked are watched, and what ran meanwhile is not stuck.
"""

import re
import time

from nodevet.remote.probe.collectors.processes import PIDS, USER_HZ, sees_all
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    integer,
    line,
    names,
    parse_rows,
    parsed,
    pick,
    quote,
    read_bytes,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

ASKED = True
ALONE = True
NUMBER = re.compile(r"[1-9][0-9]{0,9}\Z")
KERNEL_THREAD = 0x200000  # PF_KTHREAD
LOOKS = 0.5  # seconds between two
LONGEST = 15.0  # seconds that are watched at most
SHORT = 1024  # bytes; a stat has 400
UNTOLD = -1
MOST = 256  # processes that are listed


def parse_state(text: str) -> "tuple[str, str, bool, int, float]":
    """(command, state, whether a kernel thread, parent, start in s after boot). Raises ValueError.

    The command stands in parentheses and may itself hold spaces and parentheses.
    """
    start, end = text.find("("), text.rfind(")")
    fields = text[end + 1 :].split()
    if not 0 <= start < end or len(fields) < 20:
        raise ValueError("not a process's stat: {}".format(quote(text)))
    kernel = bool(integer(fields[6]) & KERNEL_THREAD)
    begun = integer(fields[19]) / float(USER_HZ)
    return text[start + 1 : end], fields[0], kernel, integer(fields[1]), begun


def state(root: str, pid: int) -> "tuple[str, str, bool, int, float] | None":
    """`parse_state` of a process, or None once it is gone."""
    try:
        text = read_bytes(root, "/proc/{}/stat".format(pid), SHORT)
        return parse_state(text.decode("utf-8", "backslashreplace"))
    except (OSError, ValueError):
        return None


def switches(root: str, pid: int) -> int:
    """How often it was scheduled so far. Raises OSError, ValueError."""
    path = "/proc/{}/status".format(pid)
    rows = parsed(root, path, parse_rows)
    keys = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    return sum(integer(pick(rows, path, key)) for key in keys)


def blocked(root: str, pid: int, begun: float) -> "int | None":
    """How often a process was scheduled that is blocked and is still the same, UNTOLD if that
    cannot be read; else None."""
    found = state(root, pid)
    if found is None or found[1] != "D" or found[4] != begun:
        return None
    count = attempt(switches, root, pid)[0]
    return UNTOLD if count is None else count


def watch(
    root: str, suspects: "dict[int, tuple[str, str, bool, int, float]]", seconds: float
) -> "list[int]":
    """Those of {pid: state} that are blocked at every look and are not scheduled in between."""
    before = {pid: blocked(root, pid, each[4]) for pid, each in suspects.items()}
    left = {pid: count for pid, count in before.items() if count is not None}
    end = time.monotonic() + seconds
    while left and time.monotonic() < end:
        time.sleep(min(LOOKS, max(0.0, end - time.monotonic())))
        left = {
            pid: count
            for pid, count in left.items()
            if blocked(root, pid, suspects[pid][4]) in (count, UNTOLD)
        }
    return sorted(left)


def process(root: str, pid: int, found: "tuple[str, str, bool, int, float]") -> "Reading":
    command, letter, _, parent, begun = found
    record = Reading(pid=pid, command=command, state=letter, parent=parent, started_s=begun)
    record.take("wchan", line, root, "/proc/{}/wchan".format(pid))
    return record


def wanted(asked: "Iterable[str]") -> float:
    """The seconds that the baseline that asks for most wants them watched."""
    found = [float(each) for each in asked if re.match(r"[0-9]{1,3}\Z", each)]
    return min(LONGEST, max(found or [0.0]))


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    seconds = wanted(request.get("asks", {}).get("stuck", ()))
    pids = {int(name) for name in names(root, "/proc", PIDS) if NUMBER.match(name)}
    states = {pid: state(root, pid) for pid in pids}
    users = {pid: each for pid, each in states.items() if each and not each[2]}
    suspects = {pid: each for pid, each in users.items() if each[1] == "D"}
    zombies = sorted(pid for pid, each in users.items() if each[1] == "Z")
    stuck = watch(root, suspects, seconds)
    return Reading(
        watched_s=seconds,
        complete=sees_all(root, pids, request.get("whole_machine", False)),
        processes=len(users),
        blocked_count=len(stuck),
        zombie_count=len(zombies),
        blocked=[process(root, pid, users[pid]) for pid in stuck[:MOST]],
        zombies=[process(root, pid, users[pid]) for pid in zombies[:MOST]],
    )
