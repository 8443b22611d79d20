"""A diagnosis as a sentence, with the numbers that prove it."""

from collections.abc import Iterable, Mapping, Sequence

from nodevet.diagnose.model import Cause, Figure, Job, Ruling
from nodevet.diagnose.phases import START
from nodevet.diagnose.waiting import place_text
from nodevet.evidence.document import Evidence
from nodevet.evidence.process_activity import ProcessActivities, ProcessActivity

Figures = Mapping[str, Figure]

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
PROOF = {
    Cause.GPU: ("sm_busy", "clock", "power"),
    Cause.SPINNING: ("sm_busy", "power", "memory_busy", "clock"),
    Cause.LOST: ("lost",),
    Cause.THROTTLED: ("slowed", "power_capped", "limit", "clock", "power", "sm_busy"),
    Cause.SUBMISSION: ("sm_busy", "hottest_thread", "thread_system", "switches"),
    Cause.PREPROCESSING: (
        "sm_busy",
        "saturation",
        "hottest_thread",
        "turns",
        "hottest_helper",
        "ended_helpers",
        "job_user",
    ),
    Cause.STARVED: ("sm_busy", "cpu_starved", "others_cpus", "hottest_thread"),
    Cause.QUOTA: ("sm_busy", "quota_throttled", "job_cpus", "cpus_allowed"),
    Cause.STORAGE: (
        "sm_busy",
        "blocked",
        "waits_writing",
        "job_io_stalled",
        "disk_busy",
        "nfs_latency",
        "read_size",
    ),
    Cause.TRANSFER: ("sm_busy", "link", "idle_link", "hottest_thread"),
    Cause.MEMORY: ("sm_busy", "job_memory_stalled", "swapped_in", "limit_hits", "job_major_faults"),
    Cause.NUMA: ("sm_busy", "remote_cpus", "remote_memory"),
    Cause.NETWORK: ("sm_busy", "network"),
    Cause.STUCK: ("memory_used", "sm_busy", "job_cpus", "frozen", "spinning"),
    Cause.REQUESTS: ("memory_used", "sm_busy", "serving"),
    Cause.IDLE: ("sm_busy", "memory_used"),
}
"""The figures that a sentence about each cause shows, in order."""
WORTH = dict.fromkeys(
    (
        *("quota_throttled", "swapped_in", "nfs_latency", "power_capped", "limit_hits", "slowed"),
        *("job_io_stalled", "job_memory_stalled", "disk_busy", "remote_cpus", "remote_memory"),
        *("job_system", "hottest_helper", "ended_helpers", "frozen", "serving", "network"),
    ),
    1.0,
) | {"idle_link": 70.0, "spinning": 95.0, "turns": 3.0, "hottest_thread": 30.0}
"""The least at which a figure is worth its place in a sentence."""
USUAL = {"limit": 95.0}
"""The most at which it is."""
LEAST = {"%": 0.1, "": 0.01, "/s": 0.1}
"""A value below this, in its unit, counts as almost nothing."""
BUSIEST = "busiest disk"
STACK = 5  # functions of a stack that a sentence shows
FAR = 50.0  # percent of what a job uses


SAID = {
    "slowed": "heat or the power brake slowed it {} of the time",
    "power_capped": "at its power limit {} of the time",
    "limit": "its power limit {} of the board's default",
    "clock": "SM clock {} of its maximum",
    "power": "power {} of its limit",
    "hottest_thread": "the hottest thread of the GPU's processes takes {} of a core",
    "hottest_helper": "the hottest thread of the job's helpers takes {} of a core",
    "ended_helpers": "helpers that ended took {} of a core",
    "thread_system": "that thread spends {} of its time in the kernel",
    "turns": "{} threads of one process use it in turns",
    "job_system": "{} of the job's CPU time is in the kernel",
    "job_user": "{} of the job's CPU time is in user mode",
    "switches": "context switches {}",
    "saturation": "the job wants {} of the CPU time that it may have",
    "quota_throttled": "the job's CPU quota ran out in {} of the periods",
    "blocked": "a thread of the job waited for storage {} of the time",
    "job_io_stalled": "the whole cgroup waited for I/O {} of the time (PSI)",
    "job_memory_stalled": "the whole cgroup waited for memory {} of the time (PSI)",
    "disk_busy": "the busiest disk, perhaps another's, {} busy",
    "nfs_latency": "slowest NFS mount {} a request",
    "read_size": "reads of {}",
    "link": "PCIe carries {} of what the link can",
    "idle_link": "PCIe carries {} of what the link can while the GPU computes nothing",
    "swapped_in": "pages swapped in {}",
    "limit_hits": "the cgroup hits its memory limit {}",
    "job_major_faults": "the job reads pages back in, {}",
    "network": "a thread of the job waited for the network {} of the time",
    "serving": "it waited for requests {} of the time",
    "frozen": "its first thread slept {} of the time and never woke",
    "spinning": "a thread of it ran {} of the time and never waited",
    "remote_cpus": "{} of the job's CPU time is far from the GPU",
    "remote_memory": "{} of the job's memory is far from the GPU",
    "memory_used": "{} of the GPU's memory is in use",
    "job_cpus": "the job uses {} CPUs",
    "cpus_allowed": "the job may use {} CPUs",
    "born": "{} of the job's processes began while it was watched",
    "ended": "{} of the job's processes ended while it was watched",
    "cpu_starved": "the job's hottest thread waited for a CPU that others used {} of the time",
    "others_cpus": "others use {} CPUs",
    "own_share": "the job uses {} of the CPU time that it may have",
    "steal": "the hypervisor took {} of the CPU time",
}
"""The wording of figures in a sentence; `figure_text` words the others."""
BY_NOTE = {"lost": "NVML answers", "waits_writing": "in"}
"""Figures whose note says more than their value."""


