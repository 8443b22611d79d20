"""The kernel has logged no trouble since boot: OOM kills, hung tasks, lockups, oopses, dead NICs.

**Why it matters.** The job that was killed is gone, the next one runs on a node whose memory is
too small for what runs beside it, whose file system hangs or whose driver has crashed. Nothing
but the kernel log tells of it afterwards.

**Read from** the kernel log since boot, and for how the boot before ended the names and times of
/sys/fs/pstore and of /var/lib/systemd/pstore, where systemd-pstore keeps them.

**Verdicts.** Each kind is a finding of its own: `oom` (the kernel ran out of memory and killed a
process), `hung_task` (blocked for minutes, mostly by storage or NFS), `soft_lockup` and
`hard_lockup` (a CPU that does not come back), `rcu_stall`, `oops` (BUG, Oops, a fault in the kernel
itself), `panic`, `nic_failed` (the driver of a network card gave it up: mlx5, mlx4, bnxt, ice,
irdma, igb, igc, ixgbe, ena, cxgb4), `probe_failed` (a driver did not take its GPU, network card or
RDMA device, and the PCI function still has none), and `crash` (the boot before ended in one, by a
record that is no older than an hour before this boot). Where the lines name a device, as those of
`nic_failed` and `probe_failed` do, each device has a finding of its own; where they name a process,
the value names it, and a waiver that accepts it covers no other process; for a crash it names the
record. The kernel names none for `hard_lockup`, `rcu_stall`, `oops` and `panic`: who accepts one of
these accepts any. `maximum` says how many lines of a kind are allowed, of each device if they name
one; `allow` names kinds that are no fault here. By default those are `oom_cgroup`, the kill of a
job that exceeded its own limit, and `segfault`, the crash of a program in CUDA's, NCCL's or the
driver's libraries; both are shown. It is ok only if the log has no gap, and says since when if its
beginning is gone, as `xid` does. Captured files without a kernel log are not applicable. With
`--since` a kind, or a device, fails only if a line of it came since the last look; but an oops
until the next reboot, since the kernel goes on damaged, and so hung tasks from the tenth line on,
after which the kernel tells of no more.

**To fix it** the advice says where to look, by kind.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import UNSET, Meta

from nodevet.checking.log_events import in_brackets, last_of, named, quoted, total
from nodevet.checking.named import reads_of
from nodevet.checking.one_value import first_unread
from nodevet.evidence.across import logged
from nodevet.evidence.core import unread
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo, boot_time
from nodevet.evidence.kernel_log import Crash, KernelEvent, KernelLog, span
from nodevet.evidence.last_look import SEEN_LINES, Seen, covered, seen_lines
from nodevet.evidence.pci import Pci
from nodevet.evidence.stuck import Stuck
from nodevet.model import Area, Check, CheckParams, Finding, Subject, Value, fail, ok, unknown

Kind = Literal[
    "oom", "oom_cgroup", "hung_task", "soft_lockup", "hard_lockup", "rcu_stall", "oops", "panic",
    "nic_failed", "probe_failed", "crash", "segfault",
]  # fmt: skip
LOCKED = (
    "save the kernel log with its call traces, then drain and reboot; if it comes back, "
    "update kernel, driver and BIOS, and send the traces to the vendor of what they name"
)
ADVICE: Mapping[str, str] = {
    "oom": (
        "find what filled the memory: `journalctl -k -g oom-kill` and the job of that time; give "
        "jobs a limit of their own (Slurm: ConstrainRAMSpace), and check memory_size"
    ),
    "oom_cgroup": "the job exceeded its own limit: raise it, or fix the job",
    "hung_task": (
        "look at what it waits for: the call trace below the line, `ps -eo pid,stat,wchan:30,cmd | "
        "grep ' D'`, then NFS servers, disks and the GPU; a reboot is the last resort"
    ),
    "soft_lockup": LOCKED,
    "hard_lockup": LOCKED,
    "rcu_stall": LOCKED,
    "oops": LOCKED,
    "panic": LOCKED,
    "crash": (
        "read the record for what the kernel was doing, and the BMC's event log; drain the node "
        "if it is hardware, and delete the record once it is dealt with"
    ),
    "nic_failed": (
        "drain the node and read the lines around it: `dmesg | grep ADDRESS`; `devlink health` may "
        "bring the card back, else power the node off and on; then update firmware and driver, and "
        "replace the card if it fails again"
    ),
    "probe_failed": (
        "read the lines before it for why the driver did not take the device: `dmesg | grep "
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
LASTING = ("oops",)  # what only a reboot ends
WARNINGS = 10  # hung tasks that the kernel tells of by default: kernel.hung_task_warnings
CRASHED = (None, "Panic")  # reasons of a record that a kernel leaves when it ends
BEFORE_BOOT_S = 3600.0  # by which a record of the crash before this boot may be older than it


class Params(CheckParams):
    """`kernel_faults: {}` or `kernel_faults: {maximum: {hung_task: 2}, allow: [segfault, oom]}`"""

    allow: tuple[Kind, ...] = ("oom_cgroup", "segfault")
    """Kinds that are no fault here."""
    maximum: Mapping[Kind, Annotated[int, Meta(ge=0)]] = {}
    """Kind: how many are allowed since boot; of each device if the lines name one."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    log = logged(evidence)
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
    doubt, since = covered(evidence, log)
    texts = {part: f"{WORDS[part.kind]} ×{total(events)} ({named(events)})" for part, events in
            faults.items()}  # fmt: skip
    if doubt:
        yield unknown(why=doubt)
    elif not bad and crash is None:
        allowed = [text for part, text in texts.items() if part not in old]
        before = seen.before(texts[part] for part in old) if seen else ""
        why = "; ".join(filter(None, [*allowed, before or since]))
        yield ok(expected="none", actual="none", why=why)


