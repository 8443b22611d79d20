"""No process hangs in the kernel, and zombies do not pile up.

**Why it matters.** A process in state D waits for a file system, a disk or a driver, and cannot
even be killed. One that stays there means that NFS hangs, a disk dies or the GPU driver is stuck:
its job never ends, and the node often needs a reboot. Many zombies mean a parent that does not look
after its children, until no pid is left.

**Read from** /proc: the state of every process, and of those in D again twice a second for as long
as the baseline says. Only a process that is in D at every look, and was never scheduled in between,
is blocked.

**Verdicts.** Each blocked process is a finding of its own, with the kernel function that it waits
in; deliberately frozen processes are left out. One that waits for NFS follows from the server that
is down, if `storage_errors` fails for one. Zombies are counted, and their parents named. Kernel
threads are not judged: many of them wait in D by design. Other threads of a process than the first
are not looked at; the kernel logs any that hangs for two minutes, see `kernel_faults`. Inside a
container it is unknown: not every process is seen.

**To fix it** what it waits in says where to look: nfs or rpc, the file server; blk, nvme or xfs,
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
from nodevet.model import Area, Check, CheckParams, Finding, Subject, fail, ok, unknown

WAITS = (
    "wchan says what it waits for: nfs, rpc: the file server; blk, nvme, xfs: the disk; nvidia, "
    "uvm: the driver. `cat /proc/PID/stack` shows more; drain and reboot if it does not end"
)
FROZEN = ("__refrigerator", "do_freezer_trap", "refrigerator")
"""Where a process waits that was frozen on purpose: a paused container, a suspended job."""
FOR_SERVER = re.compile(r"_*(?:nfs|rpc|xprt)")
"""Where one waits for an NFS server: rpc_wait_bit_killable, nfs_wait_bit_killable."""
PARENTS = "restart their parent: zombies go once it has waited for them or has ended itself"


class Params(CheckParams):
    """`stuck_processes: {}` or `stuck_processes: {seconds: 10, zombies: 100}`"""

    seconds: Annotated[int, Meta(ge=1, le=15)] = 5
    """That a blocked process is watched."""
    zombies: Annotated[int, Meta(ge=0)] = 50
    """The most that are allowed."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    section = evidence[Stuck]
    if section.data is None:
        yield unread_section(section, "stuck")
        return
    data = section.data
    blocked = [process for process in data.blocked or () if process.wchan not in FROZEN]
    server = silent_server(evidence)
    for process in blocked:
        yield judge_blocked(process, server)
    yield judge_zombies(data, params.zombies)
    finding = unsure_finding(data, params)
    if finding is not None:
        yield finding
    elif not blocked:
        yield ok(Subject(kind="processes", id="blocked"), expected="none", actual="none")


def silent_server(evidence: Evidence) -> str:
    """The finding about the NFS server that does not respond; of several it is not known for which
    a process waits."""
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
    """Why more may be blocked than are listed; None if not."""
    subject = Subject(kind="processes", id="blocked")
    if data.complete is not True:
        return unknown(subject, why=why_hidden(data))
    if finding := first_unread(subject, data, "blocked", "blocked_count", "watched_s"):
        return finding
    if data.watched_s is not None and data.watched_s < params.seconds:
        why = f"watched for {data.watched_s:g} s, and the baseline says {params.seconds} s"
        return unknown(subject, why=why, advice=ASK_AGAIN)
    listed = len(data.blocked or ())
    if data.blocked_count != listed:
        return unknown(subject, why=f"{listed} of {data.blocked_count} blocked ones are listed")
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
        *reads_of("stuck.blocked[]", "pid", "wchan"),
        "stuck.zombie_count",
    ),
    judge=judge,
    unasked="it watches every process for seconds: say stuck_processes: {} where storage hangs",
    asks=lambda params: {"stuck": (str(params.seconds),)},
)
