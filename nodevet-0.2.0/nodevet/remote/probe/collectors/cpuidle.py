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
    first_readable,
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
    """The most microseconds to leave an idle state that programs accept. Raises OSError,
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


def is_enabled(root: str, folder: str) -> bool:
    """Whether a CPU may enter a state. Raises OSError, ValueError."""
    return parsed(root, folder + "disable", integer) == 0


def states(root: str) -> "list[Reading]":
    """Every kind of state with its CPUs, and the CPUs that may enter it. Raises OSError,
    ValueError."""
    groups: "dict[tuple[int, int, str], tuple[list[int], list[int]]]" = {}
    names = {}
    for cpu in numbered(root, CPUS, "cpu", MOST_CPUS):
        folder = "{}/cpu{}/cpuidle".format(CPUS, cpu)
        try:
            numbers = numbered(root, folder, "state", MOST_STATES)
        except FileNotFoundError:
            continue
        for number in numbers:
            state_folder = "{}/state{}/".format(folder, number)
            latency = parsed(root, state_folder + "latency", integer)
            if (number, latency) not in names:
                names[number, latency] = line(root, state_folder + "name")
            key = latency, number, names[number, latency]
            cpus_with, cpus_enabled = groups.setdefault(key, ([], []))
            cpus_with.append(cpu)
            if is_enabled(root, state_folder):
                cpus_enabled.append(cpu)
    return [
        Reading(
            name=name,
            latency_us=latency,
            cpus=format_cpulist(cpus_with),
            enabled_cpus=format_cpulist(cpus_enabled),
        )
        for (latency, _, name), (cpus_with, cpus_enabled) in sorted(groups.items())
    ]


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    idle = Reading()
    idle.take("driver", line, root, CPUS + "/cpuidle/current_driver")
    ways = (("current_governor", str), ("current_governor_ro", str))
    idle.take("governor", first_readable, root, CPUS + "/cpuidle/", *ways)
    idle.take("latency_limit_us", latency_limit, root)
    records, why = attempt(states, root)
    if records is None:
        idle.fail_all(("states", "count"), why)
    else:
        idle.update(states=records, count=len(records))
    return idle
