"""Who the node is: names, ids, kernel, operating system, virtualization, and its clock.

/etc/machine-id, /proc/sys/kernel/{hostname,osrelease,arch,random/boot_id}, /proc/uptime,
/proc/cmdline, /etc/os-release, /sys/class/dmi/id, and the signs that systemd-detect-virt(1)
reads as files.
"""

import math
import os
import re
import time

from nodevet.remote.probe.files import (
    FIRST_PID_NAMESPACE,
    Reading,
    attempt,
    exists,
    head,
    is_this_machine,
    line,
    parse_rows,
    parsed,
    path_under,
    pick,
    quote,
    text_lines,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

DMI = "/sys/class/dmi/id/"
CLOCKS = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
FAR_FUTURE = 1 << 40  # seconds since 1970
NO_OTHER_CLOCK = "the request has no controller time"  # as nodevet.evidence.host has it
FIRST_MOUNT_NAMESPACE = "mnt:[4026531832]"  # MNT_NS_INIT_INO, since Linux 6.18
CONTAINER_MARKS = ("/run/systemd/container", "/run/.containerenv", "/.dockerenv")

DMI_VENDORS = (  # sys_vendor or product_name begins with ... -> hypervisor
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "oracle"),
    ("VirtualBox", "oracle"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "microsoft"),
    ("Microsoft Corporation", "microsoft"),
    ("Google Compute Engine", "google"),
)
METAL_TOO = ("amazon", "google", "microsoft")  # their bare-metal machines have the same names
CLOCK_VENDORS = (("kvm-clock", "kvm"), ("xen", "xen"), ("hyperv_clocksource", "microsoft"))


def parse_os_release(text: str) -> "dict[str, str]":
    """The assignments of os-release(5) as a dict."""
    values = {}
    for row in text_lines(text):
        key, equals, value = row.strip().partition("=")
        if equals and not key.startswith("#"):
            values[key] = unquote(value)
    return values


def unquote(value: str) -> str:
    """A value without the quotes and escapes of a shell assignment.

    >>> unquote('"Ubuntu 22.04.4 LTS"')
    'Ubuntu 22.04.4 LTS'
    """
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    return re.sub(r"\\(.)", r"\1", value)


def parse_uptime(text: str) -> float:
    """Seconds since boot, from /proc/uptime. Raises ValueError."""
    seconds = float(text.split(" ", 1)[0])
    if not math.isfinite(seconds):
        raise ValueError("not a time: {}".format(quote(text)))
    return seconds


def os_release(root: str) -> "dict[str, str]":
    """/etc/os-release, or /usr/lib/os-release if the first is missing."""
    try:
        return parsed(root, "/etc/os-release", parse_os_release)
    except FileNotFoundError:
        return parsed(root, "/usr/lib/os-release", parse_os_release)


def architecture(root: str) -> str:
    """What `uname -m` prints. Raises OSError under a root whose kernel is older than 6.1."""
    try:
        return line(root, "/proc/sys/kernel/arch")
    except FileNotFoundError:
        if root != "/":
            raise
        return os.uname().machine


def namespace(root: str, pid: "int | str", kind: str) -> "str | None":
    """The name of a process's namespace, as pid:[4026531836]; None if it cannot be read."""
    return attempt(os.readlink, path_under(root, "/proc/{}/ns".format(pid)) + "/" + kind)[0]


def in_container(root: str) -> bool:
    """Whether this is a container: a PID namespace of its own, or a container's mark.

    A virtual machine made from a container image carries the mark too, but is in
    the first PID namespace and has the mounts of its first process.
    """
    pids = namespace(root, "self", "pid")
    if pids not in (None, FIRST_PID_NAMESPACE):
        return True
    if not any(exists(root, mark) for mark in CONTAINER_MARKS):
        return False
    mounts = namespace(root, "self", "mnt")
    first = (FIRST_MOUNT_NAMESPACE, namespace(root, "1", "mnt"))
    return pids is None or mounts is None or mounts not in first


