"""Faults of arrays, mounts and NFS. A function's docstring is the fault's documentation."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.faults.change import inside
from nodevet_sim.faults.params import FaultParams, NoParams
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.storage_files import MOUNTSTATS, mountstats

DEGRADED = """\
Personalities : [raid1]
md0 : active raid1 sda2[0] sdb2[1](F)
      937561408 blocks super 1.2 [2/1] [U_]
      bitmap: 3/7 pages [12KB], 65536KB chunk

unused devices: <none>
"""


def raid_degraded(healthy: Healthy, want: NoParams) -> Patch:
    """A mirror of two disks lost one. Only a kernel that has md can show it on a booted node."""
    return Patch({"proc/mdstat": DEGRADED, "sys/block/md0/md/array_state": "clean\n"})


Path = Annotated[str, Field(pattern=r"^/[A-Za-z0-9_./-]{1,100}$")]


class MountPoint(FaultParams):
    path: Path = "/dev/shm"  # noqa: S108


def mount_missing(healthy: Healthy, want: MountPoint) -> Patch:
    """A file system is not mounted. It needs a booted node.

    `path`, /dev/shm.
    """
    return inside(f"umount -l {want.path}")


def mount_read_only(healthy: Healthy, want: MountPoint) -> Patch:
    """A file system is mounted read-only. It needs a booted node.

    `path`, /dev/shm.
    """
    return inside(f"mount -o remount,ro {want.path}")


class MountOption(MountPoint):
    option: Annotated[str, Field(pattern=r"^[a-z]{2,20}$")] = "noexec"


def mount_option_other(healthy: Healthy, want: MountOption) -> Patch:
    """A file system is mounted with another option. It needs a booted node.

    `path`, /dev/shm; `option`, noexec.
    """
    return inside(f"mount -o remount,{want.option} {want.path}")


def mount_other(healthy: Healthy, want: MountPoint) -> Patch:
    """A folder of the root disk is mounted over a file system. It needs a booted node.

    `path`, /dev/shm.
    """
    return inside(f"mount --bind /var/lib {want.path}")


class LeftMount(FaultParams):
    path: Path = "/mnt/old"


def mount_left(healthy: Healthy, want: LeftMount) -> Patch:
    """A file system that should not be there is still mounted. It needs a booted node.

    `path`, /mnt/old.
    """
    return inside(f"mkdir -p {want.path} && mount -t tmpfs old {want.path}")


class SmallFiles(FaultParams):
    path: Path = "/var/tmp"  # noqa: S108


def inodes_full(healthy: Healthy, want: SmallFiles) -> Patch:
    """A file system has free space but no free inodes: too many small files.

    `path`, where it is mounted, /var/tmp. It needs a booted node.
    """
    mount = f"mount -t tmpfs -o size=64m,nr_inodes=64,mode=1777 files {want.path}"
    fill = f"for file in $(seq 64); do touch {want.path}/$file 2>/dev/null || break; done"
    return inside(f"{mount} && {fill}")


class SendsAgain(FaultParams):
    retransmissions: Annotated[int, Field(ge=1, le=1_000_000)] = 6000


def nfs_retransmissions(healthy: Healthy, want: SendsAgain) -> Patch:
    """The node retransmits requests to its NFS server: packets are lost.

    The node needs an NFS mount: `nfs: /home`. `retransmissions`, in 120,000 operations: 6000.
    """
    point, age = _nfs(healthy)
    return Patch({MOUNTSTATS: mountstats(float(age), want.retransmissions, point)})


class NfsOption(FaultParams):
    was: Annotated[str, Field(pattern=r"^[a-z0-9=.]{1,40}$")] = "hard"
    option: Annotated[str, Field(pattern=r"^[a-z0-9=.]{1,40}$")] = "soft"


def nfs_option_other(healthy: Healthy, want: NfsOption) -> Patch:
    """An NFS file system is mounted with another option than its peers.

    The node needs an NFS mount: `nfs: /home`. `option`, soft, replaces `was`, hard.
    """
    _nfs(healthy)
    mountstats = str(healthy.files[MOUNTSTATS])
    if f",{want.was}," not in mountstats:
        raise FaultError(f"the NFS mount has no option {want.was}")
    return Patch({MOUNTSTATS: mountstats.replace(f",{want.was},", f",{want.option},")})


TIMES = re.compile(r"((?:READ|WRITE): (\d+) (?:\d+ ){4})\d+ \d+ \d+")


class NfsTimes(FaultParams):
    queue_ms: Annotated[int, Field(ge=0, le=60_000)] = 90
    rtt_ms: Annotated[int, Field(ge=0, le=60_000)] = 250


def nfs_slow(healthy: Healthy, want: NfsTimes) -> Patch:
    """An NFS server answers slowly, so requests queue on the node.

    The node needs an NFS mount: `nfs: /home`. For each operation `rtt_ms`, 250, and `queue_ms`, its
    wait before it is sent, 90.
    """

    def slowed(match: re.Match[str]) -> str:
        queue, rtt = (ms * int(match[2]) for ms in (want.queue_ms, want.rtt_ms))
        return f"{match[1]}{queue} {rtt} {queue + rtt}"

    _nfs(healthy)
    return Patch({MOUNTSTATS: TIMES.sub(slowed, str(healthy.files[MOUNTSTATS]))})


def _nfs(healthy: Healthy) -> tuple[str, str]:
    """Where an NFS file system is mounted, and for how many seconds. Raises FaultError."""
    mountstats = str(healthy.files.get(MOUNTSTATS, ""))
    match = re.search(r"mounted on (\S+) with fstype nfs4 .*\n.*\n\tage:\t(\d+)", mountstats)
    if match is None:
        raise FaultError("the node has no NFS mount; give it nfs: /home")
    return match[1], match[2]


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "inodes-full": (SmallFiles, inodes_full),
    "mount-left": (LeftMount, mount_left),
    "mount-missing": (MountPoint, mount_missing),
    "mount-option-other": (MountOption, mount_option_other),
    "mount-other": (MountPoint, mount_other),
    "mount-read-only": (MountPoint, mount_read_only),
    "nfs-option-other": (NfsOption, nfs_option_other),
    "nfs-retransmissions": (SendsAgain, nfs_retransmissions),
    "nfs-slow": (NfsTimes, nfs_slow),
    "raid-degraded": (NoParams, raid_degraded),
}