def figure_text(figure: Figure) -> str:
    """A figure with its name: `SM busy 28 %`."""
    if figure.value is None:
        return f"{figure.what} unknown ({figure.why})"
    note = f" ({figure.note})" if figure.note else ""
    return f"{figure.what} {value_text(figure)}{note}"


def value_text(figure: Figure) -> str:
    """The value of a figure with its unit: `28 %`; empty if it is not known."""
    if figure.value is None:
        return ""
    if figure.unit in LEAST and 0 < figure.value < LEAST[figure.unit]:
        return f"< {LEAST[figure.unit]:g} {figure.unit}".rstrip()
    return f"{number(figure.value)} {figure.unit}".rstrip()


def figure_sentence(figure: Figure) -> str:
    """A figure as it is read aloud in a sentence: `its hottest thread takes 98 % of a core`."""
    if figure.value is None or figure.name not in {*SAID, *BY_NOTE}:
        return figure_text(figure)
    if figure.name in BY_NOTE:
        return f"{BY_NOTE[figure.name]} {figure.note}"
    if figure.name == "disk_busy" and figure.what != BUSIEST:
        return f"its disk {value_text(figure)} busy ({figure.note})"
    note = f" ({figure.note})" if figure.note else ""
    text = SAID[figure.name].format(value_text(figure).replace(" /s", " a second"))
    return text.replace(" 1 CPUs", " 1 CPU") + note


def number(value: float) -> str:
    """With as many digits as can be read at a glance.

    >>> number(28.04), number(9.0), number(0.31), number(12.44), number(1234.5)
    ('28', '9', '0.31', '12', '1234')
    """
    if value == 0 or abs(value) >= 10:
        return f"{value:.0f}"
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 1 else f"{value:.2g}"


def proof(cause: Cause, figures: Figures) -> str:
    """The numbers that prove a cause."""
    texts = [
        figure_sentence(figures[name])
        for name in PROOF.get(cause, ())
        if (value := figures[name].value) is not None
        and WORTH.get(name, 0.0) <= value <= USUAL.get(name, value)
    ]
    return ", ".join(texts)


def sentence(
    cause: Cause,
    causes: Sequence[Cause],
    figures: Figures,
    rulings: Iterable[Ruling],
    jobs: Sequence[Job],
    evidence: Evidence,
    reasons: Mapping[Cause, str],
) -> str:
    """What a GPU waits for, in one sentence; `reasons`: the evidence against each cause."""
    if cause is Cause.UNCLEAR:
        return unclear(figures, rulings) + _place(jobs, evidence)
    if cause is Cause.MIXED:
        parts = "; ".join(
            f"{one_cause.value}: {proof(one_cause, figures)}{_but(reasons.get(one_cause))}"
            for one_cause in causes
        )
        return f"waits for more than one thing: {parts}"
    numbers, but = proof(cause, figures), _but(reasons.get(cause))
    if cause is Cause.GPU:
        return f"does not wait: {numbers}{but}"
    if cause is Cause.SPINNING:
        return f"is busy or spins: {numbers}{but}"
    if cause is Cause.LOST:
        return f"is lost or must be reset: {numbers}"
    if cause is Cause.THROTTLED:
        return f"runs slower than it could: {numbers}"
    if cause is Cause.IDLE:
        return (
            f"has nothing to do: {numbers}"
            if not jobs
            else f"is held by a job, and idle: {numbers}"
        )
    if cause is Cause.STUCK and (figures["spinning"].value or 0.0) >= WORTH["spinning"]:
        return f"is held by a job that spins and gives it nothing to do: {numbers}{but}"
    if cause is Cause.STUCK:
        return f"is held by a job that does nothing: {numbers}{_asleep(jobs, evidence)}{but}"
    if cause is Cause.REQUESTS:
        return f"is held by a server without requests: {numbers}{but}"
    return f"waits for {what_for(cause, figures)}: {numbers}{but}"


