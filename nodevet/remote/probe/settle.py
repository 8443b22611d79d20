"""How long the GPUs of a node are waited for: by how many they are, and again just after boot.

A GPU that nothing holds is initialised by the call that opens it, 2 to 4 seconds each, one
after the other; with persistence mode that was done before. While a node boots, modules are
being loaded and udev makes /dev/nvidia<N>: what is missing then is there seconds later.
"""

import re

from nodevet.remote.probe.collectors.pci import ADDRESS, DEVICES, LARGEST, NVIDIA, parse_hex
from nodevet.remote.probe.files import attempt, names, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DISPLAY = ("0300", "0302")  # the classes of GPUs
MANY = 8  # GPUs of a whole node
YOUNG = 300.0  # seconds since boot
AGAIN = ("gpu", "pci", "modules")
NEEDED = AGAIN + ("host",)
NOT_YET = ("NVML_ERROR_DRIVER_NOT_LOADED", "NVML_ERROR_NO_PERMISSION", "NVML_ERROR_UNKNOWN")
GIVEN_UP = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")
FOR_GUESTS = ("vfio-pci", "nvgrace-gpu-vfio-pci", "pci-stub", "pciback", "xen-pciback")
NODE = re.compile(r"/dev/nvidia[0-9]{1,4}\Z")


def on_bus(root: str) -> int:
    """How many NVIDIA GPUs are on the PCI bus; none if that cannot be read."""

    def is_gpu(address: str) -> bool:
        place = "{}/{}/".format(DEVICES, address)
        vendor = attempt(parsed, root, place + "vendor", parse_hex, 4)[0]
        code = attempt(parsed, root, place + "class", parse_hex, 6)[0] or ""
        return vendor == NVIDIA and code[:4] in DISPLAY

    addresses = attempt(names, root, DEVICES, LARGEST)[0] or ()
    return sum(is_gpu(address) for address in addresses if ADDRESS.match(address))


def share(root: str) -> float:
    """The part of the deadline that NVML may take: half, and more by each GPU on the bus."""
    return (MANY + min(on_bus(root), MANY)) / float(2 * MANY)


def data(results: "dict[str, Any]", section: str) -> "dict[str, Any]":
    return results.get(section, {}).get("data") or {}


def is_ready_gpu(function: "dict[str, Any]") -> bool:
    """Whether a PCI function is a GPU that the driver of this machine is to bring up."""
    return (
        function["vendor"] == NVIDIA
        and (function["class_code"] or "")[:4] in DISPLAY
        and not function["physfn"]
        and function["revision"] != "ff"
        and function["driver"] not in FOR_GUESTS
    )


def unsettled(results: "dict[str, Any]") -> bool:
    """Whether a node that has just booted may have more of its GPUs in a moment."""
    if not set(NEEDED) <= set(results):
        return False
    uptime = data(results, "host").get("uptime_s")
    if uptime is None or uptime > YOUNG:
        return False
    there = sum(is_ready_gpu(function) for function in data(results, "pci").get("functions") or ())
    gpu = results.get("gpu", {})
    if gpu.get("status") == "error":
        return there > 0 and gpu["why"].startswith(NOT_YET)
    if gpu.get("status") != "ok":
        return False
    handles = [each["errors"].get("handle") for each in data(results, "gpu").get("gpus") or ()]
    nodes = data(results, "modules").get("device_nodes") or ()
    made = sum(NODE.match(node["path"]) is not None for node in nodes)
    return sum(why in (None,) + GIVEN_UP for why in handles) < there or made < there
