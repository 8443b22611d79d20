"""Modules of the NVIDIA driver that are loaded when a program first needs them.

The driver's libraries run nvidia-modprobe(1), which is setuid root, for what is not loaded:
CUDA with -u (nvidia-uvm), graphics with -m (nvidia-modeset). A driver of NVIDIA's .run
installer has nothing else that loads nvidia-uvm, so that on a node that has not
computed since boot it is not there, and nothing is wrong. See modules.dep and modprobe.d(5).
"""

import os
import re
import stat

from nodevet.remote.probe.files import line, names, path_under, read, read_bytes
from nodevet.remote.probe.patterns import Pattern

HELPER = "/usr/bin/nvidia-modprobe"
ON_DEMAND = ("nvidia_modeset", "nvidia_uvm")
DEPENDENCIES = 16 << 20  # bytes of modules.dep; 0.7 MB in a distribution
CONFIGURED = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
MODULE = Pattern(r"([A-Za-z0-9_-]+)\.ko(?:\.(?:gz|xz|zst))?\Z")
INSTALL = Pattern(r"^\s*install\s+(\S+)\s", re.M)


def parse_dependencies(text: str) -> "set[str]":
    """The modules of modules.dep, as the kernel spells them.

    >>> sorted(parse_dependencies("updates/dkms/nvidia-uvm.ko.zst: updates/dkms/nvidia.ko.zst"))
    ['nvidia_uvm']
    """
    files = (row.partition(":")[0].rpartition("/")[2] for row in text.splitlines())
    matches = (MODULE.match(file) for file in files)
    return {match.group(1).replace("-", "_") for match in matches if match}


def installed(root: str) -> "set[str]":
    """The modules that are installed for the running kernel. Raises OSError, ValueError."""
    release = line(root, "/proc/sys/kernel/osrelease")
    if "/" in release:
        raise ValueError("not a kernel's release")
    path = "/lib/modules/{}/modules.dep".format(release)
    text = read_bytes(root, path, DEPENDENCIES).decode("utf-8", "backslashreplace")
    return parse_dependencies(text)


def replaced(root: str) -> "set[str]":
    """The modules for which modprobe.d has another command. Raises OSError, ValueError."""
    found: "set[str]" = set()
    for directory in CONFIGURED:
        try:
            files = names(root, directory)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for file in files:
            if file.endswith(".conf"):
                text = read(root, "{}/{}".format(directory, file))
                found.update(name.replace("-", "_") for name in INSTALL.findall(text))
    return found


def has_helper(root: str) -> bool:
    """Whether any user may have nvidia-modprobe load a module."""
    try:
        status = os.stat(path_under(root, HELPER))
    except (FileNotFoundError, NotADirectoryError):
        return False
    mine = stat.S_ISREG(status.st_mode) and status.st_uid == 0
    return mine and bool(status.st_mode & stat.S_ISUID) and bool(status.st_mode & stat.S_IXOTH)


def may_load(root: str) -> bool:
    """Whether the kernel still takes modules. Raises OSError, ValueError."""
    try:
        return line(root, "/proc/sys/kernel/modules_disabled") == "0"
    except FileNotFoundError:
        return False


def on_demand(root: str) -> "list[str]":
    """Those that would be loaded at their first use, loaded or not. Raises OSError, ValueError."""
    if not has_helper(root) or not may_load(root):
        return []
    found = installed(root).difference(replaced(root))
    return [name for name in ON_DEMAND if name in found and "nvidia" in found]