def hypervisor_flag(root: str) -> "bool | None":
    """Whether the first CPU carries the `hypervisor` flag (x86 CPUID 1 ECX bit 31); None
    on a CPU that has no such flag. Raises OSError."""
    flags = parse_rows(head(root, "/proc/cpuinfo")).get("flags")
    return None if flags is None else "hypervisor" in flags.split()


def dmi_vendor(texts: "Iterable[str]") -> "str | None":
    """The hypervisor that these DMI texts name, or None."""
    for text in texts:
        for start, name in DMI_VENDORS:
            if text.startswith(start):
                return name
    return None


def virtualization(root: str, whole_machine: bool = False) -> str:
    """`none`, `container`, the hypervisor's name, or `vm` if it does not say which.

    A container that is a whole machine counts as its hardware. Raises OSError, ValueError if
    there is no sign either way.
    """
    if not whole_machine and in_container(root):
        return "container"
    texts = [attempt(line, root, DMI + name)[0] or "" for name in ("sys_vendor", "product_name")]
    is_virtual, why = attempt(hypervisor_flag, root)
    vendor = dmi_vendor(texts)
    is_metal = vendor in METAL_TOO and (is_virtual is False or ".metal" in texts[1])
    if vendor and not is_metal:
        return vendor
    if "control_d" in (attempt(line, root, "/proc/xen/capabilities")[0] or ""):
        return "none"  # Xen's first domain owns the hardware
    if exists(root, "/sys/hypervisor/type"):
        return line(root, "/sys/hypervisor/type")
    if is_virtual:
        clocks = attempt(line, root, CLOCKS)[0] or ""
        hypervisors = [name for start, name in CLOCK_VENDORS if start in clocks]
        return hypervisors[0] if hypervisors else "vm"
    if is_virtual is None and not any(texts):
        raise ValueError(why or "neither the CPU nor DMI tells")
    return "none"


def clock(root: str, request: "dict[str, Any]") -> float:
    """CLOCK_REALTIME as the request arrived, seconds since 1970 UTC. Raises ValueError."""
    if not is_this_machine(root, request.get("whole_machine", False)):
        raise ValueError("the clock is this machine's, and {} is of another machine".format(root))
    arrived_s: float = request.get("arrived_s", time.time())
    return round(arrived_s, 3)


def controller_time(request: "dict[str, Any]") -> float:
    """The controller's time of the request. Raises ValueError."""
    value = request.get("asked_s")
    if value is None:
        raise ValueError(NO_OTHER_CLOCK)
    if not isinstance(value, (int, float)) or not 0 < value < FAR_FUTURE:
        raise ValueError("the request's asked_s is not a valid time: {}".format(quote(repr(value))))
    return value


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    host = Reading()
    for field, path in (
        ("hostname", "/proc/sys/kernel/hostname"),
        ("machine_id", "/etc/machine-id"),
        ("boot_id", "/proc/sys/kernel/random/boot_id"),
        ("kernel", "/proc/sys/kernel/osrelease"),
        ("cmdline", "/proc/cmdline"),
        ("dmi_vendor", DMI + "sys_vendor"),
        ("dmi_product", DMI + "product_name"),
        ("bios_vendor", DMI + "bios_vendor"),
        ("bios_version", DMI + "bios_version"),
        ("bios_date", DMI + "bios_date"),
        ("system_uuid", DMI + "product_uuid"),
        ("system_serial", DMI + "product_serial"),
        ("board_serial", DMI + "board_serial"),
    ):
        host.take(field, line, root, path)
    host.take("uptime_s", parsed, root, "/proc/uptime", parse_uptime)
    host.take("clock_s", clock, root, request)
    host.take("asked_s", controller_time, request)
    host.take("architecture", architecture, root)
    host.take("virtualization", virtualization, root, request.get("whole_machine", False))
    release, why = attempt(os_release, root)
    for field, key in (("os_id", "ID"), ("os_version", "VERSION_ID"), ("os_name", "PRETTY_NAME")):
        if release is None:
            host.fail(field, why)
        else:
            host.take(field, pick, release, "os-release", key)
    return host
