"""What the probe makes of lines about the kernel's own trouble, disks, resets and NVLink units."""

import os
from pathlib import Path
from typing import Any

import pytest

from nodevet.remote.probe.collectors import kernel_log
from nodevet.remote.probe.kernel_events import DETAILS, TIMES, Events, Times, classify
from nodevet.remote.probe.kernel_hardware import LineFacts
from nodevet.remote.probe.kernel_xids import UNMATCHED

NIC = "0000:17:00.0"
NICS = [
    "mlx5_core 0000:17:00.0: poll_health:834:(pid 0): Fatal error 3 detected",
    "mlx5_core 0000:17:00.0: poll_health:829:(pid 0): device's health compromised - reached miss "
    "count",
    "mlx5_core 0000:17:00.0: mlx5_health_try_recover:308:(pid 7): health recovery flow aborted, "
    "PCI reads still not working",
    "mlx5_core 0000:17:00.0: mlx5_health_try_recover:334:(pid 7): health recovery failed",
    "mlx4_core 0000:17:00.0: Internal error detected:",
    "bnxt_en 0000:17:00.0 eth0: Firmware fatal reset event received",
    "bnxt_en 0000:17:00.0 (unnamed net_device) (uninitialized): Firmware not responding, "
    "status: 0x1",
    "ice 0000:17:00.0: Rebuild failed, unload and reload driver",
    "ice 0000:17:00.0 irdma0: Requesting a reset",
    "igc 0000:17:00.0 enp109s0: PCIe link lost, device now detached",
    "igb 0000:17:00.0 eth1: PCIe link lost",
    "ixgbe 0000:17:00.0: Adapter removed",
    "ena 0000:17:00.0: Reset attempt failed. Can not reset the device",
    "cxgb4 0000:17:00.0: encountered fatal error, adapter stopped",
]  # fmt: skip
ALIVE = [
    "mlx5_core 0000:17:00.0: firmware version: 28.39.1002",
    "mlx5_core 0000:17:00.0: poll_health:829:(pid 0): device's health is good",
    "mlx5_core 0000:17:00.0 ens1f0np0: Link up",
    "mlx5_core 0000:17:00.0: temp_warn:171:(pid 0): High temperature on sensors with bit set 0 1",
    "bnxt_en 0000:17:00.0 eth0: Firmware non-fatal reset event received, max wait time 4 msec",
    "ice 0000:17:00.0: The DDP package was successfully loaded",
    "mlx5_core 17:00.0: Fatal error 3 detected",
    "x mlx5_core 0000:17:00.0: Fatal error 3 detected",
]


@pytest.mark.parametrize("text", NICS)
def test_e11_a_network_card_that_failed_is_an_event(text: str) -> None:
    found = classify(text)
    assert found is not None
    assert (found.kind, found.address, found.severity) == ("nic_failed", NIC, "fatal")
    assert found.detail == f"{text.partition(' ')[0]} {NIC}"


PROBES = [
    ("mlx5_core: probe of 0000:17:00.0 failed with error -22", "mlx5_core"),
    ("mlx5_core 0000:17:00.0: probe with driver mlx5_core failed with error -110", "mlx5_core"),
    (
        "mlx5_core 0000:17:00.0: probe_one:1764:(pid 1): mlx5_init_one failed with error code -16",
        "mlx5_core",
    ),
    ("mlx5_core 0000:17:00.0: mlx5_load_one failed with error code -22", "mlx5_core"),
    ("bnxt_en: probe of 0000:17:00.0 failed with error -110", "bnxt_en"),
    ("ice 0000:17:00.0: probe with driver ice failed with error -5", "ice"),
    ("i40e: probe of 0000:17:00.0 failed with error -2", "i40e"),
    ("ixgbe: probe of 0000:17:00.0 failed with error -95", "ixgbe"),
    ("efa: probe of 0000:17:00.0 failed with error -22", "efa"),
    ("nvidia: probe of 0000:17:00.0 failed with error -1", "nvidia"),
    ("nvidia 0000:17:00.0: probe with driver nvidia failed with error -1", "nvidia"),
]


