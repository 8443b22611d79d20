"""The ranks of a job on one host, and what each of them did (pure)."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from nodevet.base.printable import plain
from nodevet.diagnose.model import (
    ORDER,
    Cause,
    Confidence,
    GpuDiagnosis,
    HostDiagnosis,
    JobTarget,
    ListedRank,
    Rank,
    RankState,
)
from nodevet.diagnose.stragglers import OWN
from nodevet.diagnose.words import number
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivities
from nodevet.evidence.lists import spans
from nodevet.evidence.process_activity import ProcessActivities, ProcessActivity

HELD_UP = (*(cause for cause in OWN if cause is not Cause.STUCK), Cause.STARVED, Cause.QUOTA)
STATES: Mapping[Cause, RankState] = {
    **dict.fromkeys(HELD_UP, RankState.HELD_UP),
    Cause.GPU: RankState.COMPUTES,
    Cause.SPINNING: RankState.WAITS,
}
HALF = 0.5  # of the looks at which a stopped process was stopped


class HostRanks(NamedTuple):
    """What one host shows of a job."""

    ranks: tuple[Rank, ...] = ()  # on GPUs
    others: tuple[Rank, ...] = ()  # processes with a rank that use no GPU
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def host_ranks(evidence: Evidence, host: HostDiagnosis, target: JobTarget) -> HostRanks:
    """The ranks of the job on a host; its other processes on GPUs are neighbours."""
    data = evidence[ProcessActivities].data
    processes = (data.processes if data else None) or ()
    gpus = _gpus(evidence, processes)
    numbers = _members(target, host.host, processes, gpus)
    parent_of = {each.pid: each.parent for each in processes}
    grouped: dict[object, list[ProcessActivity]] = {}
    for process in processes:
        above = _above(process.pid, parent_of)
        if process.pid in numbers and not any(
            pid in gpus and numbers.get(pid, -1) == numbers[process.pid] for pid in above
        ):
            key = numbers[process.pid] if target.listed else process.pid
            grouped.setdefault(key, []).append(process)
    ranks = [_rank(host, group, numbers[group[0].pid], gpus) for group in grouped.values()]
    used = {index for rank in ranks for index in rank.gpus}
    shared, notes = _neighbours(host.host, processes, gpus, used, numbers)
    mine = [each for each in processes if each.pid in numbers]
    unread = [each for each in mine if each.errors.get("rank")]
    if unread and not target.listed:
        shared.append(f"{host.host}: rank numbers were not read: {unread[0].why('rank')}")
    return HostRanks(
        ranks=tuple(rank for rank in ranks if rank.gpus),
        others=tuple(rank for rank in ranks if not rank.gpus),
        doubts=tuple(shared),
        notes=tuple(notes),
    )


def _gpus(evidence: Evidence, processes: Iterable[ProcessActivity]) -> Mapping[int, set[int]]:
    """pid -> the GPUs that it uses, or used."""
    used = {process.pid: set(process.gpus) for process in processes if process.gpus}
    data = evidence[GpuActivities].data
    for gpu in (data.gpus if data else None) or ():
        for process in gpu.processes or ():
            used.setdefault(process.pid, set()).add(gpu.index)
    return used


def _members(
    target: JobTarget,
    host: str,
    processes: Iterable[ProcessActivity],
    gpus: Mapping[int, set[int]],
) -> dict[int, int | None]:
    """pid -> rank, of the processes of the job."""
    if target.listed:
        rows = [row for row in target.listed if row.host == host]
        return {
            process.pid: row.rank
            for process in processes
            for row in reversed(rows)
            if _is_at(row, process.pid, gpus.get(process.pid, set()))
        }
    return {
        process.pid: process.rank
        for process in processes
        if process.job_id in target.ids
        and target.step in ("", process.step)
        and (target.uid in (None, process.uid) or process.uid is None)
    }


def _is_at(row: ListedRank, pid: int, gpus: set[int]) -> bool:
    if row.pid is not None:
        return row.pid == pid
    return bool(gpus) if row.gpu is None else row.gpu in gpus


def _above(pid: int, parent_of: Mapping[int, int | None]) -> Iterable[int]:
    """The ancestors of a process: one of the job may have forked it as a helper."""
    visited = {pid}
    while (parent := parent_of.get(pid)) is not None and parent not in visited:
        yield parent
        visited.add(parent)
        pid = parent


def _rank(
    host: HostDiagnosis,
    group: Sequence[ProcessActivity],
    rank: int | None,
    gpus: Mapping[int, set[int]],
) -> Rank:
    process = group[0]
    indexes = sorted({index for each in group for index in gpus.get(each.pid, ())})
    own = [gpu for gpu in host.gpus if gpu.index in indexes]
    worst = min(own, key=lambda gpu: ORDER.index(gpu.cause), default=None)
    state, text = _state(process, worst)
    return Rank(
        number=rank,
        size=process.ranks,
        host=host.host,
        pid=process.pid,
        command=process.command or "",
        gpus=tuple(indexes),
        state=state,
        cause=worst.cause if worst else None,
        confidence=worst.confidence if worst else Confidence.LOW,
        text=text,
        next_step=NEXT.get(state) or (worst.next_step if worst else ""),
    )


def _state(process: ProcessActivity, gpu: GpuDiagnosis | None) -> tuple[RankState, str]:
    who = f"{plain(process.command or '?')} {process.pid}"
    if process.ended_s is not None:
        return RankState.ENDED, f"{who} ended {number(process.ended_s)} s after nodevet began"
    first = next((each for each in process.threads or () if each.tid == process.pid), None)
    looks = ((first.states if first else None) or "").replace("-", "")
    stopped = sum(looks.count(letter) for letter in "Tt")
    if looks and stopped >= HALF * len(looks):
        how = "by a signal" if "T" in looks else "by a debugger"
        return RankState.STOPPED, f"{who} is stopped {how} ({stopped} of {len(looks)} looks)"
    if gpu is None:
        return RankState.NO_GPU, f"{who} runs, and uses no GPU"
    return STATES.get(gpu.cause, RankState.QUIET), gpu.sentence


NEXT = {
    RankState.ENDED: "read the end of its log, and dmesg for an Xid or the OOM killer; the others "
    "wait until a timeout, so its owner can restart the job now",
    RankState.STOPPED: "ask who stopped it (a debugger, a snapshot, an operator); `kill -CONT PID` "
    "lets it go on",
    RankState.NO_GPU: "py-spy dump --pid PID shows what it does instead; dmesg shows whether it "
    "lost its GPU",
}


def _neighbours(
    host: str,
    processes: Iterable[ProcessActivity],
    gpus: Mapping[int, set[int]],
    used: set[int],
    mine: Container[int],
) -> tuple[list[str], list[str]]:
    """Those that share a GPU with the job, and those on other GPUs."""
    shared: list[str] = []
    others: list[str] = []
    for process in processes:
        if process.pid in mine or not gpus.get(process.pid):
            continue
        name = f"{plain(process.command or '?')} {process.pid}"
        of = f" of {plain(process.job_id)}" if process.job_id else ""
        text = f"{host} GPU {spans(gpus[process.pid])}: {name}{of} is not of this job"
        (shared if gpus[process.pid] & used else others).append(text)
    return shared, others
