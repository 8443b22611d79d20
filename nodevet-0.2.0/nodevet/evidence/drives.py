"""Section drives."""

from typing import Annotated

from nodevet.base.bounds import Text, at_most
from nodevet.evidence.core import Record, SectionRecord, clear_unknown_words

DRIVES = at_most(512)  # SATA and SAS; the probe reads 256


class DriveLog(Record, frozen=True, kw_only=True):
    """What a SATA or SAS drive reports about itself, from `smartctl --json`."""

    volatile = ("temperature_c", "power_on_hours")

    passed: bool | None = None  # its own verdict: of ATA SMART RETURN STATUS
    failing: Text | None = None  # the attributes that are below their threshold now; empty: none
    reallocated: int | None = None  # sectors, attribute 5; of SAS the grown defect list
    pending: int | None = None  # sectors that could not be read, attribute 197
    uncorrectable: int | None = None  # attribute 198; of SAS uncorrected errors of its log
    percentage_used: int | None = None  # of its rated endurance
    temperature_c: int | None = None
    power_on_hours: int | None = None
    # of smartctl(8): 32 an attribute failed once, 64 errors in its log, 128 in that of self-tests
    exit_bits: int | None = None


class ScsiDrive(Record, frozen=True, kw_only=True):
    """A disk that SCSI or libata drives, /sys/block/sd*, or one behind a RAID controller."""

    name: Text  # sda; /dev/bus/0 megaraid,8
    vendor: Text | None = None  # ATA of every SATA drive
    model: Text | None = None
    serial: Text | None = None
    firmware: Text | None = None
    state: Text | None = None  # /sys/block/sda/device/state: running, offline, blocked, ...
    volume: bool | None = None  # of a RAID controller, which has the drives
    health: DriveLog | None = None  # read only if a baseline asks for it

    def __post_init__(self) -> None:
        clear_unknown_words(self, "state")


class Drives(SectionRecord, frozen=True, kw_only=True):
    """SATA and SAS drives, without removable and USB ones; read only if a baseline says so."""

    unique = ("drives[].name",)

    drives: Annotated[tuple[ScsiDrive, ...], DRIVES] | None = None
    found: int | None = None  # how many there are