def is_lasting(kind: str, events: Sequence[KernelEvent]) -> bool:
    """Whether silence since is no sign that it is over."""
    count = total(events)
    return kind in LASTING or (kind == "hung_task" and (count is None or count >= WARNINGS))


def stuck_process(evidence: Evidence, events: Sequence[KernelEvent]) -> str:
    """The finding about a process that hangs still, if all that hung are of that name."""
    blocked = (data.blocked if (data := evidence[Stuck].data) else None) or ()
    names = {event.detail for event in events}
    mine = [process for process in blocked if names == {process.command}]
    return f"stuck_processes process {mine[0].pid} {mine[0].command}" if mine else ""


class FaultyPart(NamedTuple):
    """A kind of fault, and the PCI address of the device that has it; empty if no line names it."""

    kind: str
    device: str


def still_unbound(evidence: Evidence, events: Sequence[KernelEvent]) -> list[KernelEvent]:
    """The events without those of drivers that did not take a device and have it now."""
    functions = data.by_address if (data := evidence[Pci].data) else {}
    taken = {address for address, function in functions.items() if function.driver}
    return [event for event in events if event.kind != "probe_failed" or event.bus_id not in taken]


def by_part(events: Sequence[KernelEvent]) -> dict[FaultyPart, list[KernelEvent]]:
    """The events of each part; a BUG that ended in an oops is the same one."""
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
        why=named(events) if part.device else "",
        advice=ADVICE[part.kind],
        details=quoted(events),
        last=last_of(events, booted) or UNSET,
        cause=(part.kind == "hung_task" and stuck_process(evidence, events)) or UNSET,
    )


def part_values(
    part: FaultyPart, most: int, actual: Value, events: Sequence[KernelEvent]
) -> dict[str, Any]:
    """The subject and its values, which name what the lines name: of a device the kind of fault,
    else processes and libraries."""
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
    """How many are allowed; None: any number."""
    limits: Mapping[str, int] = {str(name): most for name, most in params.maximum.items()}
    return limits.get(kind, None if kind in params.allow else 0)


def judge_crashes(
    evidence: Evidence, log: KernelLog, params: Params, seen: Seen | None
) -> Finding | None:
    """Whether the boot before this one ended in a crash; None if it did not, or that was known at
    the last look."""
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
        why=f"the latest {written_text(recent[0], booted)}",
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
    judge=judge,
)