@pytest.mark.parametrize(("text", "driver"), PROBES)
def test_e11_a_device_that_its_driver_did_not_take_is_an_event(text: str, driver: str) -> None:
    found = classify(text)
    assert found == LineFacts("probe_failed", None, NIC, "fatal", f"{driver} {NIC}")


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        (
            "mlx5_ib.rdma: probe of mlx5_core.rdma.0 failed with error -12",
            "mlx5_ib.rdma mlx5_core.rdma.0",
        ),
        (
            "irdma ice.roce.0: probe with driver irdma failed with error -5",
            "irdma ice.roce.0",
        ),
    ],
)
def test_e11_an_rdma_device_that_its_driver_did_not_take_is_an_event(
    text: str, detail: str
) -> None:
    assert classify(text) == LineFacts("probe_failed", None, None, "fatal", detail)


@pytest.mark.parametrize(
    "text",
    [
        "i8042: probe of i8042 failed with error -5",
        "mlx5_core: probe of 0000:17:00.0 failed with error -22 or so",
        "mlx5_core: probe of 0000:17:00.0 rejects match -19",
        "x mlx5_core: probe of 0000:17:00.0 failed with error -22",
        "mlx5_core 0000:17:00.0: probe with driver ice failed with error -5",
        "ice: probe of 00[1234]: segfault at 0 failed with error -5",
        "mlx5_core 0000:17:00.0: a_process:1:(pid 1): mlx5_init_one failed with error code -16",
        "mlx5_core 0000:17:00.0: mlx5_init_one failed with error code -16 a",
    ],
)
def test_e11_lines_that_resemble_a_failed_driver_probe_are_no_event(text: str) -> None:
    assert classify(text) is None


@pytest.mark.parametrize("text", ALIVE)
def test_e11_other_lines_of_a_network_driver_are_no_failed_probe(text: str) -> None:
    assert classify(text) is None


