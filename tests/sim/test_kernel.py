"""The simulated /sys, /proc and /dev/kmsg, mounted and used as a node's programs would."""

import errno
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from nodevet_sim import cpu_files, kernel, tree
from nodevet_sim.description import LogLine, PerSecond
from nodevet_sim.kernel import KernelError, UnreadableFile, manifest
from nodevet_sim.machine import hgx

CPU = "sys/devices/system/cpu"
POLICY = f"{CPU}/cpufreq/policy0"
THP = "sys/kernel/mm/transparent_hugepage"
GPU = "sys/devices/pci0000:16/0000:16:01.0/0000:19:00.0"
NOBODY = 65534
SECONDS = 120


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    if not Path("/dev/fuse").exists():
        pytest.skip("there is no /dev/fuse")
    try:
        return kernel.build(tmp_path_factory.mktemp("kernelfs"))
    except KernelError as error:
        if "is not installed" not in str(error):
            raise
        pytest.skip(str(error))


def until(condition):
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def waits(stat, command=""):
    """Whether a task sleeps, by its stat file."""
    name, _, rest = Path(stat).read_text().partition("(")[2].rpartition(")")
    return rest.split()[0] in "SD" and command in name


class Kernel:
    """One daemon over one manifest; the paths of its files are `kernel / path`."""

    def __init__(self, program, folder):
        self.program = program
        self.manifest = folder / "manifest"
        self.mountpoint = folder / "mount"
        self.mountpoint.mkdir()
        self.booted_usec = None
        self.reloads = 0
        self.daemon = None

    def __truediv__(self, path):
        return self.mountpoint / path

    def describe(self, text):
        new = self.manifest.with_suffix(".new")
        new.write_text(text)
        new.rename(self.manifest)

    def start(self, text=None):
        if text is not None:
            self.describe(text)
        command = kernel.command(
            self.program, self.manifest, self.mountpoint, booted_usec=self.booted_usec
        )
        self.daemon = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        until(lambda: kernel.ready(self.mountpoint) or self.daemon.poll() is not None)
        assert self.daemon.poll() is None, self.daemon.stderr.read()

    def stop(self):
        """Its exit status and what it complained of."""
        self.daemon.terminate()
        complaint = self.daemon.communicate(timeout=SECONDS)[1]
        return self.daemon.returncode, complaint

    def end(self):
        if self.daemon is not None and self.daemon.poll() is None:
            self.daemon.kill()
            self.daemon.communicate()
        kernel.unmount(self.mountpoint)

    def reload(self, text):
        """Returns once the daemon has it."""
        self.reloads += 1
        marker = f"reload{self.reloads}"
        self.describe(f"{text}{marker}\tf\t444\tro\t\n")
        self.daemon.send_signal(signal.SIGHUP)
        until((self / marker).exists)

    def names(self, path):
        return sorted(child.name for child in (self / path).iterdir())

    def read(self, path):
        return (self.mountpoint / path).read_text()

    def write(self, path, text):
        """One write(2)."""
        file = os.open(self.mountpoint / path, os.O_WRONLY)
        try:
            return os.write(file, text if isinstance(text, bytes) else text.encode())
        finally:
            os.close(file)


@pytest.fixture
def node(program):
    # Not below tmp_path, which other users may not enter.
    with tempfile.TemporaryDirectory(prefix="nodevet-kernelfs-") as folder:
        Path(folder).chmod(0o755)
        made = Kernel(program, Path(folder))
        try:
            yield made
        finally:
            made.end()


@contextmanager
def refused(name):
    with pytest.raises(OSError) as caught:  # noqa: PT011 - the errno is looked at below
        yield
    assert errno.errorcode[caught.value.errno] == name


def as_nobody(*command):
    return subprocess.run(command, user=NOBODY, group=NOBODY, capture_output=True, timeout=SECONDS)


# What a write leads to: path, other files, boot value, what is written, what is read then or
# the name of the errno.

GOVERNORS = {f"{POLICY}/scaling_available_governors": "performance powersave \n"}
LIMITS = {f"{POLICY}/cpuinfo_min_freq": "800000\n", f"{POLICY}/cpuinfo_max_freq": "3800000\n"}
EPPS = "default performance balance_performance balance_power power \n"
WORDS = {f"{POLICY}/energy_performance_available_preferences": EPPS}
NODES = {"sys/devices/system/node/online": "0-1\n"}
GOVERNOR, EPP = f"{POLICY}/scaling_governor", f"{POLICY}/energy_performance_preference"
MIN, MAX = f"{POLICY}/scaling_min_freq", f"{POLICY}/scaling_max_freq"
COMPACT, DROP = "proc/sys/vm/compact_memory", "proc/sys/vm/drop_caches"
NO_TURBO, SMT = f"{CPU}/intel_pstate/no_turbo", f"{CPU}/smt/control"
DEFRAG = ("always defer defer+madvise [madvise] never\n", "defer")

