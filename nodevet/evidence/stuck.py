"""Section stuck."""

from typing import Annotated

from nodevet.base.bounds import Real, Text, at_most
from nodevet.evidence.core import Record, SectionRecord

STUCK = at_most(256)  # processes, of those that do not come back; the probe keeps as many


class StuckProcess(Record, frozen=True, kw_only=True):
    """/proc/<pid>/stat and wchan. Only its first thread is looked at."""

    pid: int
    command: Text | None = None  # comm
    state: Text | None = None  # D, Z
    parent: int | None = None  # pid
    uid: int | None = None  # the real user, who started it
    started_s: Real | None = None  # seconds after boot
    wchan: Text | None = None  # the kernel's function that it waits in; 0: not told


class Stuck(SectionRecord, frozen=True, kw_only=True):
    """Processes that do not come back; kernel threads are none. `absent`: not asked for.

    The lists hold the first 256."""

    unique = ("blocked[].pid", "zombies[].pid")
    plural = "processes"

    volatile = ("watched_s", "processes", "blocked_count", "zombie_count", "blocked", "zombies")

    watched_s: Real | None = None  # that the blocked ones were seen so, and were not scheduled
    complete: bool | None = None  # whether /proc shows every process
    processes: int | None = None
    blocked_count: int | None = None
    zombie_count: int | None = None
    blocked: Annotated[tuple[StuckProcess, ...], STUCK] | None = None
    zombies: Annotated[tuple[StuckProcess, ...], STUCK] | None = None
