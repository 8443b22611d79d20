"""A diagnosis as a sentence, with the numbers that prove it."""

from collections.abc import Iterable, Mapping, Sequence

from nodevet.diagnosis.model import Cause, Figure, Job, Ruling
from nodevet.evidence.document import Evidence
from nodevet.evidence.process_activity import ProcessActivities

Found = Mapping[str, Figure]

WAITS_FOR = {
    Cause.SUBMISSION: "the thread that submits its work",
    Cause.PREPROCESSING: "the CPUs that prepare its input",
    Cause.STORAGE: "storage",
    Cause.TRANSFER: "the PCIe link",
    Cause.MEMORY: "host memory",
    Cause.NUMA: "CPUs and memory of another NUMA node",
}
PROOF = {
    Cause.GPU: ("sm_busy", "clock", "power"),
    Cause.THROTTLED: ("slowed", "power_capped", "clock", "sm_busy"),
    Cause.SUBMISSION: ("sm_busy", "hottest_thread", "job_system", "switches"),
    Cause.PREPROCESSING: ("sm_busy", "saturation", "job_user", "quota_throttled"),
    Cause.STORAGE: (
        "sm_busy",
        "blocked",
        "job_io_stalled",
        "disk_busy",
        "nfs_latency",
        "read_size",
    ),
    Cause.TRANSFER: ("sm_busy", "link"),
    Cause.MEMORY: ("sm_busy", "job_memory_stalled", "swapped_in", "limit_hits", "job_major_faults"),
    Cause.NUMA: ("sm_busy", "remote_cpus", "remote_memory"),
    Cause.STUCK: ("memory_used", "sm_busy", "job_cpus"),
    Cause.IDLE: ("sm_busy", "memory_used"),
}
"""The figures that are told of each cause, in their order."""
WORTH = dict.fromkeys(
    (
        *("quota_throttled", "swapped_in", "nfs_latency", "power_capped", "limit_hits", "slowed"),
        *("job_io_stalled", "job_memory_stalled", "disk_busy", "remote_cpus", "remote_memory"),
        "job_system",
    ),
    1.0,
)
"""The least at which a figure is worth its place in a sentence."""
STACK = 5  # functions of a stack that are told
SPINNING = 40.0  # percent of its power limit: NCCL's kernels that poll draw a quarter to a third
QUIET_MEMORY = 5.0  # percent of the time


def shown(figure: Figure) -> str:
    """A figure as it is read aloud: `SM busy 28 %`."""
    if figure.value is None:
        return f"{figure.what} unknown ({figure.why})"
    unit = f" {figure.unit}" if figure.unit else ""
    note = f" ({figure.note})" if figure.note else ""
    return f"{figure.what} {number(figure.value)}{unit}{note}"


def number(value: float) -> str:
    """With as many digits as can be read at a glance.

    >>> number(28.04), number(0.31), number(12.44), number(1234.5)
    ('28', '0.31', '12', '1234')
    """
    if value == 0 or abs(value) >= 10:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2g}"


def proof(cause: Cause, found: Found) -> str:
    """The numbers that prove a cause."""
    told = [
        shown(found[name])
        for name in PROOF.get(cause, ())
        if found[name].value is not None and (found[name].value or 0) >= WORTH.get(name, 0.0)
    ]
    return ", ".join(told)


def sentence(
    cause: Cause,
    causes: Sequence[Cause],
    found: Found,
    rulings: Iterable[Ruling],
    jobs: Sequence[Job],
    evidence: Evidence,
) -> str:
    """What a GPU waits for, in one sentence."""
    if cause is Cause.UNCLEAR:
        return unclear(found, rulings)
    if cause is Cause.MIXED:
        parts = "; ".join(f"{each.value}: {proof(each, found)}" for each in causes)
        return f"waits for more than one thing: {parts}"
    told = proof(cause, found)
    if cause is Cause.GPU:
        return f"does not wait: {told}"
    if cause is Cause.THROTTLED:
        return f"is slowed down: {told}"
    if cause is Cause.IDLE:
        return f"has nothing to do: {told}" if not jobs else f"is held, and idle: {told}"
    if cause is Cause.STUCK:
        return f"is held by a job that does not move: {told}{_asleep(jobs, evidence)}"
    return f"waits for {WAITS_FOR[cause]}: {told}"


def unclear(found: Found, rulings: Iterable[Ruling]) -> str:
    """What is known, and what would have to be."""
    busy = found["sm_busy"]
    if busy.value is None:
        return f"cannot be told: {shown(busy)}"
    missing = {
        each.figure.name: each.figure
        for ruling in rulings
        if ruling.holds is None
        for each in ruling.conditions
        if each.figure.value is None
    }
    if missing:
        listed = ", ".join(figure.what for figure in list(missing.values())[:3])
        why = next(iter(missing.values())).why
        return f"cannot be told: {shown(busy)}, and not known: {listed} ({why})"
    return f"waits, and nothing that was watched explains it: {shown(busy)}"


def _asleep(jobs: Sequence[Job], evidence: Evidence) -> str:
    """Who sleeps, since when it exists, and where in the kernel."""
    data = evidence[ProcessActivities].data
    if data is None or not jobs:
        return ""
    pid = max(jobs, key=lambda job: job.memory_b or 0).pid
    process = next((each for each in data.processes or () if each.pid == pid), None)
    if process is None:
        return ""
    told = f"; {process.command or '?'} {pid}"
    main = next((each for each in process.threads or () if each.tid == pid), None)
    if main is not None and main.waits:
        told += f" asleep in {max(main.waits, key=lambda name: (main.waits or {})[name])}"
    if process.stack:
        told += f" (kernel stack: {' < '.join(process.stack[:STACK])})"
    if process.started_s is not None and data.uptime_s is not None:
        told += f", started {max(0.0, data.uptime_s - process.started_s) / 60:.0f} min ago"
    return told


def spins(found: Found) -> bool:
    """Whether a busy GPU draws no more power than one whose kernels wait: some SMs poll, and the
    memory is hardly used."""
    power, memory = found["power"].value, found["memory_busy"].value
    return power is not None and memory is not None and power < SPINNING and memory < QUIET_MEMORY


def also(
    cause: Cause, causes: Sequence[Cause], found: Found, rulings: Iterable[Ruling]
) -> tuple[str, ...]:
    """What stands out beside the cause."""
    told = []
    for ruling in rulings:
        if ruling.holds and ruling.cause not in causes and ruling.cause is not cause:
            line = f"{ruling.cause.value}: {proof(ruling.cause, found)}"
            if line not in told:
                told.append(line)
    if cause is Cause.GPU and spins(found):
        told.append(
            f"{shown(found['power'])}, {shown(found['memory_busy'])}: a kernel that only waits for "
            "other GPUs (NCCL) looks as busy; see what the other ranks do"
        )
    allowed = found["cpus_allowed"]
    if allowed.value is not None and allowed.note and found["processes"].value:
        told.append(f"the job may use {number(allowed.value)} CPUs ({allowed.note})")
    starved = found["cpu_starved"]
    if (starved.value or 0) >= 20:
        told.append(shown(starved))
    stolen = found["steal"]
    if (stolen.value or 0) >= 5:
        told.append(shown(stolen))
    return tuple(told)
