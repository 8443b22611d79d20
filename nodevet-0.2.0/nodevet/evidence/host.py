"""Section host."""

from nodevet.base.age import instant
from nodevet.base.bounds import Real, Text
from nodevet.evidence.core import SectionRecord


class HostInfo(SectionRecord, frozen=True, kw_only=True):
    """Who the node is. /etc/machine-id, /proc/sys/kernel/*, /etc/os-release, /proc/cmdline."""

    volatile = ("uptime_s", "clock_s", "asked_s")

    hostname: Text | None = None
    machine_id: Text | None = None
    boot_id: Text | None = None
    uptime_s: Real | None = None
    kernel: Text | None = None  # /proc/sys/kernel/osrelease
    architecture: Text | None = None  # uname -m
    os_id: Text | None = None  # ID in os-release
    os_version: Text | None = None  # VERSION_ID
    os_name: Text | None = None  # PRETTY_NAME
    cmdline: Text | None = None
    clock_s: Real | None = None  # CLOCK_REALTIME as the request arrived, seconds since 1970 UTC
    asked_s: Real | None = None  # the controller's as it sent the request; none if it is local
    virtualization: Text | None = None  # none, vm, kvm, xen, vmware, microsoft, container, ...
    dmi_vendor: Text | None = None  # /sys/class/dmi/id/sys_vendor
    dmi_product: Text | None = None
    bios_vendor: Text | None = None  # /sys/class/dmi/id/bios_*
    bios_version: Text | None = None
    bios_date: Text | None = None  # 06/14/2024
    # /sys/class/dmi/id/product_uuid, product_serial and board_serial, which only root may read
    system_uuid: Text | None = None
    system_serial: Text | None = None
    board_serial: Text | None = None


NO_OTHER_CLOCK = "the request has no controller time"
"""Why `asked_s` is None if a node is probed by itself."""


def boot_time(host: HostInfo | None) -> float | None:
    """When the node booted, seconds since 1970 UTC, by the controller's clock or else its own; None
    if unread."""
    if host is None or host.uptime_s is None:
        return None
    clock = host.clock_s if host.asked_s is None else host.asked_s
    return None if clock is None else clock - host.uptime_s


def at_uptime(booted: float | None, seconds: float) -> str:
    """The time `seconds` after boot as ISO 8601; "" if the boot time is unknown."""
    return instant(None if booted is None else booted + seconds)