WRITES = [
    (GOVERNOR, GOVERNORS, "powersave\n", "performance", "performance\n"),
    (GOVERNOR, GOVERNORS, "powersave\n", " PERFORMANCE \n\n", "performance\n"),
    (GOVERNOR, GOVERNORS, "powersave\n", "ondemand\n", "EINVAL"),
    (GOVERNOR, GOVERNORS, "powersave\n", "perf\n", "EINVAL"),
    (GOVERNOR, GOVERNORS, "powersave\n", "\n", "EINVAL"),
    (GOVERNOR, {}, "powersave\n", "performance\n", "EINVAL"),
    (f"{CPU}/cpu3/cpufreq/scaling_governor", {}, "powersave\n", "powersave", "powersave\n"),
    (MIN, LIMITS, "800000\n", "1000000", "1000000\n"),
    (MIN, LIMITS, "800000\n", "1", "800000\n"),
    (MIN, LIMITS, "800000\n", "99999999", "3800000\n"),
    (MAX, LIMITS, "3800000\n", "0x100000\n", "1048576\n"),
    (MAX, LIMITS, "3800000\n", "-1", "EINVAL"),
    (MAX, LIMITS, "3800000\n", "12 ", "EINVAL"),
    (MAX, LIMITS, "3800000\n", "", "3800000\n"),
    (MAX, {}, "3800000\n", "0000000007", "7\n"),
    (EPP, WORDS, "balance_performance\n", "power\n", "power\n"),
    (EPP, WORDS, "power\n", "default\n", "balance_performance\n"),
    (EPP, WORDS, "power\n", "128\n", "balance_performance\n"),
    (EPP, WORDS, "power\n", "37", "37\n"),
    (EPP, WORDS, "power\n", "256", "EINVAL"),
    (EPP, WORDS, "power\n", "fast", "EINVAL"),
    (EPP, {GOVERNOR: "performance\n", **WORDS}, "performance\n", "power", "EBUSY"),
    (EPP, {GOVERNOR: "performance\n", **WORDS}, "performance\n", "37", "EBUSY"),
    (EPP, {GOVERNOR: "performance\n", **WORDS}, "performance\n", "0", "performance\n"),
    (NO_TURBO, {}, "0\n", "1\n", "1\n"),
    (NO_TURBO, {}, "0\n", "7", "1\n"),
    (NO_TURBO, {}, "0\n", "on", "EINVAL"),
    (f"{CPU}/cpufreq/boost", {}, "1\n", "0", "0\n"),
    (f"{CPU}/cpufreq/boost", {}, "1\n", "2", "EINVAL"),
    (f"{CPU}/intel_pstate/status", {}, "active\n", "passive\n", "passive\n"),
    (f"{CPU}/intel_pstate/status", {}, "active\n", "asleep", "EINVAL"),
    (SMT, {}, "on\n", "off\n", "off\n"),
    (SMT, {}, "on\n", "maybe", "EINVAL"),
    (SMT, {}, "notsupported\n", "on", "ENODEV"),
    (SMT, {}, "forceoff\n", "on", "EPERM"),
    (f"{CPU}/cpu1/online", {}, "1\n", "0\n", "0\n"),
    (f"{CPU}/cpu1/online", {}, "1\n", "x", "EINVAL"),
    (f"{THP}/enabled", {}, "always [madvise] never\n", "never\n", "always madvise [never]\n"),
    (f"{THP}/enabled", {}, "always [madvise] never\n", "madvise", "always [madvise] never\n"),
    (f"{THP}/enabled", {}, "always [madvise] never\n", "never ", "EINVAL"),
    (f"{THP}/enabled", {}, "always [madvise] never\n", "[never]", "EINVAL"),
    (f"{THP}/defrag", {}, *DEFRAG, "always [defer] defer+madvise madvise never\n"),
    (f"{THP}/khugepaged/defrag", {}, "1\n", "0", "0\n"),
    (f"{THP}/khugepaged/pages_to_scan", {}, "4096\n", "010\n", "8\n"),
    (f"{THP}/khugepaged/pages_to_scan", {}, "4096\n", "many", "EINVAL"),
    ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", {}, "0\n", "+512", "512\n"),
    (f"{GPU}/numa_node", NODES, "0\n", "1\n", "1\n"),
    (f"{GPU}/numa_node", NODES, "0\n", "-1", "-1\n"),
    (f"{GPU}/numa_node", NODES, "0\n", "2", "EINVAL"),
    (f"{GPU}/power/control", {}, "auto\n", "on\n", "on\n"),
    (f"{GPU}/power/control", {}, "auto\n", "off", "EINVAL"),
    (f"{GPU}/d3cold_allowed", {}, "1\n", "0", "0\n"),
    ("proc/sys/kernel/numa_balancing", {}, "1\n", " 0 \n", "0\n"),
    ("proc/sys/kernel/numa_balancing", {}, "1\n", "5", "EINVAL"),
    ("proc/sys/kernel/numa_balancing", {}, "1\n", "\n", "EINVAL"),
    ("proc/sys/kernel/numa_balancing", {}, "1\n", "0x", "EINVAL"),
    ("proc/sys/vm/swappiness", {}, "60\n", "200", "200\n"),
    ("proc/sys/vm/swappiness", {}, "60\n", "201", "EINVAL"),
    ("proc/sys/vm/overcommit_memory", {}, "0\n", "-1", "EINVAL"),
    ("proc/sys/vm/zone_reclaim_mode", {}, "0\n", "7", "7\n"),
    ("proc/sys/vm/zone_reclaim_mode", {}, "0\n", "2147483648", "EINVAL"),
    ("proc/sys/net/ipv4/tcp_rmem", {}, "4096\t131072\t6291456\n", "1 2\n", "1\t2\t6291456\n"),
    ("proc/sys/net/ipv4/tcp_rmem", {}, "1 2 3\n", "7 8 9 10\n", "7\t8\t9\n"),
    ("proc/sys/kernel/shmmax", {}, "18446744073692774399\n", "9223372036854775808",
     "9223372036854775808\n"),
    ("proc/sys/kernel/core_pattern", {}, "core\n", "|/bin/x %p\nmore", "|/bin/x %p\n"),
    ("proc/sys/kernel/hostname", {}, "n1\n", "x" * 100, "x" * 64 + "\n"),
    ("proc/cpuinfo", {}, "processor\t: 0\n", "x", "EIO"),
    ("proc/irq/100/smp_affinity_list", {}, "5\n", "0-3,8\n", "0-3,8\n"),
    ("proc/irq/100/smp_affinity_list", {}, "5\n", "all", "EINVAL"),
]  # fmt: skip


def test_each_write_has_the_effect_of_a_real_kernel(node):
    node.start(manifest({}, {}))
    wrong = []
    for path, others, boot, text, expected in WRITES:
        node.reload(manifest({}, {}))
        node.reload(manifest({**others, path: boot}, {}))
        before = (node / path).read_bytes()
        try:
            assert node.write(path, text) == len(text)
            found = node.read(path)
        except OSError as error:
            found = errno.errorcode[error.errno]
            assert (node / path).read_bytes() == before
        if found != expected:
            wrong.append((path, text, found, expected))
    assert wrong == []


def test_a_machine_is_read_as_it_is_described(node):
    machine = hgx("n1")
    contents, links = tree.files(machine), tree.links(machine)
    node.start(manifest(contents, links))
    for path in (COMPACT, DROP):
        assert contents.pop(path, "") == "" and (node / path).stat().st_mode & 0o777 == 0o200
    for path, content in contents.items():
        raw = content if isinstance(content, bytes) else content.encode()
        assert (node / path).read_bytes() == raw, path
    assert {path: str((node / path).readlink()) for path in links} == links
    found = {
        os.path.relpath(Path(folder) / name, node.mountpoint)
        for folder, folders, names in os.walk(node.mountpoint)
        for name in (*names, *folders)
        if (Path(folder) / name).is_symlink() or name in names
    }
    assert found == {*contents, *links, COMPACT, DROP, kernel.KMSG, kernel.INJECT}
    status = Path(f"/proc/{node.daemon.pid}/status").read_text()
    resident = int(status.split("VmRSS:")[1].split()[0])
    assert resident < 16384, "kilobytes, where 32 daemons run on a laptop"


