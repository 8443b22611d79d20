"""Kernel log lines about the kernel's own faults and disks, from Linux 3.10 to 6.x.

Sources, below the kernel tree: mm/oom_kill.c, kernel/hung_task.c, kernel/watchdog.c,
kernel/watchdog_perf.c, kernel/rcu/tree_stall.h, arch/x86/kernel/dumpstack.c, lib/bug.c,
kernel/panic.c, arch/x86/mm/fault.c, arch/x86/kernel/traps.c; block/blk-core.c, fs/buffer.c,
drivers/nvme/host/{core,pci}.c, drivers/ata/libata-eh.c, drivers/md, fs/ext4/super.c,
fs/jbd2/journal.c, fs/xfs/xfs_message.c, fs/btrfs/messages.c, net/sunrpc/clnt.c.

A process may use the words of another message as its name: a pattern matches from the start of a
line, and more of it than a name can hold.
"""

import re
from functools import lru_cache

from nodevet.remote.probe.kernel_hardware import LineFacts
from nodevet.remote.probe.patterns import NAME, Pattern

STUCK = r" - CPU#[0-9]{1,5} stuck for [0-9]{1,9}s! \[(" + NAME + r"):[0-9]{1,10}\]"
KILLED = r"[^(\[]{0,60}\((" + NAME + r")\)(?=[ ,.]|\Z)"
DEVICE = r"([\w.:/!-]{1,64})"
SERVER = r"([\w.:%-]{1,255})"
XFS = (
    r"(?:[Mm]etadata (?:corruption|I/O error|CRC error)|Internal error|Corruption "
    r"|xfs_do_force_shutdown|log I/O error|[\w .,-]{0,60}?[Ss]hut(?:ting)? down)"
)

# The start of a line, the kind of event, the pattern of the rest; its group: process or device.
BEGINNINGS = (
    ("Memory cgroup out of memory: Kill", "oom_cgroup", KILLED),
    ("Out of memory: Kill", "oom", KILLED),
    ("Out of memory (", "oom", r"\w{1,40}\): Kill" + KILLED),
    ("INFO: task ", "hung_task", r"(" + NAME + r"?):[0-9]{1,10} blocked(?: in I/O wait)? {1,2}for "
     r"more than [0-9]+ sec"),
    ("watchdog: BUG: soft lockup", "soft_lockup", STUCK),
    ("NMI watchdog: BUG: soft lockup", "soft_lockup", STUCK),
    ("BUG: soft lockup", "soft_lockup", STUCK),
    ("INFO: rcu_", "rcu_stall", r"\w{1,20} (?:self-)?detected (?:expedited )?stalls? on"),
    ("rcu: INFO: rcu_", "rcu_stall", r"\w{1,20} (?:self-)?detected (?:expedited )?stalls? on"),
    ("BUG: unable to handle", "bug", r""),
    ("BUG: kernel NULL pointer dereference", "bug", r""),
    ("BUG: Bad page ", "bug", r"(?:state|map|cache) in process "),
    ("BUG: Bad rss-counter", "bug", r""),
    ("BUG: scheduling while atomic", "bug", r""),
    ("BUG: workqueue lockup", "bug", r""),
    ("BUG: stack guard page was hit", "bug", r""),
    ("kernel BUG at ", "bug", r"[\w./-]{1,100}:[0-9]{1,6}!"),
    ("Kernel panic - not syncing", "panic", r""),
    ("Buffer I/O error on dev", "io_error", r"(?:ice)? " + DEVICE + r","),
    ("nvme nvme", "nvme_error", r""),
    ("EXT4-fs error (device ", "fs_error", DEVICE + r"\)"),
    ("EXT4-fs (", "fs_error", DEVICE + r"\): error count since last fsck"),
    ("JBD2: Detected IO errors while flushing file data on ", "fs_error", DEVICE),
    ("Aborting journal on device ", "fs_error", DEVICE),
    ("XFS (", "fs_error", DEVICE + r"\): " + XFS),
    ("BTRFS error (device ", "fs_error", DEVICE + r"(?: state \w{1,8})?\)"),
    ("BTRFS critical (device ", "fs_error", DEVICE + r"(?: state \w{1,8})?\)"),
    ("BTRFS: error (device ", "fs_error", DEVICE + r"(?: state \w{1,8})?\)"),
    ("BTRFS warning (device ", "fs_error", DEVICE + r"(?: state \w{1,8})?\): .{0,20}csum failed"),
    # of a hard mount; OK when its first request is answered
    ("nfs: server ", "nfs_silent", SERVER + r" not responding, still trying"),
    ("nfs: server ", "nfs_answers", SERVER + r" OK\Z"),
    ("md/", "disk_failed", r"\w{1,16}:\w{1,32}: Disk failure on " + DEVICE),
)  # fmt: skip
HARD_LOCKUP = Pattern(
    r"(?:(?:NMI )?watchdog: )?(?:CPU ?[0-9]{1,5}: )?Watchdog detected hard LOCKUP on cpu"
    r"|watchdog: CPU ?[0-9]{1,5} (?:self-detected )?[Hh]ard LOCKUP"
)
# blk_update_request: critical medium error, dev sda, sector 1
BLOCK = (
    r"(?:blk_update_request: |print_req_error: |end_request: )?"
    r"(?:I/O|critical [\w ]{1,20}|timeout|protection|device offline|recoverable transport) error,"
    r" dev " + DEVICE + r", (?:sector|logical block) "
)
BLOCK_WORDS = ("blk_update", "print_req", "end_request", "I/O error, dev ", "critical ",
               "timeout error, ", "protection error, ", "device offline error, ",
               "recoverable transport error, ")  # fmt: skip
