"""Faults of single facts about the machine: a GPU's place, arrays, DIMMs, CPUs, PCIe settings. A
function's docstring is the fault's documentation."""

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import Field

from nodevet.remote.probe.cpulist import format_cpulist, parse_cpulist
from nodevet_sim.cpu_files import CPUS, NODES
from nodevet_sim.description import Content
from nodevet_sim.faults.change import config_bits, file_values
from nodevet_sim.faults.gpu_health import NVSWITCH
from nodevet_sim.faults.host import DimmErrors, dimm_errors
from nodevet_sim.faults.params import FaultParams, NoParams, OneGpu
from nodevet_sim.faults.patch import FaultError, Healthy, Patch
from nodevet_sim.host_files import DMI, EDAC, RESOLVER
from nodevet_sim.pci_files import speed
from nodevet_sim.pci_setting_files import EXPRESS
from nodevet_sim.shipped import RATES

INACTIVE = """\
Personalities : [raid1]
md0 : inactive sda2[0](S)
      937561408 blocks super 1.2

unused devices: <none>
"""
UNEXPECTED = """\
Personalities : [raid1]
md127 : active raid1 sda3[0] sdb3[1]
      937561408 blocks super 1.2 [2/2] [UU]

unused devices: <none>
"""
PAYLOAD, RELAXED = 0xE0, 0x10  # bits of PCI_EXP_DEVCTL
L1 = 0x2  # of PCI_EXP_LNKCTL
DEVCTL, LNKCTL = EXPRESS + 8, EXPRESS + 0x10
EPP = re.compile(rf"{CPUS}/(?:cpufreq/policy\d+|cpu\d+/cpufreq)/energy_performance_preference")
LIMIT = re.compile(rf"{CPUS}/(?:cpufreq/policy\d+|cpu\d+/cpufreq)/scaling_max_freq")


class OtherNode(OneGpu):
    node: Annotated[int, Field(ge=0, le=1023)] | None = None


def gpu_moved(healthy: Healthy, want: OtherNode) -> Patch:
    """A GPU is at another socket than before, as after a repair: in another slot, on another riser.

    `gpu`; `node`, the NUMA node where it is now, by default the first other one. Only a baseline
    that says which GPU belongs to which node, or how near they are, detects it.
    """
    gpu = healthy.gpu(want.gpu)
    place = healthy.place(gpu)
    now = healthy.read(f"{place}/numa_node")
    nodes = [number for number in range(1024) if f"{NODES}/node{number}/cpulist" in healthy.files]
    others = [number for number in nodes if str(number) != now]
    node = want.node if want.node is not None else next(iter(others), None)
    if node not in others:
        raise FaultError(f"GPU {gpu} is on NUMA node {now}, and the node has no other NUMA node")
    folder = f"{NODES}/node{node}"
    files: dict[str, Content] = {f"{place}/numa_node": f"{node}\n"}
    for name, source in (("local_cpulist", "cpulist"), ("local_cpus", "cpumap")):
        files[f"{place}/{name}"] = f"{healthy.read(f'{folder}/{source}')}\n"
    return Patch(healthy.present(files), gpu=gpu)


def nvswitch_missing(healthy: Healthy, want: NoParams) -> Patch:
    """The first NVSwitch is not on the PCI bus."""
    return Patch(gone_slots=frozenset((_switch(healthy).rpartition("/")[2],)))


def _switch(healthy: Healthy) -> str:
    """The folder of the first NVSwitch. Raises FaultError."""
    bound = sorted(path for path, target in healthy.links.items() if target.endswith(NVSWITCH))
    if not bound:
        raise FaultError("the node has no NVSwitch")
    return bound[0].rpartition("/")[0]


def nvswitch_unbound(healthy: Healthy, want: NoParams) -> Patch:
    """The driver is not bound to the first NVSwitch, which is on the PCI bus."""
    return Patch(gone_paths=frozenset((f"{_switch(healthy)}/driver",)))


def nvswitch_lost(healthy: Healthy, want: NoParams) -> Patch:
    """The first NVSwitch has fallen off the bus: its configuration space reads all ones."""
    path = f"{_switch(healthy)}/config"
    config = healthy.files.get(path, b"")
    return Patch({path: b"\xff" * len(config)})


