"""Idle states of the CPUs and how long they take to leave: /sys/devices/system/cpu/cpu*/cpuidle,
/dev/cpu_dma_latency; see Documentation/admin-guide/pm/cpuidle.rst in the kernel tree.
"""

import os
import stat
import struct

from nodevet.remote.probe.cpulist import format_cpulist
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    either,
    integer,
    line,
    numbered,
    parsed,
    path_under,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ASKED = True
ALONE = True
CPUS = "/sys/devices/system/cpu"
LIMIT = "/dev/cpu_dma_latency"
MOST_CPUS = 8192
MOST_STATES = 10  # CPUIDLE_STATE_MAX


def latency_limit(root: str) -> int:
    """Microseconds that leaving an idle state may take, as programs asked for. Raises OSError,
    ValueError."""
    file = os.open(path_under(root, LIMIT), os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISCHR(os.fstat(file).st_mode):
            raise ValueError("not a device")
        limit: int = struct.unpack("=i", os.read(file, 4))[0]
        return limit
    except struct.error:
        raise ValueError("not a number of four bytes")
    finally:
        os.close(file)


def enabled(root: str, place: str) -> bool:
    """Whether a CPU may enter a state. Raises OSError, ValueError."""
    return parsed(root, place + "disable", integer) == 0


def states(root: str) -> "list[Reading]":
    """Every kind of state with the CPUs that have it, and those that may enter it. Raises OSError,
    ValueError."""
    found: "dict[tuple[int, int, str], tuple[list[int], list[int]]]" = {}
    named = {}
    for cpu in numbered(root, CPUS, "cpu", MOST_CPUS):
        folder = "{}/cpu{}/cpuidle".format(CPUS, cpu)
        try:
            numbers = numbered(root, folder, "state", MOST_STATES)
        except FileNotFoundError:
            continue
        for number in numbers:
            place = "{}/state{}/".format(folder, number)
            latency = parsed(root, place + "latency", integer)
            if (number, latency) not in named:
                named[number, latency] = line(root, place + "name")
            key = latency, number, named[number, latency]
            has, may = found.setdefault(key, ([], []))
            has.append(cpu)
            if enabled(root, place):
                may.append(cpu)
    return [
        Reading(
            name=name,
            latency_us=latency,
            cpus=format_cpulist(has),
            enabled_cpus=format_cpulist(may),
        )
        for (latency, _, name), (has, may) in sorted(found.items())
    ]


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    idle = Reading()
    idle.take("driver", line, root, CPUS + "/cpuidle/current_driver")
    ways = (("current_governor", str), ("current_governor_ro", str))
    idle.take("governor", either, root, CPUS + "/cpuidle/", *ways)
    idle.take("latency_limit_us", latency_limit, root)
    found, why = attempt(states, root)
    if found is None:
        idle.fail_all(("states", "count"), why)
    else:
        idle.update(states=found, count=len(found))
    return idle
