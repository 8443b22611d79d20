"""Faults that are wrong settings: of GPUs, of the kernel, of memory.
A function's docstring is the fault's documentation."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet_sim.cpu_files import HUGEPAGES, THP
from nodevet_sim.description import GpuLoad, SwapArea
from nodevet_sim.faults.change import gpu_values
from nodevet_sim.faults.node import NODES, ONLY_INSIDE
from nodevet_sim.faults.params import FaultParams, NoParams, OneGpu, SomeGpus
from nodevet_sim.faults.patch import FaultError, Healthy, Patch

MEMORY, CMDLINE, BALANCING = "proc/meminfo", "proc/cmdline", "proc/sys/kernel/numa_balancing"
HUGE_KB = 2048


def _text(healthy: Healthy, path: str) -> str:
    """What a file says, stripped. Raises FaultError if the node has none."""
    if path not in healthy.files:
        raise FaultError(f"the node has no /{path}")
    return healthy.read(path)


def compute_exclusive(healthy: Healthy, want: SomeGpus) -> Patch:
    """The compute mode lets only one process use a GPU.

    `gpu`, by default all.
    """
    return gpu_values(healthy, want.gpu, compute_mode="EXCLUSIVE_PROCESS")


def ecc_off(healthy: Healthy, want: SomeGpus) -> Patch:
    """ECC is turned off.

    `gpu`, by default all.
    """
    return gpu_values(healthy, want.gpu, ecc_current=0, ecc_pending=0)


def mig_pending(healthy: Healthy, want: SomeGpus) -> Patch:
    """MIG mode was turned on, and waits for a reset.

    `gpu`, by default all.
    """
    return gpu_values(healthy, want.gpu, mig_pending=1)


class Clocks(SomeGpus):
    mhz: Annotated[int, Field(ge=100, le=10000)] | None = None


def clocks_lowered(healthy: Healthy, want: Clocks) -> Patch:
    """The application clock is lower than the board's default.

    `gpu`, by default all; `mhz`, by default half of the default.
    """
    state = {}
    for gpu in healthy.gpus(want.gpu):
        default = healthy.number(gpu, "app_clock_graphics_default_mhz")
        state[f"gpu.{gpu}.app_clock_graphics_mhz"] = str(want.mhz or default // 2)
    return Patch(state=state)


class OtherBoard(OneGpu):
    device: Annotated[str, Field(pattern=r"^[0-9a-f]{4}$")] = "2331"


def gpu_model_other(healthy: Healthy, want: OtherBoard) -> Patch:
    """A GPU is another model than the others, as after a repair.

    `gpu`; `device`, its PCI device id, 2331: an H100 PCIe.
    """
    gpu = healthy.gpu(want.gpu)
    state = gpu_values(healthy, gpu, pci_device=f"10de:{want.device}").state
    return Patch({f"{healthy.place(gpu)}/device": f"0x{want.device}\n"}, state, gpu=gpu)


class Misplaced(OneGpu):
    process: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$")] = "python3"


def process_misplaced(healthy: Healthy, want: Misplaced) -> Patch:
    """A job's process may run on the CPUs and the memory of another NUMA node than its GPU's.

    `gpu`; `process`, its name: python3.
    """
    gpu = healthy.gpu(want.gpu)
    own = _text(healthy, f"{healthy.place(gpu)}/numa_node")
    places = (re.fullmatch(rf"{NODES}/node(\d+)/cpulist", path) for path in healthy.files)
    others = sorted(int(match[1]) for match in places if match and match[1] != own)
    if own == "-1" or not others:
        raise FaultError("the node has one NUMA node")
    cpus = _text(healthy, f"{NODES}/node{others[-1]}/cpulist")
    load = GpuLoad((gpu,), want.process, cpus=cpus, mems=str(others[-1]), utilization_percent=0)
    return Patch(load=(load,), gpu=gpu)


def balancing_on(healthy: Healthy, want: NoParams) -> Patch:
    """The kernel moves memory between NUMA nodes by itself: kernel.numa_balancing is 1."""
    _text(healthy, BALANCING)
    return Patch({BALANCING: "1\n"})


def thp_always(healthy: Healthy, want: NoParams) -> Patch:
    """The kernel gives transparent huge pages to every process: always."""
    return Patch({f"{THP}/enabled": _chosen(healthy, "enabled", "always")})


def thp_defrag_always(healthy: Healthy, want: NoParams) -> Patch:
    """A process that allocates memory waits until the kernel has made huge pages.

    THP's defrag is always.
    """
    return Patch({f"{THP}/defrag": _chosen(healthy, "defrag", "always")})


def _chosen(healthy: Healthy, name: str, word: str) -> str:
    """A file of transparent huge pages with another choice."""
    offered = _text(healthy, f"{THP}/{name}").replace("[", "").replace("]", "")
    return re.sub(rf"\b{word}\b", f"[{word}]", offered, count=1) + "\n"


class Reserved(FaultParams):
    pages: Annotated[int, Field(ge=1, le=1 << 20)] = 1024


def hugepages_reserved(healthy: Healthy, want: Reserved) -> Patch:
    """Huge pages of 2 MiB are reserved and not used.

    `pages`, 1024.
    """
    return _huge(healthy, want.pages, want.pages)


def hugepages_held(healthy: Healthy, want: Reserved) -> Patch:
    """Huge pages of 2 MiB are reserved, and something holds all of them.

    `pages`, 1024. Only a baseline that wants some of them free detects it.
    """
    return _huge(healthy, want.pages, 0)


def _huge(healthy: Healthy, total: int, free: int) -> Patch:
    place = f"{HUGEPAGES}/hugepages-{HUGE_KB}kB"
    values = {
        "HugePages_Total": f"{total}",
        "HugePages_Free": f"{free}",
        "Hugetlb": f"{total * HUGE_KB} kB",
    }
    counts = {f"{place}/nr_hugepages": f"{total}\n", f"{place}/free_hugepages": f"{free}\n"}
    return Patch({MEMORY: _memory(healthy, values), **healthy.present(counts)})


class Filled(FaultParams):
    percent: Annotated[int, Field(ge=0, le=100)] = 2


def memory_full(healthy: Healthy, want: Filled) -> Patch:
    """Nearly all of the memory is in use.

    `percent` of it that is available, 2.
    """
    total = re.search(r"(?m)^MemTotal: +([0-9]+) kB$", _text(healthy, MEMORY))
    if total is None:
        raise FaultError(f"/{MEMORY} has no MemTotal")
    available = f"{int(total[1]) * want.percent // 100} kB"
    return Patch({MEMORY: _memory(healthy, {"MemFree": available, "MemAvailable": available})})


def _memory(healthy: Healthy, values: Mapping[str, str]) -> str:
    """/proc/meminfo with other values."""
    text = f"{_text(healthy, MEMORY)}\n"
    for name, value in values.items():
        text = re.sub(rf"(?m)^({name}:) .*$", rf"\g<1> {value:>15}", text)
    return text


class CommandLine(FaultParams):
    words: Annotated[str, Field(pattern=r"^[ -~]{1,500}$")] = "nosmt mitigations=auto"


def cmdline_other(healthy: Healthy, want: CommandLine) -> Patch:
    """The kernel was booted without iommu=pt, and with other parameters.

    `words`, its other parameters: nosmt mitigations=auto.
    """
    words = [word for word in _text(healthy, CMDLINE).split() if word != "iommu=pt"]
    return Patch({CMDLINE: f"{' '.join([*words, want.words])}\n"})


class MoreSwap(FaultParams):
    gib: Annotated[int, Field(ge=1, le=1024)] = 8


def swap_on(healthy: Healthy, want: MoreSwap) -> Patch:
    """A swap file is in use: /swap.img, of /etc/fstab.

    `gib`, its size, 8.
    """
    area = SwapArea("/swap.img", want.gib << 20)
    return Patch(swap=(area,), boot=(f"{ONLY_INSIDE} && swapon -a",))


class UsedSwap(MoreSwap):
    used_percent: Annotated[int, Field(ge=1, le=100)] = 75


def swap_used(healthy: Healthy, want: UsedSwap) -> Patch:
    """A swap file, /swap-used.img, is in use, and much of it is full.

    `gib`, its size, 8; `used_percent` of it, 75.
    """
    kb = want.gib << 20
    area = SwapArea("/swap-used.img", kb, used_kb=kb * want.used_percent // 100)
    return Patch(swap=(area,), boot=(f"{ONLY_INSIDE} && swapon -a",))


def nouveau_loaded(healthy: Healthy, want: NoParams) -> Patch:
    """The module nouveau is loaded next to NVIDIA's."""
    return Patch(modules={"nouveau": "device"})


