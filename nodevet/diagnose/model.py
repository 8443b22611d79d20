"""The types of a diagnosis, in the order in which data passes through them."""

from enum import Enum

from msgspec import Struct

from nodevet.model import Finding, Status

SCHEMA = 1
Points = tuple[tuple[float, float], ...]
"""(seconds since the first look, value), in the order of time."""


class Cause(str, Enum):
    """The cause: what a GPU waits for, or that it does not wait."""

    GPU = "GPU-bound"
    SPINNING = "busy or spinning"
    LOST = "lost"
    THROTTLED = "throttled"
    SUBMISSION = "submission-bound"
    PREPROCESSING = "preprocessing-bound"
    STARVED = "CPUs taken by others"
    QUOTA = "CPU quota used up"
    STORAGE = "storage-bound"
    TRANSFER = "transfer-bound"
    MEMORY = "memory-pressure"
    NUMA = "NUMA-remote"
    NETWORK = "network-bound"
    STUCK = "stuck"
    COLLECTIVE = "waits for a rank"
    REQUESTS = "waiting for requests"
    IDLE = "idle"
    MIXED = "mixed"
    UNCLEAR = "not enough evidence"


FINE = (Cause.GPU, Cause.IDLE, Cause.REQUESTS)
"""The causes for which nobody needs to act."""
UNDECIDED = (Cause.UNCLEAR, Cause.SPINNING)
"""Whether such a GPU waits is not known."""
ORDER = (
    *(Cause.LOST, Cause.STUCK, Cause.THROTTLED, Cause.MEMORY, Cause.STORAGE, Cause.TRANSFER),
    *(
        Cause.COLLECTIVE,
        Cause.QUOTA,
        Cause.STARVED,
        Cause.NETWORK,
        Cause.PREPROCESSING,
        Cause.SUBMISSION,
    ),
    *(Cause.NUMA, Cause.MIXED, *UNDECIDED, Cause.GPU, Cause.REQUESTS, Cause.IDLE),
)
"""The worst first."""


AS_POLLING = ", as in a collective that waits"
"""The end of the doubt about a busy GPU whose SMs do little."""


class Confidence(str, Enum):
    """How far the evidence rules out every other cause."""

    HIGH = "high"  # by a clear margin, and every other rule could be decided
    MEDIUM = "medium"  # by a small margin
    LOW = "low"  # a rule that could have held too could not be decided


class Figure(Struct, frozen=True):
    """A number that a rule needs; None, with the reason, if the evidence lacks it."""

    name: str
    value: float | None
    unit: str
    what: str  # in words: SM busy
    why: str = ""
    note: str = ""  # of what, in this sample: `python 4711 thread 4712`


class Condition(Struct, frozen=True):
    """One threshold of a rule, compared with its figure."""

    figure: Figure
    at_least: bool  # else at most
    threshold: float
    source: str
    holds: bool | None  # None: the figure is not known
    margin: float | None  # how far beyond its threshold, 1: at it; below 1 it does not hold


class Ruling(Struct, frozen=True):
    """One rule, compared with the figures: `holds` only if each of its conditions does."""

    cause: Cause
    rule: str
    holds: bool | None
    margin: float | None  # the least of its conditions'
    conditions: tuple[Condition, ...]


class JobOwner(Struct, frozen=True, kw_only=True):
    """The owner of a process, as far as the node shows."""

    uid: int | None = None
    login: str = ""
    job: str = ""  # `Slurm 12`, `pod UID`
    step: str = ""  # of Slurm
    partition: str = ""  # of Slurm
    pod: str = ""  # namespace/name
    container: str = ""  # the beginning of its id
    unit: str = ""  # of systemd, without a job and a container


class Job(Struct, frozen=True, kw_only=True):
    """A process that uses a GPU, as a person would name it."""

    pid: int
    command: str
    memory_b: int | None = None
    helpers: int = 0  # processes that descend from it
    owner: JobOwner = JobOwner()


class CauseProof(Struct, frozen=True, kw_only=True):
    """What proves one cause, and what speaks against it; each text is one fact."""

    cause: Cause
    facts: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()


