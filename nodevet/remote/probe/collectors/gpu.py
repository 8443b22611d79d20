"""Every GPU as NVML sees it: identity, settings, clocks, temperatures, PCIe, memory, errors.

A lost GPU, a function that this driver lacks, a value that this product does not
have: each costs its own value and no other, and NVML's error name stands next to the
null. Nothing is set, and NVML is shut down before the answer is written.
"""

from nodevet.remote.probe import settle
from nodevet.remote.probe.files import Absent, Reading, is_this_machine, silent
from nodevet.remote.probe.gpu_health import (
    REMAPPING,
    REPAIR,
    RETIRED_PAGES,
    ecc,
    fabric,
    inforom,
    mig_devices,
    nvlinks,
)
from nodevet.remote.probe.gpu_nvml import CallError, Device, Nvml, System, fill, load
from nodevet.remote.probe.gpu_peers import peers
from nodevet.remote.probe.gpu_values import IDENTITY, NVML, VALUES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Container


ALONE = True
COUNTERS = True
AGAIN = settle.AGAIN
share = settle.share
unsettled = settle.unsettled
LOST = "NVML_ERROR_GPU_IS_LOST"
NO_GETTER = "NVML has no call that reads it"
RECORDS = (("remapping", REMAPPING), ("retired_pages", RETIRED_PAGES), ("repair", REPAIR))
LOCKED_CLOCKS = (
    "locked_clock_graphics_min_mhz",
    "locked_clock_graphics_max_mhz",
    "locked_clock_memory_min_mhz",
    "locked_clock_memory_max_mhz",
)


def read_gpus(nvml: "Nvml", count: int, asked: "Container[str]" = ()) -> "list[Reading]":
    """All of them. Without a handle one is its index and why; `handle` also fails when lost."""
    gpus, devices = [Reading(index=index) for index in range(count)], {}
    for gpu in gpus:
        try:
            device = Device(nvml, gpu["index"])
        except CallError as failure:
            gpu["errors"]["handle"] = str(failure)
        else:
            read_gpu(gpu, device, asked)
            if "handle" not in gpu["errors"]:
                devices[gpu["index"]] = device
    peers(gpus, devices)
    return gpus


def read_gpu(gpu: "Reading", device: "Device", asked: "Container[str]" = ()) -> None:
    """The values of one GPU; `asked`: those that take long and are read only if asked for."""
    fill(gpu, device, IDENTITY)
    fill(gpu, device, VALUES)
    for field in LOCKED_CLOCKS:
        gpu.fail(field, NO_GETTER)
    gpu["ecc"] = ecc(device)
    for field, rows in RECORDS:
        gpu[field] = Reading()
        fill(gpu[field], device, rows)
    gpu["fabric"] = fabric(device)
    mig_devices(gpu, device)
    nvlinks(gpu, device, asked)
    if "inforom_valid" in asked:
        inforom(gpu, device)
    if is_lost(gpu):
        gpu["errors"]["handle"] = LOST


def is_lost(gpu: "Reading") -> bool:
    """Whether NVML says so and nothing but what it remembers of the GPU was read.

    The driver keeps some identity (UUID, bus id) of a GPU that is gone.
    """
    return LOST in gpu["errors"].values() and all(gpu[row[0]] is None for row in VALUES)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    """The JSON form of nodevet.evidence.gpu.Gpus. NVML has no root: it is this machine's.

    Raises Absent without the library or for the tree of another machine, SectionError if
    the library does not load or start.
    """
    if not is_this_machine(root, request.get("whole_machine", False)):
        raise Absent("NVML is this machine's, and {} is of another machine".format(root))
    asked = request.get("asks", {}).get("gpu", ())
    nvml = Nvml(load(), request.get("note", silent))
    try:
        found = Reading()
        fill(found, System(nvml), NVML)
        if found["count"] is None:
            found.fail("gpus", found["errors"]["count"])
        else:
            found["gpus"] = read_gpus(nvml, found["count"], asked)
        return found
    finally:
        nvml.close()
