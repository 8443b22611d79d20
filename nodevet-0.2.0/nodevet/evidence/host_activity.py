"""Section host_activity: what the node's CPUs, memory, disks and networks did while it was watched;
read if asked for."""

from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Text, at_most
from nodevet.evidence.activity import Counted, Look, Numbers, Times
from nodevet.evidence.core import Record, SectionRecord

DISKS = at_most(1024)  # whole block devices
NFS_OPERATIONS = at_most(128)  # NFS 4.2 has 70
INTERRUPTS = at_most(4096)  # of GPUs, drives and network cards


class CpuActivity(Record, frozen=True, kw_only=True):
    """One CPU, or all of them. /proc/stat in clock ticks of 10 ms; guests count as user."""

    cpu: int
    user: Counted | None = None  # nice included
    system: Counted | None = None
    idle: Counted | None = None
    iowait: Counted | None = None
    irq: Counted | None = None  # soft interrupts included
    steal: Counted | None = None


class CpuTotals(Record, frozen=True, kw_only=True):
    """All CPUs together at each look, /proc/stat: ticks, and the other counters in that file."""

    user: Numbers | None = None
    system: Numbers | None = None
    idle: Numbers | None = None
    iowait: Numbers | None = None
    irq: Numbers | None = None
    steal: Numbers | None = None
    context_switches: Numbers | None = None
    running: Numbers | None = None  # procs_running: on a CPU or in its queue
    blocked: Numbers | None = None  # procs_blocked: waiting for I/O


class Pressure(Record, frozen=True, kw_only=True):
    """/proc/pressure: microseconds for which some, or all, tasks waited; totals at each look."""

    cpu_some_us: Numbers | None = None
    io_some_us: Numbers | None = None
    io_full_us: Numbers | None = None
    memory_some_us: Numbers | None = None
    memory_full_us: Numbers | None = None


class MemoryActivity(Record, frozen=True, kw_only=True):
    """/proc/meminfo and /proc/vmstat at each look; pages are of page_b bytes."""

    page_b: int | None = None
    total_kb: int | None = None
    available_kb: Numbers | None = None
    dirty_kb: Numbers | None = None
    writeback_kb: Numbers | None = None
    swap_free_kb: Numbers | None = None
    swapped_in_pages: Numbers | None = None  # pswpin
    swapped_out_pages: Numbers | None = None  # pswpout
    major_faults: Numbers | None = None  # pgmajfault
    direct_reclaims: Numbers | None = None  # allocstall_*, added up


class DiskActivity(Record, frozen=True, kw_only=True):
    """A whole block device. /proc/diskstats; sectors are of 512 bytes."""

    name: Text
    reads: Counted | None = None
    read_sectors: Counted | None = None
    read_ms: Counted | None = None
    writes: Counted | None = None
    written_sectors: Counted | None = None
    write_ms: Counted | None = None
    busy_ms: Counted | None = None  # io_ticks: at least one request was under way


class NfsOperation(Record, frozen=True, kw_only=True):
    """READ, WRITE, GETATTR … of one mount. /proc/1/mountstats."""

    name: Text
    operations: Counted | None = None
    transmissions: Counted | None = None
    received_b: Counted | None = None
    sent_b: Counted | None = None
    queue_ms: Counted | None = None
    rtt_ms: Counted | None = None
    execute_ms: Counted | None = None


class NfsActivity(Record, frozen=True, kw_only=True):
    """One NFS mount; operations that were not used are left out."""

    point: Text
    source: Text | None = None
    operations: Annotated[tuple[NfsOperation, ...], NFS_OPERATIONS] | None = None


class NetworkActivity(Record, frozen=True, kw_only=True):
    """A network interface with hardware behind it, or an InfiniBand port (`mlx5_0/1`).

    /sys/class/net/*/statistics, /sys/class/infiniband/*/ports/*/counters."""

    name: Text
    speed_mb_s: int | None = None  # Mbit/s of the link
    received_b: Counted | None = None
    sent_b: Counted | None = None
    dropped: Counted | None = None


class Interrupt(Record, frozen=True, kw_only=True):
    """One interrupt of a GPU, NVMe drive or network card. /proc/interrupts."""

    irq: Text
    action: Text | None = None
    count: Counted | None = None
    cpu: int | None = None  # that took most of them meanwhile


class HostActivity(SectionRecord, frozen=True, kw_only=True):
    """The node as a whole. Values that the node lacks, such as PSI before Linux 4.20, are null with
    a reason.
    """

    unique = (
        "cpus[].cpu",
        "disks[].name",
        "networks[].name",
        "nfs[].point+source",
        "nfs[].operations[].name",
        "interrupts[].irq",
    )
    plural = "nodes"
    volatile = (
        "look",
        "times_s",
        "total",
        "cpus",
        "pressure",
        "memory",
        "disks",
        "nfs",
        "networks",
        "interrupts",
    )

    look: Look | None = None
    times_s: Times | None = None
    tick_hz: int | None = None  # of /proc/stat
    total: CpuTotals | None = None
    cpus: Annotated[tuple[CpuActivity, ...], bounds.CPUS] | None = None
    pressure: Pressure | None = None
    memory: MemoryActivity | None = None
    disks: Annotated[tuple[DiskActivity, ...], DISKS] | None = None  # the 512 busiest
    disks_left_out: int | None = None
    nfs: Annotated[tuple[NfsActivity, ...], bounds.NFS_MOUNTS] | None = None
    # the 512 busiest
    networks: Annotated[tuple[NetworkActivity, ...], bounds.INTERFACES] | None = None
    networks_left_out: int | None = None
    interrupts: Annotated[tuple[Interrupt, ...], INTERRUPTS] | None = None
