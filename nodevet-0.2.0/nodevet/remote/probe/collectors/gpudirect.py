"""GPUDirect Storage and GDRCopy: their kernel modules, device nodes and configuration.

/sys/module/nvidia_fs, /proc/driver/nvidia-fs, /etc/cufile.json; /sys/module/gdrdrv, /dev/gdrdrv.
"""

import re
import stat

from nodevet.remote.probe.files import Reading, exists, line, read, status_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CUFILE = "/etc/cufile.json"
STATS = "/proc/driver/nvidia-fs/stats"
DEVICE = "/dev/gdrdrv"
P2PDMA = re.compile(r'"use_pci_p2pdma"\s*:\s*(true|false)')
COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)


def parse_p2pdma(text: str) -> bool:
    """Whether cuFile's configuration, JSON with comments, turns the kernel's P2PDMA on.

    >>> parse_p2pdma('// "use_pci_p2pdma": true\\n"use_pci_p2pdma" : false')
    False
    """
    match = P2PDMA.search(COMMENT.sub("", text))
    return match is not None and match.group(1) == "true"


def version(root: str, module: str) -> str:
    """A module's version; "" if it has none. Raises OSError, ValueError."""
    try:
        return line(root, "/sys/module/{}/version".format(module))
    except FileNotFoundError:
        return ""


def p2pdma(root: str) -> bool:
    """Raises OSError, ValueError."""
    try:
        return parse_p2pdma(read(root, CUFILE))
    except FileNotFoundError:
        return False


def is_readable(root: str, path: str) -> bool:
    """Whether a file exists and can be read. Raises OSError, ValueError."""
    try:
        read(root, path)
    except FileNotFoundError:
        return False
    return True


def device(root: str, path: str) -> str:
    """The permissions of a character device; "" if there is none. Raises OSError, ValueError."""
    try:
        status = status_of(root, path)
    except FileNotFoundError:
        return ""
    if not stat.S_ISCHR(status.st_mode):
        raise ValueError("not a character device")
    return "{:04o}".format(stat.S_IMODE(status.st_mode))


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    section = Reading()
    for module in ("nvidia_fs", "gdrdrv"):
        section.take(module, exists, root, "/sys/module/" + module)
        section.take(module + "_version", version, root, module)
    section.take("nvidia_fs_stats", is_readable, root, STATS)
    section.take("p2pdma", p2pdma, root)
    section.take("gdrdrv_device", device, root, DEVICE)
    return section
