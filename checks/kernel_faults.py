"""The kernel has logged no faults since boot: OOM kills, hung tasks, lockups, oopses, dead NICs.

**Why it matters.** The kernel has killed a job, and the next job runs on a node that has too little
memory, whose file system hangs or whose driver has crashed. Afterwards only the kernel log shows
it.

**Read from** the kernel log since boot. The names and times of the files in /sys/fs/pstore, and in
/var/lib/systemd/pstore where systemd-pstore keeps them, show how the previous boot ended.

**Verdicts.** Each kind has its own finding: `oom` (the kernel ran out of memory and killed a
process), `hung_task` (a process was blocked for minutes, mostly by storage or NFS), `soft_lockup`
and `hard_lockup` (a CPU does not respond), `rcu_stall`, `oops` (BUG, Oops, a fault in the kernel
itself), `panic`, `nic_failed` (the driver of a network card gave it up: mlx5, mlx4, bnxt, ice,
irdma, igb, igc, ixgbe, ena, cxgb4), `probe_failed` (a driver failed to probe its GPU, network card
or RDMA device, and the PCI function still has no driver), and `crash` (the previous boot ended in a
crash, by a record at most one hour older than this boot). If the lines name a device, as for
`nic_failed` and `probe_failed`, each device has its own finding. If they name a process, the value
names it, and a waiver of that value covers no other process. For a crash the value names the
record. For `hard_lockup`, `rcu_stall`, `oops` and `panic` the kernel names no process: a waiver of
one such fault covers all of its kind. `maximum` limits the lines of a kind, per device if they name
one; `allow` lists kinds that do not count as faults. By default these are `oom_cgroup` (a job
exceeded its own limit and was killed) and `segfault` (a program crashed in CUDA's, NCCL's or the
driver's libraries); the report shows both. The check is ok only if the log has no gap. If the
beginning of the log is gone, the finding says when the log begins, as `xid` does. Captured files
without a kernel log are not applicable. With `--since` a kind or a device fails only if the kernel
logged a line of it since the last look, with two exceptions. An oops fails until the next reboot,
because the kernel continues damaged. Hung tasks fail until the next reboot from the tenth line on,
because the kernel then logs no more of them.

**To fix it** the advice of each kind says where to look.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta

from nodevet.checking.log_events import in_brackets, last_of, line_detail, names_text, total
from nodevet.checking.named import reads_of
from nodevet.checking.one_value import first_unread
from nodevet.evidence.across import read_kernel_log
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo, boot_time
from nodevet.evidence.kernel_log import Crash, KernelEvent, KernelLog, span
from nodevet.evidence.last_look import SEEN_LINES, Seen, coverage_since_look, seen_lines
from nodevet.evidence.pci import Pci
from nodevet.evidence.stuck import Stuck
from nodevet.model import (
    Area,
    Check,
    CheckParams,
    Finding,
    NeededAction,
    Subject,
    Value,
    fail,
    ok,
    unknown,
)

Kind = Literal[
    "oom", "oom_cgroup", "hung_task", "soft_lockup", "hard_lockup", "rcu_stall", "oops", "panic",
    "nic_failed", "probe_failed", "crash", "segfault",
]  # fmt: skip
LOCKED = (
    "save the kernel log with its call traces, then drain and reboot; if it happens again, "
    "update kernel, driver and BIOS, and send the traces to the vendor of the part that they "
    "name"
)
ADVICE: Mapping[str, str] = {
    "oom": (
        "find what filled the memory: see `journalctl -k -g oom-kill` and the job of that time; "
        "limit the memory of each job (Slurm: ConstrainRAMSpace), and check memory_size"
    ),
    "oom_cgroup": "the job exceeded its own limit: raise it, or fix the job",
    "hung_task": (
        "find what it waits for: read the call trace below the line, run `ps -eo "
        "pid,stat,wchan:30,cmd | grep ' D'`, then check NFS servers, disks and the GPU; a "
        "reboot is the last resort"
    ),
    "soft_lockup": LOCKED,
    "hard_lockup": LOCKED,
    "rcu_stall": LOCKED,
    "oops": LOCKED,
    "panic": LOCKED,
    "crash": (
        "read in the record what the kernel was doing, and read the BMC's event log; drain the "
        "node if hardware is the cause, and delete the record afterwards"
    ),
    "nic_failed": (
        "drain the node and read the lines around it: `dmesg | grep ADDRESS`; `devlink health` "
        "may recover the card; if not, power the node off and on; then update firmware and "
        "driver, and replace the card if it fails again"
    ),
    "probe_failed": (
        "read in the lines before it why the driver failed to probe the device: `dmesg | grep "
        "ADDRESS`; then power the node off and on, update firmware and driver, and replace the "
        "device if it fails again"
    ),
    "segfault": "compare the versions of driver, CUDA and NCCL with those the job was built for",
}
WORDS: Mapping[str, str] = {
    "oom": "OOM kill", "oom_cgroup": "OOM kill in a cgroup", "hung_task": "hung task",
    "soft_lockup": "soft lockup", "hard_lockup": "hard lockup", "rcu_stall": "RCU stall",
    "oops": "oops", "panic": "panic", "nic_failed": "NIC failure",
    "probe_failed": "driver failure", "crash": "crash", "segfault": "segfault",
}  # fmt: skip
ORDER = {kind: place for place, kind in enumerate(WORDS)}
OF_EVENTS = {**{kind: kind for kind in WORDS}, "bug": "oops"}  # kind of an event: kind here
LASTING = ("oops",)  # faults that only a reboot ends
WARNINGS = 10  # hung tasks that the kernel reports by default: kernel.hung_task_warnings
CRASHED = (None, "Panic")  # reasons in the record of a crashed kernel
BEFORE_BOOT_S = 3600.0  # a crash record may be this much older than the boot


class Params(CheckParams):
    """`kernel_faults: {}` or `kernel_faults: {maximum: {hung_task: 2}, allow: [segfault, oom]}`"""

    allow: tuple[Kind, ...] = ("oom_cgroup", "segfault")
    """Kinds that do not count as faults."""
    maximum: Mapping[Kind, Annotated[int, Meta(ge=0)]] = {}
    """The most lines of each kind since boot; per device if the lines name one."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    log = read_kernel_log(evidence)
    if isinstance(log, Finding):
        yield log
        return
    booted = boot_time(evidence[HostInfo].data)
    faults, seen = by_part(still_unbound(evidence, log.events or ())), seen_lines(evidence)
    old = [part for part, events in faults.items()
           if seen and seen.has(*events) and not is_lasting(part.kind, events)]  # fmt: skip
    bad = [
        finding
        for part, events in faults.items()
        if part not in old
        and (finding := judge_part(evidence, part, events, params, booted)) is not None
    ]
    crash = judge_crashes(evidence, log, params, seen)
    yield from bad
    if crash is not None:
        yield crash
    doubt, since = coverage_since_look(evidence, log)
    texts = {part: f"{WORDS[part.kind]} ×{total(events)} ({names_text(events)})" for part, events in
            faults.items()}  # fmt: skip
    if doubt:
        yield unknown(why=doubt)
    elif not bad and crash is None:
        allowed = [text for part, text in texts.items() if part not in old]
        before = seen.earlier_text(texts[part] for part in old) if seen else ""
        why = "; ".join(filter(None, [*allowed, before or since]))
        yield ok(expected="none", actual="none", why=why)


