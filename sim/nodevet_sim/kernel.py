"""The simulated kernel of a node: /sys, /proc and /dev/kmsg as a FUSE file system.

Here is what files it has and how each of them behaves (the manifest); the C sources in
kernelfs/ serve them. What the kernel forgets over a reboot is forgotten when the daemon is
started again.

A write changes the file itself and, of others, only these: energy_performance_preference by
scaling_governor, scaling_min_freq and scaling_max_freq by one another, the lists of CPUs and
smt/active by cpuN/online and smt/control, effective_affinity_list by smp_affinity_list,
buddyinfo by compact_memory. So HugePages_Total does not follow nr_hugepages, nor local_cpulist
numa_node, and remove, rescan and reset do nothing. A configuration space keeps what is written
beyond its first 64 bytes, also where a device has nothing to write.
"""

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

from nodevet_sim.description import LogLine, PerSecond

NAME = "kernelfs"
FLAGS = ("-O1", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra")
KMSG = "dev/kmsg"
INJECT = "dev/kmsg_inject"  # lines "usec priority text"; usec may be "-" for now
SWAP = "dev/swap"  # lines "name KiB used-KiB"; takes "on name [priority]" and "off name"
MODULES = "dev/modules"  # lines "name how needs size users"; takes "load name", "unload name"


class KernelError(Exception):
    """The file system could not be built or the manifest not written; says why."""


@dataclass(frozen=True)
class UnreadableFile:
    """A file that cannot be read: `how` is the name of an errno, or `hang` for ever."""

    how: str

    def __post_init__(self) -> None:
        if self.how != "hang" and not isinstance(getattr(errno, self.how, None), int):
            raise ValueError(f"{self.how!r} is neither the name of an errno nor 'hang'")


Content = str | bytes | UnreadableFile
Contents = Mapping[str, Content]
Rule = str | Callable[[str, Contents], str]

INT = "-2147483648 2147483647"
UINT = "0 4294967295"
ULONG = "0 18446744073709551615"


def _text(content: Content | None) -> str:
    if content is None or isinstance(content, UnreadableFile):
        return ""
    return content if isinstance(content, str) else content.decode("utf-8", "replace")


def _beside(path: str, name: str, contents: Contents) -> str:
    """The words of the file of that name in the same directory, on one line."""
    return " ".join(_text(contents.get(f"{path.rpartition('/')[0]}/{name}")).split())


def _words_of(rule: str, name: str) -> Rule:
    """Valid values are the words of the file next to it, or its current text."""

    def rule_of(path: str, contents: Contents) -> str:
        words = _beside(path, name, contents) or " ".join(_text(contents[path]).split())
        return f"{rule} {words}"

    return rule_of


def _choice(path: str, contents: Contents) -> str:
    return "choice " + " ".join(_text(contents[path]).replace("[", " ").replace("]", " ").split())


def _freq(path: str, contents: Contents) -> str:
    low, high = (_beside(path, f"cpuinfo_{end}_freq", contents) for end in ("min", "max"))
    return f"freq {low} {high}" if low.isdigit() and high.isdigit() else f"int {UINT}"


def _numa_node(path: str, contents: Contents) -> str:
    nodes = re.findall(r"\d+", _text(contents.get("sys/devices/system/node/online")))
    return f"int -1 {max(map(int, nodes), default=0)}"


def _sysctl(path: str, contents: Contents) -> str:
    """A sysctl that is not in the table: integers, or a string."""
    words = _text(contents[path]).split()
    if not words or not all(re.fullmatch(r"-?\d+", word) for word in words):
        return "string 256"
    wide = any(int(word) > 2**31 - 1 for word in words)
    return f"sysctl {ULONG if wide else INT}"


_CPU = r"sys/devices/system/cpu"
_POLICY = rf"{_CPU}/(?:cpufreq/policy\d+|cpu\d+/cpufreq)"
_FUNCTION = r"sys/devices/(?:.+/)?[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]"
_THP = r"sys/kernel/mm/transparent_hugepage"
_HUGE = r"sys/(?:kernel/mm|devices/system/node/node\d+)/hugepages/hugepages-\d+kB"

# Whole path, mode, rule: the first that fits. Ranges are those of Linux 5.15 or later.
RULES: tuple[tuple[str, int, Rule], ...] = (
    (rf"{_POLICY}/scaling_governor", 0o644, _words_of("governor", "scaling_available_governors")),
    (
        rf"{_POLICY}/energy_performance_preference",
        0o644,
        _words_of("epp", "energy_performance_available_preferences"),
    ),
    (rf"{_POLICY}/scaling_(?:min|max)_freq", 0o644, _freq),
    (rf"{_CPU}/intel_pstate/no_turbo", 0o644, "clamp 0 1"),
    (rf"{_CPU}/intel_pstate/(?:min|max)_perf_pct", 0o644, "clamp 0 100"),
    (rf"{_CPU}/intel_pstate/status", 0o644, "word active passive off"),
    (rf"{_CPU}/(?:cpufreq/|cpufreq/policy\d+/)boost", 0o644, "int 0 1"),
    (rf"{_CPU}/smt/control", 0o644, "smt"),
    (rf"{_CPU}/cpu\d+/online", 0o644, "online"),
    (rf"{_CPU}/cpu\d+/cpuidle/state\d+/disable", 0o644, "clamp 0 1"),
    (rf"{_CPU}/cpu\d+/power/energy_perf_bias", 0o644, "int 0 15"),
    (
        r"sys/devices/system/clocksource/clocksource\d+/current_clocksource",
        0o644,
        _words_of("word", "available_clocksource"),
    ),
    (rf"{_THP}/(?:enabled|defrag|shmem_enabled|hugepages-\d+kB/enabled)", 0o644, _choice),
    (rf"{_THP}/(?:khugepaged/defrag|use_zero_page)", 0o644, "int 0 1"),
    (rf"{_THP}/khugepaged/(?:full_scans|pages_collapsed)", 0o444, "ro"),
    (rf"{_THP}/khugepaged/max_ptes_\w+", 0o644, "int 0 511"),
    (rf"{_THP}/khugepaged/\w+", 0o644, f"int {UINT}"),
    (rf"{_HUGE}/nr_(?:overcommit_)?hugepages(?:_mempolicy)?", 0o644, f"int {ULONG}"),
    (rf"{_FUNCTION}/numa_node", 0o644, _numa_node),
    (rf"{_FUNCTION}/power/control", 0o644, "word auto on"),
    (rf"{_FUNCTION}/(?:d3cold_allowed|msi_bus|broken_parity_status)", 0o644, "int 0 1"),
    (rf"{_FUNCTION}/(?:link/\w+|enable)", 0o644, "int 0 1"),
    (rf"{_FUNCTION}/(?:reset|rescan)", 0o200, "sink"),
    (rf"{_FUNCTION}/remove", 0o220, "sink"),
    (rf"{_FUNCTION}/config", 0o644, "config"),
    (r"sys/bus/pci/rescan", 0o200, "sink"),
    (r"sys/module/pcie_aspm/parameters/policy", 0o644, _choice),
    (r"sys/(?:class/dmi|devices/virtual/dmi)/id/(?:\w+_serial|product_uuid)", 0o400, "ro"),
    (
        r"proc/sys/kernel/(?:osrelease|ostype|version|arch|ngroups_max|cap_last_cap"
        r"|bootloader_\w+|random/(?:boot_id|uuid|entropy_avail|poolsize))",
        0o444,
        "ro",
    ),
    (r"proc/sys/kernel/numa_balancing", 0o644, "sysctl 0 4"),
    (r"proc/sys/kernel/(?:nmi_)?watchdog", 0o644, "sysctl 0 1"),
    (r"proc/sys/kernel/dmesg_restrict", 0o644, "sysctl 0 1"),
    (r"proc/sys/kernel/kptr_restrict", 0o644, "sysctl 0 2"),
    (r"proc/sys/kernel/perf_event_paranoid", 0o644, "sysctl -1 2147483647"),
    (r"proc/sys/kernel/yama/ptrace_scope", 0o644, "sysctl 0 3"),
    (r"proc/sys/kernel/(?:host|domain)name", 0o644, "string 65"),
    (r"proc/sys/vm/swappiness", 0o644, "sysctl 0 200"),
    (r"proc/sys/vm/overcommit_memory", 0o644, "sysctl 0 2"),
    (
        r"proc/sys/vm/(?:dirty_(?:background_)?ratio|compaction_proactiveness)",
        0o644,
        "sysctl 0 100",
    ),
    (
        r"proc/sys/vm/(?:min_free_kbytes|vfs_cache_pressure|overcommit_ratio)",
        0o644,
        "sysctl 0 2147483647",
    ),
    (r"proc/sys/vm/nr_(?:overcommit_)?hugepages(?:_mempolicy)?", 0o644, f"sysctl {ULONG}"),
    (r"proc/sys/vm/compact_memory", 0o200, "compact"),
    (r"proc/sys/vm/drop_caches", 0o200, "drop_caches"),
    (r"proc/sys/fs/(?:file-nr|inode-nr|inode-state|dentry-state|aio-nr)", 0o444, "ro"),
    (r"proc/sys/.+", 0o644, _sysctl),
    (r"proc/irq/\d+/smp_affinity_list", 0o644, "affinity"),
    (r"proc/.+", 0o444, "proc"),
    (SWAP, 0o200, "swap"),
    (MODULES, 0o644, "modules"),
    (r".+", 0o444, "ro"),
)
_ONE_OF = re.compile("|".join(f"({pattern})" for pattern, _, _ in RULES))

# An empty name, "." or ".."; a NUL; a long name.
_NO_PATH = re.compile(rb"(?:\A|/)\.{0,2}(?:/|\Z)|\0|[^/]{256}")
_ESCAPED = {
    code: f"\\x{code:02x}" for code in range(256) if not 0x20 <= code < 0x7F or code == ord("\\")
}
_ESCAPED.update({ord("\t"): "\\t", ord("\n"): "\\n", ord("\\"): "\\\\"})


@lru_cache(maxsize=1 << 16)  # the nodes of a fleet have most files in common
def _escape(content: str | bytes) -> str:
    raw = content if isinstance(content, bytes) else os.fsencode(content)
    return raw.decode("latin-1").translate(_ESCAPED)


@lru_cache(maxsize=1 << 16)
def _path(path: str) -> str:
    if _NO_PATH.search(os.fsencode(path)):
        raise KernelError(
            f"{path!r} is not a path below the root of the node, of names of at most 255 bytes"
        )
    return _escape(path)


@lru_cache(maxsize=1 << 16)
def _rule_of(path: str) -> tuple[str, int, Rule]:
    match = _ONE_OF.fullmatch(path)
    return RULES[(match.lastindex or 1) - 1 if match else -1]


def behaviour(path: str, contents: Contents) -> tuple[int, str]:
    """The mode and the rule of the file at `path`, with the words that it takes."""
    _, mode, rule = _rule_of(path)
    content = contents[path]
    if isinstance(content, UnreadableFile):
        how = "hang" if content.how == "hang" else f"error {getattr(errno, content.how)}"
        return mode & 0o444, how
    if isinstance(content, PerSecond):
        return mode & 0o444, "rising"
    return mode, rule if isinstance(rule, str) else rule(path, contents)


def _usec(line: LogLine) -> str:
    return "-" if line.seconds is None else str(round(line.seconds * 1e6))


def _records(log: Iterable[LogLine]) -> Iterator[str]:
    for line in log:
        yield f"{KMSG}\tr\t{_usec(line)}\t{line.level}\t{_escape(line.text)}\n"


def manifest(
    contents: Contents,
    links: Mapping[str, str],
    *,
    folders: Iterable[str] = (),
    log: Iterable[LogLine] | None = (),
) -> str:
    """The text of the manifest; its format is told in kernelfs/manifest.h.

    Paths are relative to the node's root (sys/..., proc/..., SWAP, MODULES). The manifest need not
    name the directories above a path; `folders` are the ones that may be empty. `log` is the kernel
    log at boot, in order; None leaves out dev/kmsg. Raises KernelError for a path that is none.
    """
    rows = [f"{_path(folder)}\td\t755\t-\t\n" for folder in folders]
    for path, content in contents.items():
        mode, rule = behaviour(path, contents)
        text = "" if isinstance(content, UnreadableFile) else _escape(content)
        rows.append(f"{_path(path)}\tf\t{mode:o}\t{_escape(rule)}\t{text}\n")
    rows += [f"{_path(path)}\tl\t-\t-\t{_escape(target)}\n" for path, target in links.items()]
    if log is not None:
        rows.append(f"{KMSG}\tf\t644\tkmsg\t\n{INJECT}\tf\t200\tkmsg_inject\t\n")
        rows.extend(_records(log))
    return "".join(rows)


def inject(line: LogLine) -> bytes:
    """The text to write to dev/kmsg_inject, in one write, so that the line appears in the log."""
    return os.fsencode(f"{_usec(line)} {line.level} {' '.join(line.text.splitlines())}\n")


def build(into: Path) -> Path:
    """Compile the daemon into the directory `into`; the program's path. Raises KernelError."""
    compiler, configured = shutil.which("gcc"), shutil.which("pkg-config")
    if compiler is None:
        raise KernelError("gcc is not installed; install it (Debian, Ubuntu: apt install gcc)")
    options = None
    if configured is not None:
        query = [configured, "--cflags", "--libs", "fuse3"]
        options = subprocess.run(query, capture_output=True, text=True, check=False)
    if options is None or options.returncode != 0:
        raise KernelError(
            "libfuse3-dev is not installed; install it "
            "(Debian, Ubuntu: apt install libfuse3-dev fuse3 pkg-config)"
        )
    into.mkdir(parents=True, exist_ok=True)
    target = into / NAME
    with as_file(files("nodevet_sim").joinpath(NAME)) as sources:
        command = [compiler, *FLAGS, "-o", str(target), *map(str, sorted(sources.glob("*.c")))]
        command += options.stdout.split()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise KernelError(f"gcc could not build {target}:\n{done.stderr.strip()}")
    return target


def command(
    program: Path, manifest: Path, mountpoint: Path, *, booted_usec: int | None = None
) -> list[str]:
    """Runs the daemon in the foreground, until SIGTERM; it unmounts. SIGHUP: a new manifest.

    `booted_usec` is the CLOCK_BOOTTIME that the kernel log counts from; None: its start.
    """
    boot = [] if booted_usec is None else ["-b", str(booted_usec)]
    return [str(program), *boot, "--", str(manifest), str(mountpoint)]


def ready(mountpoint: Path) -> bool:
    """Whether the file system is mounted there. Never blocks on it."""
    shown = re.sub(r"[\\ \t\n]", lambda found: f"\\{ord(found[0]):03o}", str(mountpoint.absolute()))
    for row in Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines():
        fields = row.split(" ")
        if fields[4] == shown and "fuse.kernelfs" in fields[6:]:
            return True
    return False


def unmount(mountpoint: Path) -> None:
    """Take away what a killed daemon left mounted, also while something has it open."""
    while ready(mountpoint):
        subprocess.run(["umount", "--lazy", str(mountpoint)], check=True)
