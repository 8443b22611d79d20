"""Every GPU on NVSwitches is registered with its fabric and reports the fabric healthy.

**Why it matters.** Until the fabric manager has registered a GPU with the NVSwitches, no CUDA
program starts on it (error 802, system not yet initialized), while nvidia-smi shows nothing
unusual. With a degraded fabric, jobs run slowly.

**Read from** NVML, nvmlDeviceGetGpuFabricInfoV: state, status, health summary, health mask, cluster
UUID and clique, from Hopper on; NVSwitches on the PCI bus; the packages `nvidia-fabricmanager*` and
the driver's version.

**Verdicts.** A registration that is not completed fails; within five minutes of boot it is unknown,
because the fabric manager may still be busy with it. A completed registration fails if its status
is not SUCCESS, or if the health mask or its summary names a fault: degraded bandwidth, a route that
recovers or is unhealthy, recovery from access timeouts, an incorrect configuration, limited
capacity. A GPU without a fabric (PCIe cards, GPUs before Hopper) is not applicable; with
`required: true` it fails, except in a virtual machine, where the host registers it. A GPU that is
not registered is not applicable in a virtual machine without NVSwitches. If one GPU of the node is
registered, every other GPU of its model must be registered. A registered GPU of GB200 or GB300
without a cluster UUID has lost its rack's NVLink domain and fails, unless the fabric says that it
waits for a partition. A GPU also fails if it has no cluster UUID while others have one, or if its
cluster UUID differs from theirs. `cluster_uuid: present` and `clique: present` require them of any
GPU; `nodevet compare` of a rack's hosts shows which host differs. On a node with a fabric, an
installed fabric manager of another version than the driver fails: it refuses to start, today or at
its next restart.

**To fix it** see `systemctl status nvidia-fabricmanager` and `journalctl -u nvidia-fabricmanager`;
the package must have the driver's version. If the fabric manager runs and a GPU does not register,
look for SXid in the kernel log and see `nvlink`; then drain the node, and reset all GPUs together
(`nvidia-smi --gpu-reset` without `-i`) or power cycle the node. On NVL72 racks the switch trays
manage the fabric (NMX).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Annotated, Any, Literal

from msgspec import Meta

from nodevet.checking.named import READ_AGAIN, reads_of
from nodevet.checking.nvlink_domain import (
    MULTI_NODE,
    NO_DOMAIN,
    domains,
    is_domain,
    is_idle,
    is_registered,
    lost_domain,
)
from nodevet.evidence.across import IN_HAND, answering_gpus, each_gpu
from nodevet.evidence.core import MISSING, NOT_ASKED, NOT_SUPPORTED, Section, unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Fabric, Gpu, Gpus, board, have_same_features, subject_of
from nodevet.evidence.host import HostInfo
from nodevet.evidence.installed import InstalledPackage, InstalledPackages
from nodevet.evidence.pci import Pci
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    Value,
    compare,
    fail,
    not_applicable,
    ok,
    unknown,
)

UNIT = "nvidia-fabricmanager.service"
UNABLE = "NVML_ERROR_FUNCTION_NOT_FOUND"
NONE_HERE = (*NOT_SUPPORTED, UNABLE)
NO_FABRIC = "this GPU has no fabric to register with"
YOUNG_S = 300
STATES = ("NOT_STARTED", "IN_PROGRESS", "COMPLETED")
HEALTH = ("health_mask", "health_summary")
BARE = ("none", "container")

TRUE = 1  # of the two bits of a sign; 0: not supported, 2: false
SIGNS = {  # nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_*
    0: "degraded bandwidth",
    2: "route recovery in progress",
    4: "route unhealthy",
    6: "access timeout recovery",
}
CONFIGURATION = 8  # four bits; 0: not supported, 1: none
CONFIGURATIONS = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "insufficient NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}
NAMED = 16  # bits; 12 and 14 are no faults: partition assigned, GFM connected
SUMMARIES = {"UNHEALTHY": "unhealthy", "LIMITED_CAPACITY": "limited capacity"}

DOMAIN = (
    "drain the tray; look at its NVLink domain on the switch trays (NMX-C: is this node in a "
    "partition, are its switches up); then restart nvidia-imex or power cycle the tray"
)
GONE = ("not-installed", "config-files")
PACKAGES = ("nvidia-fabricmanager*", "nvidia-fabric-manager*")
CARRIED = re.compile(r"(?:[0-9]+:)?([0-9]{3,4}(?:\.[0-9]+){1,2})(?=[-+~]|\Z)")

LOOK = (
    "`systemctl status nvidia-fabricmanager` and its journal say why: it is not enabled, it has "
    "another version than the driver, or an NVSwitch is missing (SXid in `dmesg`)"
)
REGISTER = f"{LOOK}; then restart it"
TOGETHER = f"{LOOK}; then drain the node, stop it, reset all GPUs together, and start it"
HEAL = (
    "drain the node, collect nvidia-bug-report.sh and the fabric manager's log, look for SXid in "
    "`dmesg` and see nvlink; reset all GPUs together or power cycle the node. If the fault "
    "stays, RMA the part"
)
VERSION = (
    "install the fabric manager's package of the driver's own version, restart "
    "nvidia-fabricmanager on a drained node, and hold both packages together"
)


PRESENT = "present"
ANY = "*"
MOST_ALIKE = 64  # GPUs of one model to compare; no machine has more
UUID = "^(present|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$"


class Params(CheckParams):
    """`fabric: {}`, `fabric: {required: true}`, `fabric: {cluster_uuid: present}` or
    `fabric: {clique: 32766}`"""

    required: bool = False
    """Whether each GPU must have a fabric, as on boards with NVSwitches; virtual machines
    excepted."""

    cluster_uuid: (
        Annotated[str, Meta(pattern=UUID, title="`present`, or a UUID in lower case")] | None
    ) = None
    """`present`: each GPU must be in a multi-node NVLink domain; or the UUID of that domain."""
    clique: Literal["present"] | Annotated[int, Meta(ge=0, lt=2**32)] | None = None
    """`present`: each GPU must have a clique other than 0; or the number of that clique."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    entries, switch_count = tuple(each_gpu(evidence)), switches(evidence)
    gpus = [gpu for gpu in entries if isinstance(gpu, Gpu)]
    by_model = models(gpus)
    for gpu in entries:
        if isinstance(gpu, Finding):
            yield gpu
            continue
        yield from judge_gpu(evidence, gpu, switch_count, others_like(gpu, by_model), params)
    has_fabric = any(gpu.fabric.state in STATES for gpu in gpus)
    if has_fabric or switch_count:
        yield from judge_manager(evidence)


