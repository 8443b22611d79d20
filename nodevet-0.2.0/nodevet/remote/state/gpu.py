"""A setting of a GPU: <UUID>:<field of nodevet.evidence.gpu.Gpu>."""

from nodevet.remote.look import absent, present, unknown
from nodevet.remote.managers.patterns import Patterns
from nodevet.remote.probe.children import gather
from nodevet.remote.probe.collectors.gpu import NO_GETTER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SMI = r"nvidia-smi\b(?!\s+[a-z]).*\s(?:{})(?:[\s=,;|&\"')0-9]|$)"  # not dmon, pmon, topo
GPU_FIELDS = {  # field: options of nvidia-smi that set it
    "power_limit_mw": "-pl|--power-limit",
    "persistence_mode": "-pm|--persistence-mode",
    "ecc_pending": "-e|--ecc-config",
    "mig_pending": "-mig|--multi-instance-gpu",
    "compute_mode": "-c|--compute-mode",
    "locked_clock_graphics_min_mhz": "-lgc|-rgc|--lock-gpu-clocks|--reset-gpu-clocks",
    "locked_clock_graphics_max_mhz": "-lgc|-rgc|--lock-gpu-clocks|--reset-gpu-clocks",
    "locked_clock_memory_min_mhz": "-lmc|-rmc|--lock-memory-clocks|--reset-memory-clocks",
    "locked_clock_memory_max_mhz": "-lmc|-rmc|--lock-memory-clocks|--reset-memory-clocks",
    "app_clock_graphics_mhz": "-ac|-rac|--applications-clocks|--reset-applications-clocks",
    "app_clock_memory_mhz": "-ac|-rac|--applications-clocks|--reset-applications-clocks",
}
DCGM = r"dcgmi\s+config\b.*(?:--set|--enforce)"
MIG = r"mig-parted\s+apply"


def prepare(root: str, request: "dict[str, Any]") -> "dict[str, Any]":
    """The section `gpu` of the evidence: one call of NVML for all resources."""
    section: "dict[str, Any]" = gather(("gpu",), root, request, request["deadline"])["gpu"]
    return section


def look(root: str, name: str, section: "dict[str, Any]") -> "dict[str, object]":
    """A field of nodevet.evidence.gpu.Gpu, as the probe reads it.

    A setting without a getter (locked clocks) is absent: it can only be reset.
    """
    if section["status"] != "ok":
        return unknown("NVML: " + section["why"])
    uuid, _, field = name.rpartition(":")
    for gpu in section["data"].get("gpus") or ():
        if uuid and gpu.get("uuid") == uuid:
            why = gpu["errors"].get(field) or gpu["errors"].get("handle")
            if why == NO_GETTER:
                return absent()
            if why is not None or gpu.get(field) is None:
                return unknown(why or "no such setting of a GPU", exists=True)
            return present(gpu[field])
    return unknown("no GPU has this UUID")


def patterns(root: str, name: str) -> "Patterns | None":
    """Commands that set a field: of nvidia-smi, dcgmi, mig-parted."""
    field = name.rpartition(":")[2]
    if field not in GPU_FIELDS:
        return None
    words = SMI.format(GPU_FIELDS[field]) + "|" + DCGM
    if field == "mig_pending":
        return Patterns(words + "|" + MIG, services=("nvidia-mig-manager.service",))
    return Patterns(words)
