"""What all processes below this one have used so far: CPU time, and bytes read.

The kernel adds what a process used to its parent once that waits for it, and so to ours in the end
(getrusage(2) RUSAGE_CHILDREN; signal->ioac, which /proc/PID/io of the parent holds). To that come
those that still run.
"""

import os
import resource
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Container

TICK = float(os.sysconf("SC_CLK_TCK"))
IO = ("rchar", "read_bytes")


class Used(object):
    """At one moment: seconds, bytes, and how many processes run."""

    def __init__(
        self, at: float, cpu_s: float, asked_b: "int | None", read_b: "int | None", processes: int
    ) -> None:
        self.at = at
        self.cpu_s = cpu_s
        self.asked_b = asked_b  # by read(2), from the page cache, pipes and sockets too
        self.read_b = read_b  # from storage
        self.processes = processes

    def since(self, before: "Used") -> "Used":
        """What was used from an earlier moment on; bytes are None if they are not known."""
        return Used(
            self.at - before.at,
            self.cpu_s - before.cpu_s,
            less(self.asked_b, before.asked_b),
            less(self.read_b, before.read_b),
            self.processes,
        )


def less(now: "int | None", before: "int | None") -> "int | None":
    return None if now is None or before is None else now - before


def used(known: "Container[int]" = ()) -> "Used":
    """What is used below this process so far; `known` children of its are left out."""
    below = descendants(os.getpid(), known)
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = times.ru_utime + times.ru_stime + sum(below.values())
    total = reaped_bytes()
    for pid in below:
        told = bytes_of("/proc/{}/io".format(pid))
        if told is not None and total is not None:
            total = total[0] + told[0], total[1] + told[1]
    asked_b, read_b = total or (None, None)
    return Used(time.monotonic(), cpu_s, asked_b, read_b, len(below))


def descendants(top: int, known: "Container[int]") -> "dict[int, float]":
    """{pid: CPU seconds of it and of the children that it waited for} of all below a process."""
    parents, seconds = {}, {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/{}/stat".format(name), "rb") as file:
                fields = file.read().rpartition(b") ")[2].split()
        except OSError:  # gone
            continue
        parents[int(name)] = int(fields[1])
        seconds[int(name)] = sum(map(int, fields[11:15])) / TICK
    below = {}
    for pid in parents:
        path, one = [], pid
        while one in parents and one != top and one not in path:
            path.append(one)
            one = parents[one]
        if one == top and path and path[-1] not in known:
            below[pid] = seconds[pid]
    return below


def reaped_bytes() -> "tuple[int, int] | None":
    """(rchar, read_bytes) of the children that were waited for: those of this process, less what
    its own threads read; None if the kernel keeps no account."""
    whole = bytes_of("/proc/self/io")
    if whole is None:
        return None
    for thread in os.listdir("/proc/self/task"):
        own = bytes_of("/proc/self/task/{}/io".format(thread)) or (0, 0)
        whole = whole[0] - own[0], whole[1] - own[1]
    return whole


def bytes_of(path: str) -> "tuple[int, int] | None":
    """(rchar, read_bytes) of a file of /proc; None if it cannot be read."""
    try:
        with open(path) as file:
            told = dict(line.split(": ") for line in file.read().splitlines())
        return int(told[IO[0]]), int(told[IO[1]])
    except (OSError, ValueError, KeyError):
        return None