def models(gpus: Sequence[Gpu]) -> Mapping[str | None, Sequence[Gpu]]:
    """The GPUs by PCI device, and all GPUs under ANY."""
    by_device: dict[str | None, list[Gpu]] = {None: [], ANY: [*gpus]}
    for gpu in gpus:
        by_device.setdefault(gpu.pci_device, []).append(gpu)
    return by_device


def others_like(gpu: Gpu, by_model: Mapping[str | None, Sequence[Gpu]]) -> Sequence[Gpu]:
    """The first MOST_ALIKE other GPUs of its model."""
    own = (gpu.pci_device, None) if gpu.pci_device else (ANY,)
    same_model = islice(chain.from_iterable(by_model[key] for key in own), MOST_ALIKE + 1)
    return [other for other in same_model if other is not gpu and have_same_features(other, gpu)]


def judge_gpu(
    evidence: Evidence, gpu: Gpu, switch_count: int | None, like: Sequence[Gpu], params: Params
) -> Iterator[Finding]:
    """`switch_count`: NVSwitches on the PCI bus, None if not read. `like`: the other GPUs of its
    model."""
    subject, fabric = subject_of(gpu), gpu.fabric
    registered = [other for other in like if other.fabric.state == "COMPLETED"]
    if fabric.state == "NOT_SUPPORTED" and registered:
        why = f"{subject_of(registered[0]).label} of the same model is registered"
        yield fail(
            subject,
            expected="COMPLETED",
            actual=fabric.state,
            why=why,
            advice=LOOK,
            details=board(gpu),
        )
    elif fabric.state == "NOT_SUPPORTED" or is_untold(fabric, "state"):
        if params.cluster_uuid is not None or params.clique is not None:
            yield from judge_domain(gpu, like, params)
        elif params.required:
            yield without_fabric(evidence, gpu)
        else:
            yield not_applicable(subject, why=NO_FABRIC)
    elif fabric.state is None:
        yield unread(subject, fabric, "state")
    elif fabric.state != "COMPLETED":
        yield not_completed(evidence, gpu, fabric.state, switch_count, alone=not registered)
    elif fabric.status is None:
        yield unread(subject, fabric, "status")
    else:
        failed = fabric.status != "SUCCESS"
        if failed:
            yield fail(
                subject,
                expected="SUCCESS",
                actual=fabric.status,
                why="the registration ended with this status",
                advice=LOOK,
                details=board(gpu),
            )
        domain_findings = tuple(judge_domain(gpu, like, params))
        yield from domain_findings
        yield from judge_health(gpu, fine=not failed and not domain_findings)
        if unreported := [field for field in HEALTH if is_untold(fabric, field)]:
            yield not_applicable(
                subject, why=f"this driver does not report: {', '.join(unreported)}"
            )