def test_file_modes_apply_even_to_root(node):
    contents = {
        f"{GPU}/current_link_width": "16\n",
        f"{GPU}/remove": "",
        f"{GPU}/rescan": "",
        "proc/sys/kernel/osrelease": "6.8.0\n",
        "proc/cpuinfo": "processor: 0\n",
    }
    node.start(manifest(contents, {}))
    for path in (f"{GPU}/current_link_width", "proc/sys/kernel/osrelease"):
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
            with refused("EACCES"):
                os.open(node / path, flags)
    with refused("EACCES"):
        node.read(f"{GPU}/remove")
    assert node.write(f"{GPU}/remove", "1\n") == 2
    assert (node / GPU).is_dir()
    with refused("EINVAL"):
        node.write(f"{GPU}/rescan", "now")
    modes = {path: (node / path).stat().st_mode & 0o777 for path in contents}
    assert list(modes.values()) == [0o444, 0o220, 0o200, 0o444, 0o444]
    assert [(node / path).stat().st_size for path in contents] == [4096, 4096, 4096, 0, 0]


def test_nothing_is_created_or_removed(node):
    node.start(manifest({GOVERNOR: "powersave\n"}, {"sys/link": "devices"}))
    calls = {
        "EACCES": [lambda: (node / "sys/new").write_text("x")],
        "EPERM": [
            (node / "sys/new").mkdir,
            (node / GOVERNOR).unlink,
            (node / "sys/link").unlink,
            (node / "sys/devices/system").rmdir,
            lambda: (node / GOVERNOR).rename(node / f"{POLICY}/other"),
            lambda: (node / "sys/new").symlink_to("devices"),
            lambda: (node / "sys/new").hardlink_to(node / GOVERNOR),
            lambda: os.mkfifo(node / "sys/new"),
            lambda: (node / GOVERNOR).chmod(0o666),
            lambda: os.chown(node / GOVERNOR, NOBODY, NOBODY),
        ],
    }
    for name, attempts in calls.items():
        for attempt in attempts:
            with refused(name):
                attempt()
    assert node.names("sys") == ["devices", "link"]
    assert node.read(GOVERNOR) == "powersave\n"


def test_truncating_and_appending_are_harmless(node):
    contents = {**GOVERNORS, GOVERNOR: "powersave\n", "proc/sys/vm/swappiness": "60\n"}
    node.start(manifest(contents, {}))
    os.truncate(node / GOVERNOR, 0)
    (node / GOVERNOR).touch()
    os.close(os.open(node / GOVERNOR, os.O_WRONLY | os.O_TRUNC | os.O_CREAT))
    assert node.read(GOVERNOR) == "powersave\n"
    shell = f"echo performance > {node / GOVERNOR} && echo powersave >> {node / GOVERNOR}"
    assert subprocess.run(["sh", "-c", shell]).returncode == 0
    assert node.read(GOVERNOR) == "powersave\n"
    for number in ("10", "20", "30"):
        shell = f"echo {number} >> {node / 'proc/sys/vm/swappiness'}"
        assert subprocess.run(["sh", "-c", shell]).returncode == 0
        assert node.read("proc/sys/vm/swappiness") == f"{number}\n"


def test_each_write_call_stores_one_complete_value(node):
    contents = {**GOVERNORS, GOVERNOR: "powersave\n", "proc/sys/vm/swappiness": "60\n"}
    node.start(manifest(contents, {}))
    file = os.open(node / GOVERNOR, os.O_RDWR)
    assert os.writev(file, [b"perf", b"orm", b"ance", b"\n"]) == 12
    assert os.pread(file, 100, 0) == b"performance\n"
    with refused("EINVAL"):
        os.write(file, b"power")
    with refused("EINVAL"):
        os.write(file, b"save")
    assert os.write(file, b"powersave\n") == 10
    assert os.pread(file, 100, 0) == b"powersave\n"
    assert os.write(file, b"performance " + b" " * 9000) == 4096
    os.close(file)
    file = os.open(node / "proc/sys/vm/swappiness", os.O_RDWR)
    assert [os.write(file, text) for text in (b"1", b"2")] == [1, 1]
    assert os.pread(file, 100, 0) == b"1\n"  # not the second: sysctl_writes_strict
    os.close(file)


def test_an_open_file_keeps_its_content_until_it_is_reread_from_the_start(node):
    rows = "".join(f"processor\t: {number}\nflags\t: {'x' * 2000}\n" for number in range(300))
    path = "proc/cpuinfo"
    node.start(manifest({path: rows}, {}))
    with (node / path).open("rb", buffering=0) as file:
        first = file.read(1000)
        node.reload(manifest({path: "other\n"}, {}))
        assert first + file.read() == rows.encode()
        assert file.read() == b""
        file.seek(0)
        assert file.read() == b"other\n"


def test_the_governor_sets_the_energy_performance_preference(node):
    contents = {**GOVERNORS, **WORDS, GOVERNOR: "powersave\n", EPP: "power\n"}
    node.start(manifest(contents, {}))
    node.write(GOVERNOR, "performance")
    assert node.read(EPP) == "performance\n"
    node.write(GOVERNOR, "powersave")
    assert node.read(EPP) == "power\n"


def test_the_preference_after_a_boot_with_performance(node):
    contents = {**GOVERNORS, **WORDS, GOVERNOR: "performance\n", EPP: "performance\n"}
    node.start(manifest(contents, {}))
    node.write(GOVERNOR, "powersave")
    assert node.read(EPP) == "balance_performance\n"


def test_a_lower_maximum_frequency_caps_the_minimum_until_it_is_raised(node):
    node.start(manifest({**LIMITS, MIN: "800000\n", MAX: "3800000\n"}, {}))
    node.write(MIN, "2000000")
    node.write(MAX, "1500000")
    assert (node.read(MIN), node.read(MAX)) == ("1500000\n", "1500000\n")
    node.write(MAX, "3800000")
    assert (node.read(MIN), node.read(MAX)) == ("2000000\n", "3800000\n")


