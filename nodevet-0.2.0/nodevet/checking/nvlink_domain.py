"""The multi-node NVLink domain of a GPU, for example an NVL72 rack."""

from collections import Counter
from collections.abc import Iterable, Sequence

from nodevet.evidence.gpu import Gpu

MULTI_NODE = frozenset({"10de:2941", "10de:31c2"})
"""GB200 and GB300: their fabric's NVSwitches are outside the node."""
NO_DOMAIN = "no cluster UUID: the GPU is in no multi-node NVLink domain"
NO_PARTITION = "idle: the fabric has no partition for this node"

PARTITION_ASSIGNED = 12  # nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_PARTITION_ASSIGNED; two bits
FALSE = 2


def is_domain(uuid: str | None) -> bool:
    """
    >>> is_domain("00000000-0000-0000-0000-000000000000"), is_domain("4f3c-1")
    (False, True)
    """
    return bool(uuid and uuid.strip("0-"))


def is_registered(gpu: Gpu) -> bool:
    """Whether the GPU's fabric can have a cluster UUID: NVML has none before registration."""
    return (gpu.fabric.state, gpu.fabric.status) == ("COMPLETED", "SUCCESS")


def is_idle(gpu: Gpu) -> bool:
    """Whether the GPU waits for a partition, and so has no domain yet."""
    mask = gpu.fabric.health_mask or 0
    return mask > 0 and mask >> PARTITION_ASSIGNED & 3 == FALSE


def domains(gpus: Iterable[Gpu]) -> Sequence[str]:
    """The cluster UUIDs of the GPUs that are in a domain, the most frequent first."""
    counts = Counter(gpu.fabric.cluster_uuid or "" for gpu in gpus if is_registered(gpu))
    return [uuid for uuid, _ in counts.most_common() if is_domain(uuid)]


def lost_domain(gpu: Gpu) -> bool | None:
    """Whether a registered GPU should be in a multi-node domain and is in none; None: its model is
    not known."""
    if not is_registered(gpu) or gpu.fabric.cluster_uuid is None or is_idle(gpu):
        return False
    if is_domain(gpu.fabric.cluster_uuid):
        return False
    return None if gpu.pci_device is None else gpu.pci_device in MULTI_NODE
