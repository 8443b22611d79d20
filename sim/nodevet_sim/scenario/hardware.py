"""The machine and the NVML state that the scenario of a node describes."""

import hashlib
from dataclasses import replace

from nodevet_sim import nvidia_smi_xml
from nodevet_sim.imex_files import DOMAIN
from nodevet_sim.machine import SimulatedMachine
from nodevet_sim.scenario.format import NONE, CpufreqPart, GpusPart, NodePart
from nodevet_sim.scenario.spec import NodeSpec
from nodevet_sim.shipped import KINDS, PLAIN, ProfileMachine, server, shipped_machine, with_devices
from nodevet_sim.state import StateError, for_each, of_gpu, state, values

MOST_CPUS = 4096
ERROR = "NVML_ERROR_"
SAYS_NOTHING = "it does not say which GPUs it has; write gpus: h100-sxm, or gpus: none"


def cpus_of(part: NodePart) -> int:
    """The number of CPUs of the node, if its machine is generated."""
    sockets, cores, _ = _shape(part, _kind(part))
    return sockets * cores * (1 if part.smt is False else 2)


def _kind(part: NodePart) -> ProfileMachine:
    return KINDS.get(part.gpus.profile or "", PLAIN) if part.gpus is not None else PLAIN


def _shape(part: NodePart, kind: ProfileMachine) -> tuple[int, int, int]:
    """Sockets, cores of each, NUMA nodes of each."""
    parts = (part.numa.per_socket if part.numa else None) or 1
    return part.sockets or kind.sockets, part.cores or kind.cores, parts


def hardware(spec: NodeSpec) -> tuple[SimulatedMachine, dict[str, str] | None]:
    """The machine, and its NVML state by key; None without GPUs. Raises ScenarioError."""
    part, gpus = spec.part, spec.part.gpus
    if gpus is None:
        raise spec.error("", SAYS_NOTHING)
    shape = _shape(part, _kind(part))
    if shape[2] > shape[1]:
        raise spec.error("numa", f"{shape[2]} NUMA nodes in a socket of {shape[1]} cores")
    if cpus_of(part) > MOST_CPUS:
        raise spec.error("cores", f"{cpus_of(part)} CPUs; a node has at most {MOST_CPUS}")
    with spec.blame("gpus"):
        machine, known = _source(spec, gpus, shape)
        known = _in_domain(known, part)
    machine = _refined(spec, replace(machine, hostname=spec.name))
    if known is None:
        if part.nvml:
            raise spec.error("nvml", "the node has no GPUs; remove nvml")
        return machine, None
    version = part.nvml.get("driver_version", known.get("driver_version", ""))
    if version.startswith(ERROR):
        version = known.get("driver_version", "")
    driver_version = version or machine.nvidia_version  # an XML may withhold it
    return replace(machine, nvidia_version=driver_version), _driver(known, version)


def _source(
    spec: NodeSpec, gpus: GpusPart, shape: tuple[int, int, int]
) -> tuple[SimulatedMachine, dict[str, str] | None]:
    if gpus.xml is not None:
        return _from_xml(spec, gpus.xml, shape)
    if gpus.profile == NONE or gpus.profile is None:
        machine = server(spec.name, (), PLAIN, shape=shape, nics=1)
        return replace(machine, modules=(), nvidia_version=None), None
    machine = shipped_machine(
        gpus.profile,
        gpus.count,
        name=spec.name,
        sockets=spec.part.sockets,
        cores=spec.part.cores,
        numa_per_socket=shape[2],
    )
    addresses = [gpu.address for gpu in machine.gpus]
    known = values(state(gpus.profile, len(addresses), bus_ids=addresses))
    for index in range(len(addresses)):
        digest = hashlib.sha256(f"{spec.name}/{index}".encode()).hexdigest()
        groups = (digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32])
        known[f"gpu.{index}.uuid"] = f"GPU-{'-'.join(groups)}"
        if f"gpu.{index}.serial" in known:
            known[f"gpu.{index}.serial"] = f"165{int(digest[32:42], 16) % 10**10:010d}"
    return machine, known


