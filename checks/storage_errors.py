"""The kernel log since boot has no error of a disk or file system, and no NFS server is down.

**Why it matters.** A disk that times out stalls the data loader of every GPU. A file system that
was remounted read-only fails every checkpoint, hours after the first line about it. A process that
opens a file of an NFS server that is down waits until the server is back.

**Read from** the kernel log since boot: I/O errors of block devices and of ATA, time-outs and
resets of NVMe controllers, errors and shutdowns of ext4, XFS and Btrfs, read-only remounts, members
that an md array has lost; NFS servers of hard mounts that do not respond. The check skips floppies,
optical drives, network block devices and RAM disks.

**Verdicts.** A disk fails if the log has more than `maximum` lines about it; a disk and its
partitions share one finding. `ignore` names devices and servers to skip, as the kernel names them,
with `*` for any text: `sd*`. A read-only remount and a lost member of an array always fail,
whatever `maximum` is. An NFS server fails from the line `not responding, still trying` until the
log says that it is OK. The kernel logs this when it answers a waiting request, so not if all
waiting processes were killed. The check is ok only if the log has no gap. If the beginning of the
log is gone, the finding says when the log begins, as `xid` does. Captured files without a kernel
log are not applicable. With `--since` a disk fails only if a line about it came since the last
look. Read-only remounts, lost members and servers that do not respond fail with and without
`--since`.

**To fix it** read the disk's own state: `smartctl -x` or `nvme smart-log`; reseat or replace a disk
with repeated errors. Unmount a file system with errors and check it before its next use. For an NFS
server run `rpcinfo -t SERVER nfs`, then check the server itself; waiting processes continue after
it answers.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Annotated

from msgspec import UNSET, Meta

from nodevet.checking.log_events import last_of, line_detail, server_subject, silent_servers, total
from nodevet.checking.named import reads_of
from nodevet.evidence.across import read_kernel_log
from nodevet.evidence.document import Evidence
from nodevet.evidence.host import HostInfo, boot_time
from nodevet.evidence.kernel_log import KernelEvent
from nodevet.evidence.last_look import SEEN_LINES, coverage_since_look, seen_lines
from nodevet.model import NODE, Area, Check, CheckParams, Finding, Subject, fail, ok, unknown

WORDS = {
    "io_error": "I/O errors",
    "nvme_error": "NVMe errors",
    "fs_error": "file system errors",
    "read_only": "remounted read-only",
    "disk_failed": "lost by its array",
}
ALWAYS = frozenset({"read_only", "disk_failed"})
ADVICE = (
    "save its important data, then read its own state: `smartctl -x` or `nvme smart-log`, and "
    "its link (pci_links); replace a disk with repeated errors"
)
CHECK_IT = (
    "unmount it and check it (`fsck`, `xfs_repair`, `btrfs check`) before its next use; if its "
    "disk logs errors too, replace the disk first"
)
REACH_IT = (
    "`rpcinfo -t SERVER nfs` shows whether it answers. If it does and all waiting processes were "
    "killed, the kernel does not log that it is back: put it in `ignore` until the reboot. If "
    "not, check the server: waiting processes continue after it answers"
)
DISK = re.compile(r"(nvme[0-9]+|(?:sd|vd|xvd|hd)[a-z]+|ata[0-9]+)")


class Params(CheckParams):
    """`storage_errors: {}` or `storage_errors: {ignore: ["sd*"], maximum: 2}`"""

    maximum: Annotated[int, Meta(ge=0)] = 0
    """The most lines about one disk since boot."""
    ignore: tuple[str, ...] = ()
    """Devices and servers to skip: `sda`, `sd*`."""


def judge(evidence: Evidence, params: Params) -> Iterator[Finding]:
    log = read_kernel_log(evidence)
    if isinstance(log, Finding):
        yield log
        return
    booted = boot_time(evidence[HostInfo].data)
    seen, bad, old = seen_lines(evidence), False, []
    for disk, events in sorted(by_disk(log.events or (), params).items()):
        count = total(events)
        worst = {event.kind for event in events} & ALWAYS
        if seen and not worst and seen.has(*events):
            old.append(f"{disk} {counts_text(events)}".strip())
        elif worst or count is None or count > params.maximum:
            bad = True
            yield judge_disk(disk, events, params.maximum, booted)
    for server, event in silent_servers(log.events or ()).items():
        if not any(fnmatchcase(server, pattern) for pattern in params.ignore):
            bad = True
            yield judge_server(server, event, booted)
    doubt, since = coverage_since_look(evidence, log)
    if doubt:
        yield unknown(why=doubt)
    elif not bad:
        before = seen.earlier_text(old) if seen else ""
        yield ok(expected="none", actual="none", why=before or since)


def by_disk(events: tuple[KernelEvent, ...], params: Params) -> dict[str, list[KernelEvent]]:
    """The events of each disk with its partitions; events without a known device under an empty
    name."""
    disks: dict[str, list[KernelEvent]] = {}
    for event in events:
        device = event.detail or ""
        disk = match.group(1) if (match := DISK.match(device)) else device
        ignored = any(
            fnmatchcase(name, pattern) for name in (device, disk) for pattern in params.ignore
        )
        if event.kind in WORDS and not (ignored and device):
            disks.setdefault(disk, []).append(event)
    return disks


def judge_disk(disk: str, events: list[KernelEvent], most: int, booted: float | None) -> Finding:
    kinds = {event.kind for event in events}
    devices = sorted({event.detail for event in events if event.detail and event.detail != disk})
    return fail(
        Subject(kind="disk", id=disk) if disk else NODE,
        expected=f"at most {most}" if most else "none",
        actual=counts_text(events),
        why=", ".join(devices[:8]),
        advice=CHECK_IT if kinds <= {"fs_error", "read_only"} else ADVICE,
        details=line_detail(events),
        last=last_of(events, booted) or UNSET,
    )


def judge_server(server: str, event: KernelEvent, booted: float | None) -> Finding:
    return fail(
        server_subject(server),
        expected="responding",
        actual="not responding, and no line says that it is back",
        advice=REACH_IT,
        details=line_detail([event]),
        last=last_of([event], booted) or UNSET,
    )


def counts_text(events: list[KernelEvent]) -> str:
    """As `I/O errors ×3, remounted read-only ×1`."""
    counts = {kind: total([event for event in events if event.kind == kind]) for kind in WORDS}
    kinds = [kind for kind in WORDS if any(event.kind == kind for event in events)]
    return ", ".join(
        f"{WORDS[kind]} ×{'?' if counts[kind] is None else counts[kind]}" for kind in kinds
    )


CHECK = Check(
    params=Params,
    area=Area.STORAGE,
    reads=(
        *SEEN_LINES,
        *reads_of("kernel_log", "complete", "covered_s"),
        *reads_of("kernel_log.events[]", "count", "detail", "kind"),
        "kernel_log.since_s",
    ),
    judge=judge,
    unasked="for servers and workstations: `generic` has only checks for any node",
)
