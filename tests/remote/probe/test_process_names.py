"""What the kernel prints about a process, a file or a device's name is never a driver's own line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodevet.remote.probe.collectors import kernel_log
from nodevet.remote.probe.kernel_events import Events

# ruff: noqa: E501 - lines as the kernel prints them

COMM = 15  # bytes of a process's own name: TASK_COMM_LEN is 16 with its end
# Lines that nodevet knows, of every kind: what somebody would imitate.
KNOWN = [
    "NVRM: Xid (PCI:0000:19:00): 79, pid=1, name=x, GPU has fallen off the bus.",
    "NVRM: Xid (0000:03:00): 14, Channel 00000001",
    "NVRM: Xid PCI:0000:01:00: 43, pid=1814139, name=x, Ch 00000018",
    "NVRM: Xid 01:00: 43",
    "NVRM: Xid 01:00",
    "NVRM: Xid (PCI",
    "NVRM: Xid : 79",
    "NVRM: Xid: 79, x",
    "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.",
    "NVRM: GPU 18:00.0: GPU has fallen off the bus.",
    "NVRM: GPU at 18:00 has fallen off the bus.",
    "NVRM: fallen off the bus and is not responding to commands.",
    "NVRM: x",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07",
    "nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 24007, Fatal, Link 28 sourcetrack timeout error",
    "nvidia-nvswitch0: Probing device 0000:06:00.0, Vendor Id = 0x10de",
    "vfio 19:00.0: reset done",
    "vfio-pci 0000:19:00.0: reset done",
    "mlx5_core 0000:17:00.0: poll_health:834:(pid 0): Fatal error 3 detected",
    "mlx5_core 0000:17:00.0: poll_health:829:(pid 0): device's health compromised - reached miss count",
    "mlx5_core 0000:17:00.0 ens1f0np0: Link down",
    "mlx5_core 0000:17:00.0 a: Link up",
    "mlx5_core 0000:17:00.0: firmware version: 28.43.1014",
    "bnxt_en 0000:17:00.0 a: NIC Link is Down",
    "bnxt_en 0000:17:00.0 a: NIC Link is Up, speed unknown",
    "ice 0000:3b:00.0: Rebuild failed, unload and reload driver",
    "bnxt_en 0000:17:00.0 eth0: Firmware fatal reset event received",
    "mlx5_core: probe of 0000:17:00.0 failed with error -22",
    "ice: probe of a failed with error -1",
    "efa 0000:17:00.0: probe with driver efa failed with error -5",
    "nvidia: probe of 0000:17:00.0 failed with error -1",
    "mlx5_core 0000:17:00.0: probe_one:1764:(pid 1): mlx5_init_one failed with error code -16",
    "mlx5_core a: mlx5_load_one failed with error code -1",
    "Linux version 6.8.0-45-generic (buildd@lcy02)",
    "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 0: be00000000800400",
    "[Hardware Error]: System Fatal error.",
    "{1}[Hardware Error]: event severity: fatal",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_Channel#1_DIMM#0 (channel:1 slot:0)",
    "EDAC MC0: UE page 0x1, offset 0x0",
    "EDAC MC: 1 CE x",
    "EDAC MC: fatal",
    "EDAC MC0: CE",
    "EDAC PCI0: Non-Fatal Error PCIe ...",
    "EDAC DEVICE0: UE: x instance: y block: z count: 1 'w'",
    "Memory failure: 0x13d4a2: recovery action for dirty LRU page: Recovered",
    "MCE 0x1: dirty LRU page recovery: Recovered",
    "MCE 1: x",
    "MCE: Killing python:4242 due to hardware memory corruption fault at 7f",
    "mce: Uncorrected hardware memory error in user-access at 1",
    "pcieport 0000:17:01.0: AER: Uncorrectable (Fatal) error message received from 0000:19:00.0",
    "x 0000:17:01.0: AER: Corrected error received: 0000:19:00.0",
    "Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB",
    "Out of memory: Killed process 4242 (python) total-vm:1kB",
    "Out of memory (oom_kill_allocating_task): Killed process 4242 (python)",
    "INFO: task python:4242 blocked for more than 120 seconds.",
    "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:1234]",
    "BUG: soft lockup - CPU#3 stuck for 22s! [python:1234]",
    "NMI watchdog: Watchdog detected hard LOCKUP on cpu 12",
    "rcu: INFO: rcu_sched self-detected stall on CPU",
    "INFO: rcu_sched detected stalls on CPUs/tasks: { 3} (detected by 1",
    "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "BUG: unable to handle page fault for address: 0",
    "BUG: Bad page state in process x  pfn:1",
    "BUG: scheduling while atomic: x/1/0x2",
    "kernel BUG at mm/slub.c:379!",
    "kernel BUG at x:1!",
    "Oops: 0002 [#1] SMP",
    "Oops: 0 [#1]",
    "Oops: 0 [#1] AB",
    "x: 0 [#1]",
    "general protection fault, probably for non-canonical address 0xdead000000000122: 0000 [#1] SMP",
    "Internal error: Oops: 0000000096000004 [#1] SMP",
    "Kernel panic - not syncing: Fatal exception",
    "I/O error, dev nvme0n1, sector 0 op 0x1:(WRITE)",
    "blk_update_request: critical medium error, dev sdb, sector 1 op",
    "Buffer I/O error on dev sda1, logical block 0, async page read",
    "ata1.00: failed command: READ DMA",
    "ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen",
    "nvme nvme0: I/O tag 258 (1102) opcode 0x2 (I/O Cmd) QID 5 timeout, aborting",
    "nvme nvme0: I/O 5 QID 5 timeout",
    "nvme0n1: Read(0x2) @ LBA 123, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81)",
    "nvme0n1: x @ LBA 5, 8 blocks, y",
    "EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2",
    "EXT4-fs (a): Remounting filesystem read-only",
    "EXT4-fs (sda1): error count since last fsck: 5",
    "JBD2: Detected IO errors while flushing file data on sda1-8",
    "Aborting journal on device nvme0n1p2-8.",
    "XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem",
    "XFS (a): Shut down",
    "BTRFS error (device sda1: state EA): bdev /dev/sda1 errs: wr 1",
    "BTRFS info (device sda1): forced readonly",
    "md/raid1:md0: Disk failure on sda1, disabling device.",
    "nfs: server filer not responding, still trying",
    "nfs: server f OK",
]
# printk formats of kernels 5.4 to 6.16 with a process's name, `c`, at their beginning.
NAME_FIRST = [
    "{c}[42]: segfault at 0 ip 0000000000000000 sp 0000000000000000 error 4 in {f}[0+1]",
    "{c}[42]: segfault at 0 ip 0000000000000000 sp 0000000000000000 error 4 likely on CPU 3 (core 1, socket 0)",
    "{c}[42]: segfault (11) at 0 nip 0 lr 0 code 1 in {f}[0+1]",
    "{c}[42] bad frame in rt_sigreturn frame:0000000012345678 ip:7f sp:7f orax:f in {f}[7f+1]",
    "{c}[42]: bad frame in __arm64_sys_rt_sigreturn: pc=0 sp=0",
    "{c}[42] general protection fault ip:7f sp:7f error:0 in {f}[7f+1]",
    "{c}[42]: unhandled exception: BTI, ESR 0x0, in {f}[0+1]",
    "{c}[42]: unhandled signal 11 code 0x1 at 0x0 in {f}[0+1]",
    "{c}[42] vsyscall attempted with vsyscall=none ip:0 cs:33 sp:0 ax:0 si:0 di:0",
    "{c}[42]: Unable to set TIF_SVE",
    "{c}/42: potentially unexpected fatal signal 11.",
    "{c}/42 is trying to acquire lock:",
    "{c}/42 just changed the state of lock:",
    "{c}: page allocation failure: order:4, mode:0xcc0(GFP_KERNEL), nodemask=(null),cpuset={p},mems_allowed=0",
    "{c}: page allocation stalls for 10000ms, order:0, mode:0x0(GFP), nodemask=(null),cpuset={p},mems_allowed=0",
    "{c}: vmalloc error: size 4096, failed to allocate pages, mode:0xcc0(GFP), nodemask=(null),cpuset={p},mems_allowed=0",
    "{c}: 79 output lines suppressed due to ratelimiting",
    "{c} invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "{c} (42): drop_caches: 3",
    "{c} (42): undumpable",
    "{c} (42): /proc/42/oom_adj is deprecated, please use /proc/42/oom_score_adj instead.",
    "{c} (42): Using mlock ulimits for SHM_HUGETLB is obsolete",
    "{c}(42): Access to a removed file {p}",
    "{c} (42) uses deprecated remap_file_pages() syscall.",
    "{c} uses obsolete (PF_INET,SOCK_PACKET)",
    "{c}            R  running task        0    42      1 0x00000000",
    "{c}            D    0    42      1 0x00000000",
    "{c}: renamed from {c}",
    "{c}: entered promiscuous mode",
    "{c}: Caught tx_queue_len zero misconfig",
    "{c}: {c} forced to reload, {p}",
]
# With a process's name, a path, a command line or a device's own name behind words of the kernel.
NAME_LATER = [
    "traps: {c}[42] general protection fault ip:7f sp:7f error:0 in {f}[7f+1]",
    "traps: {c}[42] trap invalid opcode ip:7f sp:7f error:0 in {f}[7f+1]",
    "traps: PANIC: double fault, error_code: 0x0",
    "show_signal_msg: {c}[42]",
    "umip: {c}[42] ip:7f sp:7f: SGDT instruction cannot be used by applications.",
    "x86/split lock detection: #AC: {c}/42 took a split_lock trap at address: 0x7f",
    "process '{p}' started with executable stack",
    "warning: process `{c}' used the deprecated sysctl system call with 1.2.",
    "warning: `{c}' uses 32-bit capabilities (legacy support in use)",
    "mmap: {c} (42) uses deprecated remap_file_pages() syscall. See {p}",
    "mmap: {c} (42): VmData 4096 exceed data ulimit 0. Update limits or use boot option ignore_rlimit_data.",
    "TCP: {c}(42): Application bug, race in MSG_PEEK",
    "Lockdown: {c}: debugfs access is restricted; see man kernel_lockdown.7",
    'ptrace attach of "{p}"[42] was attempted by "{p}"[43]',
    'audit: type=1326 audit(1.2:3): auid=0 uid=0 ses=1 pid=42 comm="{c}" exe="{p}" sig=0',
    'audit: type=1400 audit(1.2:3): apparmor="DENIED" name="{p}" comm="{c}"',
    "CPU: 0 PID: 42 Comm: {c} Tainted: P           OE     5.15.0-112-generic #122-Ubuntu",
    "CPU: 0 UID: 0 PID: 42 Comm: {c} Not tainted 6.16.0 #1 PREEMPT(voluntary)",
    "WARNING: CPU: 3 PID: 42 at {c}:123 x+0x1/0x2",
    "WARNING: kernel stack frame pointer at 000000005611dc97 in {c}:42 has bad value 00000000ec717e66",
    "task:{c}            state:D stack:0     pid:42    tgid:42    ppid:2      flags:0x00000000",
    "[     42]     0    42     1000      100    45056        0             0 {c}",
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset={p},mems_allowed=0,oom_memcg={p},task_memcg={p},task={c},pid=42,uid=0",
    "Tasks state (memory values in pages):",
    "Memory cgroup stats for {p}: cache:0KB rss:0KB",
    "Task in {p} killed as a result of limit of {p}",
    "oom_reaper: reaped process 42 ({c}), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
    "cgroup: fork rejected by pids controller in {p}",
    'cgroup: {c} (42) created nested cgroup for controller "memory" which has incomplete hierarchy support',
    "cgroup: Unknown subsys name '{p}'",
    "request_module: runaway loop modprobe {p}",
    "request_module: kmod_concurrent_max (0) close to 0 (max_modprobes: 50), for module {p}, throttling...",
    "tmpfs: Unknown parameter '{p}'",
    "proc: Bad value for '{p}'",
    "overlayfs: missing '{p}'",
    "overlayfs: failed to resolve '{p}': -2",
    "overlayfs: upperdir is in-use by another mount, accessing files from both mounts will result in undefined behavior. {p}",
    'EXT4-fs (loop0): Unrecognized mount option "{p}" or missing value',
    "XFS (loop0): unknown mount option [{p}].",
    'FAT-fs (sdb1): Unrecognized mount option "{p}" or missing value',
    "BTRFS: device label {p} devid 1 transid 5 /dev/loop0 scanned by {c} (42)",
    "BTRFS info (device sda1): setting incompat feature flag for {p}",
    "ISO 9660 Extensions: {p}",
    "EXT4-fs warning (device sda1): ext4_dx_add_entry:2516: inode #2: comm {c}: Directory (ino: 2) index full",
    "note: {c}[42] exited with irqs disabled",
    "INFO: task x:1 is blocked on a mutex likely owned by task {c}:42.",
    "INFO: lockdep is turned off. {c}",
    "2 locks held by {c}/42:",
    "no locks held by {c}/42.",
    "Core dump to |{p} pipe failed",
    "coredump: 42({c}): over core_pipe_limit, skipping core dump",
    "Process 42({c}) has RLIMIT_CORE set to 1",
    "Pid 42({c}) over core_pipe_limit",
    "sched: DL replenish lagged too much {c}",
    "perf: {c} took too long",
    "netlink: 4 bytes leftover after parsing attributes in process `{c}'.",
    "sock_set_timeout: `{c}' (pid 42) tries to set negative timeout",
    "process `{c}' is using obsolete setsockopt SO_BSDCOMPAT",
    "random: {c}: uninitialized urandom read (16 bytes read)",
    "VFS: Busy inodes after unmount of loop0 ({p})",
    "sysfs: cannot create duplicate filename '{p}'",
    "futex_wake_op: {c} tries to shift op by -1; fix this program",
    "usercopy: Kernel memory exposure attempt detected from {p}!",
    "binder: 42:42 {p}",
    "usb 1-1: Product: {p}",
    "usb 1-1: Manufacturer: {p}",
    "usb 1-1: SerialNumber: {p}",
    "input: {p} as /devices/pci0000:00/0000:00:14.0/usb1/1-1/input/input7",
    "input: {p}",
    "hid-generic 0003:046D:C31C.0001: input,hidraw0: USB HID v1.11 Keyboard [{p}] on usb-0000:00:14.0-1/input0",
    "scsi 0:0:0:0: Direct-Access     {p} PQ: 0 ANSI: 6",
    "ata1.00: ATA-9: {p}, 1.0, max UDMA/133",
    "ata1.00: Model '{p}', rev '1', applying bridge limits",
    "mmcblk0: mmc0:0001 {p} 7.28 GiB",
    'nvme nvme0: new ctrl: NQN "{p}", addr 1.2.3.4:4420',
    "Bluetooth: hci0: {p}",
    "veth1a2b3c4: renamed from {c}",
    "device {c} entered promiscuous mode",
    "bond0: (slave {c}): Enslaving as a backup interface with a down link",
    "br0: port 1({c}) entered blocking state",
    "IPv6: ADDRCONF(NETDEV_CHANGE): {c}: link becomes ready",
    "SELinux: inode_doinit_use_xattr:  getxattr() returned 13 for dev=loop0 ino=2 {p}",
    "loop0: detected capacity change {p}",
    "nfs: Unknown parameter '{p}'",
    "NFS: server {c} error: fileid changed",
    "CIFS: VFS: \\\\\\\\{p} Send error in SessSetup = -13",
    "FS-Cache: Netfs '{p}' registered for caching",
    "fuse: {p}",
]
# A firewall's own words at the beginning of what it logs, in a network namespace of its owner.
FIREWALL = [
    "{p}IN=eth0 OUT= MAC=00 SRC=1.2.3.4 DST=1.2.3.5 LEN=60",
    "{p} IN= OUT=lo SRC=::1 DST=::1",
]
# Lines that are events, with a process's name as data.
EVENTS = {
    "Out of memory: Killed process 42 ({c}) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB, UID:0 pgtables:52kB oom_score_adj:0": "oom",
    "Memory cgroup out of memory: Killed process 42 ({c}) total-vm:1kB, anon-rss:1kB": "oom_cgroup",
    "Memory cgroup out of memory: Kill process 42 ({c}) score 50 or sacrifice child": "oom_cgroup",
    "INFO: task {c}:42 blocked for more than 120 seconds.": "hung_task",
    "INFO: task {c}:42 blocked in I/O wait for more than 120 seconds.": "hung_task",
    "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [{c}:42]": "soft_lockup",
    "BUG: Bad page state in process {c}  pfn:00001": "bug",
    "BUG: scheduling while atomic: {c}/42/0x00000002": "bug",
    "{c}[42]: segfault at 0 ip 0000000000000000 sp 0000000000000000 error 4 in libnccl.so.2[0+1]": "segfault",
}
COMMS = sorted(
    {line[:size] for line in KNOWN for size in range(1, COMM + 1)} | {"", "a\nb", "x), y"}
)
REAL = "NVRM: Xid (PCI:0000:19:00): 79, pid=1, name=x, GPU has fallen off the bus."


def escaped(text: str) -> str:
    """printk.c: what /dev/kmsg prints in place of what cannot be printed, and of a backslash."""
    return "".join(
        each if 32 <= ord(each) < 127 and each != "\\" else f"\\x{ord(each):02x}" for each in text
    )


def found(*lines: str) -> list[Any]:
    """The events of these lines, a minute apart, without their times, and NICs that they name."""
    log = kernel_log.Log("kmsg", Events())
    for number, line in enumerate(lines):
        log.take_row(f"4,{number},{number * 60000000},-;{escaped(line)}".encode())
    log.end()
    events = [(each["kind"], each.get("code"), each.get("bus_id"), each.get("severity"), each["count"])
              for each in log.events.records()]  # fmt: skip
    return [*events, *(("link", address) for address in log.reader.links.links_by_address)]


def filled(form: str, comm: str, path: str) -> str:
    return form.format(c=comm, p=path, f=path.replace("/", "_"))


@pytest.mark.parametrize("form", NAME_FIRST + NAME_LATER)
def test_e13_no_name_of_a_process_is_read_as_a_drivers_line(form: str) -> None:
    names = [filled(form, comm, path) for comm in COMMS for path in ("x",)]
    paths = [filled(form, comm, path) for path in KNOWN for comm in ("x", path[:COMM])]
    assert found(*names, *paths) == []


@pytest.mark.parametrize("before", ["", "    ", " " * 15, " " * 15 + "[    9.000000] "])
@pytest.mark.parametrize("comm", ["a", "NVRM: GPU", "NVRM: Xid (PCI"])
def test_e13_a_file_name_of_several_lines_plants_nothing_in_a_dmesg(comm: str, before: str) -> None:
    """dmesg(1) writes the newline of a name as it is; from 2.33 on it indents what follows."""
    log = kernel_log.Log("dmesg", Events())
    name = f"x[1+1]\n{before}{REAL}\n{before}y[1+1]"
    text = (
        f"[    5.000000] {comm}[42]: segfault at 0 ip 0 sp 0 error 4 in {name}\n[   20.000000] end"
    )
    for row in text.split("\n"):
        log.take_row(row.encode())
    log.end()
    assert log.events.records() == []


@pytest.mark.parametrize("form", FIREWALL)
def test_e13_no_line_of_a_firewall_is_read_as_a_drivers_line(form: str) -> None:
    assert found(*(filled(form, "", line) for line in KNOWN)) == []


@pytest.mark.parametrize(("form", "kind"), EVENTS.items())
def test_e13_the_process_name_in_an_event_does_not_change_the_event(form: str, kind: str) -> None:
    for comm in COMMS:
        ((told, *_, count),) = found(filled(form, comm, "x"))
        assert (told, count) == (kind, 1), comm


def test_e13_names_of_processes_change_and_hide_nothing() -> None:
    noise = [filled(form, comm, comm) for form in NAME_FIRST + NAME_LATER for comm in COMMS[::7]]
    assert found(*noise, REAL, *noise) == [("xid", 79, "0000:19:00.0", None, 1)]


@pytest.mark.parametrize(
    "name",
    ['a"b', "a'b", "a, b", "a), (b", "[42]: segfault", "a\nb", "NVRM: Xid (PCI", "\\x0a", "a=b, Ch 0",
     "IN= OUT=", ",mems_allowed=0", "<unknown>", "", "é" * 7],
)  # fmt: skip
def test_e13_a_real_xid_is_read_whatever_the_process_is_called(name: str) -> None:
    line = f"NVRM: Xid (PCI:0000:19:00): 79, pid=42, name={name}, GPU has fallen off the bus."
    assert found(line) == [("xid", 79, "0000:19:00.0", None, 1)]
    unit = "RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000004 0x00000001 0x00000000)"
    assert found(f"NVRM: Xid (PCI:0000:19:00): 145, pid=42, name={name}, {unit}") == [
        ("xid", 145, "0000:19:00.0", "nonfatal", 1)
    ]


@pytest.mark.parametrize(
    "line",
    ["NVRM: Xid (PCI[42] bad frame in rt_sigreturn frame:0 ip:0 sp:0 orax:f", "NVRM: Xid (invalid): x",
     "NVRM: Xid (PCI:0000:66:00): abc, pid=2280636", "nvidia-nvswitch[42]: segfault in x: SXid[0+1]"],
)  # fmt: skip
def test_e13_lines_that_only_resemble_an_xid_are_counted_apart(tmp_path: Path, line: str) -> None:
    (tmp_path / "dev").mkdir()
    rows = ("Linux version 6.8.0", line)
    text = "".join(f"4,{n},{n},-;{row}\n" for n, row in enumerate(rows))
    (tmp_path / "dev/kmsg").write_text(text)
    log = kernel_log.collect(str(tmp_path.resolve()), {})
    assert (log["events"], log["complete"], log["unmatched"]) == ([], True, 1)


PANIC = "Kernel panic - not syncing: Fatal exception"


def records(*rows: str) -> list[Any]:
    """The events of these records: of each its kind, how often and when."""
    log = kernel_log.Log("kmsg", Events())
    for row in rows:
        log.take_row(row.encode())
    log.end()
    assert log.losses == []
    return [(each["kind"], each["count"], each["times_s"]) for each in log.events.records()]


@pytest.mark.parametrize(
    "line", [f"{REAL},mems_allowed=0-1,global_oom,task_memcg=/x", PANIC, "Oops: 0002 [#1]"]
)
def test_e13_a_cgroups_name_in_a_line_that_is_continued_is_no_event(line: str) -> None:
    assert records(
        "6,1,1000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=",
        "6,2,1000001,-;e1000e: link up",
        f"4,3,1000002,c;{line}",
    ) == []  # fmt: skip


def test_e13_a_continued_line_does_not_change_an_earlier_event() -> None:
    oops = "1,1,1000000,-;Oops: 0002 [#1] SMP"
    assert records(oops, "4,2,1000001,c;x,mems_allowed=0") == [("oops", 1, [1.0])]


@pytest.mark.parametrize("flag", ["-", "c"])
@pytest.mark.parametrize("name", ["x", "fallen off the bus"])
def test_e13_the_name_of_a_cgroup_after_a_drivers_line_is_ignored(flag: str, name: str) -> None:
    more = f"4,2,1000001,c;{name},mems_allowed=0-1,global_oom,task_memcg=/x"
    assert records(f"3,1,1000000,{flag};{REAL}", more) == [("xid", 1, [1.0])]
    assert records(f"3,1,1000000,{flag};NVRM: GPU 0000:19:00.0: RmInit: x", more) == []
    assert records(f"3,1,1000000,{flag};{REAL}", f"4,2,1000001,c;{name}") == [("xid", 1, [1.0])]


def test_e13_an_xid_that_is_marked_as_a_continued_line_has_its_own_time() -> None:
    # the driver marks all its lines so
    assert records(f"4,1,1000000,c;{REAL}", f"4,2,3600000000,c;{REAL}") == [
        ("xid", 2, [1.0, 3600.0])
    ]
    name = REAL.replace("name=x", "name=,mems_allowed=0")
    assert records("6,1,1,-;e1000e: up", f"4,2,1000000,c;{name}") == [("xid", 1, [1.0])]


def test_e13_a_hundred_lines_that_are_marked_as_continued_are_no_gap() -> None:
    rows = [f"4,{n},{n},c;NVRM:      {n}    103  GSP_RM_ALLOC" for n in range(1, 200)]
    assert records(*rows, f"4,200,5000000,c;{REAL}") == [("xid", 1, [5.0])]


@pytest.mark.parametrize("version", ["3.10.0-1160.el7.x86_64", "4.4.0"])
def test_e13_up_to_linux_4_8_a_line_is_marked_where_it_begins(version: str) -> None:
    told = records(
        f"5,0,0,-;Linux version {version} (x@y)",
        "4,1,1000000,c;BUG: unable to handle kernel ",
        "4,2,1000001,+;NULL pointer dereference at (null)",
    )  # fmt: skip
    assert told == [("bug", 1, [1.0])]


@settings(max_examples=300)
@given(
    st.sampled_from(NAME_FIRST + NAME_LATER),
    st.text(st.characters(max_codepoint=255), max_size=COMM),
    st.sampled_from(KNOWN).flatmap(
        lambda line: st.sampled_from([line, f"{line} ", f"x {line}", f"x: {line}"])
    ),
)
def test_e13_names_and_paths_at_random(form: str, comm: str, path: str) -> None:
    assert found(filled(form, comm.encode()[:COMM].decode("utf-8", "ignore"), path)) == []
