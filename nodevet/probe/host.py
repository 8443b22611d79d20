"""Who the node is: names, ids, kernel, operating system, virtualization.

/etc/machine-id, /proc/sys/kernel/{hostname,osrelease,random/boot_id}, /proc/uptime,
/proc/cmdline, /etc/os-release, /sys/class/dmi/id, and the same signs that
systemd-detect-virt(1) reads.
"""

import os
import shlex

from nodevet.probe.files import Record, path_under, read

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


def line(root, path):
    return read(root, path).strip()


def parse_os_release(text):
    """The assignments of os-release(5) as a dict."""
    values = {}
    for row in text.splitlines():
        key, equals, value = row.partition("=")
        if equals and not key.startswith("#"):
            words = shlex.split(value)
            values[key.strip()] = words[0] if words else ""
    return values


def parse_uptime(text):
    """Seconds since boot, from /proc/uptime."""
    return float(text.split()[0])


def virtualization(root):
    """`none`, `container`, the hypervisor's name, or `vm` where it does not say which."""
    if os.path.exists(path_under(root, "/run/systemd/container")) or os.path.exists(
        path_under(root, "/.dockerenv")
    ):
        return "container"
    for path in ("/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"):
        try:
            text = line(root, path)
        except OSError:
            continue
        for start, name in DMI_VENDORS:
            # a bare-metal EC2 instance also says Amazon EC2; its CPU shows no hypervisor
            if text.startswith(start) and (name != "amazon" or hypervisor_flag(root)):
                return name
    if os.path.exists(path_under(root, "/sys/hypervisor/type")):
        return line(root, "/sys/hypervisor/type")
    return "vm" if hypervisor_flag(root) else "none"


def hypervisor_flag(root):
    """Whether the first CPU carries the `hypervisor` flag (x86 CPUID 1 ECX bit 31)."""
    for row in read(root, "/proc/cpuinfo").splitlines():
        if row.startswith("flags"):
            return "hypervisor" in row.split()
    return False


def collect(root, request):
    host = Record()
    host.take("hostname", line, root, "/proc/sys/kernel/hostname")
    host.take("machine_id", line, root, "/etc/machine-id")
    host.take("boot_id", line, root, "/proc/sys/kernel/random/boot_id")
    host.take("uptime_s", lambda: parse_uptime(read(root, "/proc/uptime")))
    host.take("kernel", line, root, "/proc/sys/kernel/osrelease")
    host["architecture"] = os.uname().machine
    host.take("cmdline", line, root, "/proc/cmdline")
    host.take("virtualization", virtualization, root)
    host.take("dmi_vendor", line, root, "/sys/class/dmi/id/sys_vendor")
    host.take("dmi_product", line, root, "/sys/class/dmi/id/product_name")
    release = {}
    host.take("os_name", lambda: release.update(os_release(root)) or release["PRETTY_NAME"])
    host.take("os_id", release.__getitem__, "ID")
    host.take("os_version", release.__getitem__, "VERSION_ID")
    return host


def os_release(root):
    """/etc/os-release, or /usr/lib/os-release where the first is missing."""
    try:
        return parse_os_release(read(root, "/etc/os-release"))
    except FileNotFoundError:
        return parse_os_release(read(root, "/usr/lib/os-release"))
