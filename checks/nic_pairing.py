"""Each GPU has its own NIC near it on the PCI bus.

**Why it matters.** GPUDirect RDMA runs at full rate if GPU and NIC are below one PCIe switch. If
the path goes through the CPU, it loses half of the rate or more; if two GPUs share one NIC, each
has half of it. NCCL uses whatever path there is and does not warn.

**Read from** the paths of GPUs and NICs in `/sys/bus/pci/devices` and their NUMA nodes; levels as
in `gpu_topology`. NICs are the network controllers of the machine itself, without virtual
functions; the ports of one card count as one NIC.

**Verdicts.** A GPU fails if it has fewer than `nics` NICs at `level` or nearer, or if these are too
few for each GPU to have its own: one NIC serves `gpus_per_nic` GPUs. `devices` (vendor and device
id, 15b3:1021) lists the NICs that count if the node has others, too. In all other cases the GPU is
unknown. In a virtual machine the bus is the hypervisor's, and the check is not applicable.

**To fix it** put NIC and GPU into slots below one switch, as the chassis manual shows. If a NIC is
missing, `lspci -d 15b3:` does not list it either: reseat it.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Literal

from msgspec import Meta

from nodevet.checking.pci_path import (
    LEVELS,
    READS,
    Distance,
    cards,
    distance_between,
    one_node,
    without_real_bus,
)
from nodevet.evidence.across import IN_HAND, each_gpu, gpu_functions, pci_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus, subject_of
from nodevet.evidence.pci import Pci, PciFunction
from nodevet.model import Area, Check, CheckParams, Finding, Value, Verdict, fail, ok, unknown

MOST = 128  # NICs of one node; no server has a hundred physical ones
ADVICE = (
    "compare the slots of NIC and GPU with the chassis manual: both belong below one switch; if a "
    "NIC is missing, reseat it"
)
SHARED = "add NICs, or set how many GPUs share one (gpus_per_nic); if a NIC is missing, reseat it"


PciId = Annotated[str, Meta(title="a vendor and device id", pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]


class Params(CheckParams):
    """`nic_pairing: {level: PXB}` or `nic_pairing: {level: PIX, devices: ["15b3:1021"]}`"""

    level: Literal["PIX", "PXB", "PHB", "NODE"] = "PXB"
    """The farthest level that is near enough."""
    nics: Annotated[int, Meta(ge=1, le=16)] = 1
    """The number of near NICs of each GPU."""
    gpus_per_nic: Annotated[int, Meta(ge=1, le=16)] = 1
    """The number of GPUs that share a NIC."""
    devices: tuple[PciId, ...] = ()
    """The NICs that count; if empty, all do."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    virtual = without_real_bus(evidence)
    if virtual is not None:
        yield virtual
        return
    nics = nics_of(evidence, params)
    alone = one_node(evidence)
    reach = {} if isinstance(nics, str) else reaches(evidence, nics, alone)
    short, unsure = unshared_gpus(reach, params)
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            yield gpu
            continue
        function = pci_of(evidence, gpu)
        if isinstance(function, Finding):
            yield function
        elif isinstance(nics, str):
            yield unknown(subject_of(gpu), why=nics)
        else:
            distances = reach[function.address]
            yield judge_gpu(gpu, distances, params, function.address in short, unsure)


def reaches(
    evidence: Evidence, nics: list[PciFunction], alone: bool | None
) -> dict[str, list[tuple[Distance, str]]]:
    """The distance of each NIC from each GPU on the bus, by the GPU's address."""
    return {
        function.address: [(distance_between(function, nic, alone), nic.address) for nic in nics]
        for function in on_the_bus(evidence)
    }


def unshared_gpus(
    reach: Mapping[str, list[tuple[Distance, str]]], params: Params
) -> tuple[Collection[str], str]:
    """The GPUs for which other GPUs leave no NIC; and why some distance is unknown."""
    shares, short, unsure = Shares(params), set(), ""
    for gpu, distances in reach.items():
        near = near_ones(distances, params)
        unsure = unsure or next((distance.why for distance, _ in distances if distance.why), "")
        if len(near) >= params.nics and not shares.give(gpu, near):
            short.add(gpu)
    return short, unsure


def on_the_bus(evidence: Evidence) -> Iterator[PciFunction]:
    """Every GPU that the bus or NVML shows on the bus."""
    gpus, bus = evidence[Gpus].data, evidence[Pci].data
    own = {gpu.bus_id for gpu in (gpus.gpus if gpus else None) or ()}
    own |= {function.address for function in gpu_functions(evidence)}
    functions = (bus.functions if bus else None) or ()
    yield from (function for function in functions if function.address in own)


