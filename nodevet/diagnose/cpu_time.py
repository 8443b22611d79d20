"""What a job used during the watch, including processes that started or ended then (pure).

For a process that ended, the last look shows what it did until then; the process that waited for it
has the whole time, together with its earlier use: proc_pid_stat(5), wait(2).
"""

from collections.abc import Iterable, Mapping, Sequence

from nodevet.diagnose.series import counter_growth
from nodevet.evidence.process_activity import ProcessActivity

UNSEEN = 0.1  # of the time for which a process that ended may not have been seen
CHILDREN = {"user": "children_user", "system": "children_system"}
Counts = tuple[int, int] | None


def cpu_ticks(processes: Sequence[ProcessActivity], field: str, seconds: float) -> float | None:
    """Ticks of `user` or `system` of all of them; None if one is not known."""
    return _sum(processes, field, CHILDREN[field], seconds)


def io_count(processes: Sequence[ProcessActivity], field: str, seconds: float) -> float | None:
    """What /proc/<pid>/io counts: a process's counters include the children that it waited for."""
    return _sum(processes, field, field, seconds)


def _sum(
    processes: Sequence[ProcessActivity], field: str, with_children: str, seconds: float
) -> float | None:
    ended = ended_children(processes)
    spent: dict[int, float | None] = {}
    for process in reversed(processes):  # children come after their parents
        kids = ended.get(process.pid, ())
        spent[process.pid] = _process_use(process, kids, spent, field, with_children)
    counted = {kid.pid for kids in ended.values() for kid in kids}
    ticks = [
        None if _is_unseen(process, seconds) else spent[process.pid]
        for process in processes
        if process.pid not in counted
    ]
    return (
        None if not ticks or None in ticks else sum(count for count in ticks if count is not None)
    )


def _process_use(
    process: ProcessActivity,
    kids: Iterable[ProcessActivity],
    spent: Mapping[int, float | None],
    field: str,
    with_children: str,
) -> float | None:
    """What a process used, with its children that ended."""
    own: Counts = getattr(process, field)
    by = counter_growth(own)
    if by is None:
        return None
    separate = field != with_children
    through = counter_growth(getattr(process, with_children)) or 0 if separate else by
    listed = list(kids)
    if has_reaped(process, listed):
        before = sum(_first_use(kid, field, with_children if separate else None) for kid in listed)
        reaped = max(0, through - before)
        return by + reaped if separate else reaped
    ticks = [spent.get(kid.pid) for kid in listed]
    if None in ticks:
        return None
    return by + max(through if separate else 0, sum(tick for tick in ticks if tick is not None))


def _first_use(process: ProcessActivity, *fields: str | None) -> int:
    """Its use at the first look."""
    counts: Iterable[Counts] = (getattr(process, field) for field in fields if field)
    return sum(count[0] for count in counts if count is not None)


def has_reaped(process: ProcessActivity, ended: Iterable[ProcessActivity]) -> bool:
    """Whether its own counters include children that ended."""
    least = sum(
        counts[1]
        for kid in ended
        for counts in (kid.user, kid.system, kid.children_user, kid.children_system)
        if counts is not None
    )
    by = [counter_growth(process.children_user), counter_growth(process.children_system)]
    return sum(growth or 0 for growth in by) >= least


def ended_children(
    processes: Sequence[ProcessActivity],
) -> Mapping[int, Sequence[ProcessActivity]]:
    """By pid: its children that ended during the watch."""
    pids = {process.pid for process in processes}
    by_parent: dict[int, list[ProcessActivity]] = {}
    for process in processes:
        if process.ended_s is not None and process.parent in pids and process.parent != process.pid:
            by_parent.setdefault(process.parent, []).append(process)
    return by_parent


def _is_unseen(process: ProcessActivity, seconds: float) -> bool:
    """Whether it ended so long after the last look that its use is not known."""
    if process.ended_s is None:
        return False
    return process.seen_s is None or process.ended_s - process.seen_s > UNSEEN * seconds