def test_unexpected_entries_next_to_a_sysfs_file_change_nothing(node):
    node.start(
        f"{GOVERNOR}\tf\t644\tgovernor performance powersave\tpowersave\\n\n"
        f"{EPP}\td\t755\t-\tperformance\\n\n"
        f"{MIN}\tf\t644\tfreq 1 9\t5\\n\n{MAX}/x\tf\t444\tro\t\n"
        f"{CPU}/cpu1/online/x\tf\t444\tro\t\n{CPU}/cpu2/online\tf\t644\tonline\t1\\n\n"
    )
    for governor in ("performance", "powersave"):
        node.write(GOVERNOR, governor)
    node.write(MIN, "7")
    node.write(f"{CPU}/cpu2/online", "0")
    assert [node.read(path) for path in (GOVERNOR, MIN)] == ["powersave\n", "7\n"]


def test_cpus_go_offline(node):
    contents = {f"{CPU}/online": "0-7\n", f"{CPU}/offline": "\n", SMT: "on\n"}
    contents[f"{CPU}/smt/active"] = "1\n"
    for cpu in range(8):
        contents[f"{CPU}/cpu{cpu}/topology/thread_siblings_list"] = f"{cpu % 4},{cpu % 4 + 4}\n"
        if cpu:
            contents[f"{CPU}/cpu{cpu}/online"] = "1\n"
    node.start(manifest(contents, {}))
    lists = [f"{CPU}/{name}" for name in ("online", "offline", "smt/active")]
    node.write(f"{CPU}/cpu2/online", "0")
    assert [node.read(path) for path in lists] == ["0-1,3-7\n", "2\n", "1\n"]
    node.write(SMT, "off\n")
    assert [node.read(path) for path in lists] == ["0-1,3\n", "2,4-7\n", "0\n"]
    assert node.read(f"{CPU}/cpu5/online") == "0\n"
    node.write(SMT, "on")
    assert [node.read(path) for path in lists] == ["0-1,3-7\n", "2\n", "1\n"]
    node.write(SMT, "forceoff")
    with refused("EPERM"):
        node.write(SMT, "on")


def test_a_register_keeps_what_is_written_until_the_next_boot(node):
    config = bytes(range(256))
    text = manifest({f"{GPU}/config": config}, {})
    node.start(text)
    file = os.open(node / f"{GPU}/config", os.O_RDWR)
    try:
        assert os.pwrite(file, b"\x30\x59", 0x48) == 2
        assert os.pread(file, 4, 0x46) == b"\x46\x47\x30\x59"
        assert os.pwrite(file, b"\xff\xff", 0) == 2
        assert os.pwrite(file, b"xyz", 255) == 1 and os.pwrite(file, b"x", 256) == 0
    finally:
        os.close(file)
    written = config[:0x48] + b"\x30\x59" + config[0x4A:255] + b"x"
    node.reload(text)
    assert (node / f"{GPU}/config").read_bytes() == written, "the ids stay"
    node.stop()
    node.start(text)
    assert (node / f"{GPU}/config").read_bytes() == config


def test_compaction_makes_large_blocks_of_all_free_pages(node):
    small = "Node 0, zone   Normal   5   3   1\nNode 1, zone   Normal   0   0   7\n"
    node.start(manifest({"proc/buddyinfo": small, COMPACT: ""}, {}))
    with refused("EACCES"):
        node.read(COMPACT)
    with refused("EINVAL"):
        node.write(COMPACT, "2\n")
    node.write(COMPACT, "1\n")
    large = "Node 0, zone   Normal 3 0 3\nNode 1, zone   Normal 0 0 7\n"
    assert node.read("proc/buddyinfo") == large


def test_dropped_caches_become_free_memory(node):
    rows = {"MemTotal": 900, "MemFree": 100, "Buffers": 9, "Cached": 500, "Shmem": 70, "Dirty": 30,
            "SReclaimable": 160}  # fmt: skip
    meminfo = "".join(f"{name + ':':16}{kb:>8} kB\n" for name, kb in rows.items())
    node.start(manifest({"proc/meminfo": meminfo, DROP: ""}, {}))
    with refused("EACCES"):
        node.read(DROP)
    for value in ("0\n", "5\n"):
        with refused("EINVAL"):
            node.write(DROP, value)
    seen = []
    for value in ("4\n", "2\n", "1\n"):
        node.write(DROP, value)
        now = dict(line.split()[:2] for line in node.read("proc/meminfo").splitlines())
        seen.append([int(now[f"{name}:"]) for name in ("MemFree", "Buffers", "Cached", "Dirty",
                                                      "SReclaimable")])  # fmt: skip
    assert seen == [[100, 9, 500, 30, 160], [250, 9, 500, 30, 10], [659, 0, 100, 30, 10]]


def test_only_root_can_read_serial_numbers_and_full_config_space(node):
    config = bytes(range(256))
    serial = "sys/devices/virtual/dmi/id/board_serial"
    node.start(manifest({f"{GPU}/config": config, serial: "X1\n", f"{THP}/enabled": "[a] b\n"}, {}))
    assert (node / f"{GPU}/config").read_bytes() == config
    assert as_nobody("cat", node / f"{GPU}/config").stdout == config[:64]
    assert node.read(serial) == "X1\n"
    assert b"Permission denied" in as_nobody("cat", node / serial).stderr
    denied = as_nobody("sh", "-c", f"echo b > {node / THP}/enabled")
    assert b"Permission denied" in denied.stderr


def test_files_that_fail(node):
    contents = {
        f"{GPU}/numa_node": UnreadableFile("EIO"),
        f"{GPU}/vendor": UnreadableFile("ENODEV"),
    }
    node.start(manifest(contents, {}))
    for path, failure in contents.items():
        with refused(failure.how):
            node.read(path)
        assert (node / path).stat().st_mode & 0o777 == 0o444
    with pytest.raises(ValueError, match="'EOOPS' is neither"):
        UnreadableFile("EOOPS")


def test_a_rising_counter_grows_between_two_reads(node):
    path = f"{GPU}/aer_dev_correctable"
    node.start(manifest({path: PerSecond("RxErr 1000\nBadTLP 0\nTOTAL_ERR_COR 1000\n")}, {}))

    def counts():
        return [int(row.split()[1]) for row in node.read(path).splitlines()]

    until(lambda: counts()[0] > 0)
    before = counts()
    until(lambda: counts()[0] > before[0])
    assert before[0] == before[2]
    assert counts()[1] == 0
    with refused("EACCES"):
        node.write(path, "0\n")


