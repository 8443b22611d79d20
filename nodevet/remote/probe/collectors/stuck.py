"""Processes that stay blocked in the kernel (D), and zombies.

/proc/<pid>/{stat,status,wchan}, by proc(5). The kernel does not record how long a process has been
blocked, so nodevet watches blocked processes; one that runs meanwhile is not stuck.
"""

import re
import time

from nodevet.remote.probe.collectors.processes import PIDS, USER_HZ, parse_uid, sees_all
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    integer,
    line,
    names,
    parse_rows,
    parsed,
    pick,
    read_bytes,
    split_stat,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

ASKED = True
ALONE = True
NUMBER = re.compile(r"[1-9][0-9]{0,9}\Z")
KERNEL_THREAD = 0x200000  # PF_KTHREAD
LOOKS = 0.5  # seconds between two
LONGEST = 15.0  # most seconds to watch
STAT_LIMIT = 1024  # bytes; a stat has 400
UNKNOWN = -1
MOST = 256  # processes in a list


def parse_state(text: str) -> "tuple[str, str, bool, int, float]":
    """(command, state, is a kernel thread, parent, start in s after boot). Raises ValueError."""
    command, fields = split_stat(text)
    is_kernel_thread = bool(integer(fields[6]) & KERNEL_THREAD)
    start_s = integer(fields[19]) / float(USER_HZ)
    return command, fields[0], is_kernel_thread, integer(fields[1]), start_s


def state(root: str, pid: int) -> "tuple[str, str, bool, int, float] | None":
    """`parse_state` of a process; None if it is gone."""
    try:
        text = read_bytes(root, "/proc/{}/stat".format(pid), STAT_LIMIT)
        return parse_state(text.decode("utf-8", "backslashreplace"))
    except (OSError, ValueError):
        return None


def switches(root: str, pid: int) -> int:
    """How often it has been scheduled. Raises OSError, ValueError."""
    path = "/proc/{}/status".format(pid)
    rows = parsed(root, path, parse_rows)
    keys = ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches")
    return sum(integer(pick(rows, path, key)) for key in keys)


def blocked_count(root: str, pid: int, start_s: float) -> "int | None":
    """How often a blocked process was scheduled, UNKNOWN if it cannot be read; None if it is not
    blocked or another process."""
    stat = state(root, pid)
    if stat is None or stat[1] != "D" or stat[4] != start_s:
        return None
    count = attempt(switches, root, pid)[0]
    return UNKNOWN if count is None else count


def watch(
    root: str, suspects: "dict[int, tuple[str, str, bool, int, float]]", seconds: float
) -> "list[int]":
    """The pids in {pid: state} that stay blocked and are never scheduled."""
    counts = {pid: blocked_count(root, pid, stat[4]) for pid, stat in suspects.items()}
    remaining = {pid: count for pid, count in counts.items() if count is not None}
    end = time.monotonic() + seconds
    while remaining and time.monotonic() < end:
        time.sleep(min(LOOKS, max(0.0, end - time.monotonic())))
        remaining = {
            pid: count
            for pid, count in remaining.items()
            if blocked_count(root, pid, suspects[pid][4]) in (count, UNKNOWN)
        }
    return sorted(remaining)


def uid(root: str, pid: int) -> int:
    """The real user of a process. Raises OSError, ValueError."""
    path = "/proc/{}/status".format(pid)
    return parse_uid(parsed(root, path, parse_rows), "Uid")


def process(root: str, pid: int, stat: "tuple[str, str, bool, int, float]") -> "Reading":
    command, letter, _, parent, start_s = stat
    record = Reading(pid=pid, command=command, state=letter, parent=parent, started_s=start_s)
    record.take("uid", uid, root, pid)
    record.take("wchan", line, root, "/proc/{}/wchan".format(pid))
    return record


def seconds_to_watch(requested: "Iterable[str]") -> float:
    """The longest requested time to watch."""
    numbers = [float(text) for text in requested if re.match(r"[0-9]{1,3}\Z", text)]
    return min(LONGEST, max(numbers or [0.0]))


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    seconds = seconds_to_watch(request.get("asks", {}).get("stuck", ()))
    pids = {int(name) for name in names(root, "/proc", PIDS) if NUMBER.match(name)}
    states = {pid: state(root, pid) for pid in pids}
    users = {pid: stat for pid, stat in states.items() if stat and not stat[2]}
    suspects = {pid: stat for pid, stat in users.items() if stat[1] == "D"}
    zombies = sorted(pid for pid, stat in users.items() if stat[1] == "Z")
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