class GpuDiagnosis(Struct, frozen=True, kw_only=True):
    """What one GPU waits for."""

    index: int
    uuid: str | None = None
    bus_id: str | None = None  # of the PCI bus
    name: str | None = None
    cause: Cause
    causes: tuple[Cause, ...] = ()  # of a mixture, the strongest first; else the cause alone
    confidence: Confidence
    sentence: str  # the claim with its proofs and the gain
    claim: str = ""  # what it waits for
    proofs: tuple[CauseProof, ...] = ()  # of a mixture, one for each cause
    gain: str = ""  # what one change would bring
    next_step: str
    also: tuple[str, ...] = ()  # what else stands out, a sentence each
    figures: tuple[Figure, ...] = ()
    rulings: tuple[Ruling, ...] = ()
    jobs: tuple[Job, ...] = ()
    group: str = ""  # the job whose ranks are compared, or the command
    group_is_job: bool = False
    group_on_host: bool = False  # the name says nothing on another host
    group_rank: int | None = None  # of its processes in their job, if they say so

    @property
    def is_doubtful(self) -> bool:
        """Whether it waits for requests, or perhaps for something that needs somebody; or is busy,
        and its SMs do as little as in a collective."""
        doubts = [doubt for proof in self.proofs for doubt in proof.doubts]
        may_poll = self.cause is Cause.GPU and any(each.endswith(AS_POLLING) for each in doubts)
        return may_poll or (self.cause is Cause.REQUESTS and self.confidence is not Confidence.HIGH)

    @property
    def id(self) -> str:
        """Its PCI address, else its UUID: if a GPU is lost, its number may be another one's."""
        number = "BUS_ID" if self.cause is Cause.LOST else str(self.index)
        return self.bus_id or self.uuid or number


class MissingGpu(Struct, frozen=True, kw_only=True):
    """A GPU that the node has or should have, and that NVML does not list."""

    bus_id: str = ""  # empty: only their number is known
    count: int = 1
    facts: tuple[str, ...]  # how nodevet knows, and since when
    next_step: str


class Suspect(Struct, frozen=True, kw_only=True):
    """A setting that differs from the baseline, and can make a GPU slow."""

    finding: Finding
    gpu: int | None = None  # of one GPU alone: its index
    fixable: bool = False  # whether `nodevet plan --fix CHECK` has a fix for it


class Timeline(Struct, frozen=True, kw_only=True):
    """One line: for a GPU, or for the whole host."""

    name: str
    unit: str
    gpu: int | None = None
    most: float | None = None  # what the value can be at most
    points: Points


