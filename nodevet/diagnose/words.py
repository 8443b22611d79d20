"""The figures of a diagnosis in words: the numbers that prove a cause, and what else is notable."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from nodevet.diagnose.model import Cause, Figure, Ruling
from nodevet.diagnose.rules import OTHER_WAITS
from nodevet.evidence.lists import spans

Figures = Mapping[str, Figure]

OF_PARTS = ("sm_active", "tensor_active", "dram_active")
PROOF = {
    Cause.GPU: ("sm_busy", "clock", "power", *OF_PARTS),
    Cause.SPINNING: ("sm_busy", "power", "memory_busy", "clock", *OF_PARTS),
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
        "io_delayed",
        "waits_writing",
        "job_io_stalled",
        "disk_busy",
        "nfs_latency",
        "read_size",
    ),
    Cause.TRANSFER: ("sm_busy", "link", "idle_link", "hottest_thread"),
    Cause.MEMORY: ("sm_busy", "job_memory_stalled", "swapped_in", "limit_hits", "job_major_faults"),
    Cause.NUMA: ("sm_busy", "remote_cpus", "remote_memory"),
    Cause.NETWORK: ("sm_busy", "network", "lost_segments"),
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
        "io_delayed",
    ),
    1.0,
) | {"idle_link": 70.0, "spinning": 95.0, "turns": 3.0, "unowned": 20.0, "hottest_thread": 30.0}
"""The least at which a figure is worth its place in a sentence."""
USUAL = {"limit": 95.0}
"""The most at which a figure is worth its place."""
LEAST = {"%": 0.1, "": 0.01, "/s": 0.1}
"""A value below this, in its unit, counts as almost nothing."""
BUSIEST = "busiest disk"


WORDING = {
    "slowed": "heat or the power brake slowed it {} of the time",
    "power_capped": "it was at its power limit {} of the time",
    "limit": "its power limit is {} of the board's default",
    "clock": "its SM clock is {} of its maximum",
    "power": "it draws {} of its power limit",
    "sm_active": "{} of its SMs are busy",
    "tensor_active": "its tensor cores are busy {} of the time",
    "dram_active": "it uses {} of its memory bandwidth",
    "hottest_thread": "the hottest thread of the GPU's processes takes {} of a core",
    "hottest_helper": "the hottest thread of the job's helpers takes {} of a core",
    "ended_helpers": "helpers that ended took {} of a core",
    "thread_system": "that thread spends {} of its time in the kernel",
    "turns": "{} threads of one process take turns on one core",
    "job_system": "{} of the job's CPU time is in the kernel",
    "job_user": "{} of the job's CPU time is in user mode",
    "switches": "the job switches context {}",
    "saturation": "the job wants {} of the CPUs that it may use",
    "quota_throttled": "the job's CPU quota ran out in {} of the periods",
    "blocked": "a thread of the job waited for storage {} of the time",
    "io_delayed": "the kernel counted {} of the time as its delay by block I/O",
    "job_io_stalled": "the whole cgroup waited for I/O {} of the time (PSI)",
    "job_memory_stalled": "the whole cgroup waited for memory {} of the time (PSI)",
    "disk_busy": "the busiest disk, perhaps another job's, is {} busy",
    "nfs_latency": "the slowest NFS mount takes {} a request",
    "read_size": "the job reads {} at a time",
    "link": "the PCIe link carries {} of its capacity",
    "idle_link": "the PCIe link carries {} of its capacity while the GPU computes nothing",
    "swapped_in": "the host swaps pages in {}",
    "limit_hits": "the cgroup hits its memory limit {}",
    "job_major_faults": "the job reads pages back in {}",
    "network": "a thread of the job waited for the network {} of the time",
    "serving": "a thread of it waited for requests {} of the time",
    "frozen": "its first thread slept {} of the time and never woke",
    "spinning": "one of its threads ran, or was ready to run, {} of the time and never slept",
    "remote_cpus": "{} of the job's CPU time is far from the GPU",
    "remote_memory": "{} of the job's memory is far from the GPU",
    "memory_used": "{} of the GPU's memory is in use",
    "unowned": "{} of the GPU's memory is in use, and NVML names no process: fuser -v /dev/nvidia*",
    "job_cpus": "the job uses {} CPUs",
    "cpus_allowed": "the job may use {} CPUs",
    "born": "{} of the job's processes began during the watch",
    "ended": "{} of the job's processes ended during the watch",
    "cpu_starved": "the job's hottest thread waited for a CPU that others used {} of the time",
    "others_cpus": "on this node, others use {} CPUs",
    "own_share": "the job uses {} of the CPUs that it may use",
    "steal": "the hypervisor took {} of the CPU time",
}
"""The wording of figures in a sentence; `figure_text` words the others."""
BY_NOTE = {
    "lost": "",
    "waits_writing": "it waits in",
    "lost_segments": "its connection:",
}
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
    if figure.value is None or figure.name not in {*WORDING, *BY_NOTE}:
        return figure_text(figure)
    if figure.name == "lost_segments" and figure.value == 0 and figure.note:
        return f"its connection works: {figure.note}"
    if figure.name in BY_NOTE:
        return f"{BY_NOTE[figure.name]} {figure.note}".strip()
    if figure.name == "disk_busy" and figure.what != BUSIEST:
        return f"its disk is {value_text(figure)} busy ({figure.note})"
    note = f" ({figure.note})" if figure.note else ""
    wording = WORDING[figure.name].replace(SLOWDOWN, slowdown(figure))
    text = wording.format(value_text(figure).replace(" /s", " times a second"))
    return text.replace(" 1 CPUs", " 1 CPU") + note


SLOWDOWN = "heat or the power brake"


def slowdown(figure: Figure) -> str:
    """What slows a GPU, as far as its note says."""
    found = {"thermal": "heat", "power brake": "the power brake"}
    return next((name for word, name in found.items() if word in figure.note), SLOWDOWN)


def cpus_text(figures: Figures) -> str:
    """`the job uses 1.1 of the 2 CPUs that it may use (affinity)`; empty if not known."""
    used, allowed = figures["job_cpus"].value, figures["cpus_allowed"]
    if used is None or not allowed.value:
        return ""
    wanted = (figures["saturation"].value or 0.0) / 100 * allowed.value
    note = f" ({allowed.note})" if allowed.note else ""
    more = f", and its threads want {number(wanted)}" if wanted > MORE * used else ""
    noun = "CPU" if allowed.value == 1 else "CPUs"
    return (
        f"the job uses {number(used)} of the {number(allowed.value)} {noun} that it may "
        f"use{note}{more}"
    )


MORE = 1.2  # of the CPUs that a job uses: it waits for others


def reads_text(figures: Figures) -> str:
    """`the job reads 4.1 kB at a time, 43 times a second`."""
    text = figure_sentence(figures["read_size"])
    size, rate = figures["read_size"].value, figures["read_rate"].value
    reads = 1000 * rate / size if size and rate else 0.0
    return f"{text}, {number(reads)} times a second" if 0 < reads < MANY else text


MANY = 1000.0  # reads a second: storage that serves so many small ones is quick


def limit_text(figures: Figures) -> str:
    """That a power limit is the board's default, for a GPU that reaches it; else empty."""
    limit, power = figures["limit"], figures["power"].value or 0.0
    if limit.value is None or abs(limit.value - 100) > 1 or power < AT_LIMIT:
        return ""
    return f"its power limit is the board's default ({limit.note.partition(' of ')[0]})"


