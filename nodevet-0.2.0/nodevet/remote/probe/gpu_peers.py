"""How each GPU of a node can access the memory of the others."""

from nodevet.remote.probe.files import Reading
from nodevet.remote.probe.gpu_nvml import CallError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from nodevet.remote.probe.gpu_nvml import Device

MOST = 16  # GPUs, which are 120 pairs
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
    """Set `peers` of each GPU. `devices`: {index: GPU with a handle}. Both ends of a pair give the
    same answer."""
    if len(gpus) > MOST:
        for gpu in gpus:
            gpu.fail("peers", "more than {} GPUs: not asked".format(MOST))
        return
    peers_by_index: "dict[int, list[dict[str, Any]]]" = {gpu["index"]: [] for gpu in gpus}
    for first in sorted(devices):
        for second in sorted(devices):
            if first < second:
                pair = peer_status(devices[first], devices[second])
                peers_by_index[first].append(dict(pair, index=second))
                peers_by_index[second].append(dict(pair, index=first))
    for gpu in gpus:
        if gpu["index"] in devices:
            gpu["peers"] = sorted(peers_by_index[gpu["index"]], key=lambda peer: peer["index"])


def peer_status(device: "Device", other: "Device") -> "Reading":
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