def test_a_hanging_file_delays_no_other_reader(node):
    node.start(manifest({f"{GPU}/vendor": UnreadableFile("hang"), f"{GPU}/device": "0x2330\n"}, {}))
    stuck = [subprocess.Popen(["cat", node / f"{GPU}/vendor"]) for _ in range(3)]
    try:
        for process in stuck:
            until(lambda p=process: waits(f"/proc/{p.pid}/stat", "cat"))
        assert node.read(f"{GPU}/device") == "0x2330\n"
        stuck[0].send_signal(signal.SIGKILL)
        assert stuck[0].wait(SECONDS) == -signal.SIGKILL
        stuck[1].send_signal(signal.SIGTERM)
        assert stuck[1].wait(SECONDS) == -signal.SIGTERM
        assert stuck[2].poll() is None
        assert node.stop() == (0, "")
        assert stuck[2].wait(SECONDS) == 1
    finally:
        for process in stuck:
            process.kill()
            process.wait()


def test_a_restart_of_the_daemon_resets_writes_like_a_boot(node):
    contents = {**GOVERNORS, GOVERNOR: "powersave\n"}
    node.start(manifest(contents, {}, log=[LogLine("booted")]))
    node.write(GOVERNOR, "performance")
    node.write(kernel.INJECT, kernel.inject(LogLine("NVRM: Xid", None)))
    assert node.stop() == (0, "")
    assert not kernel.ready(node.mountpoint)
    assert node.names("") == []
    node.start()
    assert node.read(GOVERNOR) == "powersave\n"
    assert [text for *_, text in records(node)] == ["booted"]


def test_the_mount_of_a_killed_daemon_can_be_unmounted(node):
    node.start(manifest({}, {}))
    held = os.open(node / kernel.KMSG, os.O_RDONLY)
    node.daemon.kill()
    node.daemon.communicate()
    with refused("ENOTCONN"):
        (node / "sys").stat()
    kernel.unmount(node.mountpoint)
    assert node.names("") == []
    os.close(held)


def test_a_new_manifest_changes_only_what_differs_in_it(node):
    swappiness, ratio = "proc/sys/vm/swappiness", "proc/sys/vm/dirty_ratio"
    contents = {swappiness: "60\n", ratio: "20\n", f"{GPU}/vendor": "0x10de\n"}
    node.start(manifest(contents, {"sys/link": "devices"}))
    node.write(swappiness, "1")
    node.write(ratio, "1")
    vendor = os.open(node / f"{GPU}/vendor", os.O_RDONLY)
    new = "sys/class/new/file"
    assert not (node / new).exists()
    assert node.names("sys") == ["devices", "link"]
    contents = {swappiness: "60\n", ratio: "30\n", new: "new\n", f"{GPU}": "x"}
    node.reload(manifest(contents, {"sys/link": "class"}))
    until(lambda: node.names("sys") == ["class", "devices", "link"])
    until(lambda: (node / new).exists() and node.read(new) == "new\n")
    assert node.read(swappiness) == "1\n"
    assert node.read(ratio) == "30\n"
    with refused("ENODEV"):
        os.read(vendor, 10)
    os.close(vendor)
    until((node / GPU).is_file)
    assert not (node / f"{GPU}/vendor").exists()
    until(lambda: str((node / "sys/link").readlink()) == "class")
    node.describe("nonsense\n")
    node.daemon.send_signal(signal.SIGHUP)
    assert "manifest:1: a line has 5 columns" in node.daemon.stderr.readline()
    assert node.read(swappiness) == "1\n"
    assert node.stop() == (0, "")


def test_swap_is_turned_on_and_off(node):
    """As mm/swapfile.c numbers those without a priority, and as it says no."""
    swaps, meminfo = "proc/swaps", "proc/meminfo"
    heading = cpu_files.swaps(0)
    contents = {
        swaps: heading,
        meminfo: cpu_files.meminfo(100),
        kernel.SWAP: "/swap 16777212 12\n/dev/sda2 1020 0\n/c 40 0\n",
    }
    file = "/swap                                   file\t\t16777212\t12\t\t{}\n"
    partition = "/dev/sda2                               partition\t1020\t\t0\t\t{}\n"
    third = "/c                                      file\t\t40\t\t0\t\t{}\n"
    node.start(manifest(contents, {}))
    assert node.read(swaps) == heading
    node.write(kernel.SWAP, "on /swap\n")
    node.write(kernel.SWAP, "on /dev/sda2")
    node.write(kernel.SWAP, "on /c 7\n")
    assert node.read(swaps) == heading + file.format(-2) + partition.format(-3) + third.format(7)
    before, after = (text.splitlines() for text in (contents[meminfo], node.read(meminfo)))
    assert set(after) - set(before) == {
        "SwapTotal:      16778272 kB",
        "SwapFree:       16778260 kB",
    }
    assert [line.split()[0] for line in after] == [line.split()[0] for line in before]
    for told, error in [
        ("on /swap", "EBUSY"),
        ("on /other", "ENOENT"),
        ("on /swap2", "ENOENT"),
        ("off /other", "EINVAL"),
        ("on", "EINVAL"),
        ("on /swap -1", "EINVAL"),
        ("on /swap 32768", "EINVAL"),
        ("on /swap 1 2", "EINVAL"),
        ("off /swap 1", "EINVAL"),
    ]:
        with refused(error):
            node.write(kernel.SWAP, told)
    node.write(kernel.SWAP, "off /swap")
    assert node.read(swaps) == heading + partition.format(-2) + third.format(7)
    node.write(kernel.SWAP, "on /swap")
    on = heading + partition.format(-2) + third.format(7) + file.format(-3)
    assert node.read(swaps) == on
    node.reload(manifest({**contents, meminfo: cpu_files.meminfo(200)}, {}))
    until(lambda: "MemTotal:            200 kB\n" in node.read(meminfo))
    assert "SwapTotal:      16778272 kB\n" in node.read(meminfo)
    assert node.read(swaps) == on
    for name in ("/c", "/swap", "/dev/sda2"):
        node.write(kernel.SWAP, f"off {name}")
    assert (node.read(swaps), node.read(meminfo)) == (heading, cpu_files.meminfo(200))
    with refused("EIO"):
        node.write(swaps, "x")
    assert node.stop() == (0, "")


