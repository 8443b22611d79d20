"""What each GPU of a node can do with the memory of every other one."""

from nodevet.remote.probe.files import Reading
from nodevet.remote.probe.gpu_nvml import CallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nodevet.remote.probe.gpu_nvml import Device

MOST = 16  # GPUs: it is asked of every pair, and 16 have 120
STATUS = (  # nvmlGpuP2PStatus_t
    "OK",
    "CHIPSET_NOT_SUPPORTED",
    "GPU_NOT_SUPPORTED",
    "IOH_TOPOLOGY_NOT_SUPPORTED",
    "DISABLED_BY_REGKEY",
    "NOT_SUPPORTED",
    "UNKNOWN",
)
CAPABILITIES = (("read", 0), ("nvlink", 2))  # nvmlGpuP2PCapsIndex_t


def peers(gpus: "list[Reading]", devices: "dict[int, Device]") -> None:
    """Set `peers` of each of the GPUs; `devices`: those with a handle, by index.

    A pair is asked once: the answer is the same from both of its ends.
    """
    if len(gpus) > MOST:
        for gpu in gpus:
            gpu.fail("peers", "more than {} GPUs: not asked".format(MOST))
        return
    found: "dict[int, list[dict[str, Any]]]" = {gpu["index"]: [] for gpu in gpus}
    for one in sorted(devices):
        for other in sorted(devices):
            if one < other:
                pair = of_pair(devices[one], devices[other])
                found[one].append(dict(pair, index=other))
                found[other].append(dict(pair, index=one))
    for gpu in gpus:
        if gpu["index"] in devices:
            gpu["peers"] = sorted(found[gpu["index"]], key=lambda peer: peer["index"])


def of_pair(device: "Device", other: "Device") -> "Reading":
    record = Reading()
    for field, capability in CAPABILITIES:
        try:
            status = device.nvml.call(
                device.label, "nvmlDeviceGetP2PStatus", device.handle, other.handle, capability
            )
            record[field] = STATUS[status] if status < len(STATUS) else "UNKNOWN"
        except CallError as failure:
            record.fail(field, str(failure))
    return record