def rebooted_now(healthy: Healthy, want: NoParams) -> Patch:
    """The node has just booted. This holds from the node's first boot to its second."""
    return Patch(node={"age_s": 0.0})


class Uptime(FaultParams):
    days: Annotated[int, Field(ge=1, le=3650)] = 400


def up_long(healthy: Healthy, want: Uptime) -> Patch:
    """The node has not been rebooted for a long time.

    `days`, 400. This holds from the node's first boot to its second.
    """
    return Patch(node={"age_s": want.days * 86400})


class Driver(FaultParams):
    version: Annotated[str, Field(pattern=r"^[0-9]{3}\.[0-9.]{1,10}$")] = "525.60.13"


def driver_old(healthy: Healthy, want: Driver) -> Patch:
    """The whole driver is another version: its module, its libraries and its firmware.

    `version`, 525.60.13. A node gets these libraries when it is created, not by `set`.
    """
    healthy.gpu(None)
    old = healthy.state["driver_version"]
    if old == want.version:
        raise FaultError(f"the driver has version {old} already; give another `version`")
    version_path = "proc/driver/nvidia/version"
    files = {"sys/module/nvidia/version": f"{want.version}\n"}
    if version_path in healthy.files:
        files[version_path] = _text(healthy, version_path).replace(old, want.version) + "\n"
    ends = ("driver_version", "nvml_version", "gsp_firmware_version")
    state = {
        key: value.replace(old, want.version)
        for key, value in healthy.state.items()
        if key.endswith(ends)
    }
    return Patch(healthy.present(files), state)


