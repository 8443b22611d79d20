"""Faults of drives: what NVMe drives and SATA disks say of themselves, and what the kernel says.
A function's docstring is the fault's documentation."""

import json
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.faults.params import FaultParams, NoParams
from nodevet_sim.faults.patch import ADDRESS, FaultError, Healthy, Patch
from nodevet_sim.storage_files import HEALTHY_LOG, LOGS

CLASS = "sys/class/nvme"
REALLOCATED, PENDING, UNCORRECTABLE = 5, 197, 198
ATTRIBUTES = {
    REALLOCATED: "Reallocated_Sector_Ct",
    PENDING: "Current_Pending_Sector",
    UNCORRECTABLE: "Offline_Uncorrectable",
}
NONE: Mapping[int, int] = MappingProxyType({})
SMARTCTL = """\
#!/bin/sh
if [ "$1" = --scan ]; then
    echo '{scan}'
    exit 0
fi
echo '{answer}'
exit {code}
"""
DISK_FAILING, BELOW_THRESHOLD = 8, 16  # of smartctl's exit code; see smartctl(8)
Percent = Annotated[int, Field(ge=0, le=255)]
Celsius = Annotated[int, Field(ge=1, le=200)]


class Drive(FaultParams):
    drive: Annotated[int, Field(ge=0, le=255)] = 0


def _place(healthy: Healthy, drive: int) -> str:
    """The directory of a controller. Raises FaultError if the node has none of this number."""
    link = healthy.links.get(f"{CLASS}/nvme{drive}")
    if link is None:
        raise FaultError(f"the node has no drive nvme{drive}")
    return posixpath.normpath(f"{CLASS}/{link}")


def _drive(healthy: Healthy, want: Drive, **values: int) -> Patch:
    """A drive whose health log has these values."""
    _place(healthy, want.drive)
    text = f"{json.dumps({**HEALTHY_LOG, **values}, indent=2)}\n"
    return Patch(root_files={f"{LOGS}/nvme{want.drive}.json": text})


class WornDrive(Drive):
    percentage_used: Percent = 112
    media_errors: Annotated[int, Field(ge=0)] = 17


def drive_failing(healthy: Healthy, want: WornDrive) -> Patch:
    """An NVMe drive reports that it is worn out and lost data.

    `drive`, its number, 0; `percentage_used`, 112; `media_errors`, 17.
    """
    log = {"percent_used": want.percentage_used, "media_errors": want.media_errors}
    return _drive(healthy, want, critical_warning=5, avail_spare=4, **log)


class UsedDrive(Drive):
    percent: Percent = 112


def drive_worn(healthy: Healthy, want: UsedDrive) -> Patch:
    """An NVMe drive has used up its rated endurance.

    `drive`, its number, 0; `percent` of it, 112.
    """
    return _drive(healthy, want, percent_used=want.percent)


class SpareBlocks(Drive):
    percent: Annotated[int, Field(ge=0, le=100)] = 4


def drive_spare_low(healthy: Healthy, want: SpareBlocks) -> Patch:
    """An NVMe drive has few spare blocks left: less than its own threshold.

    `drive`, its number, 0; `percent` that is left, 4.
    """
    return _drive(healthy, want, avail_spare=want.percent)


class MediaErrors(Drive):
    count: Annotated[int, Field(ge=1)] = 17


def drive_media_errors(healthy: Healthy, want: MediaErrors) -> Patch:
    """An NVMe drive could not read data back.

    `drive`, its number, 0; `count`, 17.
    """
    return _drive(healthy, want, media_errors=want.count)


class UnsafeShutdowns(Drive):
    count: Annotated[int, Field(ge=1)] = 900


def drive_shutdowns(healthy: Healthy, want: UnsafeShutdowns) -> Patch:
    """An NVMe drive lost power many times without a shutdown.

    `drive`, its number, 0; `count`, 900. Only a baseline that limits them detects it.
    """
    return _drive(healthy, want, unsafe_shutdowns=want.count)


class WarningBits(Drive):
    bits: Annotated[int, Field(ge=1, le=63)] = 8


def drive_warning(healthy: Healthy, want: WarningBits) -> Patch:
    """An NVMe drive raises a critical warning.

    `drive`, its number, 0; `bits` of the warning, 8: it is read-only.
    """
    return _drive(healthy, want, critical_warning=want.bits)


class HotDrive(Drive):
    celsius: Celsius = 84


