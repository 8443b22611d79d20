"""What the hot threads of the processes on a GPU do: submit, compute, take turns (pure)."""

from collections.abc import Iterator
from itertools import pairwise

from nodevet.diagnose.model import Figure
from nodevet.diagnose.series import counter_growth, percent
from nodevet.evidence.process_activity import ProcessActivity, ThreadActivity

NAMES = {
    "thread_system": ("%", "system time of the hottest thread of the GPU's processes"),
    "turns": ("", "threads of one process on the GPU above 10 % of a core"),
    "turns_cpus": ("", "CPUs that those threads use together"),
    "turns_switches": ("/s", "context switches of those threads"),
}
ACTIVE = 10.0  # percent of a core


Share = tuple[float, ProcessActivity, ThreadActivity]
"""Percent of a core, and the thread that used it."""
Shares = list[Share]


def hottest(shares: Shares) -> Share | None:
    """The thread with the largest share; None without threads."""
    return max(shares, key=lambda share: share[0], default=None)


def ticks_used(thread: ThreadActivity | ProcessActivity) -> int | None:
    """Ticks of CPU time."""
    user, system = counter_growth(thread.user), counter_growth(thread.system)
    return None if user is None or system is None else user + system


def ticks_by_cpu(thread: ThreadActivity) -> Iterator[tuple[int, int]]:
    """(CPU, ticks of CPU time there). Those between two looks count for the CPU of the later look:
    a thread that sleeps keeps its CPU."""
    if thread.cpu is not None:
        yield thread.cpu, ticks_used(thread) or 0
        return
    looks = zip(thread.ticks or (), thread.cpus or (), strict=False)
    read = [(ticks, cpu) for ticks, cpu in looks if ticks is not None]
    for (before, _), (after, cpu) in pairwise(read):
        if cpu is not None:
            yield cpu, after - before


def hot_figures(shares: Shares, seconds: float) -> Iterator[Figure]:
    """Of the threads of the processes on a GPU, without their helpers."""
    top = hottest(shares)
    used = percent(counter_growth(top[2].system), ticks_used(top[2])) if top else None
    yield _figure("thread_system", used or 0.0)
    crowds: dict[int, Shares] = {}
    for share in shares:
        if share[0] >= ACTIVE:
            crowds.setdefault(share[1].pid, []).append(share)
    crowd = max(crowds.values(), key=len, default=[])
    yield _figure("turns", float(len(crowd)))
    yield _figure("turns_cpus", sum(share for share, _, _ in crowd) / 100)
    switches = [counter_growth(thread.switches) for _, _, thread in crowd]
    unread = "the context switches of a thread were not read"
    counts = [count for count in switches if count is not None]
    is_known = len(counts) == len(switches)
    yield _figure("turns_switches", sum(counts) / seconds if is_known else None, unread)


def _figure(name: str, value: float | None, why: str = "") -> Figure:
    unit, what = NAMES[name]
    return Figure(name, value, unit, what, why if value is None else "")