class HostDiagnosis(Struct, frozen=True, kw_only=True):
    """The diagnosis of one host."""

    host: str
    status: Status
    why: str = ""  # there is no diagnosis
    gpus: tuple[GpuDiagnosis, ...] = ()
    missing: tuple[MissingGpu, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    others: int = 0  # differences from the baseline that make no GPU slow
    baseline: str = ""  # the suspects are by it
    began_s: float | None = None  # by this machine's clock, seconds since 1970 UTC
    seconds: float = 0.0  # for which it was watched
    timelines: tuple[Timeline, ...] = ()
    overhead: float | None = None  # percent of one core that the visit took, with its login
    looks_s: float | None = None  # CPU time of the looks alone
    login_s: float | None = None  # CPU time of the login
    rest_s: float | None = None  # CPU time to start the probe and to read every section


class Straggler(Struct, frozen=True, kw_only=True):
    """A GPU that differs from the others that do the same work."""

    host: str
    gpu: int
    sentence: str
    suspects: tuple[str, ...] = ()  # what only this GPU or host has


class ListedRank(Struct, frozen=True):
    """A line of --ranks: everything on a host, on one of its GPUs, or one process."""

    host: str
    rank: int
    gpu: int | None = None
    pid: int | None = None


class JobTarget(Struct, frozen=True, kw_only=True):
    """The job to watch, as its scheduler or a file describes it."""

    name: str
    hosts: tuple[str, ...]
    ids: tuple[str, ...] = ()  # as the evidence names them: `Slurm 12`, `pod UID`
    step: str = ""  # of Slurm; empty: all
    uid: int | None = None  # of its owner
    runs: bool = True
    states: tuple[str, ...] = ()  # the scheduler's words: RUNNING, Succeeded
    missing: tuple[str, ...] = ()  # what no host can show: a pod that ended, or has no node
    changed: str = ""  # how it was no longer the same after it was watched
    listed: tuple[ListedRank, ...] = ()


class RankState(str, Enum):
    """What a rank did."""

    UNSEEN = "not seen"
    ENDED = "ended"
    STOPPED = "stopped"
    NO_GPU = "uses no GPU"
    HELD_UP = "held up"  # by a cause of its own
    QUIET = "its GPU is not busy"
    BEHIND = "has not entered a collective"  # in which the others wait, by the dumps
    COMPUTES = "computes"
    WAITS = "waits"


DOWN = (RankState.ENDED, RankState.STOPPED)
POLLS = (RankState.WAITS, RankState.QUIET, RankState.NO_GPU)
"""The states of ranks that may wait for another one."""


class Rank(Struct, frozen=True, kw_only=True):
    """One process of a job, or a rank without a process."""

    number: int | None = None
    size: int | None = None  # how many ranks its job has, by its environment
    host: str = ""  # empty: not known
    pid: int | None = None
    command: str = ""
    gpus: tuple[int, ...] = ()
    state: RankState
    cause: Cause | None = None
    causes: tuple[Cause, ...] = ()  # of a mixture that only the other ranks show
    confidence: Confidence = Confidence.LOW
    text: str  # a sentence about it
    next_step: str = ""


class JobDiagnosis(Struct, frozen=True, kw_only=True):
    """The ranks of a job, watched at the same time, and those that the others wait for."""

    name: str
    size: int | None = None  # ranks that it has, as far as its processes agree
    ranks: tuple[Rank, ...] = ()
    late: tuple[int, ...] = ()  # places in `ranks`
    mismatch: str = ""  # which ranks call different collectives, by the dumps; then none is late
    confidence: Confidence
    sentence: str  # the claim with its reasons
    claim: str = ""  # who waits for whom
    reasons: tuple[str, ...] = ()  # what the late ranks do
    next_step: str
    doubts: tuple[str, ...] = ()  # what lowers the confidence
    notes: tuple[str, ...] = ()

    @property
    def late_ranks(self) -> list[Rank]:
        """The ranks that the others wait for."""
        return [self.ranks[place] for place in self.late]

    @property
    def is_whole(self) -> bool:
        """Whether nodevet saw the whole job."""
        return self.size is not None and self.confidence is not Confidence.LOW

    @property
    def runs(self) -> bool:
        """Whether not all of several ranks wait, ended or are stopped."""
        states = {rank.state for rank in self.ranks}
        return len(self.ranks) < 2 or not states <= {*POLLS, *DOWN}


class Diagnosis(Struct, frozen=True, kw_only=True):
    """Hosts that were watched at the same time, and what each of their GPUs waits for."""

    schema: int = SCHEMA
    id: str
    nodevet: str
    started: str  # ISO 8601
    seconds: float  # for which they were to be watched
    apart_s: float | None = None  # the first and the last began so many seconds apart
    hosts: tuple[HostDiagnosis, ...] = ()
    stragglers: tuple[Straggler, ...] = ()
    job: JobDiagnosis | None = None
    interrupted: bool = False

    @property
    def missing(self) -> int:
        """How many GPUs are missing."""
        return sum(gpu.count for host in self.hosts for gpu in host.missing)

    @property
    def exit_code(self) -> int:
        """1 if a GPU waits, is slowed, stuck, lost or missing, or a job for a rank; else 3 if one
        may or is unclear, or if not all of the job was seen; else 0."""
        found = self.job and (self.job.late or self.job.mismatch)
        if self.job and found and self.job.confidence is not Confidence.LOW:
            return 1
        gpus = [gpu for host in self.hosts for gpu in host.gpus]
        causes = {gpu.cause for gpu in gpus}
        if any(cause not in (*FINE, *UNDECIDED) for cause in causes) or self.missing:
            return 1
        unsure = any(gpu.cause in UNDECIDED or gpu.is_doubtful for gpu in gpus)
        lost = any(not host.gpus for host in self.hosts) or self.interrupted
        unsure = unsure or (self.job is not None and not (self.job.is_whole and self.job.runs))
        return 3 if lost or not causes or unsure else 0
