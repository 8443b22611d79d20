"""A node of a multi-node NVLink domain has IMEX: its service, its peers and a channel.

**Why it matters.** On GB200 and GB300 racks a job uses the memory of other nodes' GPUs over NVLink.
Without nvidia-imex, or with a list of peers that is not its domain's, such a job fails with
CUDA_ERROR_NOT_PERMITTED or runs over the network.

**Read from** NVML (the fabric's state, cluster UUID and health mask; the recovery action), the unit
nvidia-imex.service, /etc/nvidia-imex/nodes_config.cfg and /dev/nvidia-caps-imex-channels.

**Verdicts.** A GPU fails if its driver asks to recover the domain (RECOVER_IMEX_DOMAIN). If no GPU
has a cluster UUID, the check is not applicable: the node is not in a multi-node domain, but has
NVSwitches inside it or PCIe cards. But if the baseline gives `nodes`, or if the GPUs are GB200 or
GB300 and registered with their fabric, the node has lost its domain and fails, unless it is idle:
its fabric has no partition for its GPUs. The node also fails if only some GPUs have a cluster UUID,
or if they have several. If Kubernetes or a job's prolog starts IMEX, say `service: false`. `nodes`
is the number of addresses in the list of peers, which must all differ. nodevet does not ask whether
the domain's other nodes answer: `nvidia-imex-ctl -N` does.

**To fix it** write the addresses of the domain's nodes into nodes_config.cfg, the same on all of
them, then `systemctl enable --now nvidia-imex`. For a channel, set `options nvidia
NVreg_CreateImexChannel0=1` in /etc/modprobe.d, and load the module again.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from msgspec import Meta

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import READ_AGAIN, reads_of
from nodevet.checking.nvlink_domain import NO_PARTITION, is_domain, is_idle, lost_domain
from nodevet.checking.recovery import BY_NAME, IMEX_DOMAIN, NONE
from nodevet.evidence.across import IN_HAND, unlisted_gpus_finding
from nodevet.evidence.core import NOT_ASKED, unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Gpus, board, have_same_features, subject_of
from nodevet.evidence.imex import Imex
from nodevet.evidence.services import Units
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    Value,
    fail,
    not_applicable,
    ok,
    unknown,
)

UNIT = "nvidia-imex.service"
ONE_NODE = "no GPU is in a multi-node NVLink domain"
DOMAIN = Subject(kind="imex", id="domain")
EVERY = "one cluster UUID on every GPU"
REGISTERED = (
    "drain the tray and see `fabric`: on the switch trays (NMX-C) this node must be in a partition;"
    " then restart nvidia-imex"
)


class Params(CheckParams):
    """`imex: {}` or `imex: {nodes: 18}` or `imex: {service: false, channel: true}`"""

    service: bool = True
    """Whether nvidia-imex.service must be running."""
    channel: bool = True
    """Whether there must be a channel."""
    nodes: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """The number of addresses in the list of peers."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    yield from to_recover(evidence)
    outside = one_node(evidence, params.nodes)
    if outside is not None:
        yield outside
        return
    unlisted_finding = unlisted_gpus_finding(evidence)
    if unlisted_finding is not None:
        yield unlisted_finding
    yield from judge_domain(evidence)
    section = evidence[Imex]
    if params.service:
        yield judge_service(evidence)
    if section.data is None:
        yield unknown(why=f"IMEX: {section.why}")
        return
    if params.channel:
        yield judge_channel(section.data)
    yield from judge_nodes(section.data, params.nodes)


def to_recover(evidence: Evidence) -> Iterator[Finding]:
    """Each GPU whose driver asks to recover the domain."""
    advice = BY_NAME[IMEX_DOMAIN].value
    for gpu in (data.gpus if (data := evidence[Gpus].data) else None) or ():
        if gpu.recovery_action == IMEX_DOMAIN:
            subject, details = subject_of(gpu), board(gpu)
            yield fail(subject, expected=NONE, actual=IMEX_DOMAIN, advice=advice, details=details)


def one_node(evidence: Evidence, nodes: int | None = None) -> Finding | None:
    """Why IMEX is not judged; None on a node of a multi-node domain. `nodes`: the expected
    number."""
    nvml = evidence[Gpus]
    if nvml.data is None:
        return unknown(why=f"NVML: {nvml.why}")
    if nvml.data.gpus is None:
        return unread(Subject(), nvml.data, "gpus")
    gpus = nvml.data.gpus
    if any(is_domain(gpu.fabric.cluster_uuid) for gpu in gpus):
        return None
    unread_fabrics = [
        gpu.fabric for gpu in gpus if gpu.fabric.cluster_uuid is None and may_have_one(gpu)
    ]
    if unread_fabrics:
        return unread(Subject(), unread_fabrics[0], "cluster_uuid")
    return unlisted_gpus_finding(evidence) or without_domain(gpus, nodes)


def may_have_one(gpu: Gpu) -> bool:
    """Whether the GPU may be in a domain, because it has a fabric."""
    return gpu.fabric.state != "NOT_SUPPORTED" and not unsupported(gpu.fabric, "cluster_uuid")


def without_domain(gpus: Sequence[Gpu], nodes: int | None) -> Finding:
    """The finding about a node without a GPU in a domain."""
    lost = [gpu for gpu in gpus if lost_domain(gpu) is not False]
    if lost and lost[0].pci_device is None:
        return unknown(why=f"{ONE_NODE}; pci_device: {lost[0].why('pci_device')}")
    if not lost and (nodes or 1) == 1:
        return not_applicable(why=NO_PARTITION if any(map(is_idle, gpus)) else ONE_NODE)
    cause = f"fabric {subject_of(lost[0]).label}" if lost else ""
    return domain_finding(actual=None, cause=cause)