def _from_xml(
    spec: NodeSpec, text: str, shape: tuple[int, int, int]
) -> tuple[SimulatedMachine, dict[str, str] | None]:
    node = nvidia_smi_xml.read(spec.path(text))
    if not node.gpus:
        raise StateError(f"{spec.path(text)}: it lists no GPU; write gpus: none")
    part, numa = spec.part, None
    sockets, _, parts = shape
    if part.sockets is not None or (part.numa and part.numa.per_socket):
        count = len(node.gpus)
        numa = {gpu.bus_id: gpu.index * sockets * parts // count for gpu in node.gpus}
    machine = node.machine(spec.name, numa)
    machine = replace(
        machine,
        sockets=sockets if numa else 1,
        numa_per_socket=parts if numa else 1,
        cores_per_socket=part.cores or machine.cores_per_socket,
    )
    return machine, values(node.state())


def _in_domain(known: dict[str, str] | None, part: NodePart) -> dict[str, str] | None:
    """The state of GPUs whose NVSwitches reach other nodes, if they do. Raises StateError."""
    if part.nvlink_domain is None:
        return known
    if known is None or of_gpu(known, 0, "fabric.state") != "COMPLETED":
        raise StateError("no NVSwitch connects these GPUs; remove nvlink_domain")
    values = {"cluster_uuid": DOMAIN, "clique_id": "1"}
    return for_each(known, {f"gpu.*.fabric.{key}": value for key, value in values.items()})


def _driver(known: dict[str, str], version: str) -> dict[str, str]:
    """The state of another driver: every value with the old version gets the new one."""
    old = known.get("driver_version", "")
    return {
        key: value.replace(old, version)
        if old and key.endswith(("driver_version", "nvml_version", "gsp_firmware_version"))
        else value
        for key, value in known.items()
    }


def _refined(spec: NodeSpec, machine: SimulatedMachine) -> SimulatedMachine:
    """The machine with the node's own CPUs, memory and devices."""
    part, numa = spec.part, spec.part.numa
    if numa is not None:
        machine = replace(
            machine,
            memory_only_nodes=numa.memory_only or 0,
            numa_balancing=machine.numa_balancing if numa.balancing is None else numa.balancing,
            node_memory_kb=numa.memory_gb << 20 if numa.memory_gb else machine.node_memory_kb,
        )
    machine = replace(
        with_devices(machine, part.nics, part.nvme, part.nic_kind),
        smt=machine.smt if part.smt is None else part.smt,
        cmdline=part.cmdline or machine.cmdline,
    )
    return _frequencies(spec, machine, part.cpufreq) if part.cpufreq else machine


def _frequencies(
    spec: NodeSpec, machine: SimulatedMachine, cpufreq: CpufreqPart
) -> SimulatedMachine:
    if cpufreq.driver == NONE:
        return replace(machine, cpufreq_driver=None)
    governors = cpufreq.governors or machine.governors_available
    low, high = machine.frequency_khz
    low = cpufreq.min_mhz * 1000 if cpufreq.min_mhz else low
    high = cpufreq.max_mhz * 1000 if cpufreq.max_mhz else high
    if low > high:
        raise spec.error("cpufreq", f"min_mhz {low // 1000} is above max_mhz {high // 1000}")
    driver = cpufreq.driver or machine.cpufreq_driver
    epp = driver in ("intel_pstate", "amd-pstate-epp")
    return replace(
        machine,
        cpufreq_driver=driver,
        cpufreq_per=cpufreq.per or machine.cpufreq_per,
        governors_available=governors,
        governor="performance" if "performance" in governors else governors[0],
        frequency_khz=(low, high),
        epp="performance" if epp else None,
        no_turbo=False if driver == "intel_pstate" else None,
    )
