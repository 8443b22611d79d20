"""Faults of disks and mounts. A function's docstring is the fault's documentation."""

import json
import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.faults.node import ONLY_INSIDE
from nodevet_sim.faults.params import FaultParams
from nodevet_sim.faults.patch import ADDRESS, FaultError, Healthy, Patch
from nodevet_sim.storage_files import HEALTHY_LOG, LOGS, MOUNTSTATS, mountstats

CLASS = "sys/class/nvme"
DEGRADED = """\
Personalities : [raid1]
md0 : active raid1 sda2[0] sdb2[1](F)
      937561408 blocks super 1.2 [2/1] [U_]
      bitmap: 3/7 pages [12KB], 65536KB chunk

unused devices: <none>
"""

SMARTCTL = """\
#!/bin/sh
if [ "$1" = --scan ]; then
    echo '{scan}'
    exit 0
fi
echo '{told}'
exit 24
"""
"""24: the disk fails, and an attribute is below its threshold; see smartctl(8)."""


class Drive(FaultParams):
    drive: Annotated[int, Field(ge=0, le=255)] = 0


class WornDrive(Drive):
    percentage_used: Annotated[int, Field(ge=0, le=255)] = 112
    media_errors: Annotated[int, Field(ge=0)] = 17


def _place(healthy: Healthy, drive: int) -> str:
    """The directory of a controller. Raises FaultError if the node has none of this number."""
    link = healthy.links.get(f"{CLASS}/nvme{drive}")
    if link is None:
        raise FaultError(f"the node has no drive nvme{drive}")
    return posixpath.normpath(f"{CLASS}/{link}")


def drive_failing(healthy: Healthy, want: WornDrive) -> Patch:
    """An NVMe drive says of itself that it is worn out and lost data.

    `drive`, its number, 0; `percentage_used`, 112; `media_errors`, 17.
    """
    _place(healthy, want.drive)
    log = {
        **HEALTHY_LOG,
        "critical_warning": 5,
        "avail_spare": 4,
        "percent_used": want.percentage_used,
        "media_errors": want.media_errors,
    }
    text = f"{json.dumps(log, indent=2)}\n"
    return Patch(root_files={f"{LOGS}/nvme{want.drive}.json": text})


def drive_dead(healthy: Healthy, want: Drive) -> Patch:
    """The kernel gave up an NVMe drive: its controller is dead.

    `drive`, its number, 0.
    """
    return Patch({f"{_place(healthy, want.drive)}/state": "dead\n"})


def drive_missing(healthy: Healthy, want: Drive) -> Patch:
    """An NVMe drive is not on the PCI bus.

    `drive`, its number, 0.
    """
    parts = _place(healthy, want.drive).split("/")
    address = next(part for part in reversed(parts) if ADDRESS.fullmatch(part))
    return Patch(gone_slots=frozenset((address,)))


class Slot(FaultParams):
    slot: Annotated[int, Field(ge=0, le=127)] = 4
    pending: Annotated[int, Field(ge=1)] = 24


def disk_failing(healthy: Healthy, want: Slot) -> Patch:
    """A SATA disk behind a MegaRAID controller says of itself that it fails.

    A node must be booted to have smartctl.

    `slot`, its number at the controller, 4; `pending`, sectors that it cannot read, 24.
    """
    scan = {"devices": [{"name": "/dev/bus/0", "type": f"megaraid,{want.slot}"}]}
    rows = [
        {"id": 5, "name": "Reallocated_Sector_Ct", "when_failed": "now", "raw": {"value": 2008}},
        {"id": 197, "name": "Current_Pending_Sector", "raw": {"value": want.pending}},
        {"id": 198, "name": "Offline_Uncorrectable", "raw": {"value": want.pending}},
    ]
    told = {
        "device": {"name": "/dev/bus/0", "protocol": "ATA"},
        "model_name": "Micron_5300_MTFDDAK480TDS",
        "serial_number": "SIM0000SATA4",
        "firmware_version": "D3MU001",
        "smart_status": {"passed": False},
        "ata_smart_attributes": {"table": rows},
        "power_on_time": {"hours": 31536},
        "temperature": {"current": 34},
    }
    text = SMARTCTL.format(scan=json.dumps(scan), told=json.dumps(told))
    return Patch(root_files={"/usr/sbin/smartctl": text})


class NoRaidParams(FaultParams):
    """A fault without parameters."""


def raid_degraded(healthy: Healthy, want: NoRaidParams) -> Patch:
    """A mirror of two disks lost one. Only a kernel that has md can show it on a booted node."""
    return Patch({"proc/mdstat": DEGRADED, "sys/block/md0/md/array_state": "clean\n"})


class MountPoint(FaultParams):
    path: Annotated[str, Field(pattern=r"^/[A-Za-z0-9_./-]{1,100}$")] = "/dev/shm"  # noqa: S108


def mount_missing(healthy: Healthy, want: MountPoint) -> Patch:
    """A file system is not mounted. A node must be booted to have any.

    `path`, /dev/shm.
    """
    return Patch(boot=(f"{ONLY_INSIDE} && umount -l {want.path}",))


def mount_read_only(healthy: Healthy, want: MountPoint) -> Patch:
    """A file system is mounted read-only. A node must be booted to have any.

    `path`, /dev/shm.
    """
    return Patch(boot=(f"{ONLY_INSIDE} && mount -o remount,ro {want.path}",))


class SendsAgain(FaultParams):
    retransmissions: Annotated[int, Field(ge=1, le=1_000_000)] = 6000


def nfs_retransmissions(healthy: Healthy, want: SendsAgain) -> Patch:
    """The node sends requests to its NFS server again: packets are lost.

    The node needs an NFS mount: `nfs: /home`. `retransmissions`, in 120,000 operations: 6000.
    """
    told = str(healthy.files.get(MOUNTSTATS, ""))
    match = re.search(r"mounted on (\S+) with fstype nfs4 .*\n.*\n\tage:\t(\d+)", told)
    if match is None:
        raise FaultError("the node has no NFS mount; give it nfs: /home")
    point, age = match.groups()
    return Patch({MOUNTSTATS: mountstats(float(age), want.retransmissions, point)})


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "disk-failing": (Slot, disk_failing),
    "drive-dead": (Drive, drive_dead),
    "drive-failing": (WornDrive, drive_failing),
    "drive-missing": (Drive, drive_missing),
    "mount-missing": (MountPoint, mount_missing),
    "mount-read-only": (MountPoint, mount_read_only),
    "nfs-retransmissions": (SendsAgain, nfs_retransmissions),
    "raid-degraded": (NoRaidParams, raid_degraded),
}
