"""CPU time and bytes read of all processes below this one.

When a parent waits for a process, the kernel adds its usage to the parent (getrusage(2)
RUSAGE_CHILDREN; signal->ioac in /proc/PID/io). This module adds the processes that still run.
"""

import os
import resource
import time

from nodevet.remote.probe.files import text_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Container

TICK = float(os.sysconf("SC_CLK_TCK"))
IO = ("rchar", "read_bytes")


class TreeUsage(object):
    """Usage so far, at the time `at`: seconds, bytes, and the number of running processes."""

    def __init__(
        self, at: float, cpu_s: float, asked_b: "int | None", read_b: "int | None", processes: int
    ) -> None:
        self.at = at
        self.cpu_s = cpu_s
        self.asked_b = asked_b  # by read(2), from the page cache, pipes and sockets too
        self.read_b = read_b  # from storage
        self.processes = processes

    def usage_since(self, before: "TreeUsage") -> "TreeUsage":
        """The usage since `before`; bytes are None if they are unknown."""
        return TreeUsage(
            self.at - before.at,
            self.cpu_s - before.cpu_s,
            difference(self.asked_b, before.asked_b),
            difference(self.read_b, before.read_b),
            self.processes,
        )


def difference(now: "int | None", earlier: "int | None") -> "int | None":
    return None if now is None or earlier is None else now - earlier


def measure_usage(excluded: "Container[int]" = ()) -> "TreeUsage":
    """The usage below this process, without the children in `excluded`."""
    seconds_by_pid = descendants(os.getpid(), excluded)
    times = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = times.ru_utime + times.ru_stime + sum(seconds_by_pid.values())
    total = reaped_bytes()
    for pid in seconds_by_pid:
        process_io = io_bytes("/proc/{}/io".format(pid))
        if process_io is not None and total is not None:
            total = total[0] + process_io[0], total[1] + process_io[1]
    asked_b, read_b = total or (None, None)
    return TreeUsage(time.monotonic(), cpu_s, asked_b, read_b, len(seconds_by_pid))


def descendants(top: int, excluded: "Container[int]") -> "dict[int, float]":
    """{pid: CPU seconds, with those of reaped children} of all processes below `top`."""
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
    seconds_below = {}
    for pid in parents:
        path, ancestor = [], pid
        while ancestor in parents and ancestor != top and ancestor not in path:
            path.append(ancestor)
            ancestor = parents[ancestor]
        if ancestor == top and path and path[-1] not in excluded:
            seconds_below[pid] = seconds[pid]
    return seconds_below


def reaped_bytes() -> "tuple[int, int] | None":
    """(rchar, read_bytes) of reaped children: those of this process without its own threads;
    None if the kernel does not count them."""
    total = io_bytes("/proc/self/io")
    if total is None:
        return None
    for thread in os.listdir("/proc/self/task"):
        thread_io = io_bytes("/proc/self/task/{}/io".format(thread)) or (0, 0)
        total = total[0] - thread_io[0], total[1] - thread_io[1]
    return total


def io_bytes(path: str) -> "tuple[int, int] | None":
    """(rchar, read_bytes) of a file of /proc; None if it cannot be read."""
    try:
        with open(path) as file:
            values = dict(line.split(": ") for line in text_lines(file.read()))
        return int(values[IO[0]]), int(values[IO[1]])
    except (OSError, ValueError, KeyError):
        return None