AT_LIMIT = 95.0  # percent of the power limit


def number(value: float) -> str:
    """With as many digits as can be read at a glance.

    >>> number(28.04), number(9.0), number(0.31), number(12.44), number(1234.5)
    ('28', '9', '0.31', '12', '1234')
    """
    if value == 0 or abs(value) >= 10:
        return f"{value:.0f}"
    return f"{value:.1f}".removesuffix(".0") if abs(value) >= 1 else f"{value:.2g}"


def numbers_of(cause: Cause, figures: Figures) -> tuple[str, ...]:
    """The numbers that prove a cause."""
    shown = PROOF.get(cause, ())
    if figures["link"].value == figures["idle_link"].value:
        shown = tuple(name for name in shown if name != "idle_link")
    texts = [
        _number(name, figures)
        for name in shown
        if (value := figures[name].value) is not None
        and WORTH.get(name, 0.0) <= value <= USUAL.get(name, value)
    ]
    texts += [limit_text(figures)] if cause is Cause.GPU else []
    return tuple(filter(None, texts))


def _number(name: str, figures: Figures) -> str:
    """A figure in words, some together with another one."""
    if name == "saturation":
        return cpus_text(figures) or figure_sentence(figures[name])
    return reads_text(figures) if name == "read_size" else figure_sentence(figures[name])


CPUS_MATTER = (Cause.SUBMISSION, Cause.PREPROCESSING, Cause.STARVED, Cause.QUOTA, Cause.NUMA)
"""The causes to which the number of CPUs that a job may use can lead."""


def also_lines(
    cause: Cause,
    causes: Sequence[Cause],
    figures: Figures,
    rulings: Iterable[Ruling],
    explained: Mapping[Cause, Cause],
) -> tuple[str, ...]:
    """What is notable next to the cause. Another cause counts only if it has a figure of its own: a
    throttled GPU that is also busy has none. `explained`: by entailed cause, the cause of it.
    """
    texts: list[str] = []
    known = {name for one_cause in causes for name in PROOF.get(one_cause, ())}
    for ruling in rulings:
        if ruling.holds and not known.issuperset({*PROOF.get(ruling.cause, ())} - {*OF_PARTS}):
            by = explained.get(ruling.cause)
            if ruling.cause is Cause.STARVED and by in OTHER_WAITS:
                continue  # its wait has a line below
            why = f", which comes with {by.value}" if by else ""
            shown = set(texts).union(*(numbers_of(one_cause, figures) for one_cause in causes))
            lines = (f"looks {ruling.cause.value} too{why}", *numbers_of(ruling.cause, figures))
            texts += [line for line in lines if line not in shown]
    texts += _allowed(causes, figures)
    texts += [figure_sentence(figures[name]) for name in ("born", "ended") if figures[name].value]
    starved = figures["cpu_starved"]
    if (starved.value or 0) >= 20 and Cause.STARVED not in causes:
        texts.append(figure_sentence(starved))
    stolen = figures["steal"]
    if (stolen.value or 0) >= 5:
        texts.append(figure_sentence(stolen))
    return tuple(texts)


def _allowed(causes: Sequence[Cause], figures: Figures) -> list[str]:
    """What limits the job's CPUs, if they can matter, and nothing else has said it."""
    allowed = figures["cpus_allowed"]
    if allowed.value is None or not allowed.note or not figures["processes"].value:
        return []
    if causes and not set(causes) & set(CPUS_MATTER):
        return []
    text = figure_sentence(allowed)
    said = {fact for cause in causes for fact in numbers_of(cause, figures)}
    return [] if said & {text, cpus_text(figures)} else [text]


def ranks_text(numbers: Collection[int]) -> str:
    """`rank 3`, `ranks 0-2,7`."""
    return f"rank{'s' * (len(numbers) > 1)} {spans(numbers)}"
