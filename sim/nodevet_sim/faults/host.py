"""Faults of the kernel and the firmware. A function's docstring is the fault's documentation."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.description import Content
from nodevet_sim.faults.change import config_bits, file_values
from nodevet_sim.faults.params import FaultParams, NoParams, OneGpu
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.host_files import CLOCK, DMI, EDAC, RESOLVER
from nodevet_sim.pci_setting_files import ACS, EXPRESS


def _patch_present(healthy: Healthy, files: Mapping[str, Content], what: str) -> Patch:
    """These files instead of those that the node has. Raises FaultError if it has none."""
    present = healthy.present(files)
    if not present:
        raise FaultError(f"the node has no {what}")
    return Patch(present)


def clocksource_hpet(healthy: Healthy, want: NoParams) -> Patch:
    """The kernel stopped using the CPUs' counter and keeps time with the HPET."""
    files = {f"{CLOCK}/current_clocksource": "hpet\n", f"{CLOCK}/available_clocksource": "hpet \n"}
    return _patch_present(healthy, files, "clock source")


class Load(FaultParams):
    load: Annotated[float, Field(ge=0, le=100000)] = 900.0


def high_load(healthy: Healthy, want: Load) -> Patch:
    """The load average is high.

    `load`, of 1, 5 and 15 minutes, 900.
    """
    loads = " ".join([f"{want.load:.2f}"] * 3)
    return _patch_present(healthy, {"proc/loadavg": f"{loads} 900/3187 41234\n"}, "load average")


class Handles(FaultParams):
    files: Annotated[int, Field(ge=0)] = 990000
    maximum: Annotated[int, Field(ge=1)] = 1000000


def out_of_files(healthy: Healthy, want: Handles) -> Patch:
    """Nearly all file handles are in use.

    `files`, in use, 990000; `maximum`, of the kernel, 1000000.
    """
    text = f"{want.files}\t0\t{want.maximum}\n"
    return _patch_present(healthy, {"proc/sys/fs/file-nr": text}, "file handles")


class Fragmented(FaultParams):
    cache_percent: Annotated[int, Field(ge=0, le=50)] | None = None


def fragmented(healthy: Healthy, want: Fragmented) -> Patch:
    """The node's free memory is in small pieces.

    `cache_percent`, the share of all memory in the page cache and, a quarter of it, in dentries and
    inodes; as it is.
    """
    rows = [row.split()[:4] for row in healthy.read("proc/buddyinfo").splitlines()]
    small = " ".join(["900000"] * 3 + ["0"] * 8)
    text = "".join(f"{' '.join(row)} {small}\n" for row in rows)
    files = {"proc/buddyinfo": text}
    if want.cache_percent is not None:
        files["proc/meminfo"] = _with_caches(healthy.read("proc/meminfo"), want.cache_percent)
    return _patch_present(healthy, files, "buddyinfo")