def nvswitch_generation(healthy: Healthy, want: NoParams) -> Patch:
    """The PCIe link of the first NVSwitch trained at Gen1."""
    return file_values(healthy, _switch(healthy), {"current_link_speed": speed(RATES[1])})


class Pool(FaultParams):
    pool: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$")] = "tank"
    state: Annotated[str, Field(pattern=r"^[A-Z]{3,20}$")] = "DEGRADED"


def zpool_degraded(healthy: Healthy, want: Pool) -> Patch:
    """A ZFS pool lost a disk. Only a kernel that has ZFS can show it on a booted node.

    `pool`, its name: tank; `state`, DEGRADED.
    """
    return Patch({f"proc/spl/kstat/zfs/{want.pool}/state": f"{want.state}\n"})


def raid_inactive(healthy: Healthy, want: NoParams) -> Patch:
    """The kernel did not start an array. Only a kernel that has md can show it on a booted node."""
    return Patch({"proc/mdstat": INACTIVE, "sys/block/md0/md/array_state": "inactive\n"})


def raid_unexpected(healthy: Healthy, want: NoParams) -> Patch:
    """The kernel assembled an array of disks from another machine: md127, which is complete.

    Only a baseline that says how many there are detects it, and only a kernel that has md can show
    it on a booted node.
    """
    return Patch({"proc/mdstat": UNEXPECTED, "sys/block/md127/md/array_state": "clean\n"})


class NewPool(FaultParams):
    pool: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,30}$")] = "scratch"


def zpool_unexpected(healthy: Healthy, want: NewPool) -> Patch:
    """The node imported a complete ZFS pool of another machine.

    `pool`, its name: scratch. Only a baseline that says how many there are detects it, and only a
    kernel that has ZFS can show it on a booted node.
    """
    return Patch({f"proc/spl/kstat/zfs/{want.pool}/state": "ONLINE\n"})


class CorrectedDimms(DimmErrors):
    count: Annotated[int, Field(ge=1)] = 5000


def dimm_corrected(healthy: Healthy, want: CorrectedDimms) -> Patch:
    """EDAC has counted many corrected errors of a DIMM.

    `controller`, 0, and its `dimm`, 0; `count`, 5000.
    """
    return dimm_errors(healthy, want, "ce")


class OtherVendor(FaultParams):
    vendor: Annotated[str, Field(min_length=1, max_length=64)] = "American Megatrends Inc."


def bios_vendor_other(healthy: Healthy, want: OtherVendor) -> Patch:
    """The BIOS is another vendor's, as after a mainboard was replaced.

    `vendor`, American Megatrends Inc.
    """
    return file_values(healthy, DMI, {"bios_vendor": want.vendor})


class OneCpu(FaultParams):
    cpu: Annotated[int, Field(ge=1, le=8191)] | None = None


def memory_controller_missing(healthy: Healthy, want: NoParams) -> Patch:
    """EDAC does not count one memory controller: mc0 is missing. nodevet calls it unknown."""
    place = f"{EDAC}/mc0"
    if f"{place}/ue_count" not in healthy.files:
        raise FaultError("the node has no mc0")
    return Patch(gone_paths=frozenset((place,)))


class OtherCpu(FaultParams):
    model: Annotated[str, Field(pattern=r"^[ -~]{1,64}$")] = "Intel(R) Xeon(R) Silver 4410Y"


def cpu_model_other(healthy: Healthy, want: OtherCpu) -> Patch:
    """The CPUs are another model.

    `model`, as /proc/cpuinfo spells it: Intel(R) Xeon(R) Silver 4410Y.
    """
    text = re.sub(r"(?m)^(model name\t: ).*$", rf"\g<1>{want.model}", healthy.read("proc/cpuinfo"))
    return Patch({"proc/cpuinfo": f"{text}\n"})


def cpu_absent(healthy: Healthy, want: NoParams) -> Patch:
    """The firmware announces a CPU that did not start: the CPU is possible but not present."""
    possible = set(parse_cpulist(healthy.read(f"{CPUS}/possible")))
    more = max(possible) + 1
    values = {"possible": format_cpulist({*possible, more}), "offline": more}
    return file_values(healthy, CPUS, values)


