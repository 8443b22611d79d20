"""Section raid."""

from typing import Annotated

from nodevet.base.bounds import Real, Text, at_most
from nodevet.evidence.core import Record, SectionRecord, clear_unknown_words

RAID_ARRAYS = at_most(256)  # and ZFS pools
RAID_MEMBERS = at_most(1024)  # of an array; md has 1,920 slots with metadata 1.x


class MdArray(Record, frozen=True, kw_only=True):
    """An array of Linux software RAID. /proc/mdstat, /sys/block/<name>/md."""

    volatile = ("sync_percent",)

    name: Text  # md0
    active: bool | None = None
    read_only: Text | None = None  # "", read-only, auto-read-only: until it is written to
    level: Text | None = None  # raid1; "" if it is inactive
    container: bool | None = None  # of metadata alone (IMSM, DDF): never active, holds arrays
    members: Annotated[tuple[Text, ...], RAID_MEMBERS] | None = None
    failed: Annotated[tuple[Text, ...], RAID_MEMBERS] | None = None
    spares: Annotated[tuple[Text, ...], RAID_MEMBERS] | None = None
    devices: int | None = None  # that it should have; none of a level without redundancy
    devices_active: int | None = None
    sync_action: Text | None = None  # "", recovery, resync, check, reshape, resync delayed
    sync_percent: Real | None = None
    array_state: Text | None = None  # clean, active, readonly, broken, ...


class ZfsPool(Record, frozen=True, kw_only=True):
    """A ZFS pool. /proc/spl/kstat/zfs/<name>/state."""

    name: Text
    state: Text | None = None  # ONLINE, DEGRADED, FAULTED, SUSPENDED

    def __post_init__(self) -> None:
        clear_unknown_words(self, "state")


class Raid(SectionRecord, frozen=True, kw_only=True):
    """Arrays of software RAID and pools of ZFS. RAID controllers are not seen."""

    unique = ("arrays[].name", "pools[].name")
    plural = "RAID arrays"

    arrays_found: int | None = None  # how many of them there are
    arrays: Annotated[tuple[MdArray, ...], RAID_ARRAYS] | None = None
    pools_found: int | None = None
    pools: Annotated[tuple[ZfsPool, ...], RAID_ARRAYS] | None = None
