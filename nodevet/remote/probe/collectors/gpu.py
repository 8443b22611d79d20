"""Every GPU in NVML: identity, settings, clocks, temperatures, PCIe, memory, errors.

A lost GPU, a missing function or an unsupported value only costs its own values, which become null
with NVML's error name. Nothing is set, and NVML is shut down before the answer.
"""

from nodevet.remote.probe import settle
from nodevet.remote.probe.files import Absent, Reading, is_this_machine, no_note
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


def read_gpus(nvml: "Nvml", count: int, questions: "Container[str]" = ()) -> "list[Reading]":
    """All GPUs; errors["handle"] of a GPU without a handle, and of a lost one."""
    gpus, devices = [Reading(index=index) for index in range(count)], {}
    for gpu in gpus:
        try:
            device = Device(nvml, gpu["index"])
        except CallError as failure:
            gpu["errors"]["handle"] = str(failure)
        else:
            read_gpu(gpu, device, questions)
            if "handle" not in gpu["errors"]:
                devices[gpu["index"]] = device
    peers(gpus, devices)
    return gpus


def read_gpu(gpu: "Reading", device: "Device", questions: "Container[str]" = ()) -> None:
    """Read the values of a GPU; `questions`: the slow ones that a baseline asks for."""
    fill(gpu, device, IDENTITY)
    device.ask_fields(VALUES)
    fill(gpu, device, VALUES)
    for field in LOCKED_CLOCKS:
        gpu.fail(field, NO_GETTER)
    gpu["ecc"] = ecc(device)
    for field, rows in RECORDS:
        gpu[field] = Reading()
        fill(gpu[field], device, rows)
    gpu["fabric"] = fabric(device)
    mig_devices(gpu, device)
    nvlinks(gpu, device, questions)
    if "inforom_valid" in questions:
        inforom(gpu, device)
    if is_lost(gpu):
        gpu["errors"]["handle"] = LOST


def is_lost(gpu: "Reading") -> bool:
    """Whether NVML says so and no value was read; the driver keeps the UUID and bus id of a lost
    GPU."""
    return LOST in gpu["errors"].values() and all(gpu[row[0]] is None for row in VALUES)


def collect(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    """The JSON form of nodevet.evidence.gpu.Gpus. NVML is always this machine's.

    Raises Absent without the library or for the tree of another machine, SectionError if
    the library does not load or start.
    """
    if not is_this_machine(root, request.get("whole_machine", False)):
        raise Absent("NVML is this machine's, and {} is of another machine".format(root))
    questions = request.get("asks", {}).get("gpu", ())
    nvml = Nvml(load(root), request.get("note", no_note))
    try:
        section = Reading()
        fill(section, System(nvml), NVML)
        if section["count"] is None:
            section.fail("gpus", section["errors"]["count"])
        else:
            section["gpus"] = read_gpus(nvml, section["count"], questions)
        return section
    finally:
        nvml.close()