NOT_DISKS = Pattern(r"(?:fd|sr|ram|zram|nbd)[0-9]")  # empty drives, and what has no medium
NVME = (
    r"nvme (nvme[0-9]{1,5}): (?:I/O (?:tag )?[0-9]{1,6} .{0,80}?timeout\b|controller is down"
    r"|Removing after probe failure|Disabling device after reset failure|Device not ready"
    r"|Device shutdown incomplete|frozen state error detected|starting error recovery"
    r"|failed to mark controller)"
)
NVME_COMMAND = (
    r"(nvme[0-9]{1,5}(?:c[0-9]{1,5})?n[0-9]{1,5}): [\w /-]{1,40}\(0x[0-9a-f]{1,2}\) @ LBA [0-9]+, "
    r"[0-9]+ blocks, "
)
ATA = (
    r"(ata[0-9]{1,4}(?:\.[0-9]{2})?): (?:failed command: "
    r"|exception Emask 0x[0-9a-f]{1,8} [\w ]{0,80} frozen)"
)
READ_ONLY = (
    r"(?:EXT4-fs \(" + DEVICE + r"\): Remounting filesystem read-only"
    r"|BTRFS \w{1,8} \(device " + DEVICE + r"(?: state \w{1,8})?\): forced readonly)"
)
# Oops: 0002 [#1] SMP
OOPS = (
    r"(?:Internal error: [^\[\]:]{1,80}(?:: [^\[\]:]{1,80})?"
    r"|Oops(?:(?:: | - )[\w ,./()-]{1,80})?|(?:general protection|double fault|divide error|bounds"
    r"|stack segment|segment not|control protection|invalid (?:opcode|TSS)|alignment check"
    r"|coprocessor|(?:fpu|simd|iret) exception|int3|overflow|kernel stack|Bad pagetable)\b"
    r"[\w ,./()-]{0,100}): [0-9a-fA-F]{1,16} \[#[0-9]{1,6}\](?: {1,2}[A-Z][A-Za-z_()]{1,29})*\Z"
)
LIBRARIES = r"((?:libcuda|libcudart|libcudnn|libcublas|libnccl|libnvidia-|libnvrtc)[\w.+-]{0,60})"
# python[1]: segfault at 0 ip 0 sp 0 error 4 in libnccl.so.2[...], traps: python[1] general
# protection fault ip:0 sp:0 error:0 in libcuda.so.1[...]
CRASHED = (
    r"(?:traps: )?(" + NAME + r"?)\[[0-9]{1,10}\]:? (?:segfault at [0-9a-f]{1,16} ip|general "
    r"protection(?: fault)? ip|trap \w[\w ]{1,30} ip)[: ][0-9a-f]{1,16} sp[: ][0-9a-f]{1,16} "
    r"error[: ][0-9a-f]{1,16} in " + LIBRARIES + r"\["
)
JOURNAL = Pattern(r"-[0-9]{1,10}\Z")  # its inode, behind the device
FIRST = tuple(begin for begin, _, _ in BEGINNINGS)


@lru_cache(maxsize=None)
def pattern(text: str) -> "re.Pattern[str]":
    """Compile at first use: a healthy log has none of these lines."""
    return re.compile(text, re.DOTALL)


def kernel_line(text: str) -> "LineFacts | None":
    """The LineFacts of a line about a fault of the kernel or a disk, or None."""
    if text.startswith(FIRST):
        for beginning, kind, rest in BEGINNINGS:
            if text.startswith(beginning):
                facts = match_beginning(text, beginning, kind, rest)
                if facts:
                    return facts
    if "LOCKUP" in text and HARD_LOCKUP.match(text):
        return LineFacts("hard_lockup")
    if " [#" in text and pattern(OOPS).match(text):
        return LineFacts("oops")
    if " error" in text and " in lib" in text:
        match = pattern(CRASHED).match(text)
        if match:
            return LineFacts("segfault", detail="{} in {}".format(match.group(1), match.group(2)))
    return disk_line(text)


def match_beginning(text: str, beginning: str, kind: str, rest: str) -> "LineFacts | None":
    if kind == "nvme_error":
        match = pattern(NVME).match(text)
    elif beginning.startswith("EXT4-fs (") and "read-only" in text:
        return None
    else:
        match = pattern(rest).match(text, len(beginning))
    if match is None:
        # worded differently, it is still an OOM kill
        return LineFacts(kind) if beginning.endswith(": Kill") else None
    detail = match.group(1) if match.re.groups else None
    if detail and kind == "fs_error":
        detail = detail.rstrip(".:")
        if beginning.startswith(("Aborting journal", "JBD2")):
            detail = JOURNAL.sub("", detail)
    if kind == "io_error" and NOT_DISKS.match(detail):
        return None
    return LineFacts(kind, detail=detail)


def disk_line(text: str) -> "LineFacts | None":
    if text.startswith(BLOCK_WORDS):
        match = pattern(BLOCK).match(text)
        if match and not NOT_DISKS.match(match.group(1)):
            return LineFacts("io_error", detail=match.group(1))
    elif text.startswith("nvme") and " @ LBA " in text:
        match = pattern(NVME_COMMAND).match(text)
        if match:
            return LineFacts("nvme_error", detail=match.group(1))
    elif text.startswith("ata"):
        match = pattern(ATA).match(text)
        if match:
            return LineFacts("io_error", detail=match.group(1))
    elif text.startswith(("EXT4-fs (", "BTRFS ")):
        match = pattern(READ_ONLY).match(text)
        if match:
            return LineFacts("read_only", detail=match.group(1) or match.group(2))
    return None
