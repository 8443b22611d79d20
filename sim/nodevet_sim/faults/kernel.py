"""Faults in the kernel log. A function's docstring is the fault's documentation."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.description import LogLine
from nodevet_sim.faults.gpu import AFTER
from nodevet_sim.faults.params import FaultParams, NoParams, OneGpu
from nodevet_sim.faults.patch import Healthy, Patch


class LoggedFault(FaultParams):
    after: Annotated[float, Field(ge=0)] = AFTER


class LoggedProcess(LoggedFault):
    process: Annotated[str, Field(pattern=r"^[\w.+-]{1,15}$")] = "python3"


def oom_kill(healthy: Healthy, want: LoggedProcess) -> Patch:
    """The kernel ran out of memory and killed a process.

    `process`, its name: python3; `after`, seconds after boot, 3.
    """
    lines = (
        f"{want.process} invoked oom-killer: gfp_mask=0x140dca(GFP_HIGHUSER_MOVABLE), order=0, "
        "oom_score_adj=0",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,"
        f"global_oom,task_memcg=/,task={want.process},pid=4242,uid=1000",
        f"Out of memory: Killed process 4242 ({want.process}) total-vm:991241204kB, "
        "anon-rss:989011224kB, file-rss:2048kB, shmem-rss:0kB, UID:1000 pgtables:1936592kB "
        "oom_score_adj:0",
    )
    return Patch(log=tuple(LogLine(line, want.after) for line in lines))


def hung_task(healthy: Healthy, want: LoggedProcess) -> Patch:
    """A process is blocked in the kernel for minutes.

    `process`, its name: python3; `after`, seconds after boot, 3.
    """
    lines = (
        f"INFO: task {want.process}:4242 blocked for more than 122 seconds.",
        "      Not tainted 6.8.0-45-generic #45-Ubuntu",
        '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
    )
    return Patch(log=tuple(LogLine(line, want.after) for line in lines))


class Disk(LoggedFault):
    disk: Annotated[str, Field(pattern=r"^nvme[0-9]{1,3}$")] = "nvme0"


def nvme_timeout(healthy: Healthy, want: Disk) -> Patch:
    """An NVMe drive does not answer: a command times out and fails.

    `disk`, nvme0; `after`, seconds after boot, 3.
    """
    lines = (
        f"nvme {want.disk}: I/O 258 (I/O Cmd) QID 5 timeout, aborting",
        f"nvme {want.disk}: I/O 258 QID 5 timeout, reset controller",
        f"I/O error, dev {want.disk}n1, sector 1562826848 op 0x0:(READ) flags 0x80700 "
        "phys_seg 4 prio class 2",
    )
    return Patch(log=tuple(LogLine(line, want.after) for line in lines))


class Server(LoggedFault):
    server: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:-]{1,60}$")] = "filer"


def nfs_server_down(healthy: Healthy, want: Server) -> Patch:
    """The kernel log says that an NFS server does not respond; nothing is mounted or waits.

    `server`, filer; `after`, seconds after boot, 3.
    """
    line = f"nfs: server {want.server} not responding, still trying"
    return Patch(log=(LogLine(line, want.after, 5),))


def hard_lockup(healthy: Healthy, want: LoggedFault) -> Patch:
    """A CPU does not even take interrupts any more.

    `after`, seconds after boot, 3.
    """
    line = "NMI watchdog: Watchdog detected hard LOCKUP on cpu 2"
    return Patch(log=(LogLine(line, want.after, 0),))


def kernel_panic(healthy: Healthy, want: LoggedFault) -> Patch:
    """The kernel log has a panic; the node keeps running.

    `after`, seconds after boot, 3.
    """
    line = "Kernel panic - not syncing: Fatal exception in interrupt"
    return Patch(log=(LogLine(line, want.after, 0),))


def job_oom_kill(healthy: Healthy, want: LoggedProcess) -> Patch:
    """A job exceeded its own memory limit, and the kernel killed it.

    `process`, its name: python3; `after`, seconds after boot, 3. A baseline that allows
    oom_cgroup, as by default, shows it and does not fail.
    """
    line = f"Memory cgroup out of memory: Killed process 4242 ({want.process}) total-vm:9912412kB"
    return Patch(log=(LogLine(line, want.after, 3),))


def library_segfault(healthy: Healthy, want: LoggedProcess) -> Patch:
    """A program crashed in the driver's libcuda.so.

    `process`, its name: python3; `after`, seconds after boot, 3. A baseline that allows
    segfault, as by default, shows it and does not fail.
    """
    line = f"{want.process}[4242]: segfault at 10 ip 00007f1c2a3b4c5d sp 00007ffd1a2b3c40 error 4 "
    return Patch(
        log=(LogLine(f"{line}in libcuda.so.580.105.08[7f1c2a000000+1800000]", want.after),)
    )


CRASH_RECORD = "/var/lib/systemd/pstore/dmesg-efi-170000000001001"


def crash_recorded(healthy: Healthy, want: NoParams) -> Patch:
    """The boot before this one ended in a panic: systemd-pstore kept the kernel's record."""
    return Patch(root_files={CRASH_RECORD: "Panic#1 Part1\n<0>Kernel panic - not syncing\n"})


