"""Which differences from the baseline can make a GPU slow, and how (pure)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from nodevet.diagnose.model import Cause, GpuDiagnosis, Suspect
from nodevet.evidence.lists import spans
from nodevet.model import Finding

MOST = 5  # shown for one host; `nodevet check` shows all
NAMED = 4  # parts that are named before they are counted


class Reason(NamedTuple):
    """The causes that a setting can lead to, and why."""

    causes: tuple[Cause, ...]
    why: str


SLOW_CPU = (Cause.SUBMISSION, Cause.PREPROCESSING)
SLOW_GPU = (Cause.THROTTLED, Cause.GPU)
BETWEEN_GPUS = (Cause.TRANSFER, Cause.STUCK, Cause.SPINNING)
BETWEEN_NODES = (*BETWEEN_GPUS, Cause.NETWORK, Cause.STORAGE)
OVER_NVLINK = "GPUs of one job exchange data by NVLink more slowly, or not at all"
NO_WORK = (Cause.LOST, Cause.STUCK, Cause.IDLE)
REASONS: Mapping[str, Reason] = {
    "power_limit": Reason(SLOW_GPU, "less power, lower clocks"),
    "thermal": Reason(SLOW_GPU, "a hot GPU lowers its clocks"),
    "gpu_clocks": Reason(SLOW_GPU, "locked clocks are a ceiling"),
    "throttle_reasons": Reason(SLOW_GPU, "a limit or a setting holds the clocks down"),
    "throttle_time": Reason((Cause.THROTTLED,), "the driver held the clocks down before"),
    "mig_mode": Reason((Cause.GPU,), "a slice has only a part of the GPU"),
    "cpu_governor": Reason(SLOW_CPU, "the CPU stays below its highest clock"),
    "cpu_frequency": Reason(SLOW_CPU, "the CPU stays below its highest clock"),
    "cpu_idle_states": Reason(SLOW_CPU, "a CPU that sleeps deeply wakes late"),
    "cpu_topology": Reason(SLOW_CPU, "fewer CPUs prepare the input"),
    "smt": Reason(SLOW_CPU, "the number of CPUs differs"),
    "load": Reason((*SLOW_CPU, Cause.STARVED), "others use the CPUs too"),
    "leftover_processes": Reason((*SLOW_CPU, Cause.STARVED), "they use CPUs and memory too"),
    "clocksource": Reason((Cause.SUBMISSION,), "each clock read takes a system call"),
    "irq_affinity": Reason((Cause.SUBMISSION,), "interrupts run on the wrong CPUs"),
    "memory_errors": Reason(SLOW_CPU, "each corrected error stops a CPU for a moment"),
    "transparent_hugepage": Reason((Cause.SUBMISSION, Cause.MEMORY), "compaction holds threads up"),
    "nfs": Reason((Cause.STORAGE,), "NFS reads are slower"),
    "mounts": Reason(
        (Cause.STORAGE,), "the data may come from another server, or over another path"
    ),
    "nvme_health": Reason((Cause.STORAGE,), "a worn or hot drive is slow"),
    "nvme_count": Reason((Cause.STORAGE,), "fewer drives to read from"),
    "drive_health": Reason((Cause.STORAGE,), "a failing drive reads again and again"),
    "storage_errors": Reason((Cause.STORAGE,), "failed reads are repeated"),
    "raid": Reason((Cause.STORAGE,), "a degraded array is slow, and rebuilding slows it more"),
    "disk_space": Reason((Cause.STORAGE,), "nothing can be cached on a full file system"),
    "gds": Reason((Cause.STORAGE, Cause.TRANSFER), "reads go through host memory"),
    "network_link": Reason((Cause.STORAGE, Cause.NETWORK), "a slow link to what is not local"),
    "pcie_link": Reason((Cause.TRANSFER,), "a slower or narrower link"),
    "pci_links": Reason((Cause.TRANSFER, Cause.STORAGE), "a slower or narrower link"),
    "pcie_settings": Reason((Cause.TRANSFER,), "smaller packets carry less"),
    "pcie_errors": Reason((Cause.TRANSFER,), "packets are retransmitted"),
    "pcie_replays": Reason((Cause.TRANSFER,), "packets are retransmitted"),
    "iommu": Reason((Cause.TRANSFER,), "every transfer is translated"),
    "acs": Reason(BETWEEN_GPUS, "traffic between GPUs goes through the root complex"),
    "bar1": Reason((Cause.TRANSFER,), "peers reach less of its memory directly"),
    "p2p": Reason(BETWEEN_GPUS, "GPUs exchange data through host memory"),
    "gpudirect": Reason(BETWEEN_GPUS, "the network goes through host memory"),
    "nvlink": Reason(BETWEEN_GPUS, OVER_NVLINK),
    "nvswitch": Reason(BETWEEN_GPUS, OVER_NVLINK),
    "fabric": Reason(BETWEEN_GPUS, OVER_NVLINK),
    "imex": Reason(BETWEEN_GPUS, "GPUs of other nodes cannot be reached by NVLink"),
    "infiniband": Reason(BETWEEN_NODES, "other nodes and storage respond slowly"),
    "link_ber": Reason(BETWEEN_NODES, "damaged packets are retransmitted"),
    "rdma": Reason(BETWEEN_NODES, "other nodes and storage respond slowly"),
    "nic_pairing": Reason(BETWEEN_GPUS, "a GPU uses a network card far away"),
    "gpu_topology": Reason(BETWEEN_GPUS, "GPUs are further from one another"),
    "numa_locality": Reason((Cause.NUMA,), "the job runs far from its GPU"),
    "numa_binding": Reason((Cause.NUMA,), "nothing keeps the job near its GPU"),
    "numa_topology": Reason((Cause.NUMA,), "memory is further away, or firmware hides how far"),
    "memory_size": Reason((Cause.MEMORY,), "less memory for workers and the page cache"),
    "memory_pressure": Reason((Cause.MEMORY,), "memory was short before"),
    "memory_fragmentation": Reason((Cause.MEMORY,), "large allocations wait for compaction"),
    "swap": Reason((Cause.MEMORY,), "memory that the job needs may be on a disk"),
    "hugepages": Reason((Cause.MEMORY,), "reserved memory is missing elsewhere"),
    "limits": Reason((Cause.MEMORY, Cause.TRANSFER), "less memory can be pinned"),
    "xid": Reason((Cause.LOST, Cause.STUCK), "the GPU or its driver reported a fault"),
    "gpu_lost": Reason((Cause.LOST, Cause.STUCK), "a rank that lost its GPU holds up all others"),
    "ecc_errors": Reason(NO_WORK, "an uncorrected error ends the jobs of its GPU"),
    "row_remapping": Reason(NO_WORK, "jobs that reach the bad row end"),
    "gpu_repair": Reason(NO_WORK, "the GPU asks for a repair, and jobs on it may end"),
    "gsp_firmware": Reason((Cause.STUCK,), "the driver waits for the GPU's own processor"),
    "kernel_faults": Reason((Cause.STUCK,), "a task of the kernel hangs or died"),
    "stuck_processes": Reason((Cause.STUCK, Cause.STORAGE), "it waits in the kernel, for storage"),
}
"""By check. Other checks, such as a package or a count, make no GPU slow."""


OF_SEVERAL = ("nvlink", "acs", "p2p", "bar1", "gpu_topology")
"""The checks of what only the GPUs of one job on one node have between them."""
LEAST = 3  # GPUs with the same command that may be one job: two of them may be two servers
LOOKS = {
    "nvlink": "nvidia-smi nvlink -s  # shows each link; reset no GPU that has a job",
    "nvswitch": "journalctl -u nvidia-fabricmanager  # do not restart it while jobs run",
    "fabric": "journalctl -u nvidia-fabricmanager  # do not restart it while jobs run",
}
"""By check without a fix: a command that shows more of a suspect, and changes nothing."""
HELD_BY = {
    "hw_": "the hardware holds the clocks down",
    "sw_thermal": "heat makes the driver hold the clocks down",
    "sync_boost": "the slowest GPU of its group sets the clocks of all",
    "sw_power_cap": "the power limit holds the clocks down",
}
"""Why the clocks are low, by the beginning of a reason."""


class SuspectLine(NamedTuple):
    """The suspects of one check whose texts are the same."""

    check: str
    subjects: str  # GPUs 0-3; empty for the node itself
    actual: str
    expected: str  # empty if nothing is expected
    reason: str
    likely: bool  # it can lead to a cause that was found
    fixable: bool

    @property
    def text(self) -> str:
        """`power_limit of GPUs 0-3 is 500 W, expected 700 W`."""
        of = f" of {self.subjects}" if self.subjects else ""
        expected = f", expected {self.expected}" if self.expected else ""
        return f"{self.check}{of} is {self.actual}{expected}"


def suspect(finding: Finding, *, gpu: int | None, fixable: bool) -> Suspect | None:
    """A failed check as a suspect; None if it makes no GPU slow."""
    if finding.check not in REASONS:
        return None
    return Suspect(finding=finding, gpu=gpu, fixable=fixable)


def can_slow(suspect: Suspect, gpus: Collection[GpuDiagnosis]) -> bool:
    """Whether a GPU of a job can be slower by a difference: what only the GPUs of one job have
    between them slows no job of one GPU."""
    if suspect.finding.check not in OF_SEVERAL:
        return True
    return any(_has_peers(gpu, gpus) for gpu in gpus)


def _has_peers(gpu: GpuDiagnosis, gpus: Iterable[GpuDiagnosis]) -> bool:
    """Whether its job seems to have several GPUs of this node."""
    pids = {job.pid for job in gpu.jobs}
    others = [other for other in gpus if other.index != gpu.index]
    if any(pids & {job.pid for job in other.jobs} for other in others):
        return True
    same = sum(other.group == gpu.group for other in others) if gpu.group else 0
    return same >= (1 if gpu.group_is_job or gpu.group_rank is not None else LEAST - 1)


def rank_suspects(suspects: Iterable[Suspect], gpus: Iterable[GpuDiagnosis]) -> list[SuspectLine]:
    """Folded; first the suspects of the causes that were found, most severe first."""
    listed = list(gpus)

    def order(suspect: Suspect) -> tuple[object, ...]:
        finding = suspect.finding
        return -finding.severity.rank, finding.check, finding.subject.kind, _values(finding)

    groups = groupby(sorted(suspects, key=order), key=order)
    lines = [_line(list(group), listed) for _, group in groups]
    return sorted(lines, key=lambda line: not line.likely)


def _leads(suspect: Suspect, gpus: Collection[GpuDiagnosis]) -> bool:
    """Whether a difference can lead to the cause of a GPU that has it."""
    causes, check = set(_reason(suspect.finding).causes), suspect.finding.check
    return any(
        not causes.isdisjoint((gpu.cause, *gpu.causes))
        and (_has_peers(gpu, gpus) if check in OF_SEVERAL else suspect.gpu in (None, gpu.index))
        for gpu in gpus
    )


def _reason(finding: Finding) -> Reason:
    return REASONS.get(finding.check, Reason((), ""))


def _difference_reason(finding: Finding, actual: str) -> str:
    """How a difference slows a GPU; of low clocks, by what holds them."""
    why = _reason(finding).why
    if finding.check != "throttle_reasons":
        return why
    reasons = actual.replace(",", " ").split()
    return next(
        (text for start, text in HELD_BY.items() for each in reasons if each.startswith(start)), why
    )


def _values(finding: Finding) -> tuple[str, str]:
    expected = "" if finding.expected is None else finding.text(finding.expected)
    actual = finding.why if finding.actual is None else finding.text(finding.actual)
    return actual, expected


def _line(group: Sequence[Suspect], gpus: Collection[GpuDiagnosis]) -> SuspectLine:
    finding = group[0].finding
    actual, expected = _values(finding)
    return SuspectLine(
        check=finding.check,
        subjects=_subjects(group),
        actual=actual,
        expected=expected,
        reason=_difference_reason(finding, actual),
        likely=any(_leads(suspect, gpus) for suspect in group),
        fixable=any(suspect.fixable for suspect in group),
    )


def _subjects(group: Sequence[Suspect]) -> str:
    """`GPUs 0-3`, `cpufreq 0-63`, `12 cpufreq`; empty for the node."""
    first = group[0].finding.subject
    if len(group) == 1:
        return first.label
    if first.kind == "gpu" and all(suspect.gpu is not None for suspect in group):
        return f"{first.noun}s {spans(suspect.gpu for suspect in group if suspect.gpu is not None)}"
    names = [suspect.finding.subject.id for suspect in group]
    if first.kind == "node" or not any(names):
        return ""
    if len(names) <= NAMED:
        return f"{first.noun} {', '.join(names)}"
    return f"{first.noun} {', '.join(names[:NAMED])} and {len(names) - NAMED} more"
