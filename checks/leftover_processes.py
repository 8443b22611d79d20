"""No process holds a GPU's memory while no job should run.

**Why it matters.** A process that a job left behind, or memory that was not given back, takes what
the next job counts on: it dies of out of memory minutes after its start, on a node that looks idle.

**Read from** NVML: nvmlDeviceGetComputeRunningProcesses and nvmlDeviceGetMemoryInfo; from /proc of
each process that computes on a GPU or has /dev/nvidia<N> open its command, user, control group and
start.

**Verdicts.** To be asked when the node is idle, in a gate or a scheduler's epilog: it does not know
which jobs should run. With `ignore_jobs`, processes in a job of Slurm or a pod of Kubernetes are
left out, and other processes fail. A process that computes on a GPU fails unless its command is in
`allow`, its user in `allow_uids`, or it is a monitoring daemon of NVIDIA's under a system user.
More memory in use than `maximum_mib` beyond what these processes have fails too: a context that
leaked, or a process that NVML does not list; if a display server has the GPU open, memory is not
applicable. A process that NVML names and /proc does not show, as of another container or one that
has just ended, is unknown.

**To fix it** end the process (`kill PID`, then `kill -9`), and let the scheduler clean up by
control group: Slurm with `proctrack/cgroup`. Memory without a process: drain the node and reset the
GPU.
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
from nodevet.evidence.processes import Process, Processes
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    Severity,
    fail,
    not_applicable,
    ok,
    unknown,
)

MIB = 1 << 20
COMM = 15  # characters of a command in /proc
MOST_TOLD = 8  # processes
SYSTEM_UIDS = range(1000)
DAEMONS = (  # of NVIDIA's; as system users only, for any process can take such a name
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
    "make sure that no job owns it, then `kill PID` and, if it stays, `kill -9 PID`; one that "
    "stays even then waits for the driver: drain the node and reboot"
)
LEAKED = (
    "`fuser -v /dev/nvidia*` as root shows who has the GPU open; if nobody has, drain the node and "
    "reset the GPU (`nvidia-smi --gpu-reset -i N`), or reboot"
)


MEMORY = "memory_used_b"
NOT_TOLD = (None, *LACKING, "NVML_VALUE_NOT_AVAILABLE")
"""Why NVML has no such number of any process, as where another system has the memory."""


class Params(CheckParams):
    """`leftover_processes: {}` or `leftover_processes: {allow: [site-agent], ignore_jobs: true}`"""

    allow: tuple[str, ...] = ()
    """Commands that may compute on a GPU at any time, as `ps -o comm` has them."""
    allow_uids: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    """Users whose processes may, by number."""
    ignore_jobs: bool = False
    """Whether processes of Slurm's jobs and of Kubernetes' pods are left out."""
    maximum_mib: Annotated[int, Meta(ge=0)] | None = 1024
    """The most memory that may be in use without a process that has it; null: not judged."""


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
    """The processes that are left over, or may be; nothing if there is none."""
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
        yield unknown(subject_of(gpu), why="; ".join(doubts[:MOST_TOLD]))


def is_allowed(process: Process | None, params: Params) -> bool | str:
    """Whether it may be there; or why that cannot be told."""
    if process is None:
        return "NVML names it, /proc does not show it: of another container, or just ended"
    for field in ("command", "uid", *(["cgroup"] if params.ignore_jobs else [])):
        if getattr(process, field) is None:
            return f"{field}: {process.why(field)}"
    listed = {command[:COMM] for command in params.allow}
    return (
        process.command in listed
        or process.uid in params.allow_uids
        or is_daemon(process)
        or (params.ignore_jobs and JOB.search(process.cgroup or "") is not None)
    )


def is_daemon(process: Process) -> bool:
    return process.command in DAEMON_COMMANDS and process.uid in SYSTEM_UIDS


def process_text(user: GpuProcess, process: Process) -> str:
    memory = "" if user.memory_used_b is None else f", {user.memory_used_b // MIB} MiB"
    return f"{(process.command or '')[:COMM]} (pid {user.pid}, uid {process.uid}{memory})"


def start_details(evidence: Evidence, process: Process) -> dict[str, str]:
    """When the first of them was started, and what it is part of."""
    booted = boot_time(evidence[HostInfo].data)
    started = "" if process.started_s is None else at_uptime(booted, process.started_s)
    texts = {"since": started, "unit": (process.unit or "")[:80]}
    return {word: text for word, text in texts.items() if text}


def judge_memory(
    evidence: Evidence, gpu: Gpu, holders: Sequence[Process], maximum_mib: int | None
) -> Finding:
    """The memory that no process accounts for: what may compute may take what it needs.

    `holders`: who has the GPU open."""
    subject = subject_of(gpu)
    if maximum_mib is None:
        return ok(subject, expected=[], actual=[])
    if gpu.memory_used_b is None and gpu.errors.get("memory_used_b") in NOT_SUPPORTED:
        return not_applicable(subject, why="this GPU does not tell its memory in use")
    if gpu.memory_used_b is None or gpu.memory_used_b < 0:
        return unread(subject, gpu, "memory_used_b")
    users = gpu.processes or ()
    untold = [user for user in users if user.memory_used_b is None]
    unread_of = next((user for user in untold if user.errors.get(MEMORY) not in NOT_TOLD), None)
    if unread_of is not None:
        return unread(subject, unread_of, MEMORY)
    if untold:
        return not_applicable(subject, why="NVML does not tell how much memory its processes have")
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
            f"{unaccounted_mib} MiB in use; who has the GPU open could not be seen of every process"
        )
        return unknown(subject, why=why)
    names = [f"{holder.command} (pid {holder.pid})" for holder in holders if not is_daemon(holder)]
    return fail(
        subject,
        expected=f"at most {maximum_mib} MiB in use",
        actual=f"{unaccounted_mib} MiB",
        why=f"the GPU is open in {', '.join(names[:MOST_TOLD])}" if names else "of no process",
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
    unasked="for nodes that are idle: in a gate or an epilog",
    learn=lambda evidence: None,  # it is for the moments when a node is idle
    severity=Severity.WARNING,
)
