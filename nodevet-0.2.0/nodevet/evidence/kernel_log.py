"""Section kernel_log."""

import math
from collections.abc import Iterable
from typing import Annotated

from nodevet.base import bounds
from nodevet.base.bounds import Real, Text, at_most
from nodevet.base.durations import elapsed
from nodevet.evidence.core import Record, SectionRecord

TIMES = at_most(64)  # of one event: the probe keeps the latest
CRASHES = at_most(64)  # that kernels left records of; the probe keeps the latest


class KernelEvent(Record, frozen=True, kw_only=True):
    """Lines of the kernel log that report the same event of the same part."""

    # xid, sxid, off_bus, driver_load, nvswitch_probe, gpu_reset; aer (PCIe: AER, DPC and the
    # firmware's), mce (CPU and memory), mce_logged (that some were, and no more); oom, oom_cgroup,
    # hung_task, soft_lockup, hard_lockup, rcu_stall, bug, oops, panic, segfault (in a library of
    # the GPU's); io_error, nvme_error, fs_error, read_only, disk_failed; nfs_silent and
    # nfs_answers (a server of a hard mount that does not respond, and does again); nic_failed (a
    # network card, by its driver); probe_failed (of a card or GPU that its driver did not take)
    kind: Text
    count: int | None = None
    first_s: Real | None = None  # seconds after boot
    last_s: Real | None = None
    # when it occurred, seconds after boot: the latest; lines within 10 s are one occurrence
    times_s: Annotated[tuple[Real, ...], TIMES] = ()
    code: int | None = None  # of an Xid or SXid
    bus_id: Text | None = None  # as sysfs spells it
    severity: Text | None = None  # fatal, nonfatal (uncorrected), corrected: by the line itself
    # what else tells it from others of its kind: a process, a device, the unit of an NVLink, a
    # CPU's bank, a DIMM
    detail: Text | None = None
    text: Text | None = None  # the first line, in ASCII


class Outage(Record, frozen=True, kw_only=True):
    """A time in which a link was down. Seconds after boot."""

    down_s: Real | None = None
    up_s: Real | None = None

    @property
    def seconds(self) -> float | None:
        """The duration; None if it is not known."""
        if self.down_s is None or self.up_s is None or self.up_s < self.down_s:
            return None
        return self.up_s - self.down_s


class NicLink(Record, frozen=True, kw_only=True):
    """The lines of a NIC's driver about its link."""

    bus_id: Text  # as sysfs spells it
    interface: Text | None = None  # as the last line calls it
    up: bool | None = None  # by the last line
    count: int | None = None  # how often it was down since it was first up
    # those that no later one is as long as: the longest first, the last one last
    outages: Annotated[tuple[Outage, ...], TIMES] | None = None


class Crash(Record, frozen=True, kw_only=True):
    """What a kernel left behind: in /sys/fs/pstore, or archived by systemd-pstore."""

    path: Text
    at_s: Real | None = None  # when it was written, seconds since 1970 UTC by the node's clock
    reason: Text | None = None  # Panic, Oops, Emergency, Shutdown, ...


class KernelLog(SectionRecord, frozen=True, kw_only=True):
    """The kernel's own lines in /dev/kmsg, and in the journal what was before them.

    `absent` for captured files without one, `denied` if neither may be read.
    `complete` is False if it does not cover everything since boot; `errors` says why. A log
    of which only the beginning is gone still has `covered_s`."""

    volatile = ("since_s", "covered_s", "lines_read")
    unique = ("links[].bus_id", "crashes[].path")

    source: Text | None = None  # kmsg, journal, kmsg and journal, dmesg
    complete: bool | None = None
    since_s: Real | None = None  # of its first line, in seconds after boot
    covered_s: Real | None = None  # from its first line to when it was read; null with gaps
    lines_read: int | None = None
    dropped: int | None = None  # lines of events beyond the limit
    # lines that begin like an Xid or SXid and have another form: not events
    unmatched: int | None = None
    events: Annotated[tuple[KernelEvent, ...], bounds.EVENTS] | None = None
    # of mlx5_core and bnxt_en, whose lines tell a lost link from an interface that was turned off
    links: Annotated[tuple[NicLink, ...], bounds.INTERFACES] | None = None
    crashes: Annotated[tuple[Crash, ...], CRASHES] | None = None  # the latest first

    def contradiction(self) -> str:
        if self.complete and self.dropped:
            return f"complete, and {self.dropped} lines of events were dropped"
        return ""


LEAST_COVERED_S = 3600.0
"""A log that covers less than this, and less than it lost, proves nothing."""


def coverage(log: KernelLog) -> tuple[str, str]:
    """(why the absence of a line proves nothing, since when it does if the log begins after boot);
    at most one is not empty."""
    if log.complete is True:
        return "", ""
    whole = log.errors.get("complete") or "the log is not known to be complete since boot"
    if log.complete is None or log.covered_s is None or log.since_s is None:
        return whole, ""
    if not 0 <= log.since_s < math.inf or not 0 <= log.covered_s < math.inf:
        return f"{whole}; it covers {log.covered_s:g} s from {log.since_s:g} s after boot", ""
    if log.covered_s < min(LEAST_COVERED_S, log.since_s):
        return f"{whole}; it covers the last {span(log.covered_s)} only", ""
    return "", f"since {span(log.since_s)} after boot, where the log begins"


def span(seconds: float) -> str:
    """In whole seconds, as reports say it.

    >>> span(11100.0)
    '3 h 5 min'
    """
    return elapsed(round(seconds))


def line_of(events: Iterable[KernelEvent]) -> str:
    """A line of the log about these events; "" if there is none."""
    return next((event.text for event in events if event.text), "")
