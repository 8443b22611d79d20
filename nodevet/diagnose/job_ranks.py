"""The ranks of a job on one host, and what each of them did (pure)."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from nodevet.base.printable import plain
from nodevet.diagnose.collectives import RankDump
from nodevet.diagnose.gpm import parts_text, polls
from nodevet.diagnose.job_figures import LEAST, is_mps
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
from nodevet.diagnose.rules import LET_RUN
from nodevet.diagnose.words import number
from nodevet.evidence.core import MISSING, NOT_ASKED
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu_activity import GpuActivities
from nodevet.evidence.lists import spans
from nodevet.evidence.nccl_ras import NcclRas
from nodevet.evidence.process_activity import ProcessActivities, ProcessActivity, ThreadActivity

HELD_UP = (
    *(Cause.LOST, Cause.THROTTLED, Cause.SUBMISSION, Cause.PREPROCESSING, Cause.STORAGE),
    *(Cause.TRANSFER, Cause.MEMORY, Cause.NUMA, Cause.MIXED, Cause.STARVED, Cause.QUOTA),
)
STATES: Mapping[Cause, RankState] = {
    **dict.fromkeys(HELD_UP, RankState.HELD_UP),
    Cause.GPU: RankState.COMPUTES,
    Cause.SPINNING: RankState.WAITS,
}
MOST = 0.8  # of the looks at a thread that computes
HALF = 0.5  # of the looks at which a stopped process was stopped


class HostRanks(NamedTuple):
    """The ranks of a job on one host."""

    ranks: tuple[Rank, ...] = ()  # on GPUs
    others: tuple[Rank, ...] = ()  # processes with a rank that use no GPU
    doubts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()  # processes on GPUs that are not known to be of the job
    dumps: Mapping[int, RankDump] = {}  # pid of a rank on a GPU -> its dump
    cpus: Mapping[int, str | None] = {}  # pid -> the CPUs that it may use
    ras: NcclRas | str = ""  # what NCCL's RAS said, or why it was not read; empty: not requested


def host_ranks(evidence: Evidence, host: HostDiagnosis, target: JobTarget) -> HostRanks:
    """The ranks of the job on a host; its other processes on GPUs are neighbours."""
    data = evidence[ProcessActivities].data
    processes = (data.processes if data else None) or ()
    gpus = _gpus(evidence, processes)
    numbers = _members(target, host.host, processes, gpus)
    parent_of = {process.pid: process.parent for process in processes}
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
    shared += _newcomers(host.host, processes, gpus, used)
    mine = [process for process in processes if process.pid in numbers]
    unread = [process for process in mine if process.errors.get("rank")]
    if unread and not target.listed:
        shared.append(f"{host.host}: rank numbers were not read: {unread[0].why('rank')}")
    return HostRanks(
        ranks=tuple(rank for rank in ranks if rank.gpus),
        others=tuple(rank for rank in ranks if not rank.gpus),
        doubts=tuple(shared),
        notes=tuple(notes),
        strangers=tuple(
            f"{plain(process.command or '?').replace(';', '')} {process.pid}"
            for process in processes
            if gpus.get(process.pid) and process.pid not in numbers
            if not is_mps(process) and not process.job_id
        ),
        dumps={
            process.pid: RankDump(process.rank, process.flight, process.why("flight"))
            for process in (group[0] for group in grouped.values())
            if process.rank is not None and process.pid in gpus
        },
        cpus={process.pid: process.cpus_allowed for process in mine},
        ras=_ras(evidence),
    )


def _ras(evidence: Evidence) -> NcclRas | str:
    section = evidence[NcclRas]
    return section.data or ("" if section.why in (MISSING, NOT_ASKED) else section.why)


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
            if _is_at(row, process.pid, gpus.get(process.pid, set())) and not is_mps(process)
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
    process = _telling(group)
    indexes = sorted({index for member in group for index in gpus.get(member.pid, ())})
    own = [gpu for gpu in host.gpus if gpu.index in indexes]
    worst = min(own, key=_lateness, default=None)
    state, text = _state(process, worst)
    step = NEXT.get(state) or (worst.next_step if worst else SEE)
    if len(indexes) == 1 and worst:
        step = step.replace("-i BUS_ID", f"-i {worst.id}")
    return Rank(
        number=rank,
        size=process.ranks,
        host=host.host,
        pid=process.pid,
        command=process.command or "",
        gpus=tuple(indexes),
        state=state,
        cause=worst.cause if worst else None,
        causes=worst.causes if worst and worst.cause is Cause.MIXED else (),
        confidence=worst.confidence if worst else Confidence.LOW,
        text=text,
        next_step=step.replace("PID", str(process.pid)),
    )


def _telling(group: Sequence[ProcessActivity]) -> ProcessActivity:
    """Of the processes that a list calls one rank, one that is stopped, else one that has not
    ended."""
    order = (RankState.STOPPED, RankState.NO_GPU, RankState.COMPUTES, RankState.ENDED)
    return min(group, key=lambda each: order.index(_state(each, None)[0]))


def _lateness(gpu: GpuDiagnosis) -> tuple[bool, int]:
    """The order of one rank's GPUs, the one that says most first: one that polls or has no work
    waits for the others."""
    return gpu.cause in (Cause.SPINNING, Cause.REQUESTS, Cause.IDLE), ORDER.index(gpu.cause)


def _state(process: ProcessActivity, gpu: GpuDiagnosis | None) -> tuple[RankState, str]:
    who = f"{plain(process.command or '?')} {process.pid}"
    if process.ended_s is not None:
        return RankState.ENDED, f"{who} ended {number(process.ended_s)} s after nodevet began"
    if _is_zombie(process):
        return RankState.ENDED, f"{who} ended, and its parent has not reaped it (a zombie)"
    first = next((thread for thread in process.threads or () if thread.tid == process.pid), None)
    looks = ((first.states if first else None) or "").replace("-", "")
    stopped = sum(looks.count(letter) for letter in "Tt")
    if looks and stopped >= HALF * len(looks):
        how = "by a signal" if "T" in looks else "by a debugger"
        return RankState.STOPPED, f"{who} is stopped {how} ({stopped} of {len(looks)} looks)"
    if gpu is None:
        if any(map(_is_ready, process.threads or ())):
            return RankState.COMPUTES, f"{who} uses no GPU, and a thread of it never sleeps"
        return RankState.NO_GPU, f"{who} runs, and uses no GPU"
    figures = {figure.name: figure for figure in gpu.figures}
    if gpu.cause is Cause.GPU and polls(figures):
        return RankState.WAITS, parts_text(figures)
    return STATES.get(gpu.cause, RankState.QUIET), claim_text(gpu)


def _is_ready(thread: ThreadActivity) -> bool:
    """Whether it ran, or was ready to, at most looks."""
    looks = (thread.states or "").replace("-", "")
    return len(looks) >= LEAST and looks.count("R") >= MOST * len(looks)


def claim_text(gpu: GpuDiagnosis) -> str:
    """`waits for storage`; of a mixture with its causes."""
    mixed = " + ".join(cause.value for cause in gpu.causes) if gpu.cause is Cause.MIXED else ""
    return f"{gpu.claim}: {mixed}" if mixed else gpu.claim


def _is_zombie(process: ProcessActivity) -> bool:
    """Whether at the last look its first thread had ended, and no other one was there."""
    last = {thread.tid: (thread.states or "-")[-1] for thread in process.threads or ()}
    return last.pop(process.pid, "") == "Z" and set(last.values()) <= {"-", "Z"}


SEE = "py-spy dump --nonblocking --pid PID shows what it does"
NEXT = {
    RankState.ENDED: "read the end of its log, and dmesg for an Xid or the OOM killer; the others "
    "wait until a timeout, so its owner can restart the job now",
    RankState.STOPPED: LET_RUN,
    RankState.NO_GPU: "py-spy dump --nonblocking --pid PID shows what it does instead; dmesg shows "
    "whether it lost its GPU",
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
        if process.pid in mine or not gpus.get(process.pid) or is_mps(process):
            continue
        name = f"{plain(process.command or '?')} {process.pid}"
        of = f" of {plain(process.job_id)}" if process.job_id else ""
        known = "not" if process.job_id else "not known to be"
        text = f"{host} GPU {spans(gpus[process.pid])}: {name}{of} is {known} of this job"
        (shared if gpus[process.pid] & used else others).append(text)
    return shared, others


def _newcomers(
    host: str,
    processes: Iterable[ProcessActivity],
    gpus: Mapping[int, set[int]],
    used: set[int],
) -> list[str]:
    """Processes that came to the GPUs of the job while it was watched: it may have begun again."""
    watched = {process.pid for process in processes}
    return [
        f"{host} GPU {spans(indexes)}: process {pid} came while nodevet watched"
        for pid, indexes in gpus.items()
        if pid not in watched and indexes & used
    ]