class LoggedCpu(LoggedProcess):
    cpu: Annotated[int, Field(ge=0, le=8191)] = 2


def soft_lockup(healthy: Healthy, want: LoggedCpu) -> Patch:
    """A CPU is stuck in the kernel.

    `cpu`, 2; `process`, its name: python3; `after`, seconds after boot, 3.
    """
    stuck = f"CPU#{want.cpu} stuck for 26s! [{want.process}:4242]"
    return Patch(log=(LogLine(f"watchdog: BUG: soft lockup - {stuck}", want.after, 0),))


def rcu_stall(healthy: Healthy, want: LoggedFault) -> Patch:
    """A CPU does not answer the kernel for a long time (RCU).

    `after`, seconds after boot, 3.
    """
    lines = ("rcu: INFO: rcu_sched self-detected stall on CPU", "rcu: \t2-....: (59999 ticks)")
    return Patch(log=tuple(LogLine(line, want.after, 3) for line in lines))


def kernel_oops(healthy: Healthy, want: LoggedFault) -> Patch:
    """The kernel used a null pointer (oops), and keeps running in a damaged state.

    `after`, seconds after boot, 3.
    """
    lines = (
        "BUG: kernel NULL pointer dereference, address: 0000000000000008",
        "#PF: supervisor read access in kernel mode",
    )
    return Patch(log=tuple(LogLine(line, want.after, 1) for line in lines))


class LoggedNic(LoggedFault):
    address: Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")] = (
        "0000:1a:00.0"
    )


def nic_failed(healthy: Healthy, want: LoggedNic) -> Patch:
    """The driver gave up on a NIC after a fatal error of its firmware.

    `address`, 0000:1a:00.0; `after`, seconds after boot, 3.
    """
    line = f"mlx5_core {want.address}: poll_health:836:(pid 0): device's health compromised"
    return Patch(log=(LogLine(f"{line} - reached miss count", want.after, 3),))


class LoggedSxid(LoggedFault):
    link: Annotated[int, Field(ge=0, le=63)] = 30


def sxid(healthy: Healthy, want: LoggedSxid) -> Patch:
    """An NVSwitch reports a fatal SXid: one of its links trained and failed.

    `link`, 30; `after`, seconds after boot, 3.
    """
    line = "nvidia-nvswitch0: SXid (PCI:0000:83:00.0): 20034, Fatal"
    return Patch(log=(LogLine(f"{line}, Link {want.link} LTSSM Fault Up", want.after),))


class LoggedGpu(OneGpu):
    after: Annotated[float, Field(ge=0)] = AFTER


def xid_recovery(healthy: Healthy, want: LoggedGpu) -> Patch:
    """The driver asks to drain and reset a GPU (Xid 154).

    `gpu`; `after`, seconds after boot, 3.
    """
    bus = healthy.address(healthy.gpu(want.gpu)).rpartition(".")[0]
    action = "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
    return Patch(log=(LogLine(f"NVRM: Xid (PCI:{bus}): 154, {action}", want.after),))


class LoggedTimes(LoggedGpu):
    times: Annotated[int, Field(ge=1, le=100)] = 5


def xid_repeated(healthy: Healthy, want: LoggedTimes) -> Patch:
    """Jobs on a GPU fault again and again (Xid 31).

    `gpu`; `times`, one a minute, 5; `after`, of the first one, seconds after boot, 3.
    """
    bus = healthy.address(healthy.gpu(want.gpu)).rpartition(".")[0]
    text = "Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ "
    text += "0x7fab_12345000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"
    line = f"NVRM: Xid (PCI:{bus}): 31, pid=4242, name=python3, {text}"
    moments = (want.after + 60 * number for number in range(want.times))
    return Patch(log=tuple(LogLine(line, moment) for moment in moments))


