"""Every GPU can read the memory of every other GPU of the node, over NVLink if required.

**Why it matters.** Without peer-to-peer access NCCL copies through the host's memory: a job runs,
but at a fraction of its bandwidth. The cause is often outside the GPU: ACS, the IOMMU, a virtual
machine's topology, or a module parameter that a debugging session left behind.

**Read from** NVML, nvmlDeviceGetP2PStatus of each pair: read access, and NVLink.

**Verdicts.** A GPU fails if it cannot reach some peers; the finding names them with NVML's reason.
In a virtual machine the host decides the topology: if it does not allow peer access, the GPU is not
applicable, unless the baseline requires NVLink. A node with one GPU, a GPU in MIG mode and a vGPU
are not applicable. A pair for which NVML reports no status is unknown. nodevet does not read the
pairs of more than 16 GPUs.

**To fix it** CHIPSET_NOT_SUPPORTED, IOH_TOPOLOGY_NOT_SUPPORTED: the GPUs are on different root
complexes, or ACS and IOMMU send their traffic through the host. DISABLED_BY_REGKEY: look for
NVreg_RegistryDwords in /etc/modprobe.d. GPU_NOT_SUPPORTED: this model does not support peer access
(GeForce). Over NVLink: see `nvlink` and `fabric`.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from nodevet.checking.named import judge_each, reads_of
from nodevet.evidence.across import IN_HAND, answering_gpus, each_gpu
from nodevet.evidence.core import NOT_SUPPORTED, unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, Peer, board, subject_of
from nodevet.evidence.host import HostInfo
from nodevet.model import Area, Check, CheckParams, Finding, fail, not_applicable, ok, unknown

NOT_REPORTED = (*NOT_SUPPORTED, "NVML_ERROR_FUNCTION_NOT_FOUND")
BARE = ("none", "container")
TOPOLOGY = ("CHIPSET_NOT_SUPPORTED", "IOH_TOPOLOGY_NOT_SUPPORTED")
PCIE = (
    "compare `nvidia-smi topo -p2p r` and `lspci -vv` (ACSCtl) with a healthy node; check ACS "
    "and IOMMU in the BIOS and on the kernel's command line, and NVreg_RegistryDwords in "
    "/etc/modprobe.d"
)
LINKS = "see nvlink and fabric; `nvidia-smi topo -p2p n` shows the pairs without a link"


class Params(CheckParams):
    """`p2p: any` or `p2p: {over: nvlink}`"""

    bare: ClassVar[str] = "over"

    over: Literal["any", "nvlink"] = "any"


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    yield from judge_each(each_gpu(evidence), lambda gpu: judge_gpu(evidence, gpu, params.over))


def judge_gpu(evidence: Evidence, gpu: Gpu, over: str) -> Iterator[Finding]:
    subject = subject_of(gpu)
    if gpu.virtualization_mode == "VGPU":
        yield not_applicable(subject, why="a vGPU: its host decides about peer access")
    elif gpu.peers is None:
        yield unread(subject, gpu, "peers")
    else:
        yield from judge_peers(evidence, gpu, gpu.peers, "nvlink" if over == "nvlink" else "read")


def judge_peers(
    evidence: Evidence, gpu: Gpu, peers: Sequence[Peer], field: str
) -> Iterator[Finding]:
    subject = subject_of(gpu)
    unreachable = [peer for peer in peers if getattr(peer, field) not in (None, "OK")]
    unread_peers = [peer for peer in peers if getattr(peer, field) is None]
    missing = unlisted_peers(evidence, gpu)
    if gpu.mig_current and (unreachable or unread_peers or missing):
        yield not_applicable(subject, why="a GPU in MIG mode has no peer access")
        return
    if unreachable:
        yield unreachable_finding(evidence, gpu, unreachable, field)
    if missing:
        yield unknown(subject, why=f"its peers do not include {', '.join(missing)}")
    elif not peers:
        yield not_applicable(subject, why="NVML reached no other GPU of the node")
    elif len(unread_peers) == len(peers) and all(
        is_unreported(peer, field) for peer in unread_peers
    ):
        yield not_applicable(subject, why="this GPU or driver does not report it")
    elif unread_peers:
        yield unknown(
            subject, why=f"GPU {unread_peers[0].index}: {field}: {unread_peers[0].why(field)}"
        )
    elif not unreachable:
        yield ok(subject, expected=[], actual=[], why=f"{len(peers)} peers")


def unlisted_peers(evidence: Evidence, gpu: Gpu) -> list[str]:
    """The GPUs that are missing from its peers; a GPU that NVML cannot read has its own finding."""
    listed = {gpu.index, *(peer.index for peer in gpu.peers or ())}
    others = (other for other in answering_gpus(evidence) if other.index not in listed)
    return [subject_of(other).label for other in others]


def is_unreported(peer: Peer, field: str) -> bool:
    return peer.errors.get(field) in NOT_REPORTED


def unreachable_finding(
    evidence: Evidence, gpu: Gpu, unreachable: Sequence[Peer], field: str
) -> Finding:
    """The finding about unreachable peers; not applicable if the topology of a virtual machine is
    the cause."""
    subject, host = subject_of(gpu), evidence[HostInfo].data
    shown = [f"GPU {peer.index}: {getattr(peer, field)}" for peer in unreachable]
    if field == "read" and all(peer.read in TOPOLOGY for peer in unreachable):
        if host is None or not host.virtualization:
            why = host.why("virtualization") if host else evidence[HostInfo].why
            return unknown(subject, why=f"{shown[0]}; virtualization: {why}")
        if host.virtualization not in BARE:
            return not_applicable(subject, why=f"{shown[0]}: the topology of a virtual machine")
    over_nvlink = field == "nvlink"
    return fail(
        subject,
        expected=[],
        actual=shown,
        advice=LINKS if over_nvlink else PCIE,
        details=board(gpu),
        **({"cause": "fabric"} if over_nvlink else {}),
    )


def learn(evidence: Evidence) -> dict[str, str] | None:
    """How the GPUs of a good node reach one another; None if some do not, or if there is only
    one."""
    gpus = answering_gpus(evidence)
    pairs = [peer for gpu in gpus for peer in gpu.peers or ()]
    if any(unlisted_peers(evidence, gpu) for gpu in gpus):
        return None
    for over, field in (("nvlink", "nvlink"), ("any", "read")):
        if pairs and all(getattr(peer, field) == "OK" for peer in pairs):
            return {"over": over}
    return None


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *reads_of("gpu.gpus[]", "index", "mig_current"),
        *reads_of("gpu.gpus[].peers[]", "index", "nvlink", "read"),
        "gpu.gpus[].virtualization_mode",
        "host.virtualization",
    ),
    judge=judge,
    unasked="for HGX boards: on other nodes slots and model decide; write p2p: {}",
    learn=learn,
)
