"""What a GPU waits for in words, and each fact that proves it. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from nodevet.diagnose.doubts import listens_beside
from nodevet.diagnose.model import Cause, CauseProof, Figure, Job, Ruling
from nodevet.diagnose.phases import START
from nodevet.diagnose.waiting import SleepKind, place_text
from nodevet.diagnose.words import WORTH, Figures, figure_sentence, figure_text, numbers_of
from nodevet.evidence.document import Evidence
from nodevet.evidence.process_activity import ProcessActivities, ProcessActivity

WAITS_FOR = {
    Cause.SUBMISSION: "the thread that submits its work",
    Cause.PREPROCESSING: "the CPUs that prepare its input",
    Cause.STARVED: "CPUs that others use",
    Cause.QUOTA: "its CPU quota",
    Cause.STORAGE: "storage",
    Cause.TRANSFER: "the PCIe link",
    Cause.NETWORK: "the network",
    Cause.MEMORY: "host memory",
}
STACK = 5  # functions of a stack that are shown
FAR = 50.0  # percent of what a job uses


COMPUTES = "nodevet feed computes:"


def sentence(claim_text: str, proofs: Sequence[CauseProof], gain: str) -> str:
    """All of a diagnosis in one sentence."""
    parts = [
        f"{proof.cause.value}: {_proof_text(proof)}" if len(proofs) > 1 else _proof_text(proof)
        for proof in proofs
    ]
    return f"{claim_text}: {'; '.join(parts)}{f'; {COMPUTES} {gain}' if gain else ''}"


def _proof_text(proof: CauseProof) -> str:
    but = f"; but {'; and '.join(proof.doubts)}" if proof.doubts else ""
    return ", ".join(proof.facts) + but


def proofs_of(
    causes: Sequence[Cause],
    figures: Figures,
    rulings: Iterable[Ruling],
    jobs: Sequence[Job],
    evidence: Evidence,
    reasons: Mapping[Cause, Sequence[str]],
) -> tuple[CauseProof, ...]:
    """What proves each cause; without one, what is known. `reasons`: the evidence against each."""
    if not causes:
        facts = (*_figure_facts(figures, rulings), *_place(jobs, evidence))
        return (CauseProof(cause=Cause.UNCLEAR, facts=facts),)
    is_asleep = causes == (Cause.STUCK,) and not _spins(figures)
    place: Iterable[str] = _asleep(jobs, evidence) if is_asleep else ()
    return tuple(
        CauseProof(
            cause=cause,
            facts=(*numbers_of(cause, figures), *place),
            doubts=tuple(reasons.get(cause, ())),
        )
        for cause in causes
    )


CLAIMS = {
    Cause.MIXED: "waits for more than one thing",
    Cause.GPU: "does not wait",
    Cause.SPINNING: "is busy or spins",
    Cause.THROTTLED: "runs slower than it could",
    Cause.REQUESTS: "has no work: its server waits for requests",
}


def claim(cause: Cause, figures: Figures, rulings: Iterable[Ruling], jobs: Sequence[Job]) -> str:
    """What a GPU waits for, without the numbers."""
    if cause is Cause.UNCLEAR:
        is_known = figures["sm_busy"].value is not None and not _missing(rulings)
        return "waits, and no rule explains why" if is_known else "cause unknown"
    if cause is Cause.LOST:
        return lost_claim(figures["lost"].note)
    if cause is Cause.REQUESTS and listens_beside(figures):
        return "has no work: its process looks like a server that waits for requests"
    if cause is Cause.IDLE:
        return "is held by a job, and idle" if jobs else "has nothing to do"
    if cause is Cause.STUCK:
        spins = "spins and gives it nothing to do" if _spins(figures) else "does nothing"
        return f"is held by a job that {spins}"
    return CLAIMS.get(cause) or f"waits for {what_for(cause, figures)}"


def lost_claim(note: str) -> str:
    """What a GPU needs, by what the driver or the PCI bus says of it."""
    if "RESET_REQUIRED" in note:
        return "needs a reset"
    return "is lost to the driver" if is_gone(note) else "cannot be used: it may need a reset"


def is_gone(note: str) -> bool:
    """Whether the driver calls a GPU lost, or it left the PCI bus: a reset rarely helps then."""
    return "IS_LOST" in note or "PCI bus" in note


def _spins(figures: Figures) -> bool:
    return (figures["spinning"].value or 0.0) >= WORTH["spinning"]


def what_for(cause: Cause, figures: Figures) -> str:
    """What it waits for; memory of another NUMA node only if most of the job's memory is there."""
    shares = {"CPUs": figures["remote_cpus"].value, "memory": figures["remote_memory"].value}
    far = [name for name, share in shares.items() if (share or 0.0) >= FAR]
    return f"{' and '.join(far)} of another NUMA node" if cause is Cause.NUMA else WAITS_FOR[cause]