def why_machine_unread(host: Section[HostInfo]) -> str:
    """Why the kind of machine is not known."""
    if host.data is None:
        return f"host: {host.why}"
    return f"virtualization: {host.data.why('virtualization')}"


def without_fabric(evidence: Evidence, gpu: Gpu) -> Finding:
    """The finding about a GPU that reports no fabric and must have one."""
    subject, host = subject_of(gpu), evidence[HostInfo]
    if host.data is None or not host.data.virtualization:
        return unknown(subject, why=why_machine_unread(host))
    if host.data.virtualization not in BARE:
        return not_applicable(subject, why=f"{NO_FABRIC}, and the node is a virtual machine")
    if gpu.fabric.errors.get("state") == UNABLE:
        return unknown(subject, why=f"state: {UNABLE}: this driver does not report it")
    return fail(
        subject,
        expected="COMPLETED",
        actual="NOT_SUPPORTED",
        advice=LOOK,
        details=board(gpu),
    )


def is_untold(fabric: Fabric, field: str) -> bool:
    return getattr(fabric, field) is None and fabric.errors.get(field) in NONE_HERE


def judge_domain(gpu: Gpu, like: Sequence[Gpu], params: Params) -> Iterator[Finding]:
    """The findings about the GPU's domain; none if it is as expected."""
    subject, fabric = subject_of(gpu), gpu.fabric
    others, uuid = domains(like), fabric.cluster_uuid
    lost = lost_domain(gpu)
    expected = params.cluster_uuid
    if expected is None and (others or lost is not False):
        expected = others[0] if others and is_domain(uuid) else PRESENT
    doubt = why_no_domain(gpu, () if params.cluster_uuid else like, asked=bool(expected))
    if not doubt and expected and lost is None and not others and params.cluster_uuid is None:
        doubt = f"{NO_DOMAIN}; pci_device: {gpu.why('pci_device')}"
    if doubt:
        yield unknown(subject, why=doubt)
    elif expected and not (is_domain(uuid) and expected in (PRESENT, uuid)):
        yield domain_fault(gpu, "cluster_uuid", expected, uuid if is_domain(uuid) else None)
    if params.clique is None:
        return
    if fabric.clique_id is None and not lacks(fabric, "clique_id"):
        yield unread(subject, fabric, "clique_id")
    elif fabric.clique_id != params.clique and (params.clique != PRESENT or not fabric.clique_id):
        yield domain_fault(gpu, "clique", params.clique, fabric.clique_id)


def domain_fault(gpu: Gpu, name: str, expected: Value, actual: Value) -> Finding:
    return fail(
        subject_of(gpu),
        expected={name: expected},
        actual={name: actual},
        advice=DOMAIN,
        details=board(gpu),
    )