class LowestFrequency(FaultParams):
    mhz: Annotated[int, Field(ge=1, le=10_000)] = 400


def cpu_minimum_lowered(healthy: Healthy, want: LowestFrequency) -> Patch:
    """The governor may let the CPUs run slower than their peers.

    `mhz`, the lowest frequency, 400. Only a baseline that gives one detects it.
    """
    limits = [path for path in healthy.files if LIMIT.fullmatch(path)]
    if not limits:
        raise FaultError("the node has no cpufreq")
    paths = (path.replace("scaling_max_freq", "scaling_min_freq") for path in limits)
    return Patch(dict.fromkeys(paths, f"{want.mhz * 1000}\n"))


def cpu_capped(healthy: Healthy, want: NoParams) -> Patch:
    """The CPUs may not run faster than half of their maximum."""
    limits = {path for path in healthy.files if LIMIT.fullmatch(path)}
    if not limits:
        raise FaultError("the node has no cpufreq")
    return Patch({path: f"{int(healthy.read(path)) // 2}\n" for path in limits})


def epp_powersave(healthy: Healthy, want: NoParams) -> Patch:
    """The CPUs prefer to save energy: energy_performance_preference is power."""
    paths = [path for path in healthy.files if EPP.fullmatch(path)]
    if not paths:
        raise FaultError("the CPUs have no energy_performance_preference")
    return Patch(dict.fromkeys(paths, "power\n"))


def cpu_offline(healthy: Healthy, want: OneCpu) -> Patch:
    """A CPU is offline.

    `cpu`, its number, the last.
    """
    online = set(parse_cpulist(healthy.read(f"{CPUS}/online")))
    cpu = max(online) if want.cpu is None else want.cpu
    if cpu not in online or len(online) < 2:
        raise FaultError(f"the node has no CPU {cpu} that could be offline")
    files: dict[str, Content] = {
        f"{CPUS}/online": f"{format_cpulist(online - {cpu})}\n",
        f"{CPUS}/offline": f"{cpu}\n",
        f"{CPUS}/cpu{cpu}/online": "0\n",
    }
    return Patch(healthy.present(files))


def payload_small(healthy: Healthy, want: OneGpu) -> Patch:
    """The BIOS limits a GPU to payloads of 128 bytes: MaxPayload.

    `gpu`.
    """
    return _setting(healthy, want, DEVCTL, clear=PAYLOAD)


def ordering_strict(healthy: Healthy, want: OneGpu) -> Patch:
    """A GPU may not reorder its PCIe packets: relaxed ordering is off.

    `gpu`.
    """
    return _setting(healthy, want, DEVCTL, clear=RELAXED)


def aspm_on(healthy: Healthy, want: OneGpu) -> Patch:
    """A GPU's link may sleep to save power: ASPM L1.

    `gpu`.
    """
    return _setting(healthy, want, LNKCTL, add=L1)


def _setting(healthy: Healthy, want: OneGpu, at: int, clear: int = 0, add: int = 0) -> Patch:
    gpu = healthy.gpu(want.gpu)
    path = f"{healthy.place(gpu)}/config"
    return Patch({path: config_bits(healthy, path, at, clear, add)}, gpu=gpu)


def switch_link_narrow(healthy: Healthy, want: OneGpu) -> Patch:
    """The link between a CPU and the PCIe switch above a GPU runs on half of its lanes.

    `gpu`. The link of the GPU itself is as it should be.
    """
    gpu = healthy.gpu(want.gpu)
    switch = healthy.ends(gpu)[-1].rpartition("/")[0]
    ends = (switch, switch.rpartition("/")[0])
    width = healthy.read(f"{switch}/current_link_width")
    if not width.isdecimal():
        raise FaultError(f"there is no PCIe switch above GPU {gpu}")
    files = {f"{place}/current_link_width": f"{int(width) // 2}\n" for place in ends}
    return Patch(healthy.present(files), gpu=gpu)


