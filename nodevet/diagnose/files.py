"""Which file a job waits for, on which mount and disk, and whether it reads or writes (pure)."""

import re
from collections.abc import Iterable, Iterator, Mapping

from nodevet.diagnose.delays import NO_DISK
from nodevet.diagnose.host_figures import OF_FILE, busy_disk, nfs_mount
from nodevet.diagnose.job_figures import FILE_CALLS, WatchedJob, blocked_percent
from nodevet.diagnose.model import Figure
from nodevet.diagnose.rules import SMALL_READS
from nodevet.evidence.document import Evidence
from nodevet.evidence.host_activity import HostActivity
from nodevet.evidence.process_activity import Sleep

WRITES = ("write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync")
LARGE = 1000.0  # kB of a read: from here on the number of requests no longer matters
HALF = 50.0  # percent
WRITE_STEP = (
    "it writes: if these are checkpoints, save them in the background "
    "(torch.distributed.checkpoint.async_save) or to a local disk first; if it writes in each "
    "step, as to a log, call fsync less often"
)
LARGE_STEP = (
    "its reads are large already: read more files at the same time, stripe them over more disks or "
    "servers, or cache them on a local NVMe"
)


def waited_file(job: WatchedJob) -> Sleep | None:
    """The file for which the job's busiest waiter waits."""
    waiters = [
        (share, sleep)
        for process in job.processes
        for thread in process.threads or ()
        if (share := blocked_percent(thread)[0])
        if (sleep := most_of_file(thread.sleeps or ())) is not None
    ]
    return max(waiters, key=lambda waiter: waiter[0])[1] if waiters else None


def most_of_file(sleeps: Iterable[Sleep]) -> Sleep | None:
    files = [sleep for sleep in sleeps if sleep.path and sleep.call in FILE_CALLS]
    return max(files, key=lambda sleep: sleep.looks, default=None)


def file_figures(job: WatchedJob | str, evidence: Evidence) -> Iterator[Figure]:
    """The file, its disk instead of the busiest one, and its mount instead of the slowest."""
    what = "looks at which the job waited in a call that writes"
    sleep = None if isinstance(job, str) else waited_file(job)
    if sleep is None:
        why = job if isinstance(job, str) else "nodevet saw no file that a thread waited for"
        yield Figure("waits_writing", None, "%", what, why)
        return
    share = 100.0 if sleep.call in WRITES else 0.0
    yield Figure("waits_writing", share, "%", what, note=file_text(sleep))
    data = evidence[HostActivity].data
    if data is None or sleep.filesystem is None:
        return
    yield busy_disk(data, disk_of(sleep, data), f"{sleep.point} ({sleep.filesystem}) {NO_DISK}")
    yield nfs_mount(data, sleep.point or "")


def disk_of(sleep: Sleep, data: HostActivity) -> str | None:
    """The disk of the file system; for a device file, the device or the disk that it is part of."""
    folder, _, device = (sleep.path or "").rpartition("/")
    if folder != "/dev":
        return sleep.disk
    names = [disk.name for disk in data.disks or () if device.startswith(disk.name)]
    return max(names, key=len, default=sleep.disk)


def file_text(sleep: Sleep) -> str:
    """`pread64 of /data/a.bin on /data, ext4, nvme0n1`."""
    place = [sleep.point, sleep.filesystem, sleep.disk]
    return f"{sleep.call} of {sleep.path} on " + ", ".join(part for part in place if part)


def storage_step(figures: Mapping[str, Figure]) -> str:
    """The next step by what the job reads or writes, and where its file is."""
    tool = tool_text(figures)
    if (figures["waits_writing"].value or 0.0) >= HALF:
        return f"{WRITE_STEP}; {tool}"
    if (figures["read_size"].value or 0.0) >= LARGE:
        return f"{LARGE_STEP}; {tool}"
    return f"see whether the storage is slow: {tool}; {SMALL_READS}"


def tool_text(figures: Mapping[str, Figure]) -> str:
    """Which command shows the load of the file system with the job's file, by its kind."""
    disk = figures["disk_busy"]
    # `… on POINT, KIND` or `… on POINT, KIND, DISK`: see file_text
    ends = figures["waits_writing"].note.rpartition(" on ")[2].split(", ")[1:]
    kind = next((end for end in ends if end.startswith(tuple(TOOLS))), "")
    if kind:
        tool = next(tool for start, tool in TOOLS.items() if kind.startswith(start))
        return tool.format(kind=kind if PLAIN.fullmatch(kind) else "FUSE")
    if disk.value is not None and disk.what == OF_FILE and disk.note:
        return f"iostat -xz 1 shows {disk.note.partition(', ')[0]}"
    return "iostat -xz 1 shows disks, nfsiostat 1 NFS, ls -l /proc/PID/fd the open files"


TOOLS = {
    "nfs": "nfsiostat 1 shows its NFS mount",
    "fuse": "look at the load, the log and the storage of the program behind its {kind} mount",
    "lustre": "lctl get_param llite.*.stats shows its Lustre mount",
}
"""By the beginning of a file system's kind."""
PLAIN = re.compile(r"[\w.-]{1,40}")  # whoever mounts a FUSE file system names it