FAULTS = [
    ("Out of memory: Killed process 123, UID 48, (httpd)", ("oom", "httpd")),
    ("Out of memory: Kill process 456 (python) score 50 or sacrifice child", ("oom", "python")),
    ("Memory cgroup out of memory: Killed process 4242 (python3) total-vm:1kB",
     ("oom_cgroup", "python3")),
    ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),", None),
    ("oom_reaper: reaped process 345646 (vector), now anon-rss:0kB", None),
    ("INFO: task jbd2/sda1-8:123 blocked for more than 120 seconds.",
     ("hung_task", "jbd2/sda1-8")),
    ("INFO: task dd:12 blocked in I/O wait for more than 122 seconds.", ("hung_task", "dd")),
    ("INFO: task dd:12 blocked  for more than 122 seconds.", ("hung_task", "dd")),
    ("INFO: task dd:12 is blocked on a mutex likely owned by task cp:9.", None),
    ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:1234]", ("soft_lockup", "python")),
    ("NMI watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [a b:1]", ("soft_lockup", "a b")),
    ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 12", ("hard_lockup", None)),
    ("rcu: INFO: rcu_sched self-detected stall on CPU", ("rcu_stall", None)),
    ("INFO: rcu_sched detected stalls on CPUs/tasks: { 3} (detected by 1", ("rcu_stall", None)),
    ("BUG: kernel NULL pointer dereference, address: 0000000000000008", ("bug", None)),
    ("kernel BUG at mm/slub.c:379!", ("bug", None)),
    ("Oops: 0002 [#1] SMP", ("oops", None)),
    ("general protection fault, probably for non-canonical address 0xdead000000000122: 0000 [#1] "
     "PREEMPT SMP NOPTI", ("oops", None)),
    ("Internal error: Oops: 0000000096000004 [#1] SMP", ("oops", None)),
    ("Internal error: Oops - BUG: 00000000f2000800 [#1]  SMP", ("oops", None)),
    ("Kernel panic - not syncing: Fatal exception", ("panic", None)),
    ("pt_main_thread[1]: segfault at 7f ip 00007f sp 00007f error 4 in libnccl.so.2[7f7c+d3]",
     ("segfault", "pt_main_thread in libnccl.so.2")),
    ("traps: python3[9] general protection fault ip:7f sp:7f error:0 in libcuda.so.535.1[7f+1]",
     ("segfault", "python3 in libcuda.so.535.1")),
    ("python3[1]: segfault at 7f ip 00007f sp 00007f error 4 in libc.so.6[7f7c+d3]", None),
    ("I/O error, dev nvme0n1, sector 0 op 0x1:(WRITE)", ("io_error", "nvme0n1")),
    ("blk_update_request: critical medium error, dev sdb, sector 1 op", ("io_error", "sdb")),
    ("blk_update_request: I/O error, dev fd0, sector 0 op", None),
    ("I/O error, dev sr0, sector 0", None),
    ("Buffer I/O error on dev sda1, logical block 0, async page read", ("io_error", "sda1")),
    ("ata1.00: failed command: READ DMA", ("io_error", "ata1.00")),
    ("ata1: SATA link up 6.0 Gbps (SStatus 133 SControl 300)", None),
    ("nvme nvme0: I/O tag 258 (1102) opcode 0x2 (I/O Cmd) QID 5 timeout, aborting",
     ("nvme_error", "nvme0")),
    ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff", ("nvme_error", "nvme0")),
    ("nvme nvme0: Shutdown timeout set to 8 seconds", None),
    ("nvme nvme0: missing or invalid SUBNQN field.", None),
    ("nvme0n1: Read(0x2) @ LBA 123, 8 blocks, Unrecovered Read Error (sct 0x2 / sc 0x81)",
     ("nvme_error", "nvme0n1")),
    ("nvme0: Identify(0x6), Invalid Field in Command (sct 0x0 / sc 0x2)", None),
    ("EXT4-fs error (device sda1): ext4_find_entry:1455: inode #2", ("fs_error", "sda1")),
    ("EXT4-fs (sda1): Remounting filesystem read-only", ("read_only", "sda1")),
    ("EXT4-fs (sda1): re-mounted. Opts: errors=remount-ro", None),
    ("EXT4-fs (sda1): error count since last fsck: 5", ("fs_error", "sda1")),
    ("Aborting journal on device nvme0n1p2-8.", ("fs_error", "nvme0n1p2")),
    ("XFS (dm-0): Corruption of in-memory data detected.  Shutting down filesystem",
     ("fs_error", "dm-0")),
    ("XFS (dm-0): Unmounting Filesystem", None),
    ("BTRFS error (device sda1: state EA): bdev /dev/sda1 errs: wr 1", ("fs_error", "sda1")),
    ("BTRFS info (device sda1): forced readonly", ("read_only", "sda1")),
    ("BTRFS info (device sda1): using crc32c", None),
    ("md/raid1:md0: Disk failure on sda1, disabling device.", ("disk_failed", "sda1")),
    ("nfs: server filer not responding, still trying", ("nfs_silent", "filer")),
    ("nfs: server fe80::1%eth0 not responding, still trying", ("nfs_silent", "fe80::1%eth0")),
    ("nfs: server filer OK", ("nfs_answers", "filer")),
    ("nfs: server filer not responding, timed out", None),
    ("nfs: server a b OK", None),
    ("vfio-pci 0000:19:00.0: reset done", ("gpu_reset", None)),
    ("nvidia-nvswitch0: Probing device 0000:06:00.0, Vendor Id = 0x10de", ("nvswitch_probe", None)),
    ("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.105.08", ("driver_load", None)),
    ("NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 "
     "(GPU Reset Required)", ("xid", "0x1 GPU Reset Required")),
    ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 09 (0x025525c6 "
     "0x00000000 0x00000000)", ("xid", "NETIR_LINK_EVT link 9 0x025525c6 0x00000000")),
    ("NVRM: Xid (PCI:0000:00:08.0): 145, RLW_REMAP Nonfatal XC1 i0 Link 10 ",
     ("xid", "RLW_REMAP link 10")),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), FAULTS)
def test_the_reader_parses_each_line(text: str, said: Any) -> None:
    found = classify(text)
    assert (found and (found.kind, found.detail)) == said


