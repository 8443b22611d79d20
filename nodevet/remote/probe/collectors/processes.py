"""Processes that use a GPU: those that NVML names and those that hold /dev/nvidia<N> open.

/proc/<pid>/{stat,status,cgroup,fd}; see proc(5).
"""

import os
import re

from nodevet.remote.probe.cpulist import normal_some
from nodevet.remote.probe.files import (
    FIRST_PID_NAMESPACE,
    Reading,
    attempt,
    integer,
    names,
    parse_rows,
    parsed,
    path_under,
    pick,
    reason,
    silent,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container

AFTER = ("gpu",)  # the pids that NVML names
USER_HZ = 100  # clock ticks per second in /proc, on every architecture that has the driver
PIDS = 1 << 20  # entries in /proc
FILES = 1 << 20  # open files of one process
NUMBER = re.compile(r"[1-9][0-9]{0,9}\Z")
GPU_FILE = re.compile(rb"/dev/nvidia([0-9]{1,4})(?: \(deleted\))?\Z")
UNIT = re.compile(r"[^/]+\.(?:service|scope|socket|mount|swap)\Z")


def parse_stat(text: str) -> "tuple[str, float]":
    """(command, seconds after boot at which it started). Raises ValueError.

    The command stands in parentheses and may itself hold spaces and parentheses.
    """
    start, end = text.find("("), text.rfind(")")
    fields = text[end + 1 :].split()
    if not 0 <= start < end or len(fields) < 20:
        raise ValueError("not a process's stat")
    return text[start + 1 : end], integer(fields[19]) / float(USER_HZ)


def parse_uid(rows: "dict[str, str]", key: str) -> int:
    """The real user id, the first of four. Raises ValueError."""
    return integer(pick(rows, "status", key).split()[0])


def parse_ids(rows: "dict[str, str]", key: str) -> str:
    """CPUs or memory nodes as a list. Raises ValueError."""
    return normal_some(pick(rows, "status", key))


STATUS = (  # field, row of /proc/<pid>/status
    ("uid", "Uid", parse_uid),
    ("cpus_allowed", "Cpus_allowed_list", parse_ids),
    ("mems_allowed", "Mems_allowed_list", parse_ids),
)


def parse_cgroup(text: str) -> str:
    """The path in systemd's hierarchy, or else in the unified one. Raises ValueError."""
    paths = {}
    for row in text.splitlines():
        _, controllers, path = (row.split(":", 2) + ["", ""])[:3]
        paths[controllers] = path
    for controllers in ("name=systemd", ""):
        if paths.get(controllers):
            return paths[controllers]
    raise ValueError("no systemd or unified hierarchy")


def parse_unit(cgroup: str) -> str:
    """The systemd unit in a cgroup path: the first part that is not a slice. Raises ValueError.

    >>> parse_unit("/system.slice/slurmd.service/step_0")
    'slurmd.service'
    """
    for part in cgroup.split("/"):
        if UNIT.match(part):
            return part
    raise ValueError("no systemd unit in the cgroup path")


def gpu_minors(root: str, pid: int) -> "list[int]":
    """The N of every /dev/nvidia<N> that a process holds open. Raises OSError, ValueError."""
    directory = "/proc/{}/fd".format(pid)
    place = os.fsencode(path_under(root, directory))
    minors = set()
    for name in names(root, directory, FILES):
        try:
            match = GPU_FILE.match(os.readlink(os.path.join(place, os.fsencode(name))))
        except FileNotFoundError:  # closed meanwhile
            continue
        if match:
            minors.add(int(match.group(1)))
    return sorted(minors)


def named_by_nvml(found: "dict[str, Any]") -> "set[int]":
    """The pids in the gpu section's result."""
    gpus = (found.get("gpu", {}).get("data") or {}).get("gpus") or ()
    return {process["pid"] for gpu in gpus for process in gpu.get("processes") or ()}


def exists(root: str, pid: int) -> bool:
    return os.path.isdir(path_under(root, "/proc/{}".format(pid)))


def process(root: str, pid: int, minors: "list[int] | Exception") -> "Reading":
    """One process; `minors` is its open GPUs or the exception that reading them raised."""
    place = "/proc/{}/".format(pid)
    record = Reading(pid=pid)
    started, why = attempt(parsed, root, place + "stat", parse_stat)
    if started is None:
        record.fail_all(("command", "started_s"), why)
    else:
        record["command"], record["started_s"] = started
    rows, why = attempt(parsed, root, place + "status", parse_rows)
    for field, key, parse in STATUS:
        if rows is None:
            record.fail(field, why)
        else:
            record.take(field, parse, rows, key)
    record.take("cgroup", parsed, root, place + "cgroup", parse_cgroup)
    if record["cgroup"] is None:
        record.fail("unit", "cgroup: " + record["errors"]["cgroup"])
    else:
        record.take("unit", parse_unit, record["cgroup"])
    if isinstance(minors, Exception):
        record.fail("gpu_minors", reason(minors))
    else:
        record["gpu_minors"] = minors
    return record


def sees_all(root: str, pids: "Container[int]", whole_machine: bool = False) -> bool:
    """Whether /proc shows every process: pid 1 among them, and no PID namespace around us
    other than that of a whole machine."""
    if 1 not in pids:
        return False  # hidepid=, or a tree that holds some processes only
    if root != "/" or whole_machine:
        return True
    try:
        return os.readlink("/proc/self/ns/pid") == FIRST_PID_NAMESPACE
    except OSError:
        return False


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", silent)
    pids = {int(name) for name in names(root, "/proc", PIDS) if NUMBER.match(name)}
    complete = sees_all(root, pids, request.get("whole_machine", False))
    wanted: "dict[int, list[int] | Exception]" = {}
    for pid in named_by_nvml(request.get("found", {})):
        wanted[pid] = []
    for pid in sorted(pids | set(wanted)):
        note("/proc/{}/fd".format(pid))
        try:
            minors = gpu_minors(root, pid)
        except (OSError, ValueError) as error:
            if not exists(root, pid):
                wanted.pop(pid, None)
                continue
            complete = False
            if pid in wanted:
                wanted[pid] = error
            continue
        if minors or pid in wanted:
            wanted[pid] = minors
    records = [process(root, pid, minors) for pid, minors in sorted(wanted.items())]
    alive = [record for record in records if not record["errors"] or exists(root, record["pid"])]
    return Reading(processes=alive, complete=complete)
