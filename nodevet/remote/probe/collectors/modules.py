"""Kernel modules and the NVIDIA driver's device nodes.

/proc/modules, /sys/module, /lib/modules/<release>/modules.builtin,
/proc/driver/nvidia/version, /dev/nvidia*; /sys/module/mlx5_core/version; what the firmware says of
secure boot.
"""

import os
import re
import stat
from contextlib import suppress

from nodevet.remote.probe.demand import on_demand
from nodevet.remote.probe.files import (
    Reading,
    attempt,
    exists,
    integer,
    line,
    names,
    numbered,
    parsed,
    path_under,
    quote,
    read_bytes,
    text_lines,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable

CAPABILITIES = "/proc/driver/nvidia/capabilities"
CAPS = "/dev/nvidia-caps"
CAP = re.compile(r"nvidia-cap[0-9]{1,7}\Z")
FOLDERS = (CAPS, CAPS + "-imex-channels")
DEVICE = re.compile(r"nvidia[0-9A-Za-z_-]{0,40}\Z")
LARGEST = 1024  # device nodes
MLX5 = "/sys/module/mlx5_core"
EFI = "/sys/firmware/efi"
SECURE_BOOT = EFI + "/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def parse_modules(text: str) -> "list[str]":
    """The names in /proc/modules, in its order."""
    return [row.split()[0] for row in text_lines(text) if row.strip()]


def loaded_modules(root: str) -> "list[str]":
    """The loaded modules. Raises OSError, ValueError.

    If the running kernel has no /proc/modules, those of /sys/module with an `initstate`, which
    a module in the kernel itself never has (kernel/module/sysfs.c).
    """
    try:
        return parsed(root, "/proc/modules", parse_modules)
    except FileNotFoundError:
        if root != "/":  # a captured tree may hold a part of /sys/module only
            raise
        folder = path_under(root, "/sys/module")
        module_names = names(root, "/sys/module")
        return [
            name for name in module_names if os.path.exists(os.path.join(folder, name, "initstate"))
        ]


def parse_flavour(text: str) -> str:
    """open or proprietary, from the first row of /proc/driver/nvidia/version.

    >>> parse_flavour("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri ...")
    'proprietary'
    """
    row = text.split("\n", 1)[0]
    if not row.startswith("NVRM version: NVIDIA UNIX ") or "Kernel Module" not in row:
        raise ValueError("not a valid driver version: {}".format(quote(row)))
    return "open" if "Open Kernel Module" in row else "proprietary"


def parse_builtin(text: str) -> "list[str]":
    """The names in modules.builtin (Documentation/kbuild/kbuild.rst), in the kernel's spelling.

    >>> parse_builtin("kernel/drivers/net/dummy-x.ko\\nkernel/fs/ext4/ext4.ko\\n")
    ['dummy_x', 'ext4']
    """
    files = [row.rpartition("/")[2] for row in text_lines(text)]
    return [file[:-3].replace("-", "_") for file in files if file.endswith(".ko")]


def builtin_modules(root: str, loaded_modules: "Iterable[str]") -> "list[str]":
    """The modules in the kernel itself: in /sys/module and not loaded, or in modules.builtin.

    A module without parameters is not in /sys/module. Without modules.builtin only /sys/module
    counts.
    """
    modules = set(names(root, "/sys/module"))
    with suppress(FileNotFoundError, NotADirectoryError):
        release = line(root, "/proc/sys/kernel/osrelease")
        if "/" not in release:
            path = "/lib/modules/{}/modules.builtin".format(release)
            modules.update(parsed(root, path, parse_builtin))
    return sorted(modules.difference(loaded_modules))


def device_node(root: str, path: str) -> "Reading | None":
    """The record of a device node; None for a folder of the driver."""
    record = Reading(path=path)
    node_path = path_under(root, path)
    status, why = attempt(os.stat, node_path)
    if status is None:
        record.fail_all(("major", "minor", "mode", "openable"), why)
        return record
    if path in FOLDERS and stat.S_ISDIR(status.st_mode):
        return None
    record["mode"] = "{:04o}".format(stat.S_IMODE(status.st_mode))
    access = os.R_OK if path.startswith(CAPS + "/") else os.R_OK | os.W_OK
    record["openable"] = os.access(node_path, access)
    if stat.S_ISCHR(status.st_mode):
        record["major"] = os.major(status.st_rdev)
        record["minor"] = os.minor(status.st_rdev)
    else:
        record.fail_all(("major", "minor"), "not a character device")
    return record


def device_nodes(root: str) -> "list[Reading]":
    node_names = [name for name in names(root, "/dev") if DEVICE.match(name)]
    with suppress(FileNotFoundError, NotADirectoryError):
        node_names += ["nvidia-caps/" + name for name in names(root, CAPS) if CAP.match(name)]
    if len(node_names) > LARGEST:
        raise ValueError("more than {} entries /dev/nvidia*".format(LARGEST))
    nodes = [device_node(root, "/dev/" + name) for name in node_names]
    return [node for node in nodes if node is not None]


def mig_capabilities(root: str) -> "list[Reading]":
    """The MIG instances, with the minor number of the device node that grants access: `access` in
    NVIDIA's MIG User Guide. Raises OSError, ValueError."""
    folders = []
    for gpu in numbered_folders(root, CAPABILITIES, "gpu"):
        for instance in numbered_folders(root, gpu + "/mig", "gi"):
            folders += [instance] + numbered_folders(root, instance, "ci")
    if len(folders) > LARGEST:
        raise ValueError("more than {} MIG instances".format(LARGEST))
    records = []
    for folder in folders:
        record = Reading(name=folder[len(CAPABILITIES) + 1 :].replace("/mig/", "/"))
        record.take("minor", parsed, root, folder + "/access", parse_minor)
        records.append(record)
    return records


def numbered_folders(root: str, folder: str, prefix: str) -> "list[str]":
    """The folders `<prefix>N` in a folder, by number. Raises OSError, ValueError."""
    try:
        return ["{}/{}{}".format(folder, prefix, number) for number in
                numbered(root, folder, prefix, LARGEST)]  # fmt: skip
    except FileNotFoundError:
        if folder == CAPABILITIES:
            raise
        return []


def parse_minor(text: str) -> int:
    """
    >>> parse_minor("DeviceFileMinor: 30\\nDeviceFileMode: 256\\nDeviceFileModify: 1\\n")
    30
    """
    for row in text_lines(text):
        key, _, value = row.partition(":")
        if key == "DeviceFileMinor":
            return integer(value.strip())
    raise ValueError("no DeviceFileMinor")


def mlx5_version(root: str) -> str:
    """The version of mlx5_core; "" for the kernel's own. Raises OSError, ValueError."""
    if not os.path.isdir(path_under(root, MLX5)):
        raise ValueError("mlx5_core is not loaded")
    try:
        return line(root, MLX5 + "/version")
    except FileNotFoundError:
        return ""


def parse_secure_boot(data: bytes) -> bool:
    """Four bytes of attributes and one of data (UEFI 2.10, 3.3). Raises ValueError.

    >>> parse_secure_boot(b"\\6\\0\\0\\0\\1")
    True
    """
    if len(data) != 5 or data[4] not in (0, 1):
        raise ValueError("not a valid variable SecureBoot")
    return data[4] == 1


def secure_boot(root: str) -> bool:
    """Whether the firmware boots only signed kernels; False without UEFI. Raises OSError,
    ValueError."""
    if not exists(root, EFI):
        return False
    try:
        return parse_secure_boot(read_bytes(root, SECURE_BOOT, 16))
    except FileNotFoundError:
        raise ValueError("efivarfs has no variable SecureBoot, or is not mounted")


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    modules = Reading()
    modules.take("loaded", loaded_modules, root)
    if modules["loaded"] is None:
        modules.fail("builtin", "loaded: " + modules["errors"]["loaded"])
    else:
        modules.take("builtin", builtin_modules, root, modules["loaded"])
    modules.take("on_demand", on_demand, root)
    modules.take("nvidia_version", line, root, "/sys/module/nvidia/version")
    modules.take("nvidia_flavour", parsed, root, "/proc/driver/nvidia/version", parse_flavour)
    modules.take("mlx5_core_version", mlx5_version, root)
    modules.take("secure_boot", secure_boot, root)
    modules.take("device_nodes", device_nodes, root)
    modules.take("mig_capabilities", mig_capabilities, root)
    return modules