def what_for(cause: Cause, figures: Figures) -> str:
    """What it waits for; memory of another NUMA node only if most of the job's memory is there."""
    shares = {"CPUs": figures["remote_cpus"].value, "memory": figures["remote_memory"].value}
    far = [name for name, share in shares.items() if (share or 0.0) >= FAR]
    return f"{' and '.join(far)} of another NUMA node" if cause is Cause.NUMA else WAITS_FOR[cause]


def _but(why: str | None) -> str:
    return f"; but {why}" if why else ""


def unclear(figures: Figures, rulings: Iterable[Ruling]) -> str:
    """The known figures, and the missing ones."""
    busy = figures["sm_busy"]
    if busy.value is None:
        return f"cause unknown: {figure_text(busy)}"
    missing = {
        condition.figure.name: condition.figure
        for ruling in rulings
        if ruling.holds is None
        for condition in ruling.conditions
        if condition.figure.value is None
    }
    if missing:
        listed = ", ".join(figure.what for figure in list(missing.values())[:3])
        why = next(iter(missing.values())).why
        return f"cause unknown: {figure_text(busy)}; not read: {listed} ({why})"
    return f"waits, and no rule explains why: {figure_text(busy)}"


def _place(jobs: Sequence[Job], evidence: Evidence) -> str:
    """What the first thread of an unexplained job waits for, by its call."""
    data = evidence[ProcessActivities].data
    if data is None or data.look is None:
        return ""
    text = place_text(data.processes or (), (job.pid for job in jobs), data.look.seconds)
    return f"; {text}" if text else ""


def _asleep(jobs: Sequence[Job], evidence: Evidence) -> str:
    """The sleeping process, where in the kernel it sleeps, and its start if that is long ago."""
    data, process = evidence[ProcessActivities].data, _largest(jobs, evidence)
    if data is None or process is None:
        return ""
    text = f"; {process.command or '?'} {process.pid}"
    if place := waits_in(jobs, evidence):
        text += f" asleep in {place}"
    if process.stack:
        text += f" (kernel stack: {' < '.join(process.stack[:STACK])})"
    if process.started_s is not None and data.uptime_s is not None:
        age = data.uptime_s - process.started_s
        text += f", started {age / 60:.0f} min before" if age >= START else ""
    return text


def _largest(jobs: Sequence[Job], evidence: Evidence) -> ProcessActivity | None:
    """The process that uses most of the GPU's memory."""
    data = evidence[ProcessActivities].data
    if data is None or not jobs:
        return None
    pid = max(jobs, key=lambda job: job.memory_b or 0).pid
    return next((process for process in data.processes or () if process.pid == pid), None)


def waits_in(jobs: Sequence[Job], evidence: Evidence) -> str:
    """The kernel function in which the job's main thread slept most; empty if it is not known."""
    process = _largest(jobs, evidence)
    threads = (process.threads if process else None) or ()
    main = next((thread for thread in threads if process and thread.tid == process.pid), None)
    waits = (main.waits if main else None) or {}
    return max(waits, key=lambda name: waits[name], default="")


def also_lines(
    cause: Cause,
    causes: Sequence[Cause],
    figures: Figures,
    rulings: Iterable[Ruling],
    explained: Mapping[Cause, Cause],
) -> tuple[str, ...]:
    """What is notable next to the cause. Another cause is only if it has a figure of its own, as a
    throttled GPU that is also busy has not. `explained`: an entailed cause -> the cause of it.
    """
    texts = []
    known = {name for one_cause in causes for name in PROOF.get(one_cause, ())}
    for ruling in rulings:
        if ruling.holds and not known.issuperset(PROOF.get(ruling.cause, ())):
            by = explained.get(ruling.cause)
            why = f", which comes with {by.value}" if by else ""
            line = f"looks {ruling.cause.value} too{why}: {proof(ruling.cause, figures)}"
            if line not in texts:
                texts.append(line)
    allowed = figures["cpus_allowed"]
    if allowed.value is not None and allowed.note and figures["processes"].value:
        texts.append(figure_sentence(allowed))
    texts += [figure_sentence(figures[name]) for name in ("born", "ended") if figures[name].value]
    starved = figures["cpu_starved"]
    if (starved.value or 0) >= 20 and Cause.STARVED not in causes:
        texts.append(figure_sentence(starved))
    stolen = figures["steal"]
    if (stolen.value or 0) >= 5:
        texts.append(figure_sentence(stolen))
    return tuple(texts)
