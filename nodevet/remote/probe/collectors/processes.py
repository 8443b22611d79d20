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
    no_note,
    parse_rows,
    parsed,
    path_under,
    pick,
    reason,
    split_stat,
    text_lines,
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
    """(command, seconds after boot at which it started). Raises ValueError."""
    command, fields = split_stat(text)
    return command, integer(fields[19]) / float(USER_HZ)


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
    for row in text_lines(text):
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
    folder = os.fsencode(path_under(root, directory))
    minors = set()
    for name in names(root, directory, FILES):
        try:
            match = GPU_FILE.match(os.readlink(os.path.join(folder, os.fsencode(name))))
        except FileNotFoundError:  # closed meanwhile
            continue
        if match:
            minors.add(int(match.group(1)))
    return sorted(minors)


def nvml_pids(results: "dict[str, Any]") -> "set[int]":
    """The pids in the gpu section's result."""
    gpus = (results.get("gpu", {}).get("data") or {}).get("gpus") or ()
    return {process["pid"] for gpu in gpus for process in gpu.get("processes") or ()}


def exists(root: str, pid: int) -> bool:
    return os.path.isdir(path_under(root, "/proc/{}".format(pid)))


def process(root: str, pid: int, minors: "list[int] | Exception") -> "Reading":
    """The record of a process; `minors`: its open GPUs, or why they could not be read."""
    folder = "/proc/{}/".format(pid)
    record = Reading(pid=pid)
    start, why = attempt(parsed, root, folder + "stat", parse_stat)
    if start is None:
        record.fail_all(("command", "started_s"), why)
    else:
        record["command"], record["started_s"] = start
    rows, why = attempt(parsed, root, folder + "status", parse_rows)
    for field, key, parse in STATUS:
        if rows is None:
            record.fail(field, why)
        else:
            record.take(field, parse, rows, key)
    record.take("cgroup", parsed, root, folder + "cgroup", parse_cgroup)
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
    """Whether /proc shows every process: it has pid 1, and the PID namespace is the machine's."""
    if 1 not in pids:
        return False  # hidepid=, or a tree that holds some processes only
    if root != "/" or whole_machine:
        return True
    try:
        return os.readlink("/proc/self/ns/pid") == FIRST_PID_NAMESPACE
    except OSError:
        return False


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    note = request.get("note", no_note)
    pids = {int(name) for name in names(root, "/proc", PIDS) if NUMBER.match(name)}
    complete = sees_all(root, pids, request.get("whole_machine", False))
    minors_by_pid: "dict[int, list[int] | Exception]" = {}
    for pid in nvml_pids(request.get("found", {})):
        minors_by_pid[pid] = []
    for pid in sorted(pids | set(minors_by_pid)):
        note("/proc/{}/fd".format(pid))
        try:
            minors = gpu_minors(root, pid)
        except (OSError, ValueError) as error:
            if not exists(root, pid):
                minors_by_pid.pop(pid, None)
                continue
            complete = False
            if pid in minors_by_pid:
                minors_by_pid[pid] = error
            continue
        if minors or pid in minors_by_pid:
            minors_by_pid[pid] = minors
    records = [process(root, pid, minors) for pid, minors in sorted(minors_by_pid.items())]
    live_records = [
        record for record in records if not record["errors"] or exists(root, record["pid"])
    ]
    return Reading(processes=live_records, complete=complete)
