"""How long to wait for the GPUs of a node, by their number, and just after boot.

Opening a GPU that nothing holds initialises it, 2 to 4 seconds for each in turn; persistence mode
avoids that. During boot, modules are still loading and udev still makes /dev/nvidia<N>.
"""

import re

from nodevet.remote.probe.collectors.pci import (
    ADDRESS,
    DEVICES,
    LARGEST,
    NVIDIA,
    bound_devices,
    identity,
)
from nodevet.remote.probe.files import attempt, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DISPLAY = ("0300", "0302")  # the classes of GPUs
DRIVER = "/sys/bus/pci/drivers/nvidia"
MANY = 8  # GPUs of a whole node
YOUNG = 300.0  # seconds since boot
AGAIN = ("gpu", "pci", "modules")
NEEDED = AGAIN + ("host",)
NOT_YET = ("NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_NO_PERMISSION", "NVML_ERROR_UNKNOWN")
GIVEN_UP = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")
FOR_GUESTS = ("vfio-pci", "nvgrace-gpu-vfio-pci", "pci-stub", "pciback", "xen-pciback")
NODE = re.compile(r"/dev/nvidia[0-9]{1,4}\Z")


def gpus_on_bus(root: str) -> int:
    """The number of NVIDIA GPUs on the PCI bus; 0 if it cannot be read."""

    def is_gpu(address: str) -> bool:
        record = identity(root, "{}/{}/".format(DEVICES, address), address)
        return record["vendor"] == NVIDIA and (record["class_code"] or "")[:4] in DISPLAY

    addresses = attempt(names, root, DEVICES, LARGEST)[0] or ()
    return sum(is_gpu(address) for address in addresses if ADDRESS.match(address))


def share(root: str) -> float:
    """NVML's part of the deadline: half, and more for each GPU on the bus."""
    # the driver binds GPUs alone, nv_pci_table in its nv-pci-table.c: so many need no count
    is_whole = len(attempt(bound_devices, root, DRIVER)[0] or ()) >= MANY
    return (MANY + (MANY if is_whole else min(gpus_on_bus(root), MANY))) / float(2 * MANY)


def section_data(results: "dict[str, Any]", section: str) -> "dict[str, Any]":
    return results.get(section, {}).get("data") or {}


def is_ready_gpu(function: "dict[str, Any]") -> bool:
    """Whether a PCI function is a GPU for this machine's driver."""
    return (
        function["vendor"] == NVIDIA
        and (function["class_code"] or "")[:4] in DISPLAY
        and not function["physfn"]
        and function["revision"] != "ff"
        and function["driver"] not in FOR_GUESTS
    )


def unsettled(results: "dict[str, Any]") -> bool:
    """Whether a node that has just booted may soon have more GPUs."""
    if not set(NEEDED) <= set(results):
        return False
    uptime = section_data(results, "host").get("uptime_s")
    if uptime is None or uptime > YOUNG:
        return False
    gpu_count = sum(
        is_ready_gpu(function) for function in section_data(results, "pci").get("functions") or ()
    )
    gpu = results.get("gpu", {})
    if gpu.get("status") == "error":
        return gpu_count > 0 and gpu["why"].startswith(NOT_YET)
    if gpu.get("status") != "ok":
        return False
    handles = [
        gpu_record["errors"].get("handle")
        for gpu_record in section_data(results, "gpu").get("gpus") or ()
    ]
    nodes = section_data(results, "modules").get("device_nodes") or ()
    node_count = sum(NODE.match(node["path"]) is not None for node in nodes)
    return sum(why in (None,) + GIVEN_UP for why in handles) < gpu_count or node_count < gpu_count
