"""No process holds a GPU's memory while no job should run.

**Why it matters.** A process that a job left behind, or memory that was not freed, takes memory
from the next job: that job runs out of memory minutes after its start, on a node that looks idle.

**Read from** NVML: nvmlDeviceGetComputeRunningProcesses and nvmlDeviceGetMemoryInfo; from /proc the
command, user, control group and start time of each process that computes on a GPU or has
/dev/nvidia<N> open.

**Verdicts.** Use this check when the node is idle, in a gate or a scheduler's epilog: it does not
know which jobs should run. With `ignore_jobs` the check ignores processes in a Slurm job or a
Kubernetes pod, by the control groups that Slurm and Kubernetes created; other processes fail. A
process that computes on a GPU fails unless its command is in `allow`, its user is in `allow_uids`,
or it is an NVIDIA monitoring daemon under a system user. The check also fails if more than
`maximum_mib` is in use beyond the memory of these processes: a context leaked, or NVML does not
list a process. If a display server has the GPU open, memory is not applicable. If NVML names a
process and /proc does not show it, the finding is unknown: the process may be in another container
or may have just ended.

**To fix it** end the process (`kill PID`, then `kill -9`), and let the scheduler clean up by
control group: Slurm with `proctrack/cgroup`. If no process holds the memory, drain the node and
reset the GPU (`nvidia-smi --gpu-reset -i BUS_ID`).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from nodevet.checking.aspects import each_fact
from nodevet.checking.named import reads_of
from nodevet.evidence.across import IN_HAND, each_gpu
from nodevet.evidence.core import NOT_SUPPORTED, unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.gpu import Gpu, GpuProcess, board, subject_of
from nodevet.evidence.host import HostInfo, at_uptime, boot_time
from nodevet.evidence.peers import LACKING
from nodevet.evidence.processes import Process, Processes, given_cgroup
from nodevet.model import (
    BUS_ID,
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Severity,
    fail,
    not_applicable,
    ok,
    unknown,
)

MIB = 1 << 20
COMM = 15  # characters of a command in /proc
MOST_SHOWN = 8  # processes
SYSTEM_UIDS = range(1000)
DAEMONS = (  # NVIDIA's; only under system users, because any process can take such a name
    "dcgm-exporter",
    "gpu-feature-discovery",
    "nv-fabricmanager",
    "nv-hostengine",
    "nvidia-dcgm",
    "nvidia-device-plugin",
    "nvidia-imex",
    "nvidia-persistenced",
    "nvidia-smi",
)
DAEMON_COMMANDS = frozenset(name[:COMM] for name in DAEMONS)
DISPLAYS = ("Xorg", "Xwayland", "gnome-shell", "kwin_wayland", "kwin_x11", "sway", "weston")
JOB = re.compile(r"/(?:slurm[^/]*|slurmstepd\.scope)/(?:[^/]+/)*job_[0-9]+|/kubepods[./-]")

END = (
    "make sure that no job owns it, then `kill PID` and, if it stays, `kill -9 PID`; if it still "
    "stays, it waits for the driver: drain the node and reboot"
)
LEAKED = (
    "`fuser -v /dev/nvidia*` as root shows which processes have the GPU open; if none has, drain "
    f"the node and reset the GPU (`nvidia-smi --gpu-reset -i {BUS_ID}`), or reboot"
)


MEMORY = "memory_used_b"
NOT_REPORTED = (None, *LACKING, "NVML_VALUE_NOT_AVAILABLE")
"""Errors with which NVML gives this number for no process, for example because another system owns
the memory."""


class Params(CheckParams):
    """`leftover_processes: {}` or `leftover_processes: {allow: [site-agent], ignore_jobs: true}`"""

    allow: tuple[str, ...] = ()
    """Commands that may compute on a GPU at any time, as `ps -o comm` prints them. A process of any
    user can take such a name; `allow_uids` cannot be forged."""
    allow_uids: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """Numbers of the users whose processes may compute on a GPU at any time."""
    ignore_jobs: bool = False
    """Whether to ignore processes of Slurm jobs and Kubernetes pods."""
    maximum_mib: Annotated[int, Meta(ge=0)] | None = 1024
    """The most memory that may be in use without a process that holds it; null: not judged."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Processes]
    processes = (section.data.processes if section.data else None) or ()
    known = {process.pid: process for process in processes}
    holders: dict[int | None, list[Process]] = {}
    for process in processes:
        for minor in process.gpu_minors or ():
            holders.setdefault(minor, []).append(process)
    for gpu in each_gpu(evidence):
        if isinstance(gpu, Finding):
            yield gpu
        elif section.data is None:
            yield unknown(subject_of(gpu), why=f"processes: {section.why}")
        elif section.data.processes is None:
            yield unread(subject_of(gpu), section.data, "processes")
        elif gpu.processes is None:
            yield unread(subject_of(gpu), gpu, "processes")
        else:
            users = judge_users(evidence, gpu, gpu.processes, known, params)
            own = holders.get(gpu.minor_number, [])
            yield from each_fact([*users, judge_memory(evidence, gpu, own, params.maximum_mib)])