def out_of_threads(healthy: Healthy, want: NoParams) -> Patch:
    """Nearly all process ids are in use: kernel.pid_max is 3300."""
    return file_values(healthy, "proc/sys/kernel", {"pid_max": 3300})


class Dirty(FaultParams):
    percent: Annotated[int, Field(ge=1, le=90)] = 20


def memory_dirty(healthy: Healthy, want: Dirty) -> Patch:
    """Much of the memory waits to be written to disk.

    `percent` of it, 20.
    """
    text = healthy.read("proc/meminfo")
    total = re.search(r"^MemTotal: *(\d+)", text, re.MULTILINE)
    if total is None:
        raise FaultError("the node has no meminfo")
    dirty = int(total[1]) * want.percent // 100
    row = f"Dirty:          {dirty} kB"
    return Patch({"proc/meminfo": re.sub(r"(?m)^Dirty: .*$", row, text) + "\n"})


class OtherNameserver(FaultParams):
    address: Annotated[str, Field(pattern=r"^[0-9a-f.:]{2,39}$")] = "192.0.2.53"


def nameserver_other(healthy: Healthy, want: OtherNameserver) -> Patch:
    """The node asks another nameserver than its peers.

    `address`, 192.0.2.53.
    """
    text = f"nameserver {want.address}\nsearch cluster.example\n"
    return Patch(root_files={RESOLVER: text})


def local_cpus_wrong(healthy: Healthy, want: OneGpu) -> Patch:
    """The firmware reports the right NUMA node of a GPU, but the near CPUs of another node.

    `gpu`.
    """
    gpu = healthy.gpu(want.gpu)
    moved = gpu_moved(healthy, OtherNode(gpu=gpu))
    files = {path: text for path, text in moved.files.items() if not path.endswith("/numa_node")}
    return Patch(files, gpu=gpu)


def search_domain_missing(healthy: Healthy, want: NoParams) -> Patch:
    """/etc/resolv.conf has its nameservers, but no search domain."""
    resolver_text = healthy.root_files.get(RESOLVER, "")
    rows = (
        resolver_text.decode() if isinstance(resolver_text, bytes) else resolver_text
    ).splitlines()
    return Patch(
        root_files={RESOLVER: "".join(f"{row}\n" for row in rows if not row.startswith("search"))}
    )


FAULTS: Mapping[str, tuple[type[FaultParams], Callable[[Healthy, Any], Patch]]] = {
    "aspm-on": (OneGpu, aspm_on),
    "bios-vendor-other": (OtherVendor, bios_vendor_other),
    "cpu-absent": (NoParams, cpu_absent),
    "cpu-capped": (NoParams, cpu_capped),
    "cpu-minimum-lowered": (LowestFrequency, cpu_minimum_lowered),
    "cpu-model-other": (OtherCpu, cpu_model_other),
    "cpu-offline": (OneCpu, cpu_offline),
    "dimm-corrected": (CorrectedDimms, dimm_corrected),
    "epp-powersave": (NoParams, epp_powersave),
    "gpu-moved": (OtherNode, gpu_moved),
    "local-cpus-wrong": (OneGpu, local_cpus_wrong),
    "memory-controller-missing": (NoParams, memory_controller_missing),
    "memory-dirty": (Dirty, memory_dirty),
    "nameserver-other": (OtherNameserver, nameserver_other),
    "nvswitch-generation": (NoParams, nvswitch_generation),
    "nvswitch-lost": (NoParams, nvswitch_lost),
    "nvswitch-missing": (NoParams, nvswitch_missing),
    "nvswitch-unbound": (NoParams, nvswitch_unbound),
    "ordering-strict": (OneGpu, ordering_strict),
    "out-of-threads": (NoParams, out_of_threads),
    "payload-small": (OneGpu, payload_small),
    "raid-inactive": (NoParams, raid_inactive),
    "raid-unexpected": (NoParams, raid_unexpected),
    "search-domain-missing": (NoParams, search_domain_missing),
    "switch-link-narrow": (OneGpu, switch_link_narrow),
    "zpool-degraded": (Pool, zpool_degraded),
    "zpool-unexpected": (NewPool, zpool_unexpected),
}
