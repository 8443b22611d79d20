"""No process hangs in the kernel, and the node has few zombies.

**Why it matters.** A process in state D waits for a file system, a disk or a driver, and cannot be
killed. If it stays in D, NFS hangs, a disk fails or the GPU driver hangs: its job never ends, and
the node often needs a reboot. Many zombies mean that a parent does not wait for its children; in
the end no pid is left.

**Read from** /proc: the state of every process. nodevet reads processes in D again twice a second,
for as long as the baseline sets. A process is blocked only if it was in D at every look and was
never scheduled in between.

**Verdicts.** Each blocked process has its own finding, with the kernel function in which it waits;
processes that were frozen on purpose are skipped, and those of users that wait for a child of
vfork(2). If a process waits for NFS and `storage_errors` fails for one server, that finding is its
cause. The check counts zombies and names their parents. It does not judge kernel threads: many of
them wait in D by design. It reads only the first thread of a process; the kernel logs any thread
that hangs for two minutes, see `kernel_faults`. Inside a container the check is unknown, because it
cannot see every process.

**To fix it** the kernel function shows the cause: nfs or rpc, the file server; blk, nvme or xfs,
the disk; nvidia or uvm, the driver. Then drain the node and reboot it.
"""

import re
from collections.abc import Iterator
from typing import Annotated

from msgspec import UNSET, Meta

from nodevet.checking.log_events import server_subject, silent_servers
from nodevet.checking.named import ASK_AGAIN, reads_of, unread_section
from nodevet.checking.one_value import first_unread
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.kernel_log import KernelLog
from nodevet.evidence.stuck import Stuck, StuckProcess
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    fail,
    ok,
    unknown,
)

WAITS = (
    "wchan shows what it waits for: nfs, rpc: the file server; blk, nvme, xfs: the disk; nvidia, "
    "uvm: the driver. `cat /proc/PID/stack` shows more; drain and reboot if it does not end"
)
FROZEN = ("__refrigerator", "do_freezer_trap", "refrigerator")
"""Functions in which a process waits that was frozen on purpose: a paused container, a suspended
job."""
FORKED = ("kernel_clone", "_do_fork", "do_fork", "wait_for_vfork_done")
"""Functions in which a parent waits for its child of vfork(2): any user may make such a pair, and
SIGKILL ends it, so only root's count. If the child hangs, that is another finding."""
FOR_SERVER = re.compile(r"_*(?:nfs|rpc|xprt)")
"""Functions in which a process waits for an NFS server: rpc_wait_bit_killable,
nfs_wait_bit_killable."""
PARENTS = "restart their parent: zombies disappear after it waits for them or ends"


class Params(CheckParams):
    """`stuck_processes: {}` or `stuck_processes: {seconds: 10, zombies: 100}`"""

    seconds: Annotated[int, Meta(ge=1, le=15)] = 5
    """How long to watch a blocked process."""
    zombies: Annotated[int, Meta(ge=0)] = 50
    """The most zombies."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Stuck]
    if section.data is None:
        yield unread_section(section, "stuck")
        return
    data = section.data
    blocked = [process for process in data.blocked or () if not is_meant(process)]
    server = silent_server(evidence)
    for process in blocked:
        yield judge_blocked(process, server)
    yield judge_zombies(data, params.zombies)
    finding = unsure_finding(data, params)
    if finding is not None:
        yield finding
    elif not blocked:
        yield ok(Subject(kind="processes", id="blocked"), expected="none", actual="none")


def is_meant(process: StuckProcess) -> bool:
    """Whether somebody blocked the process on purpose, or any user may have done so."""
    return process.wchan in FROZEN or (process.wchan in FORKED and bool(process.uid))


def silent_server(evidence: Evidence) -> str:
    """The finding about the NFS server that does not respond; empty if there are several, because
    nodevet cannot tell for which one a process waits."""
    log = evidence[KernelLog].data
    servers = silent_servers((log.events if log else None) or ())
    return f"storage_errors {server_subject(*servers).label}" if len(servers) == 1 else ""


def judge_blocked(process: StuckProcess, server: str) -> Finding:
    details = {"waits in": process.wchan or "not known"}
    return fail(
        Subject(kind="process", id=f"{process.pid} {process.command or ''}".strip()),
        expected="not blocked",
        actual="blocked (D)",
        details=details,
        advice=WAITS,
        cause=server if server and FOR_SERVER.match(process.wchan or "") else UNSET,
    )


def judge_zombies(data: Stuck, most: int) -> Finding:
    subject = Subject(kind="processes", id="zombie")
    count = data.zombie_count
    if count is None:
        return unread(subject, data, "zombie_count")
    if count < 0:
        return unknown(subject, why=f"zombie_count: {count}")
    expected = f"at most {most}"
    if count > most:
        parents = [zombie.parent for zombie in data.zombies or () if zombie.parent is not None]
        common = max(sorted(set(parents)), key=parents.count, default=None)
        details = {} if common is None else {"parent of most": str(common)}
        return fail(subject, expected=expected, actual=count, details=details, advice=PARENTS)
    if data.complete is not True:
        return unknown(subject, why=why_hidden(data))
    return ok(subject, expected=expected, actual=count)


def unsure_finding(data: Stuck, params: Params) -> Finding | None:
    """The unknown finding if more processes may be blocked than listed; None if not."""
    subject = Subject(kind="processes", id="blocked")
    if data.complete is not True:
        return unknown(subject, why=why_hidden(data))
    if finding := first_unread(subject, data, "blocked", "blocked_count", "watched_s"):
        return finding
    if data.watched_s is not None and data.watched_s < params.seconds:
        why = f"watched for {data.watched_s:g} s, but the baseline sets {params.seconds} s"
        return unknown(subject, why=why, advice=ASK_AGAIN)
    listed = len(data.blocked or ())
    if data.blocked_count != listed:
        return unknown(
            subject, why=f"{listed} of {data.blocked_count} blocked processes are listed"
        )
    return None


def why_hidden(data: Stuck) -> str:
    if data.complete is None:
        return f"complete: {data.why('complete')}"
    return "/proc does not show every process here"


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=(
        *reads_of("stuck", "watched_s", "complete", "blocked_count"),
        *reads_of("stuck.blocked[]", "pid", "uid", "wchan"),
        "stuck.zombie_count",
    ),
    explains=("kernel_log",),
    judge=judge,
    unasked="it watches every process for seconds: write stuck_processes: {} where storage hangs",
    asks=lambda params: {"stuck": (str(params.seconds),)},
    actions={WAITS: NeededAction.REBOOT},
)