def test_captured_swap_is_turned_off_too(node):
    swaps, meminfo = "proc/swaps", "proc/meminfo"
    node.start(
        manifest(
            {
                swaps: cpu_files.swaps(1020) + "/dev/sda2 partition 8 4 5\n",
                meminfo: cpu_files.meminfo(100, 1028),
                kernel.SWAP: "",
            },
            {},
        )
    )
    with refused("ENOENT"):
        node.write(kernel.SWAP, "on /other")
    node.write(kernel.SWAP, "off /swapfile")
    assert node.read(swaps).splitlines()[1:] == [
        "/dev/sda2                               partition\t8\t\t4\t\t5"
    ]
    assert "SwapTotal:             8 kB\n" in node.read(meminfo)
    node.write(kernel.SWAP, "off /dev/sda2")
    assert node.read(swaps) == cpu_files.swaps(0)
    assert node.stop() == (0, "")


def test_symlinks_resolve_as_they_do_on_a_node(node):
    machine = hgx("n1")
    links = tree.links(machine)
    node.start(manifest(tree.files(machine), links))
    address = next(path for path in links if path.startswith("sys/bus/pci/devices/"))
    bound = 'mount --bind "$1/sys/devices" /sys/devices && mount --bind "$1/sys/bus" /sys/bus && '
    bound += 'cd -P "/$2" && pwd -P && cat vendor && cat "/$2/vendor"'
    shell = ["unshare", "--mount", "sh", "-c", bound, "sh", node.mountpoint, address]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=SECONDS)
    assert done.stderr == ""
    place, vendor, again = done.stdout.splitlines()
    assert place.startswith("/sys/devices/pci")
    assert f"{vendor}\n" == again + "\n" == node.read(f"{place[1:]}/vendor")


def test_many_requests_at_once(node):
    contents = {**GOVERNORS, GOVERNOR: "powersave\n"}
    contents |= {f"sys/many/file{number}": f"{number}\n" * number for number in range(200)}
    node.start(manifest(contents, {}))
    words = ("performance", "powersave")

    def work(seed):
        chosen = random.Random(seed)
        for _ in range(50):
            number = chosen.randrange(200)
            assert node.read(f"sys/many/file{number}") == f"{number}\n" * number
            node.write(GOVERNOR, chosen.choice(words))
            assert node.read(GOVERNOR).strip() in words
            node.write(kernel.KMSG, f"from {seed}")
        return len(node.names("sys/many"))

    with ThreadPoolExecutor(20) as threads:
        assert list(threads.map(work, range(20))) == [200] * 20
    assert len(records(node)) == 1000


# Odd and broken manifests


def test_odd_names_and_bytes(node):
    names = ["a b", "tab\tnew\nline", "back\\slash\\x41", "ümläut", "raw\udcff", "x" * 255, "..."]
    contents = {f"sys/{name}": bytes(range(256)) for name in names}
    links = {f"sys/links/{name}": f"../{name}" for name in names}
    node.start(manifest(contents, links, folders=["sys/module"]))
    assert node.names("sys") == sorted([*names, "links", "module"])
    for path in (*contents, *links):
        assert (node / path).read_bytes() == bytes(range(256))
    assert node.names("sys/module") == []


ELSEWHERE = (
    "",
    "/sys/x",
    "sys//x",
    "sys/../x",
    "./x",
    "x/.",
    "x/..",
    "..",
    "sys/",
    "a\0b",
    "x" * 256,
)


@pytest.mark.parametrize("path", ELSEWHERE)
def test_paths_outside_of_the_root_are_refused(path):
    with pytest.raises(KernelError, match="is not a path below the root"):
        manifest({path: ""}, {})
    with pytest.raises(KernelError, match="is not a path below the root"):
        manifest({}, {path: "x"})


GOOD = "sys/a\tf\t444\tro\tx\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (GOOD + "sys/b\tf\t444\tro\n", ":2: a line has 5 columns, separated by tabs"),
        (GOOD + "sys/b\tf\t444\tro\tx\ty\n", ":2: a line has 5 columns"),
        (GOOD + "\n", ":2: a line has 5 columns"),
        (GOOD + "sys/b\tf\t444\tro\tx", ":2: the line is cut short"),
        (GOOD + GOOD, ":2: this path is in line 1 already"),
        (GOOD + "sys/a/b\tf\t444\tro\tx\n", ":2: this path lies below line 1, no directory"),
        ("sys/a/b\tf\t444\tro\tx\n" + GOOD, ":1: this path lies below line 2, no directory"),
        ("../a\tf\t444\tro\tx\n", ":1: a path is relative, without empty names, '.' and '..'"),
        ("/a\tf\t444\tro\tx\n", ":1: a path is relative"),
        ("a/./b\tf\t444\tro\tx\n", ":1: a path is relative"),
        ("a\\x2f..\tf\t444\tro\tx\n", ":1: a path is relative"),
        ("a\\x00b\tf\t444\tro\tx\n", ":1: a path is relative"),
        ("\tf\t444\tro\tx\n", ":1: a path is relative"),
        (f"{'x' * 256}\tf\t444\tro\tx\n", ":1: a path is relative"),
        ("a\tf\t444\tro\t\\q\n", ":1: a backslash must be followed by"),
        ("a\tf\t444\tro\t\\x1\n", ":1: a backslash must be followed by"),
        ("a\tf\t1444\tro\tx\n", ":1: '1444' is not an octal mode"),
        ("a\tf\t448\tro\tx\n", ":1: '448' is not an octal mode"),
        ("a\tf\t444\tmagic\tx\n", ":1: no rule is called 'magic'"),
        ("a\tf\t444\tint 1\t1\n", ":1: the rule int needs 2 integers"),
        ("a\tf\t444\tint 1 x\t1\n", ":1: the rule int needs 2 integers"),
        ("a\tf\t644\tstring 0\tx\n", ":1: the integer of the rule string is not 1 to 4095"),
        ("a\tf\t444\terror -5\tx\n", ":1: the integer of the rule error is not 1 to 4095"),
        ("a\tz\t444\tro\tx\n", ":1: 'z' is not a kind"),
        ("a\tl\t-\t-\t\n", ":1: a link needs a target"),
        ("a\tr\tsoon\t4\tx\n", ":1: 'soon' is not a time in microseconds"),
        ("a\tr\t1\t9999\tx\n", ":1: '9999' is not a priority"),
        ("a\0b\n", ":1: a line with a NUL"),
    ],
)
def test_a_malformed_manifest(program, tmp_path, text, complaint):
    (tmp_path / "manifest").write_text(text)
    (tmp_path / "mount").mkdir()
    command = kernel.command(program, tmp_path / "manifest", tmp_path / "mount")
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 1
    assert f"{tmp_path}/manifest{complaint}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_wrong_arguments(program, tmp_path):
    (tmp_path / "manifest").write_text(GOOD)
    for arguments, status, complaint in (
        ([], 2, "usage: kernelfs"),
        (["-b", "soon", "a", "b"], 2, "usage: kernelfs"),
        ([tmp_path / "none", tmp_path], 1, "none: No such file or directory"),
        ([tmp_path / "manifest", tmp_path / "none"], 1, "failed to access mountpoint"),
    ):
        done = subprocess.run([program, *arguments], capture_output=True, text=True)
        assert (done.returncode, complaint in done.stderr) == (status, True), done.stderr


