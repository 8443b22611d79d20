"""Modules of the NVIDIA driver that a program loads at first use.

The driver's libraries run nvidia-modprobe(1), which is setuid root, for a missing module: CUDA with
-u (nvidia-uvm), graphics with -m (nvidia-modeset). With NVIDIA's .run installer nothing else loads
nvidia-uvm, so it is missing until the first job after boot. See modules.dep and modprobe.d(5).
"""

import os
import re
import stat

from nodevet.remote.probe.files import (
    line,
    names_or_empty,
    path_under,
    read,
    read_bytes,
    text_lines,
)
from nodevet.remote.probe.patterns import Pattern

HELPER = "/usr/bin/nvidia-modprobe"
ON_DEMAND = ("nvidia_modeset", "nvidia_uvm")
DEPENDENCIES = 16 << 20  # bytes of modules.dep; 0.7 MB in a distribution
CONFIGURED = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
MODULE = Pattern(r"([A-Za-z0-9_-]+)\.ko(?:\.(?:gz|xz|zst))?\Z")
INSTALL = Pattern(r"^\s*install\s+(\S+)\s", re.M)


def parse_dependencies(text: str) -> "set[str]":
    """The modules of modules.dep, in the kernel's spelling.

    >>> sorted(parse_dependencies("updates/dkms/nvidia-uvm.ko.zst: updates/dkms/nvidia.ko.zst"))
    ['nvidia_uvm']
    """
    files = (row.partition(":")[0].rpartition("/")[2] for row in text_lines(text))
    matches = (MODULE.match(file) for file in files)
    return {match.group(1).replace("-", "_") for match in matches if match}


def installed_modules(root: str) -> "set[str]":
    """The modules installed for the running kernel. Raises OSError, ValueError."""
    release = line(root, "/proc/sys/kernel/osrelease")
    if "/" in release:
        raise ValueError("not a kernel's release")
    path = "/lib/modules/{}/modules.dep".format(release)
    text = read_bytes(root, path, DEPENDENCIES).decode("utf-8", "backslashreplace")
    return parse_dependencies(text)


def overridden_modules(root: str) -> "set[str]":
    """The modules with an install command in modprobe.d. Raises OSError, ValueError."""
    modules: "set[str]" = set()
    for directory in CONFIGURED:
        for file in names_or_empty(root, directory):
            if file.endswith(".conf"):
                text = read(root, "{}/{}".format(directory, file))
                modules.update(name.replace("-", "_") for name in INSTALL.findall(text))
    return modules


def has_helper(root: str) -> bool:
    """Whether any user may have nvidia-modprobe load a module."""
    try:
        status = os.stat(path_under(root, HELPER))
    except (FileNotFoundError, NotADirectoryError):
        return False
    is_root_file = stat.S_ISREG(status.st_mode) and status.st_uid == 0
    return (
        is_root_file and bool(status.st_mode & stat.S_ISUID) and bool(status.st_mode & stat.S_IXOTH)
    )


def may_load(root: str) -> bool:
    """Whether the kernel still loads modules. Raises OSError, ValueError."""
    try:
        return line(root, "/proc/sys/kernel/modules_disabled") == "0"
    except FileNotFoundError:
        return False


def on_demand(root: str) -> "list[str]":
    """The modules that first use would load, loaded or not. Raises OSError, ValueError."""
    if not has_helper(root) or not may_load(root):
        return []
    loadable = installed_modules(root).difference(overridden_modules(root))
    return [name for name in ON_DEMAND if name in loadable and "nvidia" in loadable]