class OldImage(FaultParams):
    id: Annotated[str, Field(pattern=r"^[a-z0-9._-]{1,30}$")] = "ubuntu"
    version: Annotated[str, Field(pattern=r"^[0-9.]{1,10}$")] = "18.04"


def image_old(healthy: Healthy, want: OldImage) -> Patch:
    """The node was installed from an old image; only /etc/os-release shows it.

    `id`, ubuntu; `version`, 18.04.
    """
    rows = (
        f'PRETTY_NAME="{want.id} {want.version}"',
        f'VERSION_ID="{want.version}"',
        f"ID={want.id}",
    )
    return Patch(root_files={"/etc/os-release": "".join(f"{row}\n" for row in rows)})


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "clocks-lowered": (Clocks, clocks_lowered),
    "cmdline-other": (CommandLine, cmdline_other),
    "compute-exclusive": (SomeGpus, compute_exclusive),
    "driver-old": (Driver, driver_old),
    "ecc-off": (SomeGpus, ecc_off),
    "gpu-model-other": (OtherBoard, gpu_model_other),
    "hugepages-held": (Reserved, hugepages_held),
    "hugepages-reserved": (Reserved, hugepages_reserved),
    "image-old": (OldImage, image_old),
    "memory-full": (Filled, memory_full),
    "mig-pending": (SomeGpus, mig_pending),
    "nouveau-loaded": (NoParams, nouveau_loaded),
    "numa-balancing-on": (NoParams, balancing_on),
    "process-misplaced": (Misplaced, process_misplaced),
    "rebooted-now": (NoParams, rebooted_now),
    "swap-on": (MoreSwap, swap_on),
    "swap-used": (UsedSwap, swap_used),
    "thp-always": (NoParams, thp_always),
    "thp-defrag-always": (NoParams, thp_defrag_always),
    "up-long": (Uptime, up_long),
}
