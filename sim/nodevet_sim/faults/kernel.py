"""Faults that the kernel log tells of. A function's docstring is the fault's documentation."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.description import LogLine
from nodevet_sim.faults.gpu import AFTER
from nodevet_sim.faults.params import FaultParams
from nodevet_sim.faults.patch import Healthy, Patch


class LoggedFault(FaultParams):
    after: Annotated[float, Field(ge=0)] = AFTER


class LoggedProcess(LoggedFault):
    process: Annotated[str, Field(pattern=r"^[\w.+-]{1,15}$")] = "python3"


def oom_kill(healthy: Healthy, want: LoggedProcess) -> Patch:
    """The kernel ran out of memory and killed a process.

    `process`, its name: python3; `after`, seconds after boot, 3.
    """
    told = (
        f"{want.process} invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE), order=0, "
        "oom_score_adj=0",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,"
        f"global_oom,task_memcg=/,task={want.process},pid=4242,uid=1000",
        f"Out of memory: Killed process 4242 ({want.process}) total-vm:991241204kB, "
        "anon-rss:989011224kB, file-rss:2048kB, shmem-rss:0kB, UID:1000 pgtables:1936592kB "
        "oom_score_adj:0",
    )
    return Patch(log=tuple(LogLine(line, want.after) for line in told))


def hung_task(healthy: Healthy, want: LoggedProcess) -> Patch:
    """A process is blocked in the kernel for minutes.

    `process`, its name: python3; `after`, seconds after boot, 3.
    """
    told = (
        f"INFO: task {want.process}:4242 blocked for more than 122 seconds.",
        "      Not tainted 6.8.0-45-generic #45-Ubuntu",
        '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
    )
    return Patch(log=tuple(LogLine(line, want.after) for line in told))


class Disk(LoggedFault):
    disk: Annotated[str, Field(pattern=r"^nvme[0-9]{1,3}$")] = "nvme0"


def nvme_timeout(healthy: Healthy, want: Disk) -> Patch:
    """An NVMe drive does not answer: a command times out and fails.

    `disk`, nvme0; `after`, seconds after boot, 3.
    """
    told = (
        f"nvme {want.disk}: I/O 258 (I/O Cmd) QID 5 timeout, aborting",
        f"nvme {want.disk}: I/O 258 QID 5 timeout, reset controller",
        f"I/O error, dev {want.disk}n1, sector 1562826848 op 0x0:(READ) flags 0x80700 "
        "phys_seg 4 prio class 2",
    )
    return Patch(log=tuple(LogLine(line, want.after) for line in told))


class Server(LoggedFault):
    server: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:-]{1,60}$")] = "filer"


def nfs_server_down(healthy: Healthy, want: Server) -> Patch:
    """An NFS server does not respond, says the kernel log. Nothing is mounted, and nothing waits.

    `server`, filer; `after`, seconds after boot, 3.
    """
    line = f"nfs: server {want.server} not responding, still trying"
    return Patch(log=(LogLine(line, want.after, 5),))


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "hung-task": (LoggedProcess, hung_task),
    "nfs-server-down": (Server, nfs_server_down),
    "nvme-timeout": (Disk, nvme_timeout),
    "oom-kill": (LoggedProcess, oom_kill),
}