def drive_hot(healthy: Healthy, want: HotDrive) -> Patch:
    """An NVMe drive is hot.

    `drive`, its number, 0; `celsius`, 84. Only a baseline that limits it detects it.
    """
    sensor = f"{_place(healthy, want.drive)}/hwmon{want.drive}/temp1_input"
    log = _drive(healthy, want, temperature=want.celsius + 273)
    return replace(log, files={sensor: f"{want.celsius * 1000}\n"})


class DriveFirmware(Drive):
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9]{1,8}$")] = "E2MU110"


def drive_firmware_other(healthy: Healthy, want: DriveFirmware) -> Patch:
    """An NVMe drive has other firmware than its peers.

    `drive`, its number, 0; `version`, E2MU110. Only a baseline that names the firmware detects it.
    """
    return Patch({f"{_place(healthy, want.drive)}/firmware_rev": f"{want.version:8}\n"})


class DriveModel(Drive):
    model: Annotated[str, Field(pattern=r"^[ -~]{1,40}$")] = "KXG60ZNV512G"


def drive_model_other(healthy: Healthy, want: DriveModel) -> Patch:
    """An NVMe drive is another model than its peers, as after a repair.

    `drive`, its number, 0; `model`, KXG60ZNV512G. Only a baseline that names the model detects it.
    """
    return Patch({f"{_place(healthy, want.drive)}/model": f"{want.model:40}\n"})


def drive_unbound(healthy: Healthy, want: Drive) -> Patch:
    """The kernel has no controller for an NVMe drive that is on the PCI bus.

    `drive`, its number, 0.
    """
    folder = posixpath.dirname(_place(healthy, want.drive))
    return Patch(gone_paths=frozenset((folder, f"{CLASS}/nvme{want.drive}")))


def drive_dead(healthy: Healthy, want: Drive) -> Patch:
    """The kernel gave up on an NVMe drive: its controller is dead.

    `drive`, its number, 0.
    """
    return Patch({f"{_place(healthy, want.drive)}/state": "dead\n"})


def _address(healthy: Healthy, drive: int) -> str:
    parts = _place(healthy, drive).split("/")
    return next(part for part in reversed(parts) if ADDRESS.fullmatch(part))


def drive_missing(healthy: Healthy, want: Drive) -> Patch:
    """An NVMe drive is not on the PCI bus.

    `drive`, its number, 0.
    """
    return Patch(gone_slots=frozenset((_address(healthy, want.drive),)))


def drive_narrow(healthy: Healthy, want: Drive) -> Patch:
    """The PCIe link of an NVMe drive has half of its lanes.

    `drive`, its number, 0.
    """
    place = _place(healthy, want.drive).partition("/nvme/")[0]
    width = healthy.read(f"{place}/max_link_width")
    if not width.isdecimal() or int(width) < 2:
        raise FaultError(f"nvme{want.drive} has no PCIe link")
    return Patch({f"{place}/current_link_width": f"{int(width) // 2}\n"})


class Slot(FaultParams):
    slot: Annotated[int, Field(ge=0, le=127)] = 4


def _disk(
    want: Slot,
    counts: Mapping[int, int] = NONE,
    *,
    failed: int | None = None,
    passed: bool = True,
    **more: object,
) -> Patch:
    """A smartctl that says this of a disk; `failed`, an attribute below its threshold."""
    scan = {"devices": [{"name": "/dev/bus/0", "type": f"megaraid,{want.slot}"}]}
    rows = [
        {
            "id": number,
            "name": name,
            "when_failed": "now" if number == failed else "",
            "raw": {"value": counts.get(number, 0)},
        }
        for number, name in ATTRIBUTES.items()
    ]
    answer = {
        "device": {"name": "/dev/bus/0", "protocol": "ATA"},
        "model_name": "Micron_5300_MTFDDAK480TDS",
        "serial_number": "SIM0000SATA4",
        "firmware_version": "D3MU001",
        "smart_status": {"passed": passed},
        "ata_smart_attributes": {"table": rows},
        "power_on_time": {"hours": 31536},
        "temperature": {"current": 34},
        "endurance_used": {"current_percent": 9},
        **more,
    }
    code = (0 if passed else DISK_FAILING) | (BELOW_THRESHOLD if failed else 0)
    text = SMARTCTL.format(scan=json.dumps(scan), answer=json.dumps(answer), code=code)
    return Patch(root_files={"/usr/sbin/smartctl": text})