def judge_domain(evidence: Evidence) -> Iterator[Finding]:
    """The findings about GPUs that are not all in one domain."""
    data = evidence[Gpus].data
    gpus_listed = (data.gpus if data else None) or ()
    inside = [gpu for gpu in gpus_listed if is_domain(gpu.fabric.cluster_uuid)]
    gpus = [
        gpu
        for gpu in gpus_listed
        if may_have_one(gpu) or any(have_same_features(gpu, member) for member in inside)
    ]
    lacking = [gpu for gpu in gpus if not is_domain(gpu.fabric.cluster_uuid)]
    unread_gpus = [gpu for gpu in lacking if gpu.fabric.cluster_uuid is None]
    outside = [gpu for gpu in lacking if gpu.fabric.cluster_uuid is not None]
    domains = members(inside)
    if outside:
        names = labels(outside)
        cause = f"fabric {subject_of(outside[0]).label}"
        yield domain_finding(actual=f"{names} in no domain", cause=cause)
    if len(domains) > 1:
        yield domain_finding(actual=domains, cause="")
    if unread_gpus:
        yield unread(DOMAIN, unread_gpus[0].fabric, "cluster_uuid")
    elif not outside and len(domains) == 1:
        yield ok(DOMAIN, expected=EVERY, actual=next(iter(domains)))


def members(gpus: Sequence[Gpu]) -> dict[str, str]:
    """The labels of the GPUs in each domain, by its UUID."""
    by_uuid: dict[str, list[Gpu]] = {}
    for gpu in gpus:
        by_uuid.setdefault(gpu.fabric.cluster_uuid or "", []).append(gpu)
    return {uuid: labels(by_uuid[uuid]) for uuid in sorted(by_uuid)}


def labels(gpus: Sequence[Gpu]) -> str:
    return ", ".join(subject_of(gpu).label for gpu in gpus)


def domain_finding(*, actual: Value, cause: str) -> Finding:
    return fail(DOMAIN, expected=EVERY, actual=actual, advice=REGISTERED, cause=cause)


def judge_service(evidence: Evidence) -> Finding:
    subject = Subject(kind="unit", id=UNIT)
    section = evidence[Units]
    units = (section.data.units if section.data else None) or ()
    unit = next((listed_unit for listed_unit in units if listed_unit.name == UNIT), None)
    if section.data is None:
        return unknown(subject, why=f"services: {section.why}")
    if section.data.units is None:
        return unread(subject, section.data, "units")
    if unit is None:
        return unknown(subject, why=NOT_ASKED, advice=READ_AGAIN)
    if unit.active_state is None:
        return unread(subject, unit, "active_state")
    running = unit.active_state == "active"
    advice = "" if running else f"`journalctl -b -u {UNIT}` says why; `systemctl enable --now` it"
    actual = unit.active_state or "no state"
    return (ok if running else fail)(subject, expected="active", actual=actual, advice=advice)


def judge_channel(imex: Imex) -> Finding:
    subject = Subject(kind="imex", id="channels")
    if imex.channels is None:
        return unread(subject, imex, "channels")
    if imex.channels < 1:
        return fail(subject, expected="at least 1", actual=imex.channels, advice=CHANNEL)
    return ok(subject, expected="at least 1", actual=imex.channels)


def judge_nodes(imex: Imex, required: int | None) -> Iterator[Finding]:
    subject = Subject(kind="imex", id="nodes")
    if imex.nodes is None:
        yield unread(subject, imex, "nodes")
        return
    count = len(imex.nodes)
    facts = [ok(subject, expected="any" if required is None else required, actual=count)]
    repeated = sorted(address for address, times in Counter(imex.nodes).items() if times > 1)
    if repeated:
        actual = f"twice: {', '.join(repeated)}"
        facts.append(fail(subject, expected="each address once", actual=actual, advice=NODES))
    if required not in (None, count):
        facts.append(fail(subject, expected=required, actual=count, advice=NODES))
    yield from each_fact(facts)


CHANNEL = (
    "set NVreg_CreateImexChannel0=1 for the module nvidia, or let the DRA driver make channels"
)
NODES = "write /etc/nvidia-imex/nodes_config.cfg again, the same on every node of the domain"


def learn(evidence: Evidence) -> Any:
    imex = evidence[Imex].data
    if one_node(evidence) is not None or imex is None or imex.nodes is None:
        return None
    return {
        "service": judge_service(evidence).verdict.value == "ok",
        "channel": bool(imex.channels),
        **({"nodes": len(imex.nodes)} if imex.nodes else {}),
    }


CHECK = Check(
    params=Params,
    area=Area.NETWORK,
    reads=(
        *IN_HAND,
        "gpu.gpus[].fabric.cluster_uuid",
        "gpu.gpus[].recovery_action",
        *reads_of("gpu.gpus[].fabric", "health_mask", "state", "status"),
        *reads_of("imex", "channels", "nodes[]"),
        *reads_of("services.units[]", "active_state", "name"),
    ),
    judge=judge,
    unasked="for nodes of a multi-node NVLink domain (GB200 and GB300 NVL72)",
    asks=lambda params: {"services": (UNIT,) if params.service else ()},
    learn=learn,
    actions=dict.fromkeys(
        (REGISTERED, CHANNEL, NODES, BY_NAME[IMEX_DOMAIN].value), NeededAction.SITE
    ),
)