def is_lasting(kind: str, events: Sequence[KernelEvent]) -> bool:
    """Whether the fault may persist although the log has no new line of it."""
    count = total(events)
    return kind in LASTING or (kind == "hung_task" and (count is None or count >= WARNINGS))


def stuck_process(evidence: Evidence, events: Sequence[KernelEvent]) -> str:
    """The finding about a process that still hangs, if all hung processes have its name."""
    blocked = (data.blocked if (data := evidence[Stuck].data) else None) or ()
    names = {event.detail for event in events}
    mine = [process for process in blocked if names == {process.command}]
    return f"stuck_processes process {mine[0].pid} {mine[0].command}" if mine else ""


class FaultyPart(NamedTuple):
    """A kind of fault, and the PCI address of the device that has it; empty if no line names it."""

    kind: str
    device: str


def still_unbound(evidence: Evidence, events: Sequence[KernelEvent]) -> list[KernelEvent]:
    """The events without the failed probes of devices that have a driver now."""
    functions = data.by_address if (data := evidence[Pci].data) else {}
    bound = {address for address, function in functions.items() if function.driver}
    return [event for event in events if event.kind != "probe_failed" or event.bus_id not in bound]


def by_part(events: Sequence[KernelEvent]) -> dict[FaultyPart, list[KernelEvent]]:
    """The events of each part; a BUG that ended in an oops counts once."""
    parts: dict[FaultyPart, list[KernelEvent]] = {}
    died = any(event.kind == "oops" for event in events)
    for event in events:
        kind = OF_EVENTS.get(event.kind)
        if kind is not None and not (event.kind == "bug" and died):
            parts.setdefault(FaultyPart(kind, event.bus_id or ""), []).append(event)
    return {part: parts[part] for part in sorted(parts, key=in_order)}