class FailingDisk(Slot):
    pending: Annotated[int, Field(ge=1)] = 24


def disk_failing(healthy: Healthy, want: FailingDisk) -> Patch:
    """A SATA disk behind a MegaRAID controller reports that it is failing.

    This fault and the others of such a disk need smartctl, which only a booted node has.

    `slot`, its number at the controller, 4; `pending`, sectors that it cannot read, 24.
    """
    counts = {REALLOCATED: 2008, PENDING: want.pending, UNCORRECTABLE: want.pending}
    return _disk(want, counts, failed=REALLOCATED, passed=False)


def disk_verdict(healthy: Healthy, want: Slot) -> Patch:
    """A SATA disk reports that it is failing, though none of its counters shows it.

    `slot`, its number at the controller, 4.
    """
    return _disk(want, passed=False)


def disk_attribute(healthy: Healthy, want: Slot) -> Patch:
    """An attribute of a SATA disk is below its threshold.

    `slot`, its number at the controller, 4.
    """
    return _disk(want, failed=REALLOCATED)


class DiskSectors(Slot):
    count: Annotated[int, Field(ge=1)] = 24


def disk_reallocated(healthy: Healthy, want: DiskSectors) -> Patch:
    """A SATA disk has replaced many sectors.

    `slot`, its number at the controller, 4; `count`, 24. Only a baseline that limits them
    detects it.
    """
    return _disk(want, {REALLOCATED: want.count})


def disk_pending(healthy: Healthy, want: DiskSectors) -> Patch:
    """A SATA disk has sectors that it cannot read.

    `slot`, its number at the controller, 4; `count`, 24.
    """
    return _disk(want, {PENDING: want.count})


def disk_uncorrectable(healthy: Healthy, want: DiskSectors) -> Patch:
    """A SATA disk found errors that it could not correct.

    `slot`, its number at the controller, 4; `count`, 24.
    """
    return _disk(want, {UNCORRECTABLE: want.count})


class WornDisk(Slot):
    percent: Percent = 112


def disk_worn(healthy: Healthy, want: WornDisk) -> Patch:
    """A SATA disk has used up its rated endurance.

    `slot`, its number at the controller, 4; `percent` of it, 112.
    """
    return _disk(want, endurance_used={"current_percent": want.percent})


class HotDisk(Slot):
    celsius: Celsius = 71


def disk_hot(healthy: Healthy, want: HotDisk) -> Patch:
    """A SATA disk is hot.

    `slot`, its number at the controller, 4; `celsius`, 71. Only a baseline that limits it
    detects it.
    """
    return _disk(want, temperature={"current": want.celsius})


def disk_offline(healthy: Healthy, want: NoParams) -> Patch:
    """The kernel gave up on a SATA disk: the state of sda is offline."""
    values = {
        "removable": 0,
        "size": 937703088,
        "device/vendor": "ATA",
        "device/model": "Micron_5300_MTFD",
        "device/state": "offline",
    }
    return Patch({f"sys/block/sda/{name}": f"{text}\n" for name, text in values.items()})


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "disk-attribute-failed": (Slot, disk_attribute),
    "disk-failing": (FailingDisk, disk_failing),
    "disk-hot": (HotDisk, disk_hot),
    "disk-offline": (NoParams, disk_offline),
    "disk-pending": (DiskSectors, disk_pending),
    "disk-reallocated": (DiskSectors, disk_reallocated),
    "disk-self-failed": (Slot, disk_verdict),
    "disk-uncorrectable": (DiskSectors, disk_uncorrectable),
    "disk-worn": (WornDisk, disk_worn),
    "drive-dead": (Drive, drive_dead),
    "drive-failing": (WornDrive, drive_failing),
    "drive-firmware-other": (DriveFirmware, drive_firmware_other),
    "drive-hot": (HotDrive, drive_hot),
    "drive-media-errors": (MediaErrors, drive_media_errors),
    "drive-missing": (Drive, drive_missing),
    "drive-model-other": (DriveModel, drive_model_other),
    "drive-narrow": (Drive, drive_narrow),
    "drive-shutdowns": (UnsafeShutdowns, drive_shutdowns),
    "drive-spare-low": (SpareBlocks, drive_spare_low),
    "drive-unbound": (Drive, drive_unbound),
    "drive-warning": (WarningBits, drive_warning),
    "drive-worn": (UsedDrive, drive_worn),
}