@pytest.mark.parametrize(
    "name",
    ["kernel BUG at x", "Oops: 0 [#1] ", "NVRM: Xid", "NVRM: Xid (", "hard LOCKUP", "XFS (a): ",
     "nvme nvme0: I/O", "Out of memory: ", "BUG: Bad page s", "EXT4-fs (a): "],
)  # fmt: skip
def test_a_process_named_like_a_kernel_message_makes_no_event(name: str) -> None:
    assert len(name) <= 15  # TASK_COMM_LEN
    line = f"{name}[42]: segfault at 0 ip 0000000000000000 sp 0000000000000000 error 4 in a[0+1]"
    assert classify(line) in (None, LineFacts(UNMATCHED))


def test_lines_of_one_burst_are_one_occurrence_and_the_latest_are_kept() -> None:
    times = Times()
    for seconds in (5.0, 1.0, 100.0, 101.0, 109.0, 300.0, 95.0):
        times.add(seconds)
    assert times.starts == [1.0, 95.0, 300.0]
    for at in range(TIMES):
        times.add(1000.0 + 60 * at)
    assert len(times.starts) == TIMES and times.starts[0] == 1000.0


def test_names_of_processes_do_not_displace_other_events() -> None:
    events = Events()
    reader = events.reader()
    for number in range(5000):
        reader.add(float(number), f"Out of memory: Killed process 1 (p{number})")
    reader.add(6000.0, "NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus")
    found = events.records()
    assert events.dropped == 0
    assert len(found) == DETAILS + 2
    assert sum(each["count"] for each in found if each["kind"] == "oom") == 5000
    assert found[-1]["code"] == 79


def test_crash_records_of_pstore_are_listed(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    pstore, archive = root / "sys/fs/pstore", root / "var/lib/systemd/pstore"
    (archive / "1756710").mkdir(parents=True)
    pstore.mkdir(parents=True)
    (root / "dev").mkdir()
    (root / "dev/kmsg").write_text("5,0,0,-;Linux version 6.8.0\n")
    (pstore / "dmesg-erst-1").write_text("Panic#1 Part1\n<4>[  201.6] BUG: unable to handle\n")
    (pstore / "dmesg-erst-2").write_bytes(b"\xff\x00")
    (pstore / "console-ramoops-0").write_text("all is well\n")
    for at, path in ((30, pstore / "dmesg-erst-1"), (20, pstore / "dmesg-erst-2"),
                     (10, archive / "1756710")):  # fmt: skip
        os.utime(path, (at, at))
    found = kernel_log.collect(str(root), {})["crashes"]
    assert [(each["path"], each["at_s"], each["reason"]) for each in found] == [
        ("/sys/fs/pstore/dmesg-erst-1", 30.0, "Panic"),
        ("/sys/fs/pstore/dmesg-erst-2", 20.0, None),
        ("/var/lib/systemd/pstore/1756710", 10.0, None),
    ]


def test_a_node_that_keeps_no_records_of_crashes_has_none(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("5,0,0,-;Linux version 6.8.0\n")
    assert kernel_log.collect(str(tmp_path.resolve()), {})["crashes"] == []


XID = "NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus"


def test_the_last_of_several_boots_in_one_file_counts(tmp_path: Path) -> None:
    rows = [
        "[    0.000000] Linux version 6.8.0",
        f"[ 9000.000000] {XID}",
        "[    0.000000] Linux version 6.8.0",
        "[    5.000000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  550.90.07",
    ]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("".join(f"{row}\n" for row in rows))
    found = kernel_log.collect(str(tmp_path.resolve()), {})
    assert [each["kind"] for each in found["events"]] == ["driver_load"]
    assert (found["complete"], found["since_s"], found["lines_read"]) == (True, 0.0, 2)


def test_a_line_that_resembles_a_boot_does_not_hide_earlier_events(tmp_path: Path) -> None:
    rows = [
        "[    0.000000] Linux version 6.8.0",
        f"[ 9000.000000] {XID}",
        "[ 9001.000000] Linux version [42]: segfault at 0 ip 0 sp 0 error 4 in a[0+1]",
    ]
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("".join(f"{row}\n" for row in rows))
    found = kernel_log.collect(str(tmp_path.resolve()), {})
    assert [each["code"] for each in found["events"]] == [79]
