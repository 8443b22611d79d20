"""Section processes: those that have a GPU open."""

import re
from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import NumberList, Real, Text
from nodevet.evidence.core import Record, SectionRecord

BY_USER = re.compile(r"(/user@[0-9]+\.service)/.*")


class Process(Record, frozen=True, kw_only=True):
    """A process that uses a GPU. /proc/<pid>/{status,stat,cgroup,fd}."""

    pid: int
    command: Text | None = None  # comm
    uid: int | None = None
    cpus_allowed: NumberList | None = None  # Cpus_allowed_list
    mems_allowed: NumberList | None = None  # Mems_allowed_list
    cgroup: Text | None = None
    unit: Text | None = None  # the systemd unit in the cgroup path
    started_s: Real | None = None  # seconds after boot
    # /dev/nvidia<minor> it holds open
    gpu_minors: Annotated[tuple[int, ...], bounds.GPUS] | None = None


class Processes(SectionRecord, frozen=True, kw_only=True):
    """Processes named by NVML or holding /dev/nvidia<N> open. `complete` is False
    if another user's open files could not be read."""

    unique = ("processes[].pid",)
    volatile = ("processes",)

    processes: Annotated[tuple[Process, ...], bounds.PROCESSES] | None = None
    complete: bool | None = None


def given_cgroup(process: Process) -> str:
    """The cgroup of a process as root, Slurm or kubelet named it: below its own systemd,
    user@UID.service, a user creates cgroups of any name."""
    return BY_USER.sub(r"\1", process.cgroup or "")


def service_of(process: Process) -> str | None:
    """The system service of a process; None in another kind of unit, in a container, or unread."""
    if not process.unit or not process.cgroup or not process.unit.endswith(".service"):
        return None
    parents, separator, _ = f"{process.cgroup}/".partition(f"/{process.unit}/")
    slices = parents.split("/")[1:]
    return process.unit if separator and all(part.endswith(".slice") for part in slices) else None
