"""Section memory, with what is swapped to."""

from typing import Annotated

from nodevet.base.bounds import FileText, Text, at_most
from nodevet.evidence.core import Record, SectionRecord

SWAPS = at_most(64)  # MAX_SWAPFILES is 32; and units of type swap
PAGE_SIZES = at_most(64)  # of huge pages: HUGE_MAX_HSTATE is 4 at most


class Swap(Record, frozen=True, kw_only=True):
    """A swap file, partition or zram device that is active. /proc/swaps."""

    volatile = ("used_kb",)

    name: Text  # /swapfile, /dev/sda2; a space in it is \\040
    kind: Text | None = None  # file, partition
    size_kb: int | None = None
    used_kb: int | None = None
    priority: int | None = None  # below zero if the kernel chose it


class HugePages(Record, frozen=True, kw_only=True):
    """Huge pages of one size. /sys/kernel/mm/hugepages/hugepages-<size_kb>kB."""

    volatile = ("free",)

    size_kb: int
    total: int | None = None  # nr_hugepages
    free: int | None = None  # free_hugepages


class Fstab(Record, frozen=True, kw_only=True):
    """/etc/fstab."""

    text: FileText | None = None
    mode: int | None = None
    owner: int | None = None  # uid
    group: int | None = None  # gid


class SwapUnit(Record, frozen=True, kw_only=True):
    """A unit of type swap that another one wants, and that /etc/fstab does not explain."""

    name: Text  # dev-sda2.swap
    path: Text | None = None  # its file
    what: Text | None = None  # /dev/sda2, as its file says it


class Memory(SectionRecord, frozen=True, kw_only=True):
    """/proc/meminfo, /sys/kernel/mm/{hugepages,transparent_hugepage}, /proc/swaps.

    `fstab` and `swap_units` are read if swap is active, and else empty."""

    unique = ("hugepages[].size_kb", "swap_units[].name")
    volatile = (
        *("available_kb", "swap_free_kb", "dirty_kb", "hugepages_free"),
        *("buffers_kb", "cached_kb", "shmem_kb", "slab_reclaimable_kb"),
    )

    total_kb: int | None = None
    available_kb: int | None = None
    swap_total_kb: int | None = None
    swap_free_kb: int | None = None
    dirty_kb: int | None = None
    buffers_kb: int | None = None
    cached_kb: int | None = None  # the page cache, with shmem_kb
    shmem_kb: int | None = None  # of tmpfs and shared memory: the kernel cannot drop it
    slab_reclaimable_kb: int | None = None  # SReclaimable: dentries, inodes
    hugepages_total: int | None = None
    hugepages_free: int | None = None
    hugepage_size_kb: int | None = None
    hugetlb_kb: int | None = None  # in huge pages of all sizes; Linux 4.18
    hugepages: Annotated[tuple[HugePages, ...], PAGE_SIZES] | None = None
    thp_enabled: Text | None = None  # always, madvise, never
    thp_defrag: Text | None = None
    swaps: Annotated[tuple[Swap, ...], SWAPS] | None = None
    # the one, if a line of it turns on swap at boot
    fstab: Annotated[tuple[Fstab, ...], SWAPS] | None = None
    swap_units: Annotated[tuple[SwapUnit, ...], SWAPS] | None = None
