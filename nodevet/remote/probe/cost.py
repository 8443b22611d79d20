"""What a watch costs the node: the CPU time of the login, of the probe and of all its children.

sshd is an ancestor of the probe. Its processes of this session began a moment before the probe, and
their titles name the user; the one that listens for all sessions is none of them. What follows is
not counted: the answer is sent, and the session ends.
"""

import os
import resource

from nodevet.remote.probe.files import Reading, attempt, integer
from nodevet.remote.probe.threads import parse_stat_row, read_small
from nodevet.remote.probe.watch import HZ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLES = (b"sshd: ", b"sshd-session: ")
LISTENS = b"[listener]"
MOMENT = 30  # seconds from the login to the start of the probe
WITH_CHILDREN = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def cost() -> "Reading":
    """The JSON form of nodevet.evidence.process_activity.WatchCost."""
    used = [resource.getrusage(who) for who in WITH_CHILDREN]
    record = Reading(probe_s=round(sum(each.ru_utime + each.ru_stime for each in used), 4))
    record.take("login_s", login_s)
    return record


def login_s() -> float:
    """Raises OSError, ValueError; LookupError if no sshd began a moment before this process."""
    rows = session()
    if not rows:
        raise LookupError("no login: sshd did not start the probe")
    return round(sum(map(used_s, rows)), 4)


def session() -> "list[dict[str, Any]]":
    """The ancestors of this process up to the first sshd of its session; empty without one.
    Raises OSError, ValueError."""
    row = ancestor(os.getpid())
    start, found, last = row["started"], [], 0
    while row["parent"] > 1:
        row = ancestor(row["parent"])
        if start - row["started"] > MOMENT * HZ:
            break
        found.append(row)
        if is_session(row["pid"]):
            last = len(found)
    return found[:last]


def is_session(pid: int) -> bool:
    """Whether it is an sshd of one session. Raises OSError."""
    title = read_small("/proc/{}/cmdline".format(pid))
    return title.startswith(TITLES) and LISTENS not in title


def ancestor(pid: int) -> "dict[str, Any]":
    """Its row of stat. Raises OSError, ValueError."""
    return dict(parse_stat_row(read_small("/proc/{}/stat".format(pid))), pid=pid)


def used_s(row: "dict[str, Any]") -> float:
    """CPU time of a process and of its children that ended: its own by schedstat if the kernel has
    it, as stat counts in ticks of 10 ms."""
    ended: float = (row["children_user"] + row["children_system"]) / float(HZ)
    path = "/proc/{}/schedstat".format(row["pid"])
    ran, _ = attempt(lambda: integer(read_small(path).split()[0].decode()) / 1e9)
    own = float(row["user"] + row["system"]) / HZ if ran is None else ran
    return float(ended + own)