def why_no_domain(gpu: Gpu, like: Sequence[Gpu], *, asked: bool) -> str:
    """Why the domain of this GPU, or of the others of its model, is not known. Empty if it is
    known, or if no GPU reports one and the baseline does not ask for it (`asked`)."""
    tellers = [gpu, *(other for other in like if is_registered(other) or is_unread(other))]
    unread_gpus = [
        member
        for member in tellers
        if member.fabric.cluster_uuid is None
        and (is_rack(member) or not lacks(member.fabric, "cluster_uuid"))
    ]
    asked = asked or any(map(is_rack, unread_gpus))
    if not unread_gpus or (len(unread_gpus) == len(tellers) and not asked):
        return ""
    first = unread_gpus[0]
    name = "" if first is gpu else f" of {subject_of(first).label}"
    return f"cluster_uuid{name}: {first.fabric.why('cluster_uuid')}"


def is_unread(gpu: Gpu) -> bool:
    """Whether it is not known if the GPU is registered."""
    fabric = gpu.fabric
    return fabric.state is None or (fabric.state == "COMPLETED" and fabric.status is None)


def is_rack(gpu: Gpu) -> bool:
    """Whether the GPU is registered and its model has, or may have, a domain."""
    known = gpu.pci_device in MULTI_NODE or "pci_device" in gpu.errors
    return known and is_registered(gpu) and not is_idle(gpu)


def lacks(fabric: Fabric, field: str) -> bool:
    """Whether NVML has no such value here."""
    return fabric.state == "NOT_SUPPORTED" or is_untold(fabric, field)


def not_completed(
    evidence: Evidence, gpu: Gpu, state: str, switch_count: int | None, *, alone: bool
) -> Finding:
    """The finding about a registration that is not completed. `alone`: no other GPU of its model is
    registered, so in a VM the host may be responsible."""
    subject, host = subject_of(gpu), evidence[HostInfo]
    if host.data is None or not host.data.virtualization:
        return unknown(subject, why=f"{state}; {why_machine_unread(host)}")
    if host.data.virtualization not in BARE:
        if switch_count is None and alone:
            return unknown(subject, why=f"{state}; the PCI bus was not read")
        if not switch_count and alone:
            why = (
                f"{state}; a virtual machine without NVSwitches: its host's fabric manager "
                "registers the GPU"
            )
            return not_applicable(subject, why=why)
    if host.data.uptime_s is None:
        return unknown(subject, why=f"{state}; uptime_s: {host.data.why('uptime_s')}")
    if host.data.uptime_s < YOUNG_S:
        why = (
            f"{state}, {host.data.uptime_s:.0f} s after boot: check again when the fabric "
            "manager has settled"
        )
        return unknown(subject, why=why)
    return fail(
        subject,
        expected="COMPLETED",
        actual=state,
        advice=REGISTER if alone else TOGETHER,
        details=board(gpu),
        cause=f"services unit {UNIT}",
    )


def switches(evidence: Evidence) -> int | None:
    """How many NVSwitches are on the PCI bus; None if that was not read."""
    data = evidence[Pci].data
    if data is None or data.functions is None:
        return None
    return len(data.of_kind("nvswitch"))


def judge_health(gpu: Gpu, *, fine: bool) -> Iterator[Finding]:
    """`fine`: whether the GPU's fabric has no other failure."""
    subject, fabric = subject_of(gpu), gpu.fabric
    summary, (named, doubt) = fabric.health_summary, decode_health_mask(fabric.health_mask or 0)
    faults = named or ([SUMMARIES[summary]] if summary in SUMMARIES else [])
    doubts = [
        f"{field}: {fabric.why(field)}"
        for field in HEALTH
        if getattr(fabric, field) is None and not is_untold(fabric, field)
    ]
    if summary not in (None, "NOT_SUPPORTED", "HEALTHY", *SUMMARIES):
        doubts.append(f"health_summary: {summary} is not a known summary")
    if doubt and summary != "HEALTHY":
        doubts.append(doubt)
    if faults:
        details = {**board(gpu), **raw(gpu)}
        yield fail(subject, expected=[], actual=faults, advice=HEAL, details=details)
    if doubts:
        yield unknown(subject, why="; ".join(doubts))
    elif fine and not faults:
        yield ok(subject, expected="COMPLETED", actual="COMPLETED")