# The kernel log


def records(node, size=8192):
    """(priority, sequence, microseconds, text) of every record there is."""
    found = []
    file = os.open(node / kernel.KMSG, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                found.append(record(os.read(file, size)))
            except BlockingIOError:
                return found
    finally:
        os.close(file)


def record(raw):
    head, _, text = raw.decode("ascii").partition(";")
    priority, sequence, microseconds, flag = head.split(",")
    assert flag == "-"
    assert text.endswith("\n")
    return int(priority), int(sequence), int(microseconds), text[:-1]


@pytest.fixture
def log(node):
    lines = [LogLine("Linux version 6.8.0", 0.0, 5), LogLine("pci 0000:19:00.0: [10de:2330]", 1.25)]
    node.start(manifest({}, {}, log=lines))
    return node


def test_each_read_of_kmsg_returns_one_record(log):
    assert records(log) == [
        (5, 0, 0, "Linux version 6.8.0"),
        (4, 1, 1250000, "pci 0000:19:00.0: [10de:2330]"),
    ]
    with refused("EINVAL"):
        records(log, size=10)
    file = os.open(log / kernel.KMSG, os.O_RDONLY | os.O_NONBLOCK)
    again = os.open(log / kernel.KMSG, os.O_RDONLY | os.O_NONBLOCK)
    assert os.read(file, 8192) == os.read(again, 8192) == b"5,0,0,-;Linux version 6.8.0\n"
    os.close(file)
    os.close(again)


def test_seeking(log):
    file = os.open(log / kernel.KMSG, os.O_RDWR | os.O_NONBLOCK)
    first = os.read(file, 8192)
    os.read(file, 8192)
    assert os.lseek(file, 0, os.SEEK_SET) == 0
    assert os.read(file, 8192) == first
    assert os.lseek(file, 0, os.SEEK_DATA) == 0
    assert os.read(file, 8192) == first
    os.lseek(file, 0, os.SEEK_END)
    with refused("EAGAIN"):
        os.read(file, 8192)
    os.write(file, b"after the end")
    assert record(os.read(file, 8192))[1::2] == (2, "after the end")
    os.lseek(file, 0, os.SEEK_SET)
    assert os.read(file, 8192) == first
    os.close(file)


@pytest.mark.parametrize(
    ("written", "priority", "text"),
    [
        (b"plain\n", 12, "plain"),
        (b"<6>told", 14, "told"),
        (b"<30>systemd[1]: up", 30, "systemd[1]: up"),
        (b"<0>the kernel says", 8, "the kernel says"),
        (b"<x>odd", 12, "<x>odd"),
        (b"<5", 12, "<5"),
        ("tab\there \\ ü\x07\nmore\n".encode(), 12, r"tab\x09here \x5c \xc3\xbc\x07\x0amore"),
        (b"x" * 1024, 12, "x" * 1024),
    ],
)
def test_a_line_written_to_kmsg_becomes_a_record_with_its_priority(log, written, priority, text):
    assert log.write(kernel.KMSG, written) == len(written)
    assert records(log)[-1][::3] == (priority, text)


def test_a_write_that_is_too_long_for_a_record_is_refused(log):
    with refused("EINVAL"):
        log.write(kernel.KMSG, b"x" * 1025)
    assert len(records(log)) == 2


def test_a_writev_in_pieces_becomes_one_record(log):
    file = os.open(log / kernel.KMSG, os.O_WRONLY | os.O_APPEND)
    os.writev(file, [b"<30>", b"systemd", b"[1]: ", b"Started.", b"\n"])
    os.close(file)
    assert records(log)[-1][::3] == (30, "systemd[1]: Started.")


def test_injected_records(log):
    log.write(kernel.INJECT, kernel.inject(LogLine("NVRM: Xid (PCI:0000:19:00): 79", 3600.5, 3)))
    log.write(kernel.INJECT, kernel.inject(LogLine("earlier\nthan that", 1.0, 2)))
    log.write(kernel.INJECT, b"3700000000 6\n3700000001 6 one\n3700000002 86 two\n")
    assert records(log)[2:] == [
        (3, 2, 3600500000, "NVRM: Xid (PCI:0000:19:00): 79"),
        (2, 3, 3600500000, "earlier than that"),
        (6, 4, 3700000000, ""),
        (6, 5, 3700000001, "one"),
        (86, 6, 3700000002, "two"),
    ]
    for text in (b"now 4 x", b"1 x y", b"1 9999 x", b"-1 4 x", b"1 4 good\nbad", b"1 4 \0"):
        with refused("EINVAL"):
            log.write(kernel.INJECT, text)
    assert len(records(log)) == 7
    denied = as_nobody("sh", "-c", f"echo - 4 x > {log / kernel.INJECT}")
    assert b"Permission denied" in denied.stderr


def boottime_usec():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def test_the_time_is_since_the_boot_of_the_node(node):
    before = boottime_usec()
    node.start(manifest({}, {}, log=[LogLine("at boot", None)]))
    node.write(kernel.KMSG, "one")
    node.write(kernel.INJECT, kernel.inject(LogLine("two", None)))
    times = [usec for _, _, usec, _ in records(node)]
    assert times == sorted(times)
    assert times[-1] <= boottime_usec() - before
    node.stop()
    node.booted_usec = boottime_usec() - 86400 * 10**6
    node.start()
    node.write(kernel.KMSG, "one")
    assert 86400 * 10**6 <= records(node)[-1][2] <= boottime_usec() - node.booted_usec


def test_a_reader_waits(log):
    file = os.open(log / kernel.KMSG, os.O_RDONLY)
    os.read(file, 8192)
    os.read(file, 8192)
    with ThreadPoolExecutor(1) as thread:
        reader = thread.submit(os.read, file, 8192)
        asked = f"/proc/self/task/{next(iter(thread._threads)).native_id}/stat"
        until(lambda: waits(asked))
        log.write(kernel.INJECT, b"- 3 woken\n")
        assert record(reader.result(SECONDS))[3] == "woken"
    os.close(file)


def test_a_waiting_reader_can_be_killed(log):
    for number in (signal.SIGKILL, signal.SIGTERM):
        reader = subprocess.Popen(["cat", log / kernel.KMSG], stdout=subprocess.PIPE)
        assert b"Linux version" in reader.stdout.readline()
        reader.stdout.readline()
        reader.send_signal(number)
        assert reader.wait(SECONDS) == -number
        reader.stdout.close()
    assert len(records(log)) == 2


@pytest.mark.parametrize("edge", [0, select.EPOLLET])
def test_epoll(log, edge):
    file = os.open(log / kernel.KMSG, os.O_RDWR | os.O_NONBLOCK)
    with select.epoll() as epoll:
        epoll.register(file, select.EPOLLIN | edge)
        assert epoll.poll(SECONDS) == [(file, select.EPOLLIN)]
        assert epoll.poll(0) == ([] if edge else [(file, select.EPOLLIN)])
        os.read(file, 8192)
        os.read(file, 8192)
        assert epoll.poll(0.2) == []
        for number in range(3):
            threading.Timer(0.1, log.write, (kernel.INJECT, f"- 3 number {number}\n")).start()
            assert epoll.poll(SECONDS) == [(file, select.EPOLLIN)]
            assert record(os.read(file, 8192))[3] == f"number {number}"
            assert epoll.poll(0) == []
    assert select.select([file], [], [], 0) == ([], [], [])
    log.write(kernel.INJECT, b"- 3 x\n")
    assert select.select([file], [], [], SECONDS) == ([file], [], [])
    os.close(file)


def test_an_ordinary_file_can_be_polled(node):
    node.start(manifest({"sys/x": "1\n"}, {}))
    with (node / "sys/x").open() as file:
        assert select.select([file], [], [], SECONDS) == ([file], [], [])


def test_old_records_are_overwritten(log):
    file = os.open(log / kernel.KMSG, os.O_RDONLY | os.O_NONBLOCK)
    os.read(file, 8192)
    for start in range(0, 5000, 500):
        rows = "".join(f"- 6 {number}\n" for number in range(start, start + 500))
        log.write(kernel.INJECT, rows)
    assert select.select([file], [], [file], 0)[0] == [file]
    with refused("EPIPE"):
        os.read(file, 8192)
    assert record(os.read(file, 8192))[1::2] == (5002 - 4096, str(5000 - 4096))
    os.close(file)
    assert [sequence for _, sequence, _, _ in records(log)] == list(range(906, 5002))


def test_others_read_the_log_unless_that_is_restricted(log):
    shown = ["dd", f"if={log / kernel.KMSG}", "iflag=nonblock", "count=1", "bs=8192"]
    assert as_nobody(*shown).stdout == b"5,0,0,-;Linux version 6.8.0\n"
    restricted = "proc/sys/kernel/dmesg_restrict"
    log.reload(manifest({restricted: "1\n"}, {}))
    assert b"Operation not permitted" in as_nobody(*shown).stderr
    log.write(restricted, "0")
    assert as_nobody(*shown).stdout == b"5,0,0,-;Linux version 6.8.0\n"


def in_its_place(node, shell):
    """Run a shell in a mount namespace where /dev/kmsg is the node's."""
    bound = f'set -e; mount --bind "$1" /dev/kmsg; {shell}'
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", bound, "sh", node / kernel.KMSG],
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.skipif(shutil.which("dmesg") is None, reason="dmesg is not installed")
def test_dmesg(log):
    log.write(kernel.INJECT, b"2000000 3 NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off\n")
    log.write(kernel.KMSG, b"<6>a program says \\ this")
    done = in_its_place(log, "dmesg --kernel --level err,warn,notice")
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        [
            "[    0.000000] Linux version 6.8.0",
            "[    1.250000] pci 0000:19:00.0: [10de:2330]",
            "[    2.000000] NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off",
        ],
    )
    assert in_its_place(log, "dmesg --userspace").stdout.endswith(r"a program says \ this" + "\n")