def _figure_facts(figures: Figures, rulings: Iterable[Ruling]) -> Iterator[str]:
    """The known figures, and the missing ones."""
    busy, missing = figures["sm_busy"], _missing(rulings)
    yield figure_text(busy)
    if (figures["unowned"].value or 0.0) >= WORTH["unowned"]:
        yield figure_sentence(figures["unowned"])
    if busy.value is not None and missing:
        listed = ", ".join(figure.what for figure in missing[:3])
        yield f"nodevet could not read: {listed} ({missing[0].why})"


def _missing(rulings: Iterable[Ruling]) -> list[Figure]:
    """The figures for lack of which a rule is undecided, each once."""
    figures = {
        condition.figure.name: condition.figure
        for ruling in rulings
        if ruling.holds is None
        for condition in ruling.conditions
        if condition.figure.value is None
    }
    return list(figures.values())


def _place(jobs: Sequence[Job], evidence: Evidence) -> Iterator[str]:
    """What the first thread of an unexplained job waits for, by its call; if that is another
    process, what its helpers wait for."""
    data, pids = evidence[ProcessActivities].data, [job.pid for job in jobs]
    if data is None or data.look is None:
        return
    processes, seconds = data.processes or (), data.look.seconds
    if text := place_text(processes, pids, seconds):
        yield text
    for name in awaited_helpers(jobs, evidence):
        pid = int(name.rpartition(" ")[2])
        yield f"its helper {place_text(processes, [pid], seconds) or name}"


def awaited_helpers(jobs: Sequence[Job], evidence: Evidence) -> tuple[str, ...]:
    """The helpers for which the process on the GPU waits: `python 5778`. It may be any of them."""
    data, pids = evidence[ProcessActivities].data, [job.pid for job in jobs]
    if data is None or data.look is None:
        return ()
    processes = data.processes or ()
    if not place_text(processes, pids, data.look.seconds).endswith(OF_HELPERS):
        return ()
    helpers = [process for process in processes if process.parent in pids][:MOST_HELPERS]
    return tuple(f"{helper.command or '?'} {helper.pid}" for helper in helpers)


OF_HELPERS = (SleepKind.PIPE.value, SleepKind.CHILD.value)
MOST_HELPERS = 3


def _asleep(jobs: Sequence[Job], evidence: Evidence) -> Iterator[str]:
    """Where in the kernel the sleeping process sleeps, and when it started if that is long ago."""
    data, process = evidence[ProcessActivities].data, _largest(jobs, evidence)
    if data is None or process is None:
        return
    name = f"{process.command or '?'} {process.pid}"
    if process.stack:
        yield f"kernel stack of {name}: {' < '.join(process.stack[:STACK])}"
    elif place := _sleeps_in(process):
        yield f"{name} sleeps in {place}"
    if process.started_s is not None and data.uptime_s is not None:
        age = data.uptime_s - process.started_s
        if age >= START:
            yield f"{name} started {age / 60:.0f} min earlier"


def _sleeps_in(process: ProcessActivity) -> str:
    """The kernel function in which its first thread slept most; empty if it is not known."""
    first = next((thread for thread in process.threads or () if thread.tid == process.pid), None)
    waits = (first.waits if first else None) or {}
    return max(waits, key=lambda name: waits[name], default="")


def _largest(jobs: Sequence[Job], evidence: Evidence) -> ProcessActivity | None:
    """The process that uses most of the GPU's memory."""
    data = evidence[ProcessActivities].data
    if data is None or not jobs:
        return None
    pid = max(jobs, key=lambda job: job.memory_b or 0).pid
    return next((process for process in data.processes or () if process.pid == pid), None)
