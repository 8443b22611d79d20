"""Section host."""

from nodevet.bounds import Text
from nodevet.evidence.core import SectionRecord


class HostInfo(SectionRecord, frozen=True, kw_only=True):
    """Who the node is. /etc/machine-id, /proc/sys/kernel/*, /etc/os-release, /proc/cmdline."""

    hostname: Text | None = None
    machine_id: Text | None = None
    boot_id: Text | None = None
    uptime_s: float | None = None
    kernel: Text | None = None  # /proc/sys/kernel/osrelease
    architecture: Text | None = None  # uname -m
    os_id: Text | None = None  # ID in os-release
    os_version: Text | None = None  # VERSION_ID
    os_name: Text | None = None  # PRETTY_NAME
    cmdline: Text | None = None
    clock_s: float | None = None  # CLOCK_REALTIME as the request arrived, seconds since 1970 UTC
    asked_s: float | None = None  # the controller's as it sent the request; none if it is local
    virtualization: Text | None = None  # none, vm, kvm, xen, vmware, microsoft, container, ...
    dmi_vendor: Text | None = None  # /sys/class/dmi/id/sys_vendor
    dmi_product: Text | None = None


NO_OTHER_CLOCK = "the request has no controller time"
"""Why `asked_s` is None if a node is probed by itself."""