JOURNALD = Path("/lib/systemd/systemd-journald")
ALONE = """
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal /run/log/journal
printf '[Journal]\\nReadKMsg=yes\\nStorage=volatile\\nAudit=no\\n' > /run/journald.conf
mount --bind /run/journald.conf /etc/systemd/journald.conf
{journald} 2> /run/journald.log & pid=$!
seen() {{ journalctl -D /run/log/journal --output cat --no-pager _TRANSPORT=kernel 2>&1; }}
for try in $(seq 200); do seen | grep -q 10de:2330 && break; sleep 0.02; done
echo '- 3 NVRM: Xid 79' > {inject}
for try in $(seq 200); do seen | grep -q 'Xid 79' && break; sleep 0.02; done
seen
cut -d' ' -f14,15 /proc/$pid/stat
kill $pid; wait $pid || cat /run/journald.log >&2
"""


@pytest.mark.skipif(not JOURNALD.exists(), reason="systemd-journald is not installed")
def test_journald_reads_kmsg_and_does_not_spin(log):
    done = in_its_place(log, ALONE.format(journald=JOURNALD, inject=log / kernel.INJECT))
    assert done.stdout, done.stderr
    *lines, ticks = done.stdout.splitlines()
    assert lines[:2] == ["Linux version 6.8.0", "pci 0000:19:00.0: [10de:2330]"], done
    assert lines[-1] == "NVRM: Xid 79"
    assert sum(map(int, ticks.split())) < 200


# Building


def test_without_a_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelError, match="gcc is not installed; install it"):
        kernel.build(tmp_path)


def test_without_the_library(tmp_path, monkeypatch):
    (tmp_path / "gcc").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelError, match="libfuse3-dev is not installed; install it"):
        kernel.build(tmp_path)
    (tmp_path / "pkg-config").symlink_to("/bin/false")
    with pytest.raises(KernelError, match="apt install libfuse3-dev fuse3 pkg-config"):
        kernel.build(tmp_path)


def test_a_compiler_that_fails(program, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel, "FLAGS", ("-fno-such-thing",))
    with pytest.raises(KernelError, match=r"could not build .*\n.*no-such-thing"):
        kernel.build(tmp_path)


def test_the_sources_give_no_warnings(program, tmp_path, monkeypatch):
    monkeypatch.setattr(kernel, "FLAGS", (*kernel.FLAGS, "-Werror"))
    assert kernel.build(tmp_path).exists()
