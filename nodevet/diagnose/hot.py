"""What the hot threads of the processes on a GPU do: submit, compute, take turns (pure)."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from nodevet.diagnose.model import Figure
from nodevet.diagnose.series import grown
from nodevet.evidence.process_activity import ProcessActivity, ThreadActivity

NAMES = {
    "thread_system": ("%", "system time of the hottest thread of the GPU's processes"),
    "turns": ("", "threads of one process on the GPU above 10 % of a core"),
    "turns_cpus": ("", "CPUs that those threads use together"),
    "turns_switches": ("/s", "context switches of those threads"),
}
ACTIVE = 10.0  # percent of a core


class HotThread(NamedTuple):
    """A thread and the CPU time that it used."""

    user: int
    system: int
    switches: int | None

    @property
    def ticks(self) -> int:
        return self.user + self.system


def hot_thread(thread: ThreadActivity) -> HotThread | None:
    user, system = grown(thread.user), grown(thread.system)
    if user is None or system is None:
        return None
    return HotThread(user, system, grown(thread.switches))


def hot_figures(processes: Iterable[ProcessActivity], hz: int, seconds: float) -> Iterator[Figure]:
    """Of the processes on a GPU, without their helpers."""
    by_process = [
        [found for thread in process.threads or () if (found := hot_thread(thread))]
        for process in processes
    ]
    top = max(
        (thread for threads in by_process for thread in threads),
        default=None,
        key=lambda thread: thread.ticks,
    )
    share = 100.0 * top.system / top.ticks if top and top.ticks else 0.0
    yield _figure("thread_system", share)
    least = ACTIVE / 100 * hz * seconds
    crowds = [[each for each in threads if each.ticks >= least] for threads in by_process]
    crowd = max(crowds, key=len, default=[])
    yield _figure("turns", float(len(crowd)))
    yield _figure("turns_cpus", sum(each.ticks for each in crowd) / hz / seconds)
    switches = [each.switches for each in crowd]
    unread = "the context switches of a thread were not read"
    counts = [count for count in switches if count is not None]
    is_known = len(counts) == len(switches)
    yield _figure("turns_switches", sum(counts) / seconds if is_known else None, unread)


def _figure(name: str, value: float | None, why: str = "") -> Figure:
    unit, what = NAMES[name]
    return Figure(name, value, unit, what, why if value is None else "")