def nics_of(evidence: Evidence, params: Params) -> list[PciFunction] | str:
    """The NICs that count, or why they are unknown."""
    section = evidence[Pci]
    functions = section.data.functions if section.data else None
    if functions is None:
        return f"PCI: {section.data.why('functions') if section.data else section.why}"
    for function in functions:
        for field in ("class_code", "vendor"):
            if getattr(function, field) is None:
                return f"{function.address}: {field}: {function.why(field)}"
    nics = section.data.of_kind("nic") if section.data else ()
    for nic in nics:
        if nic.physfn is None:
            return f"{nic.address}: physfn: {nic.why('physfn')}"
        if params.devices and nic.device is None:
            return f"{nic.address}: device: {nic.why('device')}"
    physical = list(cards([nic for nic in nics if not nic.physfn and
                        (not params.devices or nic.id in params.devices)]))  # fmt: skip
    return physical if len(physical) <= MOST else f"{len(physical)} NICs are more than one node has"


There = list[tuple[Distance, str]]


def judge_gpu(
    gpu: Gpu, distances: There, params: Params, nics_taken: bool, unsure_of: str
) -> Finding:
    """`nics_taken`: other GPUs use all near NICs; `unsure_of`: why that is unknown."""
    subject = subject_of(gpu)
    near = near_ones(distances, params)
    unsure = [distance for distance, _ in distances if not distance.level]
    if len(near) < params.nics and unsure:
        return unknown(subject, why=unsure[0].why)
    if len(near) < params.nics:
        return fail(
            subject,
            expected=expected_of(params),
            actual=len(near),
            why=nearest(distances),
            advice=ADVICE,
        )
    if nics_taken:
        return fail(
            subject,
            expected=f"{expected_of(params)}, one for {params.gpus_per_nic}",
            actual=f"{', '.join(near)}: other GPUs use them",
            advice=SHARED,
        )
    if unsure_of:
        return unknown(subject, why=f"unknown whether another GPU uses its NIC: {unsure_of}")
    return ok(subject, expected=expected_of(params), actual=len(near), why=nearest(distances))


def near_ones(distances: There, params: Params) -> list[str]:
    """The addresses of the NICs that are near enough."""
    levels = LEVELS[: LEVELS.index(params.level) + 1]
    return [address for distance, address in distances if distance.level in levels]


def expected_of(params: Params) -> str:
    return f"{params.nics} at {params.level} or nearer"


def nearest(distances: There) -> str:
    if not distances:
        return "the node has no NIC that counts"
    distance, address = min(distances, key=lambda one: (one[0].rank, one[1]))
    return f"the nearest is {address} at {distance.level}"


class Shares:
    """Which GPUs use which NICs, each NIC for up to `gpus_per_nic` GPUs."""

    def __init__(self, params: Params) -> None:
        self._params = params
        self._near: dict[str, list[str]] = {}
        self._users: dict[str, list[str]] = {}

    def give(self, gpu: str, near: list[str]) -> bool:
        """Whether there are NICs for this GPU, too; other GPUs may move to another of their
        NICs."""
        self._near[gpu] = near
        return all(self._place(gpu, set()) for _ in range(self._params.nics))

    def _place(self, gpu: str, tried: set[str]) -> bool:
        for nic in self._near[gpu]:
            users = self._users.setdefault(nic, [])
            if nic in tried or gpu in users:
                continue
            tried.add(nic)
            if len(users) < self._params.gpus_per_nic:
                users.append(gpu)
                return True
            for at, other in enumerate(users):
                if self._place(other, tried):
                    users[at] = gpu
                    return True
        return False


def learn(evidence: Evidence) -> Value:
    """The nearest level at which each GPU has its own NIC, or shares one with few others."""
    for level in ("PIX", "PXB", "PHB", "NODE"):
        for sharing in (1, 2, 4):
            findings = list(judge(evidence, Params(level=level, gpus_per_nic=sharing)))
            if findings and all(finding.verdict is Verdict.OK for finding in findings):
                return {"level": level, **({"gpus_per_nic": sharing} if sharing > 1 else {})}
    return None


CHECK = Check(
    params=Params,
    area=Area.PCIE,
    reads=(*IN_HAND, *READS, "gpu.gpus[].bus_id", "pci.functions[].device"),
    judge=judge,
    unasked="boards pair GPUs and NICs differently: write what yours does",
    learn=learn,
)