def judge_users(
    evidence: Evidence,
    gpu: Gpu,
    users: Sequence[GpuProcess],
    known: Mapping[int, Process],
    params: Params,
) -> Iterator[Finding]:
    """The findings about processes that are left over, or may be."""
    leftover, doubts = [], []
    for user in users:
        allowed = is_allowed(known.get(user.pid), params)
        if isinstance(allowed, str):
            doubts.append(f"pid {user.pid}: {allowed}")
        elif not allowed:
            leftover.append(user)
    if leftover:
        yield fail(
            subject_of(gpu),
            expected=[],
            actual=[process_text(user, known[user.pid]) for user in leftover],
            advice=END,
            details={**board(gpu), **start_details(evidence, known[leftover[0].pid])},
        )
    if doubts:
        yield unknown(subject_of(gpu), why="; ".join(doubts[:MOST_SHOWN]))


def is_allowed(process: Process | None, params: Params) -> bool | str:
    """Whether the process may run; or why that is unknown."""
    if process is None:
        return (
            "NVML names it, but /proc does not show it: it is in another container, or has just "
            "ended"
        )
    for field in ("command", "uid", *(["cgroup"] if params.ignore_jobs else [])):
        if getattr(process, field) is None:
            return f"{field}: {process.why(field)}"
    listed = {command[:COMM] for command in params.allow}
    return (
        process.command in listed
        or process.uid in params.allow_uids
        or is_daemon(process)
        or (params.ignore_jobs and JOB.search(given_cgroup(process)) is not None)
    )


def is_daemon(process: Process) -> bool:
    return process.command in DAEMON_COMMANDS and process.uid in SYSTEM_UIDS


def process_text(user: GpuProcess, process: Process) -> str:
    memory = "" if user.memory_used_b is None else f", {user.memory_used_b // MIB} MiB"
    return f"{(process.command or '')[:COMM]} (pid {user.pid}, uid {process.uid}{memory})"


def start_details(evidence: Evidence, process: Process) -> dict[str, str]:
    """When the process was started, and its unit."""
    booted = boot_time(evidence[HostInfo].data)
    started = "" if process.started_s is None else at_uptime(booted, process.started_s)
    texts = {"since": started, "unit": (process.unit or "")[:80]}
    return {word: text for word, text in texts.items() if text}


def judge_memory(
    evidence: Evidence, gpu: Gpu, holders: Sequence[Process], maximum_mib: int | None
) -> Finding:
    """The finding about memory that no process accounts for; an allowed process may use any amount.

    `holders`: the processes that have the GPU open."""
    subject = subject_of(gpu)
    if maximum_mib is None:
        return ok(subject, expected=[], actual=[])
    if gpu.memory_used_b is None and gpu.errors.get("memory_used_b") in NOT_SUPPORTED:
        return not_applicable(subject, why="this GPU does not report its memory in use")
    if gpu.memory_used_b is None or gpu.memory_used_b < 0:
        return unread(subject, gpu, "memory_used_b")
    users = gpu.processes or ()
    unreported = [user for user in users if user.memory_used_b is None]
    unread_of = next(
        (user for user in unreported if user.errors.get(MEMORY) not in NOT_REPORTED), None
    )
    if unread_of is not None:
        return unread(subject, unread_of, MEMORY)
    if unreported:
        return not_applicable(subject, why="NVML does not report how much memory its processes use")
    accounted = sum(user.memory_used_b or 0 for user in users)
    unaccounted_mib = max(gpu.memory_used_b - accounted, 0) // MIB
    if unaccounted_mib <= maximum_mib:
        return ok(subject, expected=[], actual=[])
    if any(holder.command in DISPLAYS for holder in holders):
        why = f"{unaccounted_mib} MiB in use, and a display server has the GPU open"
        return not_applicable(subject, why=why)
    data = evidence[Processes].data
    if data is None or not data.complete:
        why = (
            f"{unaccounted_mib} MiB in use; nodevet could not see for every process whether it "
            "has the GPU open"
        )
        return unknown(subject, why=why)
    names = [f"{holder.command} (pid {holder.pid})" for holder in holders if not is_daemon(holder)]
    return fail(
        subject,
        expected=f"at most {maximum_mib} MiB in use",
        actual=f"{unaccounted_mib} MiB",
        why=f"the GPU is open in {', '.join(names[:MOST_SHOWN])}"
        if names
        else "no process accounts for it",
        advice=LEAKED,
        details=board(gpu),
    )


CHECK = Check(
    params=Params,
    area=Area.GPU,
    reads=(
        *IN_HAND,
        *reads_of("gpu.gpus[]", "memory_used_b", "minor_number"),
        *reads_of("gpu.gpus[].processes[]", "memory_used_b", "pid"),
        "processes.complete",
        *reads_of("processes.processes[]", "cgroup", "command", "gpu_minors[]", "pid", "uid"),
    ),
    judge=judge,
    unasked="only for idle nodes: use it in a gate or an epilog",
    learn=lambda evidence: None,  # the check is for idle nodes
    severity=Severity.WARNING,
    actions={LEAKED: NeededAction.GPU_RESET},
)