def _with_caches(meminfo: str, percent: int) -> str:
    """/proc/meminfo with caches of this share of all memory, taken from what is free."""
    kb = {key: int(value) for key, value in re.findall(r"(?m)^(\w+): +(\d+) kB$", meminfo)}
    if lacking := {"MemTotal", "MemFree", "Cached", "Shmem", "SReclaimable"} - kb.keys():
        raise FaultError(f"the node's meminfo has no {min(lacking)}")
    held = kb["MemTotal"] * percent // 100
    new = {"SReclaimable": held // 4, "Cached": held - held // 4 + kb["Shmem"]}
    new["MemFree"] = max(0, kb["MemFree"] - held)
    for key, value in new.items():
        meminfo = re.sub(rf"(?m)^{key}: .*$", f"{key + ':':16}{value:>8} kB", meminfo)
    return f"{meminfo}\n"


class DimmErrors(FaultParams):
    controller: Annotated[int, Field(ge=0, le=255)] = 0
    dimm: Annotated[int, Field(ge=0, le=63)] = 0
    count: Annotated[int, Field(ge=1)] = 1


def dimm_uncorrected(healthy: Healthy, want: DimmErrors) -> Patch:
    """EDAC has counted an uncorrected error of a DIMM.

    `controller`, 0, and its `dimm`, 0; `count`, 1.
    """
    return dimm_errors(healthy, want, "ue")


def dimm_errors(healthy: Healthy, want: DimmErrors, kind: str) -> Patch:
    """What EDAC has counted for a DIMM and its controller: corrected errors (ce), others (ue)."""
    place, dimm = f"{EDAC}/mc{want.controller}", f"dimm{want.dimm}/dimm_{kind}_count"
    return file_values(healthy, place, {f"{kind}_count": want.count, dimm: want.count})


class OldBios(FaultParams):
    version: Annotated[str, Field(min_length=1, max_length=64)] = "1.0.1"
    date: Annotated[str, Field(pattern=r"^\d\d/\d\d/\d{4}$")] = "01/20/2023"


def bios_old(healthy: Healthy, want: OldBios) -> Patch:
    """The BIOS is an old one.

    `version`, 1.0.1; `date`, 01/20/2023.
    """
    files = {f"{DMI}/bios_version": f"{want.version}\n", f"{DMI}/bios_date": f"{want.date}\n"}
    return _patch_present(healthy, files, "DMI")


def acs_redirect(healthy: Healthy, want: OneGpu) -> Patch:
    """The port above a GPU redirects peer-to-peer traffic to the root complex (ACS).

    `gpu`, by its index: 3.
    """
    gpu = healthy.gpu(want.gpu)
    path = f"{healthy.ends(gpu)[-1]}/config"
    return Patch({path: config_bits(healthy, path, ACS + 6, 0xFFFF, 0x1D)}, gpu=gpu)


def read_request_small(healthy: Healthy, want: NoParams) -> Patch:
    """The NICs read 128 bytes at a time: MaxReadReq."""
    nics = _functions(healthy, "0x02")
    if not nics:
        raise FaultError("the node has no NIC")
    paths = (f"{place}/config" for place in nics)
    return Patch({path: config_bits(healthy, path, EXPRESS + 8, 0xFFFF, 0x0930) for path in paths})


def _functions(healthy: Healthy, class_code: str) -> list[str]:
    """The directories of the PCI functions whose class begins like this."""
    class_files = (path for path in healthy.files if path.endswith("/class") and "/pci" in path)
    return [
        path.rpartition("/")[0] for path in class_files if healthy.read(path).startswith(class_code)
    ]


def iommu_translates(healthy: Healthy, want: NoParams) -> Patch:
    """The IOMMU translates what devices access, as without iommu=pt."""
    groups = (path for path in healthy.files if path.startswith("sys/kernel/iommu_groups/"))
    files = {path: "DMA-FQ\n" for path in groups if path.endswith("/type")}
    return _patch_present(healthy, files, "IOMMU group")


def irqs_on_one_cpu(healthy: Healthy, want: NoParams) -> Patch:
    """A script sent every interrupt to the last CPU; irqbalance does not run."""
    online = healthy.read("sys/devices/system/cpu/online")
    last = re.split("[,-]", online)[-1] or "0"
    files = {path: f"{last}\n" for path in healthy.files if path.endswith("_affinity_list")}
    return _patch_present(healthy, files, "MSI interrupt")


def idle_deep(healthy: Healthy, want: NoParams) -> Patch:
    """The CPUs may enter every idle state, even states that take long to leave."""
    names = (path for path in healthy.files if "/cpuidle/state" in path)
    files = {path: "0\n" for path in names if path.endswith("/disable")}
    return _patch_present(healthy, files, "idle state")


FILES_LIMIT = "/etc/security/limits.d/96-site.conf"
LIMITS = "/etc/security/limits.d/95-site.conf"
PROCESSES_LIMIT = "/etc/security/limits.d/97-site.conf"
STACK_LIMIT = "/etc/security/limits.d/98-site.conf"


def memlock_small(healthy: Healthy, want: NoParams) -> Patch:
    """Every login may lock only 64 KiB of memory."""
    return Patch(root_files={LIMITS: "* - memlock 64\n"})


def no_nameserver(healthy: Healthy, want: NoParams) -> Patch:
    """No nameserver is configured: /etc/resolv.conf is empty."""
    return Patch(root_files={RESOLVER: "# no nameserver\n"})


def nofile_small(healthy: Healthy, want: NoParams) -> Patch:
    """Every login may open only 1024 files."""
    return Patch(root_files={FILES_LIMIT: "* - nofile 1024\n"})


def nproc_small(healthy: Healthy, want: NoParams) -> Patch:
    """Every login may have only 256 processes."""
    return Patch(root_files={PROCESSES_LIMIT: "* - nproc 256\n"})


def stack_small(healthy: Healthy, want: NoParams) -> Patch:
    """Every login has a stack of only 64 KiB."""
    return Patch(root_files={STACK_LIMIT: "* - stack 64\n"})


UNIT = """\
[Unit]
Description=Checks the scratch disk of this site

[Service]
Type=oneshot
ExecStart=/bin/false

[Install]
WantedBy=multi-user.target
"""


def unit_failed(healthy: Healthy, want: NoParams) -> Patch:
    """A unit of the site, site-scratch.service, failed at boot."""
    files = {"/etc/systemd/system/site-scratch.service": UNIT}
    return Patch(root_files=files, services={"site-scratch.service": True})


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "acs-redirect": (OneGpu, acs_redirect),
    "bios-old": (OldBios, bios_old),
    "clocksource-hpet": (NoParams, clocksource_hpet),
    "dimm-uncorrected": (DimmErrors, dimm_uncorrected),
    "high-load": (Load, high_load),
    "idle-deep": (NoParams, idle_deep),
    "iommu-translates": (NoParams, iommu_translates),
    "irqs-on-one-cpu": (NoParams, irqs_on_one_cpu),
    "memlock-small": (NoParams, memlock_small),
    "memory-fragmented": (Fragmented, fragmented),
    "no-nameserver": (NoParams, no_nameserver),
    "nofile-small": (NoParams, nofile_small),
    "nproc-small": (NoParams, nproc_small),
    "out-of-files": (Handles, out_of_files),
    "read-request-small": (NoParams, read_request_small),
    "stack-small": (NoParams, stack_small),
    "unit-failed": (NoParams, unit_failed),
}
