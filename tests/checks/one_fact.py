"""What is one fact: two values of which who accepts the one has accepted the other with it, and
checks that judge one fact alone."""

from fnmatch import fnmatchcase
from typing import NamedTuple


class OneFact(NamedTuple):
    """Places in the evidence, as patterns without the `[]` of lists, and why they are one fact."""

    accepted: str
    hidden: str
    why: str
    alike: bool = False  # only where both are shown as the same value
    told: str = ""  # only where the finding about both says so


EITHER = "both decide one value, and that value is what is accepted"
GONE = "what is not there has nothing else that could be judged"
WHICH = "the one says which of the others is judged"
SERIAL = "one serial number that both report, or do not"
EVENT = "one line of the log: what it is about, and when it came"

SAME = OneFact("*", "*", "two ways to the same value, which says it all", alike=True)

ONE_FACT: dict[str, tuple[OneFact, ...]] = {
    "acs": (SAME,),
    "bmc_identity": (
        OneFact("host.*", "bmc.serials*", SERIAL),
        OneFact("bmc.serials*", "host.*", SERIAL),
    ),
    "bmc_events": (OneFact("bmc.events*", "bmc.events*", EVENT),),
    "command": (
        OneFact("*exit", "*matches*", "a text that is there and not found contradicts itself"),
    ),
    "container_runtime": (
        SAME,
        OneFact("*devices*", "*devices*", EITHER),
        OneFact("*devices*", "gpu.gpus*", EITHER),
        OneFact("*runtime", "*program_exists", GONE),
    ),
    "cpu_governor": (SAME,),
    "cpu_idle_states": (OneFact("*", "*", "the slowest of the states that are enabled"),),
    "cuda_libraries": (OneFact("*file", "*", "a stub has no version: no driver is behind it"),),
    "dcgm": (
        SAME,
        OneFact("*incidents*", "*incidents*", EITHER, alike=True),
        OneFact("*overall", "*incidents*", "one word for the node as a whole"),
    ),
    "device_nodes": (
        OneFact("*minor_number", "*device_nodes*", WHICH),
        OneFact("*capabilities.minor", "*device_nodes*", WHICH),
        OneFact("*device_nodes*", "*capabilities.minor", WHICH, alike=True),
    ),
    "disk_space": (OneFact("*missing", "*", GONE),),
    "dkms": (
        OneFact("*builds.kernel", "dkms.kernels", WHICH),
        OneFact("dkms.running", "*", WHICH),
        OneFact("dkms.kernels", "*", WHICH),
        OneFact("*", "dkms.running", WHICH),
    ),
    "dns": (
        OneFact("dns.names*", "dns.names*", "how a name resolves: why not, to what, how fast"),
        OneFact("dns.nameservers", "dns.nameservers", "another server is no longer named twice"),
    ),
    "fabric": (
        SAME,
        OneFact("*health_mask", "*health_summary", "the summary sums up the mask"),
        OneFact("*fabric.state", "*fabric*", "who is not registered has nothing else to judge"),
        OneFact("*fabric.state", "host.uptime_s", "how far its registration is"),
    ),
    "feed": (OneFact("*", "*", "what the GPUs get, by the slowest on their way"),),
    "file": (OneFact("*exists", "*", GONE),),
    "file_handles": (OneFact("kernel.pid_max", "kernel.threads_max", "the lowest limit counts"),),
    "framework_cuda": (
        OneFact("*failed", "*", GONE),
        OneFact("*available", "*devices", "without CUDA it computes on none of them"),
        OneFact("*available", "gpu.count", "without CUDA it computes on none of them"),
    ),
    "gdrcopy": (OneFact("*gdrdrv", "*gdrdrv_version", GONE),),
    "gds": (OneFact("*", "*", "why it does not work: any one reason is enough"),),
    "gpu_count": (OneFact("*", "*", "how many GPUs each of the places has"),),
    "gpu_lost": (SAME,),
    "gpu_slots": (OneFact("*bus_id", "*module_id", WHICH),),
    "gpu_topology": (SAME,),
    "gpudirect": (SAME,),
    "gsp_firmware": (
        OneFact("*enabled", "*version", GONE),
        OneFact("gpu.gpus", "gpu.gpus", "whether GSP firmware runs, as far as others can run it"),
    ),
    "health_validation": (SAME,),
    "hugepages": (OneFact("*size_kb", "*", GONE),),
    "imex": (
        OneFact("*cluster_uuid", "*cluster_uuid", "whether IMEX is judged at all", alike=True),
        OneFact("*cluster_uuid", "*health_mask", "whether a GPU without a domain is idle"),
        OneFact("*cluster_uuid", "*pci_device", "whether a GPU without a domain ought to have one"),
    ),
    "infiniband": (
        OneFact("earlier*", "*", "what the counters of now are compared with"),
        OneFact("*state", "*ports.rate_gbps", "a port that is down has no rate"),
        OneFact("*state", "*ports.width", "a port that is down has no width"),
        OneFact("*state", "host.virtualization", "a port that is down has no rate"),
        OneFact("*state", "*hca_type", "a port that is down has no rate"),
    ),
    "inforom": (
        SAME,
        OneFact("*board_part_number", "*", WHICH),
        OneFact("*version", "*version", "the others that it is compared with"),
    ),
    "iommu": (OneFact("*iommu_group", "*iommu_type", GONE),),
    "kernel_faults": (
        OneFact("*", "*", "how many there are of one kind, by the lines of the log", alike=True),
        OneFact("kernel_log.events.kind", "kernel_log.*", EVENT),
        OneFact("kernel_log.events.kind", "pci.functions*", EVENT),
    ),
    "kernel_modules": (SAME,),
    "leftover_processes": (
        OneFact("*gpus.processes", "*processes*", WHICH),
        OneFact("*", "*", "who has the GPU open", alike=True),
    ),
    "machine_check": (
        OneFact("kernel_log*", "kernel_log*", EVENT),
        OneFact("kernel_log*", "host.uptime_s", EVENT),
    ),
    "memory_errors": (
        OneFact("*", "*since_s", "how many there are, and since when"),
        OneFact("*dimms*", "edac.controllers.*corrected", "its count holds those of its DIMMs"),
    ),
    "memory_fragmentation": (
        OneFact("memory.*", "memory.*", "what the caches hold of all memory"),
    ),
    "memory_pressure": (OneFact("memory.total_kb", "*", "a share of the memory in all"),),
    "memory_size": (SAME,),
    "mounts": (OneFact("*mounted", "*", GONE),),
    "network_link": (
        SAME,
        OneFact("network.interfaces", "*kind", "how many interfaces there are of a kind"),
        OneFact("*operstate", "*speed_mbps", "an interface that is down has no speed"),
        OneFact("*operstate", "*duplex", "an interface that is down has no duplex"),
    ),
    "nfs": (
        OneFact("*age_s", "*", "over which time the others are counted"),
        OneFact("*operations", "*_ms", "over how many operations the others are counted"),
    ),
    "nic_pairing": (OneFact("*", "*", "how many NICs are near a GPU"),),
    "numa_locality": (
        OneFact("numa*", "*", "whether a node has CPUs, and which"),
        OneFact("*numa_node", "*", WHICH),
    ),
    "numa_topology": (OneFact("*", "*", EITHER),),
    "nvlink": (
        OneFact("*nvlinks", "*nvlinks.active", "how many links there are, and are active"),
        OneFact("*nvlinks.active", "*nvlinks*", "a link that is down counts nothing"),
        OneFact("*gpus.nvlinks", "earlier*", "a link that is gone counts nothing"),
        OneFact("*gpus.nvlinks", "host.uptime_s", "a link that is gone counts nothing"),
        OneFact("*gpus.nvlinks", "*pci_device", "how many links GPUs of one model list"),
        OneFact("*gpus.nvlinks", "*gpus.nvlinks", "how many links there are, and are active"),
        OneFact("earlier*", "*", "what the counters of now are compared with"),
    ),
    "nvme_count": (OneFact("*", "*", "how many drives there are"),),
    "nvswitch": (
        SAME,
        OneFact("*revision", "*", GONE),
        OneFact("*link_*", "*link_*", EITHER),
        OneFact("*vendor", "*link_*", WHICH),
        OneFact("*class_code", "*link_*", WHICH),
        OneFact("*link_*", "*vendor", WHICH),
        OneFact("*link_*", "*class_code", WHICH),
        OneFact("pci.functions*", "modules*", "a device node that a switch of the bus explains"),
        OneFact("pci.functions*", "host.virtualization", EITHER),
    ),
    "p2p": (OneFact("*peers*", "host.virtualization", WHICH),),
    "packages": (OneFact("*state", "*", GONE), OneFact("*found", "*state", EITHER)),
    "pci_links": (
        SAME,
        OneFact("*_max", "*_max", EITHER),
        OneFact("*functions", "*upstream", WHICH),
        OneFact("*upstream", "*functions", WHICH),
    ),
    "pcie_errors": (
        OneFact("*vendor", "*", WHICH),
        OneFact("*device", "*", WHICH),
        OneFact("pci*", "kernel_log*", "lines that the counters explain are not judged"),
    ),
    "pcie_link": (
        OneFact("*generation*", "*generation*", EITHER),
        OneFact("*generation*", "*link_gts*", EITHER),
        OneFact("*link_gts*", "*generation*", EITHER),
        OneFact("*generation*", "*event_reasons", EITHER),
        OneFact("*event_reasons", "*generation*", EITHER),
        OneFact("*functions.link_*", "*functions.link_*", "the slowest link on the way"),
        OneFact("*pcie_width", "*functions.link_*", "ends that disagree: it is unknown beside"),
    ),
    "power_limit": (
        OneFact("*power_limit_mw", "*enforced_mw", EITHER, alike=True),
        OneFact("*enforced_mw", "*power_limit_mw", EITHER, alike=True),
        OneFact("*default_mw", "*", "what is expected, of the limit that is set"),
    ),
    "raid": (
        SAME,
        OneFact("*active", "*array_state", EITHER),
    ),
    "rdma": (
        OneFact("*physfn", "*", GONE),
        OneFact("*ports*", "network.interfaces*", "the interface that is judged is another one"),
    ),
    "routes": (OneFact("routes.default*", "routes.default*", "the default routes, as a list"),),
    "row_remapping": (
        OneFact("*remapping", "*", "a GPU remaps rows, or retires pages"),
        OneFact("*retired_pages", "*", "a GPU remaps rows, or retires pages"),
    ),
    "services": (
        OneFact("services.units.*_state", "services.busy", EITHER),
        OneFact("services.units.active_state", "services.units.load_state", EITHER),
    ),
    "storage_errors": (OneFact("kernel_log*", "kernel_log*", EVENT),),
    "stuck_processes": (
        OneFact("*blocked.uid", "*blocked.wchan", WHICH),
        OneFact("*blocked.wchan", "*blocked.uid", WHICH),
    ),
    "time_sync": (
        SAME,
        OneFact("*", "*maxerror_us", "nothing computes the error of a clock without a source"),
    ),
    "vbios": (OneFact("*version", "*version", "the others that it is compared with"),),
    "xid": (
        SAME,
        OneFact("kernel_log.events.*", "*", EVENT),
        OneFact("*", "kernel_log.events.*", EVENT),
        OneFact(
            "kernel_log.events",
            "kernel_log.events",
            "what follows from an Xid at once, and asks for no more",
            told="; then ",
        ),
        OneFact("kernel_log.events", "gpu*", EVENT),
        OneFact("gpu*", "kernel_log.events", EVENT),
        OneFact("kernel_log.*", "kernel_log.since_s", EVENT),
        OneFact("kernel_log.*", "kernel_log.complete", EVENT),
    ),
}

ALONE = {
    "bmc_identity": "whose BMC it is",
    "cpu_idle_states": "the slowest of the states that are enabled",
    "driver_version": "one version",
    "feed": "whether the GPUs of the node are fed",
    "gds": "whether GPUDirect Storage works",
    "gpudirect": "whether GPUDirect RDMA works",
    "memory_fragmentation": "one share of the node, and one of the caches",
    "nvme_count": "one number",
}
"""Checks that judge one fact, and which, though they read several places."""


def is_one_fact(check: str, accepted: str, hidden: str, *, alike: bool, told: str) -> bool:
    """Of two places. `alike`: whether both are shown as one value; `told`: why both fail."""
    names = [name.replace("[]", "") for name in (accepted, hidden)]
    return any(
        fnmatchcase(names[0], each.accepted)
        and fnmatchcase(names[1], each.hidden)
        and (alike or not each.alike)
        and each.told in told
        for each in ONE_FACT.get(check, ())
    )
