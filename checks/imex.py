"""A node of a multi-node NVLink domain has IMEX: its service, its peers and a channel.

**Why it matters.** On GB200 and GB300 racks a job uses the memory of other nodes' GPUs over NVLink.
Without nvidia-imex, or with a list of peers that is not its domain's, such a job fails with
CUDA_ERROR_NOT_PERMITTED or goes over the network.

**Read from** NVML (the fabric's cluster UUID), the unit nvidia-imex.service,
/etc/nvidia-imex/nodes_config.cfg and /dev/nvidia-caps-imex-channels.

**Verdicts.** Where no GPU has a cluster UUID the question does not arise: one node, NVSwitch inside
it or PCIe cards. Where Kubernetes or a job's prolog starts IMEX, say `service: false`. `nodes` is
the number of addresses in the list of peers, no two of which may be the same. Whether the domain's
other nodes answer is not asked: `nvidia-imex-ctl -N` does.

**To fix it** write the addresses of the domain's nodes into nodes_config.cfg, the same on all of
them, then `systemctl enable --now nvidia-imex`. A channel: `options nvidia
NVreg_CreateImexChannel0=1` in /etc/modprobe.d, and load the module again.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from msgspec import Meta

from nodevet.checking.named import READ_AGAIN
from nodevet.evidence.across import IN_HAND, unlisted
from nodevet.evidence.core import NOT_ASKED, unread, unsupported
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpus
from nodevet.evidence.imex import Imex
from nodevet.evidence.services import Units
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Subject,
    fail,
    not_applicable,
    ok,
    unknown,
)

UNIT = "nvidia-imex.service"
ONE_NODE = "no GPU is in a multi-node NVLink domain"


class Params(CheckParams):
    """`imex: {}` or `imex: {nodes: 18}` or `imex: {service: false, channel: true}`"""

    service: bool = True
    """Whether nvidia-imex.service must be running."""
    channel: bool = True
    """Whether there must be a channel."""
    nodes: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """Addresses in the list of peers."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    outside = one_node(evidence)
    if outside is not None:
        yield outside
        return
    short = unlisted(evidence)
    if short is not None:
        yield short
    section = evidence[Imex]
    if params.service:
        yield judge_service(evidence)
    if section.data is None:
        yield unknown(why=f"IMEX: {section.why}")
        return
    if params.channel:
        yield judge_channel(section.data)
    yield judge_nodes(section.data, params.nodes)


def one_node(evidence: Evidence) -> Finding | None:
    """Why IMEX is not judged; None on a node of a multi-node domain."""
    nvml = evidence[Gpus]
    if nvml.data is None:
        return unknown(why=f"NVML: {nvml.why}")
    if nvml.data.gpus is None:
        return unread(Subject(), nvml.data, "gpus")
    fabrics = [gpu.fabric for gpu in nvml.data.gpus]
    if any(is_domain(fabric.cluster_uuid) for fabric in fabrics):
        return None
    unsaid = [fabric for fabric in fabrics if fabric.cluster_uuid is None]
    unsaid = [fabric for fabric in unsaid if not unsupported(fabric, "cluster_uuid")]
    if unsaid:
        return unread(Subject(), unsaid[0], "cluster_uuid")
    return unlisted(evidence) or not_applicable(why=ONE_NODE)


def is_domain(uuid: str | None) -> bool:
    """
    >>> is_domain("00000000-0000-0000-0000-000000000000"), is_domain("4f3c-1")
    (False, True)
    """
    return bool(uuid and uuid.strip("0-"))


def judge_service(evidence: Evidence) -> Finding:
    subject = Subject(kind="unit", id=UNIT)
    section = evidence[Units]
    listed = (section.data.units if section.data else None) or ()
    unit = next((each for each in listed if each.name == UNIT), None)
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


def judge_channel(found: Imex) -> Finding:
    subject = Subject(kind="imex", id="channels")
    if found.channels is None:
        return unread(subject, found, "channels")
    if found.channels < 1:
        return fail(subject, expected="at least 1", actual=found.channels, advice=CHANNEL)
    return ok(subject, expected="at least 1", actual=found.channels)


def judge_nodes(found: Imex, wanted: int | None) -> Finding:
    subject = Subject(kind="imex", id="nodes")
    if found.nodes is None:
        return unread(subject, found, "nodes")
    twice = sorted(each for each, count in Counter(found.nodes).items() if count > 1)
    if twice:
        actual = f"twice: {', '.join(each[:60] for each in twice[:4])}"
        return fail(subject, expected="each address once", actual=actual, advice=NODES)
    count = len(found.nodes)
    if wanted is not None and count != wanted:
        return fail(subject, expected=wanted, actual=count, advice=NODES)
    return ok(subject, expected=wanted if wanted is not None else "any", actual=count)


CHANNEL = (
    "set NVreg_CreateImexChannel0=1 for the module nvidia, or let the DRA driver make channels"
)
NODES = "write /etc/nvidia-imex/nodes_config.cfg again, the same on every node of the domain"


def asks(params: Params) -> Mapping[str, tuple[str, ...]]:
    return {"services": (UNIT,) if params.service else ()}


def learn(evidence: Evidence) -> Any:
    found = evidence[Imex].data
    if one_node(evidence) is not None or found is None or found.nodes is None:
        return None
    return {
        "service": judge_service(evidence).verdict.value == "ok",
        "channel": bool(found.channels),
        **({"nodes": len(found.nodes)} if found.nodes else {}),
    }


CHECK = Check(
    params=Params,
    area=Area.NETWORK,
    reads=(
        *IN_HAND,
        "gpu.gpus[].fabric.cluster_uuid",
        "imex.channels",
        "imex.nodes[]",
        "services.units[].active_state",
        "services.units[].name",
    ),
    judge=judge,
    unasked="for nodes of a multi-node NVLink domain (GB200 NVL72)",
    asks=asks,
    learn=learn,
)