def decode_health_mask(mask: int) -> tuple[list[str], str]:
    """The faults in a health mask; and why it may hold an unknown fault.

    >>> decode_health_mask(0x112), decode_health_mask(0x1a0)
    ((['route unhealthy'], ''), ([], ''))
    """
    if mask < 0:
        return [], f"health_mask: {mask} is not a valid mask"
    signs = {shift: mask >> shift & 3 for shift in SIGNS}
    faults = [SIGNS[shift] for shift, sign in signs.items() if sign == TRUE]
    configuration = mask >> CONFIGURATION & 15
    if configuration > 1:
        name = CONFIGURATIONS.get(configuration, f"number {configuration}")
        faults.append(f"incorrect configuration: {name}")
    if 3 in signs.values() or mask >> NAMED:
        return faults, f"health_mask: {mask:#x} has bits of unknown meaning"
    return faults, ""


def raw(gpu: Gpu) -> Mapping[str, str]:
    mask = gpu.fabric.health_mask
    return {} if mask is None else {"health mask": hex(mask)}


def judge_manager(evidence: Evidence) -> Iterator[Finding]:
    """The findings about installed packages of the fabric manager; none without a package, for
    example in a guest or if a container brings it."""
    section = evidence[InstalledPackages]
    if section.data is None:
        if section.status != "absent" and section.why != MISSING:
            yield unknown(why=f"the fabric manager's package: {section.why}")
        return
    driver = data.driver_version if (data := evidence[Gpus].data) else None
    by_pattern = {package.name: package for package in section.data.packages or ()}
    for name in PACKAGES:
        answer = by_pattern.get(name)
        if answer is None:
            yield unknown(why=f"{name}: {NOT_ASKED}", advice=READ_AGAIN)
        elif answer.found is None:
            yield unknown(why=f"{name}: {answer.why('found')}")
        else:
            for package in answer.found:
                yield from judge_package(package, driver)


def judge_package(package: InstalledPackage, driver: str | None) -> Iterator[Finding]:
    """The finding about one package; none for development files and removed packages."""
    is_untold = [field for field in ("name", "state") if not getattr(package, field)]
    if is_untold:
        yield unknown(
            why=f"a package of the fabric manager: {is_untold[0]}: {package.why(is_untold[0])}"
        )
        return
    if package.state in GONE or "-dev" in (package.name or ""):
        return
    subject = Subject(kind="package", id=package.name or "")
    match = CARRIED.match(package.version or "")
    if driver is None:
        yield unknown(subject, why="the driver's version is not known")
    elif match is None:
        yield unknown(subject, why="the package's version contains no driver version")
    else:
        same = match[1] == driver
        yield compare(subject, expected=driver, actual=match[1], advice="" if same else VERSION)


def learn(evidence: Evidence) -> Any:
    if evidence[Gpus].data is None:
        return None
    domains_found = {
        (gpu.fabric.cluster_uuid, gpu.fabric.clique_id)
        for gpu in answering_gpus(evidence)
        if is_registered(gpu) and is_domain(gpu.fabric.cluster_uuid)
    }
    if len(domains_found) != 1:
        return {}
    ((uuid, clique),) = domains_found
    return {"cluster_uuid": uuid, **({} if clique is None else {"clique": clique})}


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        "gpu.driver_version",
        *reads_of("gpu.gpus[].fabric", "clique_id", "cluster_uuid", "health_mask"),
        *reads_of("gpu.gpus[].fabric", "health_summary", "state", "status"),
        *reads_of("host", "uptime_s", "virtualization"),
        "installed.packages[].name",
        *reads_of("installed.packages[].found[]", "name", "state", "version"),
    ),
    judge=judge,
    asks=lambda params: {"installed": PACKAGES},
    learn=learn,
    actions={
        HEAL: NeededAction.GPU_RESET,
        DOMAIN: NeededAction.SITE,
        VERSION: NeededAction.SITE,
        TOGETHER: NeededAction.GPU_RESET,
        REGISTER: NeededAction.DRAIN_FIX,
        LOOK: NeededAction.SITE,
    },
)
