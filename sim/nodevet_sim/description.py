"""What a simulated node is, once its scenario is understood: the nouns of the sim. Pure.

`scenario` makes them, the runtime boots them. Everything about hardware is data: `files` and
`links` are the node's simulated /sys and /proc, `state` is what its NVML answers from. States that
hardware cannot express (a full disk, a hanging sshd) have their own fields.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


class PerSecond(str):
    """A file of counters that rise: each number in it is how much it grows in a second, from 0 at
    boot. A tree of plain files contains it unchanged."""

    __slots__ = ()


Content = str | bytes


@dataclass(frozen=True)
class LogLine:
    """A line of the node's kernel log."""

    text: str  # without a newline
    seconds: float | None = 0.0  # after boot, on its monotonic clock; None: when it is injected
    level: int = 4  # of syslog(3), 0 emergency to 7 debug


@dataclass(frozen=True)
class GpuLoad:
    """A process of the node that holds GPUs, simulated to run where it says."""

    gpus: tuple[int, ...]  # minor numbers, /dev/nvidia<N>
    command: str = "python3"  # as /proc/<pid>/comm has it, at most 15 bytes
    cpus: str | None = None  # Cpus_allowed_list; None: every CPU of the node
    mems: str | None = None  # Mems_allowed_list; None: every NUMA node
    utilization_percent: int = 100
    memory_mb: int = 1024  # of each GPU
    uid: int = 0  # whose process it is


@dataclass(frozen=True)
class EarlierBoot:
    """A boot of the node before the one at which it was made, as /var/log/wtmp has it."""

    days: float  # before that one
    shut_down: bool = True  # before the next one; if not, it crashed


@dataclass(frozen=True)
class SwapArea:
    """A swap file, or a partition where its name is below /dev. /etc/fstab has its line."""

    name: str  # an absolute path
    kb: int  # as /proc/swaps and SwapTotal have it
    used_kb: int = 0  # whenever it is on
    priority: int | None = None  # 0 to 32767; None: the kernel's choice


@dataclass(frozen=True)
class ModuleEntry:
    """A kernel module that is not part of the kernel."""

    name: str  # as /proc/modules has it
    how: str = "device"  # it is loaded: at boot for a device, in the initramfs (boot), available
    size: int = 16384  # bytes
    users: int = 0  # that hold it, besides other modules
    needs: tuple[str, ...] = ()  # modules


@dataclass(frozen=True)
class SimulatedNode:
    """One node, whole. Paths have no leading slash in `files` and `links`."""

    name: str
    files: Mapping[str, Content]  # sys/..., proc/... -> content as the kernel would print it
    links: Mapping[str, str] = field(default_factory=dict)  # path -> target as readlink gives it
    state: str | None = None  # of NVML, at boot; None: no NVIDIA driver is installed
    device_nodes: tuple[str, ...] = ()  # /dev/nvidia0, ...
    device_modes: Mapping[str, str] = field(default_factory=dict)  # of those that are not 0666
    kernel_log: tuple[LogLine, ...] = ()
    load: tuple[GpuLoad, ...] = ()
    modules: tuple[ModuleEntry, ...] = ()
    swap: tuple[SwapArea, ...] = ()  # that there is; what is on, /etc/fstab and units say
    root_files: Mapping[str, Content] = field(default_factory=dict)  # /etc/...: of its own disk
    services: tuple[str, ...] = ("nvidia-persistenced.service",)  # enabled, of those the sim has
    boot: tuple[str, ...] = ()  # shell commands of root at every boot, before sshd answers
    sshd: Literal["runs", "hangs", "stopped"] = "runs"
    delay_s: float = 0.0  # that every command over SSH waits
    default_route: bool = True
    default_route_ipv6: bool = True  # where this machine has IPv6
    storage_address: bool = True  # in the second network
    clock_offset_s: float = 0.0  # of the wall clock that SSH sessions see
    clock_synchronised: bool = True  # as adjtimex(2) says in SSH sessions
    clock_error_ms: float = 12.0  # that the kernel says it may be off at most, if synchronised
    age_s: float = 3600  # that it says it was up already at its first boot, for a log with a past
    restored: Mapping[str, Mapping[str, Content]] = field(default_factory=dict)
    """Files as they are again after a reboot (`reboot`), or after power off and on (`power`)."""
    earlier_boots: tuple[EarlierBoot, ...] = (EarlierBoot(90.0),)  # the oldest first
    disk_mb: int = 1024  # size of its root disk's writable part
    sources: Mapping[str, str] = field(default_factory=dict)  # part of the hardware -> where from


@dataclass(frozen=True)
class Scenario:
    """A fleet of nodes under one name."""

    name: str
    nodes: tuple[SimulatedNode, ...]
