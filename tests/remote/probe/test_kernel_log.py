"""The kernel log: which lines count, what they say, and whether anything is missing."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodevet.remote.probe import lane, messages
from nodevet.remote.probe.collectors import kernel_log
from nodevet.remote.probe.files import BOOT_ID, Absent, SectionError
from nodevet.remote.probe.kernel_events import EVENTS, Events, LogReader

Check = Callable[[str, dict[str, Any]], Any]

BOOT = b"5,0,0,-;Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP\n"
XID_79 = b"4,1,61500000,-;NVRM: Xid (PCI:0000:19:00): 79, pid=4242, name=python, GPU has fallen\n"


def kmsg(tmp_path: Path, *records: bytes) -> str:
    """A root with these records as its kernel log."""
    root = tmp_path.resolve()
    (root / "dev").mkdir(exist_ok=True)
    (root / "dev/kmsg").write_bytes(b"".join(records))
    return str(root)


def facts(found: Any) -> list[tuple[Any, ...]]:
    return [(each.kind, each.code, each.bus_id, each.severity, each.count) for each in found.events]


SAID = [
    ("NVRM: Xid (PCI:0000:19:00): 79, pid=1, name=x, GPU", ("xid", 79, "0000:19:00.0", None)),
    ("NVRM: Xid (PCI:0000:9B:00.0): 79, GPU", ("xid", 79, "0000:9b:00.0", None)),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", ("xid", 14, "0000:03:00.0", None)),
    ("NVRM: Xid PCI:0000:01:00: 43, pid=1814139", ("xid", 43, "0000:01:00.0", None)),
    ("NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT", ("xid", 149, "0009:01:00.0", None)),
    ("NVRM: Xid (PCI:00000000:01:00): 13, x", ("xid", 13, "0000:01:00.0", None)),
    ("NVRM: Xid (PCI:10000:01:00): 13, x", ("xid", 13, "10000:01:00.0", None)),
    ("NVRM: Xid (PCI:0000:05:00 GPU-I:05 GPU-CI:00): 31, pid=1", ("xid", 31, "0000:05:00.0", None)),
    ("NVRM: Xid (PCI:0000:3f:00): 46", ("xid", 46, "0000:3f:00.0", None)),
    ("NVRM: Xid (PCI:0000:01:00): 154 (", ("xid", 154, "0000:01:00.0", None)),
    ("NVRM: Xid (PCI:0000:05:00): 99999, unknown error", ("xid", 99999, "0000:05:00.0", None)),
    ("NVRM: Xid (PCI:0000:66:00): abc, pid=2280636", ("unmatched", None, None, None)),
    ("NVRM: Xid (invalid): some error", ("unmatched", None, None, None)),
    ("NVRM: Xid : 32, pid=2280636", ("unmatched", None, None, None)),
    (
        "NVRM: GPU at PCI:0000:03:00.0 has fallen off the bus.",
        ("off_bus", None, "0000:03:00.0", None),
    ),
    (
        "NVRM: GPU 18:00.0: GPU has fallen off the bus.",
        ("off_bus", None, "0000:18:00.0", None),
    ),
    (
        r"NVRM: The NVIDIA GPU 0000:18:00.0\x0aNVRM: fallen off the bus and is not responding",
        ("off_bus", None, "0000:18:00.0", None),
    ),
    ("NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d", None),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress",
        ("sxid", 12028, "0000:05:00.0", "nonfatal"),
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        ("sxid", 20034, "0000:00:00.0", "fatal"),
    ),
    (
        "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Severity 1 Engine instance 60",
        ("sxid", 20034, "0000:07:00.0", "fatal"),
    ),
    ("nvidia-nvswitch0: SXid (PCI:0000:a9:00.0): 20034, Data {0x50610002, 0x10100030}", None),
    (
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 20123, Unknown error",
        ("sxid", 20123, "0000:05:00.0", None),
    ),
    ("nvidia-nvswitch0: SXid (invalid): some error", ("unmatched", None, None, None)),
    ("nvidia-nvswitch2: open (major=510)", None),
    (
        "pcieport 0000:17:01.0: AER: Corrected error received: 0000:19:00.0",
        ("aer", None, "0000:19:00.0", "corrected"),
    ),
    (
        "pcieport 0000:17:01.0: AER: Multiple Uncorrectable (Non-Fatal) error message received"
        " from 0000:19:00.0",
        ("aer", None, "0000:19:00.0", "nonfatal"),
    ),
    (
        "nvidia 0000:19:00.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer",
        ("aer", None, "0000:19:00.0", "fatal"),
    ),
    ("pcieport 0000:17:01.0: AER: enabled with IRQ 122", None),
    ("mce: [Hardware Error]: Machine check events logged", ("mce_logged", None, None, None)),
    ("{1}[Hardware Error]: Hardware error from APEI Generic", ("mce", None, None, None)),
    ("EDAC MC0: 1 CE memory read error on CPU_SrcID#0", ("mce", None, None, "corrected")),
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", ("mce", None, None, "nonfatal")),
    ("{1}[Hardware Error]: event severity: recoverable", ("mce", None, None, "nonfatal")),
    ("{1}[Hardware Error]: event severity: fatal", ("mce", None, None, "fatal")),
    ("[Hardware Error]: Corrected error, no action required.", ("mce", None, None, "corrected")),
    ("[Hardware Error]: Uncorrected, software restartable error.", ("mce", None, None, "nonfatal")),
    ("[Hardware Error]: Deferred error, no action required.", ("mce", None, None, "nonfatal")),
    ("[Hardware Error]: System Fatal error.", ("mce", None, None, "fatal")),
    (
        "mce: [Hardware Error]: CPU 0: Machine Check: 0 Bank 8: 8c00004000010090",
        ("mce", None, None, "corrected"),
    ),
    (
        "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: bd80000000100134",
        ("mce", None, None, "nonfatal"),
    ),
    (
        "mce: [Hardware Error]: CPU 3: Machine Check Exception: 5 Bank 0: be00000000800400",
        ("mce", None, None, "fatal"),
    ),
    ("Memory cgroup out of memory: Killed process 4242 (python)", ("oom_cgroup", None, None, None)),
    ("Out of memory: Killed process 4242 (python)", ("oom", None, None, None)),
    (
        "INFO: task python:4242 blocked for more than 120 seconds.",
        ("hung_task", None, None, None),
    ),
    ("traps: NVRM: Xid (PCI:0000:19:00): 79[4242] general protection fault", None),
    ("python[1]: segfault in NVRM: Xid (PCI:0000:19:00): 79", None),
]


@pytest.mark.parametrize(("text", "said"), SAID)
def test_the_reader_parses_each_line(text: str, said: Any) -> None:
    kept: list[Any] = []
    reader = LogReader(lambda *one: kept.append(one[0]))
    reader.add(1.0, text)
    reader.end()
    assert [tuple(one)[:4] for one in kept] == ([said] if said else [])


@pytest.mark.parametrize(
    ("capture", "lines"),
    [
        ("dcgm-kmsg-lines.txt", 5),
        ("gpud-xid119-a100.log", 5),
        ("gpud-xid13.iso.log", 17),
        ("gpud-nvlink5-matrix.txt", 35),
        ("imbue-h100-cluster-lines.txt", 3),
    ],
)
def test_captured_lines(
    captures: Path, tmp_path: Path, check: Check, capture: str, lines: int
) -> None:
    text = (captures / "dmesg" / capture).read_bytes()
    written = Counter(int(code) for code in re.findall(rb"S?Xid [^\n]*?[0-9a-f)]: ([0-9]+)", text))
    assert sum(written.values()) == lines
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, text), {}))
    told: Counter[int] = Counter()
    for event in found.events:
        if event.kind in ("xid", "sxid"):
            told[event.code] += event.count
    assert told == written
    assert found.complete is False


@pytest.mark.parametrize(
    "form",
    [
        "[Di Jan 21 04:41:44 2025] {}",  # dmesg -T in German, French, Chinese
        "[mar. janv. 21 04:41:44 2025] {}",
        "[\u4e8c 1\u6708 21 04:41:44 2025] {}",
        "[janv.21 04:41] {}",
        "Jan 21 04:41:44 gpu-01.example kernel: {}",  # journalctl -k, and -o short-precise
        "Jan 21 04:41:44.283302 host kernel: {}",
        "Tue 2025-01-21 04:41:44 UTC host kernel: {}",  # short-full, short-unix
        "1737434504.283302 host kernel: {}",
        "Jan 21 04:41:44 host kernel: [  100.000001] {}",  # rsyslogd's kern.log
        "2025-01-21T04:41:44.123456+00:00 host kernel: [  100.000001] {}",
    ],
)
def test_a_log_with_dates_of_any_kind(tmp_path: Path, check: Check, form: str) -> None:
    xid = "NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus."
    rows = "".join(f"{form.format(text)}\n" for text in ("Linux version 6.8.0", xid))
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, rows.encode()), {}))
    assert [(each.code, each.bus_id) for each in found.events] == [(79, "0000:19:00.0")]
    assert found.complete is True
    assert found.events[0].first_s == (100.000001 if "100.0" in form else None)


def test_a_log_from_its_beginning_is_complete(tmp_path: Path, check: Check) -> None:
    again = XID_79.replace(b",1,61500000", b",2,11100000000")
    root = kmsg(tmp_path, BOOT, XID_79, b" SUBSYSTEM=pci\n DEVICE=+pci:0000:19:00.0\n", again)
    found = check("kernel_log", kernel_log.collect(root, {}))
    assert (found.source, found.complete, found.since_s, found.lines_read) == ("kmsg", True, 0.0, 3)
    (event,) = found.events
    assert (event.kind, event.code, event.bus_id, event.count) == ("xid", 79, "0000:19:00.0", 2)
    assert (event.first_s, event.last_s) == (61.5, 11100.0)
    assert event.text.startswith("NVRM: Xid (PCI:0000:19:00): 79, pid=4242")


def test_only_what_the_kernel_wrote_counts(tmp_path: Path, check: Check) -> None:
    forged = XID_79.replace(b"4,1,", b"12,1,")  # facility 1: from user space
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, BOOT, forged), {}))
    assert (found.events, found.complete, found.lines_read) == ((), True, 2)


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([XID_79.replace(b",1,", b",812,")], "kmsg: its first 812 records are gone"),
        (
            [BOOT, XID_79.replace(b",1,", b",9,")],
            "kmsg: records were overwritten while they were read",
        ),
        ([b"[   12.5] e1000e: link up\n"], "kmsg: it does not begin with the kernel's first lines"),
        ([b""], "kmsg: it does not begin with the kernel's first lines"),
        ([BOOT, b"6,1,0,-;" + b"x" * (1 << 17) + b"\n"], "kmsg: a row is longer than 64 KiB"),
    ],
)
def test_what_is_missing_is_reported(
    tmp_path: Path, check: Check, records: list[bytes], why: str
) -> None:
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, *records), {}))
    assert (found.complete, found.errors["complete"]) == (False, why)


def test_a_flood_stays_small(tmp_path: Path, check: Check) -> None:
    flood = [
        b"4,%d,%d,-;NVRM: Xid (PCI:0000:19:00): 13, pid=%d, name=x\n" % (n, n, n)
        for n in range(1, 5001)
    ]
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, BOOT, *flood), {}))
    assert facts(found) == [("xid", 13, "0000:19:00.0", None, 5000)]
    assert found.complete is True


def test_more_different_events_than_are_kept_make_it_incomplete(
    tmp_path: Path, check: Check
) -> None:
    flood = [
        b"4,%d,%d,-;NVRM: Xid (PCI:0000:19:00): %d, x\n" % (n, n, n) for n in range(1, EVENTS + 11)
    ]
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, BOOT, *flood), {}))
    assert (len(found.events), found.dropped, found.complete) == (EVENTS, 10, False)
    assert found.errors["complete"] == "kmsg: there are more than 1000 different events"


def test_output_of_dmesg_is_read(tmp_path: Path, check: Check) -> None:
    rows = """\
        <5>[    0.000000] Linux version 6.8.0-45-generic (buildd@lcy02)
        [   61.500000] NVRM: Xid (PCI:0000:19:00): 79, pid=1
        [   61.600000][  T123] NVRM: Xid (PCI:0000:5d:00): 48, pid=1
        [   61.700000] [     C3] NVRM: Xid (PCI:0000:5d:00): 48, pid=1
        kern  :warn  : [   62.000000] NVRM: Xid (PCI:0000:19:00): 79, pid=1
        user  :warn  : [   63.000000] NVRM: Xid (PCI:0000:19:00): 48, pid=1
        <12>[   64.000000] NVRM: Xid (PCI:0000:19:00): 48, pid=1
        [Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:3b:00): 31, pid=1
        """
    root = kmsg(tmp_path, textwrap.dedent(rows).encode())
    found = check("kernel_log", kernel_log.collect(root, {}))
    assert facts(found) == [
        ("xid", 31, "0000:3b:00.0", None, 1),
        ("xid", 79, "0000:19:00.0", None, 2),
        ("xid", 48, "0000:5d:00.0", None, 2),
    ]
    assert found.complete is True
    assert found.events[0].why("last_s") == "the line has no time"


def test_var_log_dmesg_makes_the_log_incomplete(tmp_path: Path, check: Check) -> None:
    (tmp_path / "var/log").mkdir(parents=True)
    (tmp_path / "var/log/dmesg").write_text("[    0.0] Linux version 6.8\n")
    found = check("kernel_log", kernel_log.collect(str(tmp_path.resolve()), {}))
    assert (found.source, found.complete) == ("dmesg", False)
    assert found.errors["complete"] == "dmesg: /var/log/dmesg is written at boot only"


def test_files_without_a_log_are_absent(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="no kernel log"):
        kernel_log.collect(str(tmp_path.resolve()), {})


def test_this_machine_without_its_log_in_a_container_is_unread(tmp_path: Path) -> None:
    boot_id = tmp_path / BOOT_ID[1:]
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text(Path(BOOT_ID).read_text())
    with pytest.raises(SectionError, match="dev/kmsg does not exist"):
        kernel_log.collect(str(tmp_path.resolve()), {})


def test_a_fifo_in_place_of_the_log_does_not_block(tmp_path: Path, check: Check) -> None:
    (tmp_path / "dev").mkdir()
    os.mkfifo(tmp_path / "dev/kmsg")
    found = check("kernel_log", kernel_log.collect(str(tmp_path.resolve()), {}))
    assert (found.complete, found.events) == (False, ())


def test_reading_continues_after_an_overrun_of_the_ring_buffer() -> None:
    answers: Iterator[Any] = iter(
        [BOOT, BrokenPipeError(), XID_79.replace(b",1,", b",40,"), BlockingIOError(), BOOT]
    )

    def receive() -> bytes:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return bytes(answer)

    log = kernel_log.Log("kmsg", Events())
    for row in kernel_log.rows_of(receive, log):
        log.take_row(row)
    log.end()
    assert (log.rows, log.losses) == (2, ["records were overwritten while they were read"])


def test_a_process_that_never_ends_is_abandoned() -> None:
    log = kernel_log.Log("kmsg", Events())
    row = b"6,1,0,-;" + b"x" * 8000 + b"\n"
    assert sum(1 for _ in kernel_log.rows_of(lambda: row * 1000, log)) >= 8000
    assert log.losses == ["it is longer than 64 MiB"]


@given(st.lists(st.binary(max_size=200), max_size=5), st.binary(max_size=40))
def test_any_bytes_give_valid_printable_events(rows: list[bytes], tail: bytes) -> None:
    log = kernel_log.Log("kmsg", Events())
    heads = (b"4,1,5,-;NVRM: Xid (PCI:0000:19:00", b"[ 1.5] NVRM: Xid ", b"NVRM: Xid ", b"")
    for row in (*rows, *(head + tail for head in heads)):
        log.take_row(row)
    found = kernel_log.section_of(log)
    assert json.loads(messages.encode({"data": found}))
    for event in found["events"]:
        assert len(event["text"]) <= 300
        assert event["text"].isascii() and event["text"].isprintable()


readable = os.access("/dev/kmsg", os.R_OK) and stat.S_ISCHR(Path("/dev/kmsg").stat().st_mode)


@pytest.mark.skipif(not readable, reason="/dev/kmsg may not be read here")
def test_the_log_of_this_machine(check: Check) -> None:
    found = check(
        "kernel_log", dict(kernel_log.section_of(kernel_log.read_kmsg("/", Events())), crashes=[])
    )
    assert (found.source, found.lines_read > 0) == ("kmsg", True)
    assert found.complete is (found.since_s == 0.0) or found.errors["complete"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else for a moment")
def test_the_log_is_denied_if_neither_kmsg_nor_the_journal_may_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restricted = Path("/proc/sys/kernel/dmesg_restrict").read_text() == "1\n"
    monkeypatch.setattr(kernel_log, "JOURNALCTL", ("/no/such/journalctl",))
    os.seteuid(65534)
    try:
        found = lane.section("kernel_log", "/", {})
    finally:
        os.seteuid(0)
    if not restricted:  # everybody may read this kernel's log
        assert found["status"] == "ok"
        return
    assert found["status"] == "denied"
    assert found["why"].endswith("(/dev/kmsg: EPERM; journal: ENOENT)")


def entry(message: Any, seconds: float, transport: str = "kernel", facility: int = 0) -> str:
    moment = str(round(seconds * 1e6))
    fields = {
        "MESSAGE": message,
        "_TRANSPORT": transport,
        "_SOURCE_MONOTONIC_TIMESTAMP": moment,
        "__MONOTONIC_TIMESTAMP": moment,
        "SYSLOG_FACILITY": str(facility),
    }
    return json.dumps(fields)


FIRST = entry("Linux version 6.8.0", 0)
XID = "NVRM: Xid (PCI:0000:19:00): 79, x"


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """What is made of a journalctl that prints these rows."""

    def ask(*rows: str, then: str = "", seconds: float = 20, **rest: Any) -> Any:
        script = tmp_path / "journalctl"
        said = "\n".join(rows)
        script.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n{then}\n")
        script.chmod(0o755)
        monkeypatch.setattr(kernel_log, "JOURNALCTL", (str(script),))
        return kernel_log.read_journal(Events(), seconds, **rest)

    return ask


def test_the_journal(journal: Callable[..., Any], check: Check) -> None:
    log = journal(
        FIRST,
        entry(XID, 60),
        entry(list(XID.encode() + b"\xff"), 61),
        entry("NVRM: Xid (PCI:0000:19:00): 48, forged", 62, facility=1),
    )
    found = check("kernel_log", dict(kernel_log.section_of(log), crashes=[]))
    assert (found.complete, found.source, found.lines_read) == (True, "journal", 4)
    assert facts(found) == [("xid", 79, "0000:19:00.0", None, 2)]


@pytest.mark.parametrize(
    "forged",
    [
        entry(None, 9, "journal"),
        '{"_TRANSPORT": "journal", "MESSAGE_ID": "e9bf28e6e834481bb6f48f548ad13606"}',
        entry("Missed 5 kernel messages", 9, "journal"),
    ],
)
def test_e13_text_that_a_user_writes_into_the_journal_is_no_gap(
    journal: Callable[..., Any], forged: str
) -> None:
    found = kernel_log.section_of(journal(FIRST, forged, entry(XID, 60)))
    assert (found["complete"], len(found["events"])) == (True, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be somebody else for a moment")
@pytest.mark.parametrize(
    ("change", "is_root"),
    [
        ("os.setuid(0)", True),
        ("os.setuid(65534)", False),
        ("os.setresuid(65534, 0, 0)", False),  # a program that is setuid root
    ],
)
def test_e13_a_users_process_that_is_called_like_journald_is_not_journald(
    monkeypatch: pytest.MonkeyPatch, change: str, is_root: bool
) -> None:
    program = (
        "import os, sys; open('/proc/self/comm', 'w').write('systemd-journal');"
        f"{change}; print(flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout
        process.stdout.readline()
        monkeypatch.setattr(kernel_log, "names", lambda *_: [str(process.pid)])
        assert kernel_log.journald_runs() is is_root
        process.communicate()


@pytest.mark.parametrize("row", ["Linux version [42]: segfault at 0", "Linux version 6[1]: x"])
def test_e13_a_process_that_is_called_like_the_first_line_hides_no_gap(
    journal: Callable[..., Any], row: str
) -> None:
    found = kernel_log.section_of(journal(entry(row, 500)))
    assert found["complete"] is False


@pytest.mark.parametrize(
    ("rows", "then", "why"),
    [
        ([entry(XID, 60)], "", "it does not begin with the kernel's first lines"),
        ([FIRST, entry("Missed 5 kernel messages", 9, "driver")], "", "it missed messages"),
        ([FIRST, "{"], "", "an entry of the journal cannot be read"),
        ([FIRST, entry(None, 9)], "", "an entry of the journal cannot be read"),
        ([FIRST], "exit 1", "journalctl ended with exit code 1"),
        ([FIRST], "exec sleep 600", "journalctl took longer than 1 s"),
    ],
)
def test_a_journal_that_is_not_whole(
    journal: Callable[..., Any], rows: list[str], then: str, why: str
) -> None:
    found = kernel_log.section_of(journal(*rows, then=then, seconds=1 if "sleep" in then else 20))
    assert found["complete"] is False
    assert why in found["errors"]["complete"]


def late(*more: bytes) -> Any:
    """The log of a kernel that has overwritten its beginning."""
    log = kernel_log.Log("kmsg", Events())
    for row in (XID_79.replace(b",1,", b",812,"), *more):
        log.take_row(row.rstrip(b"\n"))
    return log


@pytest.mark.parametrize(
    ("rows", "complete", "since", "events"),
    [
        (
            [
                FIRST,
                entry("NVRM: Xid (PCI:0000:19:00): 48, x", 60),
                entry(XID_79.split(b";")[1].decode(), 61.5),
                entry("later", 70),
                entry("NVRM: Xid (PCI:0000:19:00): 95, x", 71),
            ],
            True,
            0.0,
            [("xid", 48, 1), ("xid", 79, 1)],
        ),
        ([FIRST, entry("NVRM: Xid (PCI:0000:19:00): 48, x", 60)], False, 61.5,
         [("xid", 48, 1), ("xid", 79, 1)]),
        ([entry("not the first", 1), entry("later", 70)], False, 1.0, [("xid", 79, 1)]),
    ],
    ids=["joined", "ends too early", "begins too late"],
)  # fmt: skip
def test_the_journal_gives_what_the_ring_buffer_has_lost(
    journal: Callable[..., Any], rows: list[str], complete: bool, since: float, events: list[Any]
) -> None:
    journal(*rows)
    found = kernel_log.section_of(kernel_log.with_beginning(late(), 20))
    assert found["complete"] is complete
    assert [(each["kind"], each["code"], each["count"]) for each in found["events"]] == events
    assert found["source"] == ("kmsg" if since == 61.5 else "kmsg and journal")
    assert found["since_s"] == since
    assert found["covered_s"] == 61.5 - since


NIC = "mlx5_core 0000:17:00.0 ens1f0np0: Link "
CAME_UP = f"6,813,95500000,-;{NIC}up\n".encode()


@pytest.mark.parametrize(
    ("rows", "outages"),
    [
        (
            [FIRST, entry(f"{NIC}up", 9), entry(f"{NIC}down", 60), entry("later", 70)],
            [(60.0, 95.5)],
        ),
        ([FIRST, entry(f"{NIC}down", 60), entry("later", 70)], []),
        ([entry("not the first", 1), entry(f"{NIC}down", 60), entry("later", 70)], [(60.0, 95.5)]),
        ([FIRST, entry(f"{NIC}up", 9), entry(f"{NIC}down", 60)], [(None, 95.5)]),
    ],
    ids=["joined", "while it trained", "begins too late", "ends too early"],
)
def test_the_journal_adds_the_start_of_a_link_outage(
    journal: Callable[..., Any], rows: list[str], outages: list[Any]
) -> None:
    journal(*rows)
    (link,) = kernel_log.section_of(kernel_log.with_beginning(late(CAME_UP), 20))["links"]
    assert [(each["down_s"], each["up_s"]) for each in link["outages"]] == outages


LOST = (
    "NVRM: The NVIDIA GPU 0000:18:00.0\n"
    "NVRM: (PCI ID: 10de:2330) installed in this system has\n"
    "NVRM: fallen off the bus and is not responding to commands."
)
MESSAGES = [
    "Linux version 6.8.0-45-generic (buildd@lcy02)",
    LOST,
    "NVRM: GPU 0000:3b:00.0:\n\n    has fallen off the bus",
    "NVRM: Xid (PCI:0000:5d:00): 48, pid=1, name=a\\b\nmore of it",
    "python: \nNVRM: Xid (PCI:0000:9b:00): 79, forged by a name with a newline",
    "last \x1b[2J of all",
]
TOLD = [
    ("off_bus", None, "0000:18:00.0", None, 1),
    ("off_bus", None, "0000:3b:00.0", None, 1),
    ("xid", 48, "0000:5d:00.0", None, 1),
]


def escaped(text: str) -> bytes:
    """printk.c: append_char()"""
    plain = (chr(byte) if 32 <= byte < 127 and byte != 92 else f"\\x{byte:02x}" for byte in
             text.encode())  # fmt: skip
    return "".join(plain).encode()


def as_kmsg(messages: list[str]) -> bytes:
    rows = (
        b"4,%d,%d,-;%s\n SUBSYSTEM=pci\n" % (n, n * 10**6, escaped(text))
        for n, text in enumerate(messages)
    )
    return b"".join(rows)


def as_dmesg(messages: list[str], head: str = "[{:12.6f}] ", moved: bool = True) -> bytes:
    """sys-utils/dmesg.c: print_record(), safe_fwrite()"""
    rows = []
    for n, text in enumerate(messages):
        before = head.format(n)
        between = "\n" + " " * len(before) if moved else "\n"
        rows.append(before + text.replace("\x1b", "\\x1b").replace("\n", between) + "\n")
    return "".join(rows).encode()


@pytest.mark.parametrize(
    "text",
    [
        as_kmsg(MESSAGES),
        as_dmesg(MESSAGES),
        as_dmesg(MESSAGES, "<4>[{:12.6f}] "),
        as_dmesg(MESSAGES, "kern  :warn  : [{:12.6f}] "),
        as_dmesg(MESSAGES, "[{:12.6f}][  T123] "),
        as_dmesg(MESSAGES, "[{:12.6f} <    0.000012>] "),
        as_dmesg(MESSAGES, "[{:12.6f}] kernel: "),
        as_dmesg(MESSAGES, "[{:12.6f}] gpu-001.example kernel: "),
        as_dmesg(MESSAGES, "[Sun Feb 23 16:24:{:02d} 2025] "),
        as_dmesg(MESSAGES, "[Feb23 16:{:02d}] "),
        as_dmesg(MESSAGES, "[  +0.00000{}] "),
        as_dmesg(MESSAGES, "2025-01-21T04:41:{:02d},283302+00:00 "),
    ],
)
def test_t1_a_message_of_several_lines_is_joined(tmp_path: Path, check: Check, text: bytes) -> None:
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, text), {}))
    assert facts(found) == TOLD
    assert (found.complete, found.lines_read) == (True, len(MESSAGES)), found.errors


@pytest.mark.parametrize("encode", [str, lambda text: list(text.encode())])
def test_t1_a_message_of_several_lines_in_the_journal_is_one_event(
    journal: Callable[..., Any], check: Check, encode: Any
) -> None:
    log = journal(*(entry(encode(text), n) for n, text in enumerate(MESSAGES)))
    found = check("kernel_log", dict(kernel_log.section_of(log), crashes=[]))
    assert facts(found) == TOLD
    assert (found.complete, found.lines_read) == (True, len(MESSAGES)), found.errors
    in_kmsg = kernel_log.Log("kmsg", Events())
    for row in as_kmsg(MESSAGES).split(b"\n"):
        in_kmsg.take_row(row)
    same = check("kernel_log", dict(kernel_log.section_of(in_kmsg), crashes=[]))
    assert [each.text for each in found.events] == [each.text for each in same.events]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (as_dmesg(MESSAGES[:3], moved=False), "kmsg: its row 3 is not understood"),
        (BOOT + b"NVRM: GPU 18:00.0: fallen off the bus\n", "kmsg: its row 2 is not understood"),
        (BOOT + b" what: is this\n", "kmsg: its row 2 is not understood"),
        (b"Linux version 6.8\nNVRM: GPU 18:00.0: fallen off the bus\n", "its row 1 is not"),
        (as_dmesg([MESSAGES[0], "x\n" * 70]), "kmsg: a message has more than 64 lines"),
        (  # moved to the right by whoever copied it, or a line of the message above
            as_dmesg(MESSAGES[:1]) + b"    [   61.5] NVRM: GPU 0000:18:00.0: is gone\n",
            "kmsg: its row 2 is not understood",
        ),
        (BOOT + b"6,1,2,-;e1000e: lin", "kmsg: its last row is truncated"),
    ],
)
def test_t1_a_row_that_is_not_understood_makes_the_log_incomplete(
    tmp_path: Path, check: Check, text: bytes, why: str
) -> None:
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, text), {}))
    assert found.complete is False
    assert why in found.errors["complete"]
    if b"fallen" in text:
        assert {each.kind for each in found.events} == {"off_bus"}


def test_a_continued_line_below_a_row_without_a_time_is_read(tmp_path: Path, check: Check) -> None:
    """A recorded log may begin in the middle of a record: with a row of its dictionary."""
    text = b" SUBSYSTEM=pci\n6,2,100,c;NVRM: loading NVIDIA UNIX x86_64 Kernel Module\n"
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, text), {}))
    assert [each.kind for each in found.events] == ["driver_load"]
    assert "its row 1 is not understood" in found.errors["complete"]


def test_t1_no_event_is_lost_among_thousands_of_odd_rows(tmp_path: Path, check: Check) -> None:
    odd = b"".join(b"odd row %d\n" % number for number in range(5000))
    text = as_dmesg(MESSAGES[:1]) + odd + b"[   61.5] NVRM: Xid (PCI:0000:19:00): 79, x\n"
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, text), {}))
    assert ("xid", 79, "0000:19:00.0", None, 1) in facts(found)
    assert found.complete is False
    assert len(found.errors["complete"]) < 1000
    assert "its row 9 is not understood; nor are further rows" in found.errors["complete"]


def test_t1_a_level_within_a_message_hides_no_event(tmp_path: Path, check: Check) -> None:
    text = as_dmesg(MESSAGES[:1]) + b"[   61.5] <3>NVRM: Xid (PCI:0000:19:00): 79, x\n"
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, text), {}))
    assert ("xid", 79, "0000:19:00.0", None, 1) in facts(found)


CONTINUED = [
    # up to Linux 4.8, from then on, and one that begins anew: all say it of one GPU
    (b"4,1,2,c;NVRM: GPU 0000:18:00.0: GPU has \n", b"4,2,2,+;fallen off the bus\n"),
    (b"4,1,2,-;NVRM: GPU 0000:18:00.0: GPU has \n", b"4,2,2,c,caller=T7;fallen off the bus\n"),
    (b"4,1,2,-;e1000e: link up\n", b"4,2,2,c;NVRM: GPU 0000:18:00.0: fallen off the bus\n"),
    (
        b"4,1,2,-;NVRM: GPU 0000:18:00.0: GPU-5: it has\n",
        b"4,2,2,c;NVRM: fallen off the bus\n",
    ),
]


@pytest.mark.parametrize("records", CONTINUED)
def test_t1_a_continued_line_is_joined(tmp_path: Path, check: Check, records: list[bytes]) -> None:
    found = check("kernel_log", kernel_log.collect(kmsg(tmp_path, BOOT, *records), {}))
    assert facts(found) == [("off_bus", None, "0000:18:00.0", None, 1)]
    assert found.complete is True


def test_read_a_log_without_its_beginning_reports_the_time_it_covers(
    journal: Callable[..., Any],
) -> None:
    rows = [entry("first that journald saw", 600), entry(XID, 4000)]
    found = kernel_log.section_of(journal(*rows), now=87000.0)
    assert (found["complete"], found["since_s"], found["covered_s"]) == (False, 600.0, 86400.0)
    assert "covered_s" not in found["errors"]
    missed = entry("Missed 5 kernel messages", 700, "driver")
    found = kernel_log.section_of(journal(rows[0], missed, rows[1]), now=87000.0)
    assert found["covered_s"] is None
    assert found["errors"]["covered_s"] == "journald says that it missed messages"
    found = kernel_log.section_of(journal(*rows), "journald is not running", now=87000.0)
    assert found["covered_s"] is None


JOURNALD = Path("/lib/systemd/systemd-journald")
UNDER = """
import subprocess, sys, time
sys.path.insert(0, sys.argv[1])
from nodevet.remote.probe.collectors import kernel_log
from nodevet.remote.probe.kernel_events import Events
with subprocess.Popen([sys.argv[2]], stderr=subprocess.DEVNULL) as journald:
    end = time.monotonic() + 120
    while time.monotonic() < end and not kernel_log.read_journal(Events(), 10).rows:
        time.sleep(0.1)
    kmsg = kernel_log.read_kmsg("/", Events())
    journal = kernel_log.read_journal(Events(), 10)
    # What the ring buffer had overwritten before journald began, journald says that it missed.
    missed = ["journald says that it missed messages"] if kmsg.missing_start else []
    print(kernel_log.journald_runs(), bool(journal.missing_start) == bool(kmsg.missing_start),
          journal.losses == missed, 0 < journal.rows <= kmsg.rows + 50)
    journald.terminate()
"""
MOUNTS = """
set -e
for place in /run/systemd /run/log /var/log/journal /etc/systemd/journald.conf.d; do
    mkdir -p $place; mount -t tmpfs none $place
done
mkdir -p /run/systemd/journal
printf '[Journal]\\nStorage=volatile\\nReadKMsg=yes\\n' > /etc/systemd/journald.conf.d/a.conf
exec "$@"
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not readable or not JOURNALD.exists() or not shutil.which("unshare"),
    reason="needs root, unshare, /dev/kmsg and systemd-journald",
)
def test_the_journal_of_a_real_journald() -> None:
    repository = str(Path(kernel_log.__file__).parents[4])
    program = [sys.executable, "-c", UNDER, repository, str(JOURNALD)]
    done = subprocess.run(
        ["unshare", "-m", "--", "sh", "-c", MOUNTS, "sh", *program],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (done.stdout, done.stderr) == ("True True True True\n", "")