def in_order(part: FaultyPart) -> tuple[int, str]:
    return ORDER[part.kind], part.device


def judge_part(
    evidence: Evidence,
    part: FaultyPart,
    events: Sequence[KernelEvent],
    params: Params,
    booted: float | None,
) -> Finding | None:
    most = limit(part.kind, params)
    count = total(events)
    if most is None or (count is not None and count <= most):
        return None
    return fail(
        **part_values(part, most, "unknown" if count is None else count, events),
        why=names_text(events) if part.device else "",
        advice=ADVICE[part.kind],
        details=line_detail(events),
        last=last_of(events, booted) or UNSET,
        cause=(part.kind == "hung_task" and stuck_process(evidence, events)) or UNSET,
    )


def part_values(
    part: FaultyPart, most: int, actual: Value, events: Sequence[KernelEvent]
) -> dict[str, Any]:
    """The subject, expected and actual value. A device's values name the kind of fault; other
    values name the processes and libraries of the lines."""
    word, address = WORDS[part.kind], part.device
    if not address:
        subject, names = Subject(kind="kernel", id=word), in_brackets(events)
        return {
            "subject": subject,
            "expected": most,
            "actual": f"{actual}{names}" if names else actual,
        }
    subject = Subject(kind="pci", id=address, bus_id=address)
    return {"subject": subject, "expected": {word: most}, "actual": {word: actual}}


def limit(kind: str, params: Params) -> int | None:
    """The most lines of this kind; None: no limit."""
    limits: Mapping[str, int] = {str(name): most for name, most in params.maximum.items()}
    return limits.get(kind, None if kind in params.allow else 0)


def judge_crashes(
    evidence: Evidence, log: KernelLog, params: Params, seen: Seen | None
) -> Finding | None:
    """The failure if the previous boot ended in a crash; None if it did not, or if it failed at the
    last look."""
    subject = Subject(kind="kernel", id=WORDS["crash"])
    most = limit("crash", params)
    if most is None:
        return None
    if log.crashes is None:
        return unread(subject, log, "crashes")
    records = [record for record in log.crashes
               if record.reason in CRASHED and not (seen and seen.has_crash(record))]  # fmt: skip
    if not records:
        return None
    host = evidence[HostInfo].data
    if host is None:
        return unknown(subject, why=f"host: {evidence[HostInfo].why}")
    if finding := first_unread(subject, host, "clock_s", "uptime_s"):
        return finding
    booted = (host.clock_s or 0.0) - (host.uptime_s or 0.0)
    recent = [
        record for record in records if record.at_s is None or record.at_s >= booted - BEFORE_BOOT_S
    ]
    if len(recent) <= most:
        return None
    return fail(
        subject,
        expected=most,
        actual=f"{len(recent)} ({', '.join(record.path for record in recent)})",
        why=f"the latest was {written_text(recent[0], booted)}",
        advice=ADVICE["crash"],
    )


def written_text(record: Crash, booted: float) -> str:
    if record.at_s is None:
        return "written at an unknown time"
    word = "after" if record.at_s >= booted else "before"
    return f"written {span(abs(record.at_s - booted))} {word} this boot"


CHECK = Check(
    params=Params,
    area=Area.KERNEL,
    reads=(
        *SEEN_LINES,
        *reads_of("earlier.kernel_log.crashes[]", "at_s", "path"),
        *reads_of("host", "clock_s", "uptime_s"),
        *reads_of("kernel_log", "complete", "covered_s"),
        *reads_of("kernel_log.crashes[]", "at_s", "path", "reason"),
        *reads_of("kernel_log.events[]", "count", "kind"),
        "kernel_log.since_s",
        *reads_of("pci.functions[]", "address", "driver"),
    ),
    explains=("stuck",),
    judge=judge,
    actions={LOCKED: NeededAction.REBOOT},
)