def mce_uncorrected(healthy: Healthy, want: LoggedCpu) -> Patch:
    """The kernel log has an uncorrected memory error, which killed a process.

    `cpu`, 2; `process`, its name: python3; `after`, seconds after boot, 3.
    """
    lines = (
        f"mce: [Hardware Error]: CPU {want.cpu}: Machine Check: 0 Bank 7: bd80000000100134",
        "mce: [Hardware Error]: TSC 0 ADDR 1f3b40c5c0 MISC 86",
        f"Memory failure: 0x1f3b40c: Sending SIGBUS to {want.process}:4242 due to hardware "
        "memory corruption",
    )
    return Patch(log=tuple(LogLine(line, want.after, 0) for line in lines))


class OfFileSystem(LoggedFault):
    device: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{1,30}$")] = "nvme0n1p2"


def file_system_error(healthy: Healthy, want: OfFileSystem) -> Patch:
    """A file system on a disk is damaged.

    `device`, nvme0n1p2; `after`, seconds after boot, 3.
    """
    line = f"EXT4-fs error (device {want.device}): ext4_lookup:1855: inode #131074: comm ls: "
    return Patch(log=(LogLine(f"{line}deleted inode referenced: 131088", want.after, 2),))


def file_system_read_only(healthy: Healthy, want: OfFileSystem) -> Patch:
    """The kernel remounted a damaged file system read-only.

    `device`, nvme0n1p2; `after`, seconds after boot, 3.
    """
    line = f"EXT4-fs ({want.device}): Remounting filesystem read-only"
    return Patch(log=(LogLine(line, want.after, 2),))


class OfArray(LoggedFault):
    device: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{1,30}$")] = "sdb2"


def disk_io_error(healthy: Healthy, want: OfArray) -> Patch:
    """A disk could not read a sector.

    `device`, sdb2; `after`, seconds after boot, 3.
    """
    line = f"critical medium error, dev {want.device}, sector 1562826848 op 0x0:(READ) flags 0x0"
    return Patch(log=(LogLine(f"{line} phys_seg 1 prio class 2", want.after, 3),))


def ata_error(healthy: Healthy, want: LoggedFault) -> Patch:
    """A SATA port froze because a command failed.

    `after`, seconds after boot, 3.
    """
    lines = (
        "ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen",
        "ata1.00: failed command: FLUSH CACHE EXT",
    )
    return Patch(log=tuple(LogLine(line, want.after, 3) for line in lines))


def array_disk_failed(healthy: Healthy, want: OfArray) -> Patch:
    """An array dropped one of its disks.

    `device`, sdb2; `after`, seconds after boot, 3.
    """
    line = f"md/raid1:md0: Disk failure on {want.device}, disabling device."
    return Patch(log=(LogLine(line, want.after, 2),))


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "array-disk-failed": (OfArray, array_disk_failed),
    "ata-error": (LoggedFault, ata_error),
    "crash-recorded": (NoParams, crash_recorded),
    "disk-io-error": (OfArray, disk_io_error),
    "file-system-error": (OfFileSystem, file_system_error),
    "file-system-read-only": (OfFileSystem, file_system_read_only),
    "hard-lockup": (LoggedFault, hard_lockup),
    "hung-task": (LoggedProcess, hung_task),
    "job-oom-kill": (LoggedProcess, job_oom_kill),
    "kernel-oops": (LoggedFault, kernel_oops),
    "kernel-panic": (LoggedFault, kernel_panic),
    "library-segfault": (LoggedProcess, library_segfault),
    "mce-uncorrected": (LoggedCpu, mce_uncorrected),
    "nfs-server-down": (Server, nfs_server_down),
    "nic-failed": (LoggedNic, nic_failed),
    "nvme-timeout": (Disk, nvme_timeout),
    "oom-kill": (LoggedProcess, oom_kill),
    "rcu-stall": (LoggedFault, rcu_stall),
    "soft-lockup": (LoggedCpu, soft_lockup),
    "sxid": (LoggedSxid, sxid),
    "xid-recovery": (LoggedGpu, xid_recovery),
    "xid-repeated": (LoggedTimes, xid_repeated),
}
