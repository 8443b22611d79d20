"""Faults of the NVIDIA driver's parts: device nodes, modules for GPUDirect, packages. A node must
be booted to have any of them. A function's docstring is the fault's documentation."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.faults.change import file_values, inside, installed
from nodevet_sim.faults.params import FaultParams, NoParams
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.state import count_of
from nodevet_sim.tree import NVFS

DRIVER = "proc/driver/nvidia/version"
DevicePath = Annotated[str, Field(pattern=r"^/dev/[a-z0-9-]{1,40}$")]


class OneDeviceNode(FaultParams):
    path: DevicePath = "/dev/nvidia-uvm"


class ClosedNode(OneDeviceNode):
    mode: Annotated[str, Field(pattern=r"^0[0-7]{3}$")] = "0660"


def device_node_missing(healthy: Healthy, want: OneDeviceNode) -> Patch:
    """A device node of the driver is not there.

    `path`, /dev/nvidia-uvm.
    """
    return Patch(devices={_device(healthy, want.path): None})


def device_node_closed(healthy: Healthy, want: ClosedNode) -> Patch:
    """Only root may open a device node of the driver; to a probe as root, only its mode differs.

    `path`, /dev/nvidia-uvm; `mode`, 0660.
    """
    return Patch(devices={_device(healthy, want.path): want.mode})


def _device(healthy: Healthy, path: str) -> str:
    """Raises FaultError if the node has no such."""
    if path not in healthy.device_nodes:
        raise FaultError(f"the node has no {path}")
    return path


def gpudirect_off(healthy: Healthy, want: NoParams) -> Patch:
    """GPUDirect RDMA cannot work: no nvidia_peermem, and a proprietary driver without dma-buf."""
    module = _loaded(healthy, "nvidia_peermem")
    version_text = str(healthy.files.get(DRIVER, ""))
    files = {DRIVER: version_text.replace("Open Kernel Module for x86_64", "x86_64 Kernel Module")}
    return Patch(healthy.present(files), modules={module: "available"})


def nvidia_fs_missing(healthy: Healthy, want: NoParams) -> Patch:
    """The module of GPUDirect Storage, nvidia_fs, is not loaded."""
    return Patch(
        modules={_loaded(healthy, "nvidia_fs"): "available"}, gone_paths=frozenset((NVFS,))
    )


def gdrdrv_missing(healthy: Healthy, want: NoParams) -> Patch:
    """The module of GDRCopy, gdrdrv, is not loaded, and so there is no /dev/gdrdrv."""
    module = _loaded(healthy, "gdrdrv")
    return Patch(modules={module: "available"}, devices={"/dev/gdrdrv": None})


class OldModule(FaultParams):
    version: Annotated[str, Field(pattern=r"^[0-9][0-9.]{0,20}$")] = "2.3"


def gdrdrv_old(healthy: Healthy, want: OldModule) -> Patch:
    """The module of GDRCopy, gdrdrv, is an old release.

    `version`, 2.3.
    """
    _loaded(healthy, "gdrdrv")
    return file_values(healthy, "sys/module/gdrdrv", {"version": want.version})


class FileForNode(FaultParams):
    path: DevicePath = "/dev/nvidia5"


def device_node_file(healthy: Healthy, want: FileForNode) -> Patch:
    """A device node of the driver is a plain file, as a container engine makes it for a mount.

    `path`, /dev/nvidia5.
    """
    path = _device(healthy, want.path)
    return inside(f"rm -f {path} && : >{path}")


def _loaded(healthy: Healthy, module: str) -> str:
    """Raises FaultError if the node has no such."""
    if not any(path.startswith(f"sys/module/{module}/") for path in healthy.files):
        raise FaultError(f"the node has no module {module}")
    return module


class Installed(FaultParams):
    version: Annotated[str, Field(pattern=r"^[0-9]{3}\.[0-9.]{1,10}$")] = "535.54.03"


def fabric_manager_other(healthy: Healthy, want: Installed) -> Patch:
    """The package of the fabric manager is of another version than the driver; it still runs.

    `version`, of the package, 535.54.03. It needs dpkg.
    """
    if not count_of(healthy.state):
        raise FaultError("the node has no GPU")
    if healthy.state.get("driver_version") == want.version:
        raise FaultError(f"the driver has version {want.version} too; give another `version`")
    name = f"nvidia-fabricmanager-{want.version.partition('.')[0]}"
    return installed(name, f"{want.version}-1")


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "device-node-closed": (ClosedNode, device_node_closed),
    "device-node-file": (FileForNode, device_node_file),
    "device-node-missing": (OneDeviceNode, device_node_missing),
    "fabric-manager-other": (Installed, fabric_manager_other),
    "gdrdrv-missing": (NoParams, gdrdrv_missing),
    "gdrdrv-old": (OldModule, gdrdrv_old),
    "gpudirect-off": (NoParams, gpudirect_off),
    "nvidia-fs-missing": (NoParams, nvidia_fs_missing),
}
