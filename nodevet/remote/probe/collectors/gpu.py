"""Every GPU as NVML sees it: identity, settings, clocks, temperatures, PCIe, memory, errors.

A lost GPU, a function that this driver lacks, a value that this product does not
have: each costs its own value and no other, and NVML's error name stands next to the
null. Nothing is set, and NVML is shut down before the answer is written.
"""

from nodevet.remote.probe import settle
from nodevet.remote.probe.files import Absent, Reading, is_this_machine, silent
from nodevet.remote.probe.gpu_health import (
    REMAPPING,
    RETIRED_PAGES,
    ecc,
    fabric,
    mig_devices,
    nvlinks,
)
from nodevet.remote.probe.gpu_nvml import CallError, Device, Nvml, System, fill, load
from nodevet.remote.probe.gpu_values import IDENTITY, NVML, VALUES

ALONE = True
AGAIN = settle.AGAIN
share = settle.share
unsettled = settle.unsettled
LOST = "NVML_ERROR_GPU_IS_LOST"
NO_GETTER = "NVML has no call that reads it"
LOCKED_CLOCKS = (
    "locked_clock_graphics_min_mhz",
    "locked_clock_graphics_max_mhz",
    "locked_clock_memory_min_mhz",
    "locked_clock_memory_max_mhz",
)


def read_gpu(nvml, index):
    """One GPU. Without a handle it is its index and why; `handle` also fails when lost."""
    gpu = Reading(index=index)
    try:
        device = Device(nvml, index)
    except CallError as failure:
        gpu["errors"]["handle"] = str(failure)
        return gpu
    fill(gpu, device, IDENTITY)
    fill(gpu, device, VALUES)
    for field in LOCKED_CLOCKS:
        gpu.fail(field, NO_GETTER)
    gpu["ecc"] = ecc(device)
    for field, rows in (("remapping", REMAPPING), ("retired_pages", RETIRED_PAGES)):
        gpu[field] = Reading()
        fill(gpu[field], device, rows)
    gpu["fabric"] = fabric(device)
    mig_devices(gpu, device)
    nvlinks(gpu, device)
    if is_lost(gpu):
        gpu["errors"]["handle"] = LOST
    return gpu


def is_lost(gpu):
    """Whether NVML says so and nothing but what it remembers of the GPU was read.

    The driver keeps some identity (UUID, bus id) of a GPU that is gone.
    """
    return LOST in gpu["errors"].values() and all(gpu[row[0]] is None for row in VALUES)


def collect(root, request):
    """The JSON form of nodevet.evidence.gpu.Gpus. NVML has no root: it is this machine's.

    Raises Absent without the library or for the tree of another machine, SectionError if
    the library does not load or start.
    """
    if not is_this_machine(root, request.get("whole_machine", False)):
        raise Absent("NVML is this machine's, and {} is of another machine".format(root))
    nvml = Nvml(load(), request.get("note", silent))
    try:
        found = Reading()
        fill(found, System(nvml), NVML)
        if found["count"] is None:
            found.fail("gpus", found["errors"]["count"])
        else:
            found["gpus"] = [read_gpu(nvml, index) for index in range(found["count"])]
        return found
    finally:
        nvml.close()
