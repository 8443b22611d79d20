"""Who uses the CPUs that a job waits for: the other processes that used most.

The first look reads the list of processes anyway. The last look reads it again only if a thread of
the job waited for a CPU.
"""

import os
import time

from nodevet.remote.probe.cgroups import Cgroup
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    integer,
    names,
    parse_rows,
    path_under,
    read,
)
from nodevet.remote.probe.job_names import login_of
from nodevet.remote.probe.threads import parse_stat_row, read_small
from nodevet.remote.probe.watch import HZ

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container, Sequence

    from nodevet.remote.probe.sleeps import SleepingProcess

MOST = 5  # other processes that are listed
LEAST = 0.02  # of a core
LARGEST = 4096  # processes; more are not read again
WAITED = 0.1  # share of the time in which a thread was ready to run and had no CPU


def stats(root: str, most: int) -> "dict[int, dict[str, Any]]":
    """{pid: its row of stat} of at most `most` processes. Raises OSError, ValueError."""
    found = {}
    for name in names(root, "/proc", most)[:most]:
        if name.isdigit():
            path = path_under(root, "/proc/{}/stat".format(name))
            stat, _ = attempt(lambda path=path: parse_stat_row(read_small(path)))
            if stat:
                found[int(name)] = stat
    return found


class Others(object):
    """The processes of this machine, and what they used since the first look at them."""

    def __init__(self, root: str, first: "dict[int, dict[str, Any]]") -> None:
        self.root = root
        self.began = time.monotonic()
        self.first = {pid: (stat["started"], ticks_of(stat)) for pid, stat in first.items()}
        self.records: "list[Reading] | None" = None
        self.why = "no thread of the job waited for a CPU"

    def finish(self, processes: "Sequence[SleepingProcess]", seconds: float) -> None:
        """Read them again, without those of the job, if one of its threads waited for a CPU."""
        if not any(waited_s(process) >= WAITED * seconds for process in processes):
            return
        if len(self.first) > LARGEST:
            self.why = "more than {} processes: reading them takes too long".format(LARGEST)
            return
        own = {process.pid for process in processes}
        self.records, why = attempt(self.busiest, own)
        self.why = why or ""

    def busiest(self, own: "Container[int]") -> "list[Reading]":
        elapsed = max(0.001, time.monotonic() - self.began)
        used = []
        for pid, stat in stats(self.root, 2 * LARGEST).items():
            started, ticks = self.first.get(pid, (None, 0))
            grown = ticks_of(stat) - (ticks if started == stat["started"] else 0)
            if pid not in own and pid != os.getpid() and grown / HZ / elapsed >= LEAST:
                used.append((grown / HZ / elapsed, pid, stat["name"]))
        return [self.record(*entry) for entry in sorted(used, reverse=True)[:MOST]]

    def record(self, cpus: float, pid: int, name: str) -> "Reading":
        """The JSON form of nodevet.evidence.process_activity.OtherProcess."""
        record = Reading(pid=pid, command=name, cpus=round(cpus, 3))
        place = "/proc/{}/".format(pid)
        record.take("uid", lambda: integer(self.rows(place)["Uid"].split()[0]))
        if record["uid"] is not None:
            record.take("login", login_of, self.root, record["uid"], {})
        record.take("cgroup", self.cgroup, place)
        return record

    def cgroup(self, place: str) -> str:
        """Its cgroup for CPUs. Raises OSError, ValueError."""
        group = Cgroup(self.root, read(self.root, place + "cgroup"))
        return group.paths.get("cpu") or group.path

    def rows(self, place: str) -> "dict[str, str]":
        return parse_rows(read(self.root, place + "status"))


def ticks_of(stat: "dict[str, Any]") -> int:
    return int(stat["user"] + stat["system"])


def waited_s(process: "SleepingProcess") -> float:
    """Seconds for which one thread, the one that waited most, was ready to run without a CPU."""
    waits = [
        (thread.last.get("waited_ns") or 0) - (thread.first.get("waited_ns") or 0)
        for thread in process.threads
    ]
    return max(waits, default=0) / 1e9
