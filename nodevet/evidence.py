"""The typed form of what a probe returns. Decoding is validation.

A section that does not decode becomes `error` with the decoder's words, and the
others live on. A value that could not be read is None, and its record's `errors`
says why under the field's name: an NVML error (`NVML_ERROR_NOT_SUPPORTED`), an
errno (`ENOENT`), or a sentence.

Units are in the names: `_mw` milliwatt, `_mhz`, `_khz`, `_b` bytes, `_kb` KiB,
`_c` degrees Celsius, `_gts` GT/s per lane.

Every list, mapping and text has a bound, in nodevet.bounds with its reason: a section with
more does not decode.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from nodevet import bounds
from nodevet.bounds import Errors, FileText, NumberList, Text
from nodevet.model import Finding, Subject, exempt, unknown

SCHEMA = 1


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Values read together, and the reason for each one that could not be."""

    errors: Errors = {}

    def why(self, field: str) -> str:
        """Why `field` is None; never empty."""
        return self.errors.get(field) or "not in the evidence"


class Host(Record, frozen=True, kw_only=True):
    """Who the node is. /etc/machine-id, /proc/sys/kernel/*, /etc/os-release, /proc/cmdline."""

    hostname: Text | None = None
    machine_id: Text | None = None
    boot_id: Text | None = None
    uptime_s: float | None = None
    kernel: Text | None = None  # /proc/sys/kernel/osrelease
    architecture: Text | None = None  # uname -m
    os_id: Text | None = None  # ID in os-release
    os_version: Text | None = None  # VERSION_ID
    os_name: Text | None = None  # PRETTY_NAME
    cmdline: Text | None = None
    clock_s: float | None = None  # CLOCK_REALTIME as the request arrived, seconds since 1970 UTC
    asked_s: float | None = None  # the controller's as it sent the request; none where it is local
    virtualization: Text | None = None  # none, vm, kvm, xen, vmware, microsoft, container, ...
    dmi_vendor: Text | None = None  # /sys/class/dmi/id/sys_vendor
    dmi_product: Text | None = None


class EccCounts(Record, frozen=True, kw_only=True):
    """nvmlDeviceGetTotalEccErrors / GetMemoryErrorCounter, by lifetime."""

    volatile_corrected: int | None = None
    volatile_uncorrected: int | None = None
    aggregate_corrected: int | None = None
    aggregate_uncorrected: int | None = None
    volatile_sram_corrected: int | None = None
    volatile_sram_uncorrected: int | None = None
    volatile_dram_corrected: int | None = None
    volatile_dram_uncorrected: int | None = None
    aggregate_sram_corrected: int | None = None
    aggregate_sram_uncorrected: int | None = None
    aggregate_dram_corrected: int | None = None
    aggregate_dram_uncorrected: int | None = None
    # L1, L2, register file, textures and CBU together, where NVML has no SRAM: before Turing
    volatile_cache_corrected: int | None = None
    volatile_cache_uncorrected: int | None = None
    aggregate_cache_corrected: int | None = None
    aggregate_cache_uncorrected: int | None = None
    sram_threshold_exceeded: bool | None = None  # nvmlDeviceGetSramEccErrorStatus


class Remapping(Record, frozen=True, kw_only=True):
    """nvmlDeviceGetRemappedRows, nvmlDeviceGetRowRemapperHistogram (banks)."""

    corrected: int | None = None
    uncorrected: int | None = None
    pending: bool | None = None
    failure: bool | None = None
    banks_max: int | None = None  # all spare rows left
    banks_high: int | None = None
    banks_partial: int | None = None
    banks_low: int | None = None
    banks_none: int | None = None


class RetiredPages(Record, frozen=True, kw_only=True):
    """nvmlDeviceGetRetiredPages: counts by cause; before Ampere."""

    single_bit: int | None = None
    double_bit: int | None = None
    pending: bool | None = None


class NvLink(Record, frozen=True, kw_only=True):
    """One NVLink. nvmlDeviceGetNvLinkState, fields NVML_FI_DEV_NVLINK_*."""

    link: int
    active: bool | None = None
    version: int | None = None
    speed_mbps: int | None = None  # MB/s, NVML_FI_DEV_NVLINK_GET_SPEED
    remote_bus_id: Text | None = None
    replay_errors: int | None = None
    recovery_errors: int | None = None
    crc_flit_errors: int | None = None
    crc_data_errors: int | None = None


class Fabric(Record, frozen=True, kw_only=True):
    """nvmlDeviceGetGpuFabricInfo(V)."""

    state: Text | None = None  # NOT_SUPPORTED, NOT_STARTED, IN_PROGRESS, COMPLETED
    status: Text | None = None  # an NVML return code's name: SUCCESS, ...
    clique_id: int | None = None
    cluster_uuid: Text | None = None
    health_mask: int | None = None


class MigDevice(Record, frozen=True, kw_only=True):
    """A part of a GPU in MIG mode, by its own handle: nvmlDeviceGetMigDeviceHandleByIndex."""

    index: int
    uuid: Text | None = None
    ecc: EccCounts = EccCounts()
    remapping: Remapping = Remapping()


class GpuProcess(Record, frozen=True, kw_only=True):
    """nvmlDeviceGetComputeRunningProcesses."""

    pid: int
    memory_used_b: int | None = None


class Gpu(Record, frozen=True, kw_only=True):
    """One GPU as NVML sees it. `errors["handle"]` is set when NVML gives no handle."""

    index: int
    # identity
    uuid: Text | None = None
    name: Text | None = None
    brand: Text | None = None
    gpu_architecture: Text | None = None  # KEPLER ... HOPPER, BLACKWELL
    serial: Text | None = None
    board_part_number: Text | None = None
    vbios_version: Text | None = None
    inforom_image_version: Text | None = None
    gsp_firmware_version: Text | None = None
    gsp_firmware_enabled: bool | None = None
    minor_number: int | None = None  # /dev/nvidia<minor>
    module_id: int | None = None
    bus_id: Text | None = None  # as sysfs spells it: 0000:19:00.0
    pci_device: Text | None = None  # vendor:device, 10de:2330
    pci_subsystem: Text | None = None  # vendor:device of the board, 10de:16c1
    # settings
    persistence_mode: bool | None = None
    ecc_current: bool | None = None
    ecc_pending: bool | None = None
    mig_current: bool | None = None
    mig_pending: bool | None = None
    mig_devices: Annotated[tuple[MigDevice, ...], bounds.MIG_DEVICES] | None = None
    virtualization_mode: Text | None = None  # NONE, PASSTHROUGH, VGPU (in a guest), HOST_VGPU
    compute_mode: Text | None = None  # DEFAULT, EXCLUSIVE_THREAD, PROHIBITED, EXCLUSIVE_PROCESS
    power_limit_mw: int | None = None  # nvmlDeviceGetPowerManagementLimit
    power_limit_enforced_mw: int | None = None
    power_limit_default_mw: int | None = None
    power_limit_min_mw: int | None = None
    power_limit_max_mw: int | None = None
    power_draw_mw: int | None = None
    # clocks
    clock_graphics_mhz: int | None = None
    clock_sm_mhz: int | None = None
    clock_memory_mhz: int | None = None
    clock_video_mhz: int | None = None
    app_clock_graphics_mhz: int | None = None
    app_clock_memory_mhz: int | None = None
    app_clock_graphics_default_mhz: int | None = None
    app_clock_memory_default_mhz: int | None = None
    max_clock_graphics_mhz: int | None = None
    max_clock_sm_mhz: int | None = None
    max_clock_memory_mhz: int | None = None
    max_clock_video_mhz: int | None = None
    locked_clock_graphics_min_mhz: int | None = None  # null where the driver cannot tell
    locked_clock_graphics_max_mhz: int | None = None
    locked_clock_memory_min_mhz: int | None = None
    locked_clock_memory_max_mhz: int | None = None
    event_reasons: int | None = None  # bit mask, nvmlDeviceGetCurrentClocksEventReasons
    event_reasons_supported: int | None = None
    pstate: int | None = None
    # temperature
    temperature_gpu_c: int | None = None
    temperature_memory_c: int | None = None
    temperature_shutdown_c: int | None = None
    temperature_slowdown_c: int | None = None
    temperature_gpu_max_c: int | None = None
    temperature_memory_max_c: int | None = None
    temperature_margin_c: int | None = None  # T.Limit, nvmlDeviceGetMarginTemperature
    tlimit_shutdown_c: int | None = None  # margins at which it acts, NVML_FI_DEV_*_TLIMIT
    tlimit_slowdown_c: int | None = None
    tlimit_gpu_max_c: int | None = None
    tlimit_memory_max_c: int | None = None
    # PCIe
    pcie_generation: int | None = None  # now; lower when idle
    pcie_generation_max: int | None = None  # min(device, host)
    pcie_generation_device_max: int | None = None  # nvmlDeviceGetGpuMaxPcieLinkGeneration
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replay_counter: int | None = None
    # memory
    memory_total_b: int | None = None
    memory_used_b: int | None = None
    memory_reserved_b: int | None = None
    bar1_total_b: int | None = None
    # errors
    ecc: EccCounts = EccCounts()
    remapping: Remapping = Remapping()
    retired_pages: RetiredPages = RetiredPages()
    recovery_action: Text | None = None  # NONE, GPU_RESET, NODE_REBOOT, DRAIN_P2P, DRAIN_AND_RESET
    # fabric
    nvlinks: Annotated[tuple[NvLink, ...], bounds.NVLINKS] | None = None
    fabric: Fabric = Fabric()
    # load
    utilization_gpu_percent: int | None = None
    utilization_memory_percent: int | None = None
    processes: Annotated[tuple[GpuProcess, ...], bounds.PROCESSES] | None = None


class Gpus(Record, frozen=True, kw_only=True):
    """NVML as a whole. The section is `absent` without the library, and `error`
    with the NVML error's name where nvmlInit fails (driver not loaded, mismatch)."""

    driver_version: Text | None = None  # nvmlSystemGetDriverVersion
    nvml_version: Text | None = None
    cuda_version: Text | None = None  # what the driver supports, as 12.4
    count: int | None = None  # nvmlDeviceGetCount
    gpus: Annotated[tuple[Gpu, ...], bounds.GPUS] | None = None


class Aer(Record, frozen=True, kw_only=True):
    """aer_dev_{correctable,fatal,nonfatal}: totals since boot, and the kinds above zero."""

    correctable: int | None = None
    nonfatal: int | None = None
    fatal: int | None = None
    kinds: Annotated[dict[Text, int], bounds.ERROR_KINDS] = {}


class PciFunction(Record, frozen=True, kw_only=True):
    """One PCI function. /sys/bus/pci/devices/<address>/*."""

    address: Text  # 0000:19:00.0
    class_code: Text | None = None  # six hex digits: 030200
    vendor: Text | None = None  # four hex digits: 10de
    device: Text | None = None
    subsystem_vendor: Text | None = None
    subsystem_device: Text | None = None
    revision: Text | None = None  # two hex digits; ff: the function no longer answers
    driver: Text | None = None  # bound kernel driver
    physfn: Text | None = None  # of an SR-IOV virtual function the physical one; "" of any other
    numa_node: int | None = None  # -1: the firmware does not say
    local_cpulist: NumberList | None = None
    link_gts: float | None = None  # current_link_speed
    link_gts_max: float | None = None
    link_width: int | None = None
    link_width_max: int | None = None
    aer: Aer = Aer()
    # addresses of the ports above, nearest first
    upstream: Annotated[tuple[Text, ...], bounds.BUSES] | None = None

    @property
    def id(self) -> str:
        return f"{self.vendor}:{self.device}"

    @property
    def kind(self) -> str:
        """gpu, vgpu, nvswitch, nic, nvme, port or other, from the class code and the vendor.

        vgpu: a virtual function of a GPU, which a vGPU host gives to virtual machines; it has
        the ids of the GPU, and NVML does not list it."""
        code = self.class_code or ""
        if self.vendor == "10de" and code[:4] in ("0300", "0302"):
            return "vgpu" if self.physfn else "gpu"
        if self.vendor == "10de" and code[:4] == "0680":
            return "nvswitch"
        if code[:2] == "02":
            return "nic"
        if code[:4] == "0108":
            return "nvme"
        return "port" if code[:4] == "0604" else "other"


class Pci(Record, frozen=True, kw_only=True, dict=True):
    """Every NVIDIA function, NIC and NVMe, and every port above one of them."""

    functions: Annotated[tuple[PciFunction, ...], bounds.FUNCTIONS] | None = None
    # the ports that tell the kernel of errors, by /sys/bus/pci_express/drivers/aer; none where
    # the firmware handles them first
    aer_ports: Annotated[tuple[Text, ...], bounds.FUNCTIONS] | None = None
    firmware_sources: int | None = None  # of errors, by APEI: /sys/bus/platform/drivers/GHES

    @cached_property
    def by_address(self) -> Mapping[str, PciFunction]:
        return {function.address: function for function in self.functions or ()}


class Cpu(Record, frozen=True, kw_only=True):
    """/sys/devices/system/cpu: {online,offline,possible}, cpu*/topology, smt; /proc/cpuinfo."""

    model_name: Text | None = None
    vendor: Text | None = None
    online: NumberList | None = None  # cpulist
    offline: NumberList | None = None
    threads: int | None = None  # logical CPUs online
    cores: int | None = None  # distinct (package, core) online
    sockets: int | None = None
    # physical_package_id -> cpulist
    packages: Annotated[dict[Text, NumberList], bounds.CPUS] | None = None
    smt_active: bool | None = None
    smt_control: Text | None = None  # on, off, forceoff, notsupported, notimplemented


class CpufreqPolicies(Record, frozen=True, kw_only=True):
    """All policies with equal settings, as one record. /sys/devices/system/cpu/cpufreq/policy*."""

    policies: NumberList  # policy numbers as a list: 0-63
    cpus: NumberList | None = None  # affected_cpus of all, as a cpulist
    governor: Text | None = None
    driver: Text | None = None
    governors_available: Annotated[tuple[Text, ...], bounds.GOVERNORS] | None = None
    scaling_min_khz: int | None = None
    scaling_max_khz: int | None = None
    cpuinfo_min_khz: int | None = None
    cpuinfo_max_khz: int | None = None
    epp: Text | None = None  # energy_performance_preference
    epp_available: Annotated[tuple[Text, ...], bounds.GOVERNORS] | None = None


class Cpufreq(Record, frozen=True, kw_only=True):
    """`absent` where the kernel offers no cpufreq (most virtual machines)."""

    policies: Annotated[tuple[CpufreqPolicies, ...], bounds.CPUS] | None = None  # with a CPU online
    inactive: NumberList | None = None  # policy numbers: every CPU of theirs is offline
    intel_pstate: Text | None = None  # active, passive, off
    no_turbo: bool | None = None
    boost: bool | None = None


class NumaNode(Record, frozen=True, kw_only=True):
    """/sys/devices/system/node/node<id>/*."""

    id: int
    cpulist: NumberList | None = None  # empty: a node without CPUs
    cpus_present: NumberList | None = None  # its cpu<N> entries: those that are offline too
    memory_total_kb: int | None = None
    memory_free_kb: int | None = None
    # to every online node, in their order
    distances: Annotated[tuple[int, ...], bounds.NUMA_NODES] | None = None


class Numa(Record, frozen=True, kw_only=True):
    """`absent` where the kernel has no NUMA support."""

    online: NumberList | None = None  # node list
    nodes: Annotated[tuple[NumaNode, ...], bounds.NUMA_NODES] | None = None
    numa_balancing: int | None = None  # /proc/sys/kernel/numa_balancing


class Swap(Record, frozen=True, kw_only=True):
    """A swap file, partition or zram device that is active. /proc/swaps."""

    name: Text  # /swapfile, /dev/sda2; a space in it is \\040
    kind: Text | None = None  # file, partition
    size_kb: int | None = None
    used_kb: int | None = None
    priority: int | None = None  # below zero where the kernel chose it


class Fstab(Record, frozen=True, kw_only=True):
    """/etc/fstab."""

    text: FileText | None = None
    mode: int | None = None
    owner: int | None = None  # uid
    group: int | None = None  # gid


class SwapUnit(Record, frozen=True, kw_only=True):
    """A unit of type swap that another one wants, and that /etc/fstab does not explain."""

    name: Text  # dev-sda2.swap
    path: Text | None = None  # its file
    what: Text | None = None  # /dev/sda2, as its file says it


class Memory(Record, frozen=True, kw_only=True):
    """/proc/meminfo, /sys/kernel/mm/transparent_hugepage, /proc/swaps.

    `fstab` and `swap_units` are read where swap is active, and empty elsewhere."""

    total_kb: int | None = None
    available_kb: int | None = None
    swap_total_kb: int | None = None
    swap_free_kb: int | None = None
    dirty_kb: int | None = None
    hugepages_total: int | None = None
    hugepages_free: int | None = None
    hugepage_size_kb: int | None = None
    thp_enabled: Text | None = None  # always, madvise, never
    thp_defrag: Text | None = None
    swaps: Annotated[tuple[Swap, ...], bounds.SWAPS] | None = None
    # the one, where a line of it turns on swap at boot
    fstab: Annotated[tuple[Fstab, ...], bounds.SWAPS] | None = None
    swap_units: Annotated[tuple[SwapUnit, ...], bounds.SWAPS] | None = None


class DeviceNode(Record, frozen=True, kw_only=True):
    """A character device /dev/nvidia*."""

    path: Text
    major: int | None = None
    minor: int | None = None
    mode: Text | None = None  # octal permissions: 0666
    openable: bool | None = None  # access(2) for read and write as the probing user


class Modules(Record, frozen=True, kw_only=True):
    """/proc/modules, /sys/module/nvidia/version, /proc/driver/nvidia/version, /dev/nvidia*."""

    loaded: Annotated[tuple[Text, ...], bounds.MODULES] | None = None
    # in /sys/module or modules.builtin, and not loaded
    builtin: Annotated[tuple[Text, ...], bounds.MODULES] | None = None
    on_demand: Annotated[tuple[Text, ...], bounds.MODULES] | None = None  # see nodevet.probe.demand
    nvidia_version: Text | None = None  # /sys/module/nvidia/version
    nvidia_flavour: Text | None = None  # open or proprietary, from /proc/driver/nvidia/version
    device_nodes: Annotated[tuple[DeviceNode, ...], bounds.DEVICE_NODES] | None = None


class Process(Record, frozen=True, kw_only=True):
    """A process that uses a GPU. /proc/<pid>/{status,stat,cgroup,fd}."""

    pid: int
    command: Text | None = None  # comm
    uid: int | None = None
    cpus_allowed: NumberList | None = None  # Cpus_allowed_list
    mems_allowed: NumberList | None = None  # Mems_allowed_list
    cgroup: Text | None = None
    unit: Text | None = None  # the systemd unit in the cgroup path
    started_s: float | None = None  # seconds after boot
    # /dev/nvidia<minor> it holds open
    gpu_minors: Annotated[tuple[int, ...], bounds.GPUS] | None = None


class Processes(Record, frozen=True, kw_only=True):
    """Processes named by NVML or holding /dev/nvidia<N> open. `complete` is False
    where another user's open files could not be read."""

    processes: Annotated[tuple[Process, ...], bounds.PROCESSES] | None = None
    complete: bool | None = None


class KernelEvent(Record, frozen=True, kw_only=True):
    """Lines of the kernel log that say the same of the same thing."""

    # xid, sxid, off_bus, aer (PCIe: AER, DPC and the firmware's), mce (CPU and memory),
    # mce_logged (that some were, and no more), oom, hung_task
    kind: Text
    count: int | None = None
    first_s: float | None = None  # seconds after boot
    last_s: float | None = None
    code: int | None = None  # of an Xid or SXid
    bus_id: Text | None = None  # as sysfs spells it
    severity: Text | None = None  # fatal, nonfatal (uncorrected), corrected: by the line itself
    text: Text | None = None  # the first line, in ASCII


class KernelLog(Record, frozen=True, kw_only=True):
    """The kernel's own lines in /dev/kmsg, and in the journal what was before them.

    `absent` for captured files without one, `denied` where neither may be read.
    `complete` is False where it does not cover everything since boot; `errors` says why. A log
    of which only the beginning is gone still has `covered_s`."""

    source: Text | None = None  # kmsg, journal, kmsg and journal, dmesg
    complete: bool | None = None
    since_s: float | None = None  # of its first line, in seconds after boot
    covered_s: float | None = None  # from its first line to when it was read; null with gaps
    lines_read: int | None = None
    dropped: int | None = None  # lines of events beyond the limit
    events: Annotated[tuple[KernelEvent, ...], bounds.EVENTS] | None = None


class FileSystem(Record, frozen=True, kw_only=True):
    """statvfs(3) of the file system that holds a path."""

    path: Text
    type: Text | None = None  # ext4, xfs, tmpfs, nfs4: /proc/self/mounts
    remote: bool | None = None  # on the network, and so not asked
    size_b: int | None = None
    available_b: int | None = None  # to users without privileges
    inodes: int | None = None  # 0: it does not count them
    inodes_available: int | None = None
    read_only: bool | None = None
    immutable: bool | None = None  # of a kind that nobody writes: squashfs, an image's overlay


class FileSystems(Record, frozen=True, kw_only=True):
    """/, /tmp, /var, /var/log, /var/tmp, /dev/shm, /home and /run, of each file system the
    first of them. `absent` for captured files."""

    filesystems: Annotated[tuple[FileSystem, ...], bounds.FILE_SYSTEMS] | None = None
    found: Annotated[tuple[Text, ...], bounds.FILE_SYSTEMS] | None = None  # paths of all of them


class Parameter(Record, frozen=True, kw_only=True):
    """A kernel parameter, /proc/sys."""

    name: Text  # kernel.numa_balancing, as sysctl(8) spells it with dots
    value: Text | None = None  # the text, words apart by one space


class Sysctl(Record, frozen=True, kw_only=True):
    """The kernel parameters that were asked for."""

    parameters: Annotated[tuple[Parameter, ...], bounds.ASKED] | None = None


class Unit(Record, frozen=True, kw_only=True):
    """A systemd unit; `systemctl show`."""

    name: Text  # as it was asked for
    load_state: Text | None = None  # loaded, not-found, masked, bad-setting, error
    active_state: Text | None = None  # active, reloading, inactive, failed, activating, ...
    sub_state: Text | None = None  # running, exited, dead, ...
    file_state: Text | None = None  # enabled, disabled, static, masked, ...; "" without a file


class Services(Record, frozen=True, kw_only=True):
    """The systemd units that were asked for. `absent` where systemd does not run."""

    units: Annotated[tuple[Unit, ...], bounds.ASKED] | None = None


class Package(Record, frozen=True, kw_only=True):
    """A package of the NVIDIA driver, or of its surroundings. dpkg-query, apt-cache; rpm."""

    name: Text  # as the package manager has it: nvidia-dkms-550, libnvidia-compute-550:amd64
    version: Text | None = None  # installed
    held: bool | None = None  # apt-mark hold
    automatic: bool | None = None  # it came with another one: apt-mark auto
    # versions in the node's repositories, highest first
    offers: Annotated[tuple[Text, ...], bounds.PACKAGES] | None = None


class Packages(Record, frozen=True, kw_only=True):
    """What the driver is installed from; not looked at where it is as it was asked for."""

    manager: Text | None = None  # dpkg or rpm
    packages: Annotated[tuple[Package, ...], bounds.PACKAGES] | None = None


Data = TypeVar("Data")


class Section(msgspec.Struct, Generic[Data], frozen=True, kw_only=True):
    """What one collector returned: `data` is set when `status` is ok, else `why`."""

    status: Text  # ok, absent, denied, error, timeout
    why: Text = ""
    seconds: float = 0.0
    data: Data | None = None


MISSING = "the probe did not read this section"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one probe run read on one node."""

    schema: int
    probe: Text  # nodevet version of the payload
    host: Section[Host]
    gpu: Section[Gpus]
    pci: Section[Pci]
    cpu: Section[Cpu]
    cpufreq: Section[Cpufreq]
    numa: Section[Numa]
    memory: Section[Memory]
    modules: Section[Modules]
    processes: Section[Processes]
    kernel_log: Section[KernelLog]
    filesystems: Section[FileSystems]
    sysctl: Section[Sysctl]
    services: Section[Services]
    packages: Section[Packages]


class EvidenceError(Exception):
    """The document is not evidence at all; the message is one sentence."""


class _Envelope(msgspec.Struct, frozen=True):
    schema: int
    probe: Text
    sections: dict[str, msgspec.Raw]


STATUSES = ("ok", "absent", "denied", "error", "timeout")
_SECTIONS: Mapping[str, Any] = {
    field.name: msgspec.json.Decoder(field.type)
    for field in msgspec.structs.fields(Evidence)
    if field.name not in ("schema", "probe")
}
_ENVELOPE = msgspec.json.Decoder(_Envelope)
_UNIQUE = {  # section: its list, and what tells the items of it apart
    "gpu": ("gpus", ("uuid", "bus_id")),
    "pci": ("functions", ("address",)),
    "numa": ("nodes", ("id",)),
    "processes": ("processes", ("pid",)),
    "filesystems": ("filesystems", ("path",)),
    "sysctl": ("parameters", ("name",)),
    "services": ("units", ("name",)),
    "packages": ("packages", ("name",)),
}


def _section(name: str, raw: msgspec.Raw | None) -> Section[Any]:
    if raw is None:
        return Section(status="error", why=MISSING)
    try:
        section: Section[Any] = _SECTIONS[name].decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Section(status="error", why=f"the probe's answer is not valid: {error}")
    if section.status not in STATUSES:
        return Section(status="error", why=f"the probe's answer has no status {section.status!r}")
    if section.status == "ok":
        if section.data is None:
            return Section(status="error", why="the probe's answer says ok and holds no data")
        wrong = _twice(name, section.data) or _longer(section.data)
        if wrong:
            return Section(status="error", why=f"the probe's answer is not valid: {wrong}")
        return section
    if not section.why:
        return Section(status="error", why=f"the probe's answer says {section.status} and not why")
    return Section(status=section.status, why=section.why, seconds=section.seconds)


def _twice(name: str, data: Record) -> str:
    """Two items of a list that say that they are the same; nothing where there are none."""
    listed, keys = _UNIQUE.get(name, ("", ()))
    for key in keys:
        seen = set()
        for item in getattr(data, listed) or ():
            value = getattr(item, key)
            if value in seen:
                return f"two {listed} with the {key} {value}"
            if value is not None:
                seen.add(value)
    return ""


def _longer(data: Record) -> str:
    """Lists that one machine cannot have together, though each by itself; nothing where fine."""
    nodes = (data.nodes if isinstance(data, Numa) else None) or ()
    if sum(len(node.cpulist or "") for node in nodes) > bounds.LONGEST_LIST:
        return "the nodes have more CPUs together than a machine can have"
    return ""


def decode(document: bytes | str) -> Evidence:
    """Evidence from its JSON form.

    Raises EvidenceError where the document as a whole is unusable. A single
    broken section becomes `error`; an unknown section (a newer probe's) is ignored.
    """
    if len(document) > bounds.DOCUMENT:
        raise EvidenceError(f"not an evidence document: more than {bounds.DOCUMENT >> 20} MiB")
    try:
        envelope = _ENVELOPE.decode(document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceError(f"not an evidence document: {error}") from error
    if envelope.schema != SCHEMA:
        raise EvidenceError(f"evidence schema {envelope.schema}; this nodevet reads {SCHEMA}")
    sections = {name: _section(name, envelope.sections.get(name)) for name in _SECTIONS}
    return Evidence(schema=envelope.schema, probe=envelope.probe, **sections)


NOT_ASKED = "the probe was not asked for it"
"""Of a sysctl or a unit that is not in the evidence: it is as old as another baseline."""


def subject_of(gpu: Gpu) -> Subject:
    """The subject of a finding about this GPU."""
    return Subject(kind="gpu", id=str(gpu.index), uuid=gpu.uuid, bus_id=gpu.bus_id)


def board(gpu: Gpu) -> str:
    """What a GPU's board is known by to whoever has it in hand, or has it replaced.

    >>> board(Gpu(index=3, bus_id="0000:5d:00.0", serial="1652922010101"))
    '0000:5d:00.0, serial 1652922010101'
    """
    named = (("", gpu.bus_id), ("serial ", gpu.serial), ("VBIOS ", gpu.vbios_version))
    return ", ".join(f"{word}{value[:40]}" for word, value in named if value) or f"GPU {gpu.index}"


def service_of(process: Process) -> str | None:
    """The service of the system's own systemd that a process is part of.

    None where it is in another kind of unit or in a container, and where that was not read.
    """
    if not process.unit or not process.cgroup or not process.unit.endswith(".service"):
        return None
    above, found, _ = f"{process.cgroup}/".partition(f"/{process.unit}/")
    slices = above.split("/")[1:]
    return process.unit if found and all(part.endswith(".slice") for part in slices) else None


IN_HAND = (
    "gpu.count",
    "pci.functions[].class_code",
    "pci.functions[].driver",
    "pci.functions[].physfn",
    "pci.functions[].vendor",
)
"""What says how many GPUs there are to be judged: part of `reads` of whoever uses `each_gpu`."""

KEPT_FOR_GUESTS = ("vfio-pci", "nvgrace-gpu-vfio-pci", "pci-stub", "pciback", "xen-pciback")
"""Drivers that hold a GPU for a virtual machine, away from NVML."""


def gpu_functions(evidence: Evidence) -> tuple[PciFunction, ...]:
    """The GPUs on the PCI bus that the NVIDIA driver of this machine has, or ought to have."""
    functions = (evidence.pci.data.functions if evidence.pci.data else None) or ()
    mine = (each for each in functions if each.kind == "gpu")
    return tuple(each for each in mine if each.driver not in KEPT_FOR_GUESTS)


def unlisted(evidence: Evidence, judged: Collection[str] = ()) -> Finding | None:
    """The unknown finding where NVML lists fewer GPUs than it counts, or than are on the bus.

    `judged`: addresses on the bus that the check has judged without NVML.
    """
    data = evidence.gpu.data
    if data is None or data.gpus is None:
        return None
    named = {gpu.bus_id for gpu in data.gpus}
    functions = (each.address for each in gpu_functions(evidence))
    on_bus = [address for address in functions if address in named or address not in judged]
    there = max(data.count or 0, len(on_bus))
    if len(data.gpus) >= there:
        return None
    left = [address for address in on_bus if address not in named]
    told = f": not {', '.join(left[:8])}" if 0 < len(left) <= there - len(data.gpus) else ""
    return unknown(why=f"NVML lists {len(data.gpus)} of {there} GPUs{told}")


def each_gpu(evidence: Evidence) -> Iterator[Gpu | Finding]:
    """Every GPU that NVML lists; in place of one that cannot be asked, the finding that says so.

    Never empty: without NVML, or without a GPU, it is one unknown finding. So it is, after the
    others, where NVML lists fewer than there are.
    """
    section = evidence.gpu
    if section.data is None:
        yield unknown(why=f"NVML: {section.why}")
    elif section.data.gpus is None:
        yield unknown(why=f"NVML: {section.data.why('gpus')}")
    elif not section.data.gpus:
        yield unknown(why="NVML lists no GPU")
    else:
        for gpu, found in zip(section.data.gpus, located(evidence), strict=True):
            if "handle" in gpu.errors:
                yield unknown(subject_of(found), why=f"NVML: {gpu.why('handle')}")
            else:
                yield gpu
        short = unlisted(evidence)
        if short is not None:
            yield short


def logged(evidence: Evidence) -> KernelLog | Finding:
    """The kernel log since boot, with its events; in place of one that cannot be read, the
    finding that says so. Captured files without a log are exempt."""
    section = evidence.kernel_log
    if section.status == "absent":
        return exempt(why=section.why)
    if section.data is None:
        return unknown(why=f"kernel log: {section.why}")
    if section.data.events is None:
        return unknown(why=f"events: {section.data.why('events')}")
    return section.data


LEAST_COVERED_S = 3600.0
"""A log that holds less than this, and less than it has lost, is judged for nothing."""


def coverage(log: KernelLog) -> tuple[str, str]:
    """Why a kernel log says nothing by its silence, and else, where it begins after boot, since
    when it does; at most one of them is not empty."""
    if log.complete is True:
        return "", ""
    whole = log.errors.get("complete") or "the log is not known to be complete since boot"
    if log.complete is None or log.covered_s is None or log.since_s is None:
        return whole, ""
    if not 0 <= log.since_s < math.inf or not 0 <= log.covered_s < math.inf:
        return f"{whole}; it covers {log.covered_s:g} s from {log.since_s:g} s after boot", ""
    if log.covered_s < min(LEAST_COVERED_S, log.since_s):
        return f"{whole}; it covers the last {span(log.covered_s)} only", ""
    return "", f"since {span(log.since_s)} after boot, where the log begins"


def span(seconds: float) -> str:
    """As `3 h 5 min`.

    >>> span(11100.0)
    '3 h 5 min'
    """
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours} h {rest // 60} min"


def line_of(events: Iterable[KernelEvent]) -> str:
    """A line of the log about them, to be shown; empty where none was kept."""
    return next((event.text for event in events if event.text), "")


NOT_SUPPORTED = ("NVML_ERROR_NOT_SUPPORTED", "NVML_ERROR_DEPRECATED")
"""What NVML answers where a GPU, or its driver, has no such setting at all."""


def unsupported(record: Record, field: str) -> bool:
    """Whether `field` is None because the GPU has no such thing, not because a read failed."""
    return getattr(record, field) is None and record.errors.get(field) in NOT_SUPPORTED


LOST = ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")
"""What any call about a GPU answers once it does no work."""

NO_HANDLE = (*LOST, "NVML_ERROR_UNKNOWN", "NVML_ERROR_INSUFFICIENT_POWER", "NVML_ERROR_IRQ_ISSUE")
"""Why NVML gives no handle where that is the GPU's fault, and not the user's."""


def lost(gpu: Gpu) -> str | None:
    """The NVML error that says that a GPU does no work; None where no call says so."""
    handle = gpu.errors.get("handle")
    if handle in NO_HANDLE:
        return handle
    parts = (gpu, gpu.ecc, gpu.remapping, gpu.retired_pages, gpu.fabric, *(gpu.nvlinks or ()))
    return next((why for part in parts for why in part.errors.values() if why in LOST), None)


def unread(subject: Subject, record: Record, field: str) -> Finding:
    """The unknown finding for a value that could not be read."""
    return unknown(subject, why=f"{field}: {record.why(field)}")


def off_the_bus(evidence: Evidence) -> frozenset[str]:
    """The addresses of the GPUs that no longer answer a read of their configuration."""
    functions = (evidence.pci.data.functions if evidence.pci.data else None) or ()
    gone = (each for each in functions if each.kind == "gpu" and each.revision == "ff")
    return frozenset(each.address for each in gone)


def located(evidence: Evidence) -> tuple[Gpu, ...]:
    """Every GPU of NVML's list, a lost one of no known address with the one that is left over.

    NVML may have forgotten where a GPU is that it cannot reach; the PCI bus has not: it is the
    one function that no longer answers, or the only one that NVML does not name and that no
    other driver has.
    """
    gpus = (evidence.gpu.data.gpus if evidence.gpu.data else None) or ()
    nameless = [gpu for gpu in gpus if gpu.bus_id is None and lost(gpu)]
    if len(nameless) != 1:
        return gpus
    named = {gpu.bus_id for gpu in gpus}
    functions = gpu_functions(evidence)
    mine = frozenset(each.address for each in functions if each.driver in (None, "nvidia"))
    left = (off_the_bus(evidence) - named) or (mine - named)
    if len(left) != 1:
        return gpus
    found = msgspec.structs.replace(nameless[0], bus_id=next(iter(left)))
    return tuple(found if gpu is nameless[0] else gpu for gpu in gpus)


def pci_of(evidence: Evidence, gpu: Gpu) -> PciFunction | Finding:
    """The PCI function of a GPU, or the unknown finding that says why it cannot be told."""
    subject, section = subject_of(gpu), evidence.pci
    if gpu.bus_id is None:
        return unread(subject, gpu, "bus_id")
    if section.data is None:
        return unknown(subject, why=f"PCI: {section.why}")
    if section.data.functions is None:
        return unread(subject, section.data, "functions")
    function = section.data.by_address.get(gpu.bus_id)
    return function or unknown(subject, why="not among the functions on the PCI bus")


NO_LIBRARY = "NVML_ERROR_LIBRARY_NOT_FOUND"


def half_a_driver(evidence: Evidence) -> str:
    """What is there of a driver whose kernel module is loaded and whose library is not there.

    Empty without a loaded module: then there is no driver, or another one, and kernel_modules
    says which. So it is where the library is there and does not load, or refuses the module.
    """
    section, modules = evidence.gpu, evidence.modules.data
    missing = section.status == "absent" and section.why.startswith(NO_LIBRARY)
    if not missing or modules is None or not modules.nvidia_version:
        return ""
    return f"kernel module nvidia {modules.nvidia_version} is loaded; NVML: {section.why}"


INSTALL_LIBRARY = (
    "install the library of the loaded module's own version (Ubuntu and Debian: libnvidia-compute "
    "of the branch, RHEL: nvidia-driver-cuda-libs); of a driver that a container brings (GPU "
    "Operator: /run/nvidia/driver) the node's loader must know its libraries"
)

NO_OTHER_CLOCK = "no controller's clock came with the request"
"""Why `asked_s` is None where a node is probed by itself."""


@lru_cache(maxsize=1024)
def numbers(text: str | None) -> frozenset[int] | None:
    """The numbers in a kernel list such as a cpulist; None where it is none.

    >>> sorted(numbers("0-2,8"))
    [0, 1, 2, 8]
    """
    if text is None:
        return None
    found: set[int] = set()
    told = 0
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        ends = (first, last) if dash else (first, first)
        if not all(end.isascii() and end.isdigit() and len(end) < 6 for end in ends):
            return None
        low, high = map(int, ends)
        told += high - low + 1
        if not low <= high <= bounds.HIGHEST_CPU or told > bounds.HIGHEST_CPU + 1:
            return None
        found.update(range(low, high + 1))
    return frozenset(found)


def spans(numbers: Iterable[int]) -> str:
    """Numbers as a kernel list, as `numbers` reads it.

    >>> spans([8, 0, 1, 2])
    '0-2,8'
    """
    found: list[list[int]] = []
    for number in sorted(set(numbers)):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def nodes_of(evidence: Evidence) -> Mapping[int, NumaNode] | Finding:
    """Every NUMA node that is online, by number; none of them where the kernel has no NUMA."""
    section = evidence.numa
    if section.status == "absent":
        return {}
    if section.data is None:
        return unknown(why=f"NUMA: {section.why}")
    if not section.data.nodes:
        return unknown(why=f"nodes: {section.data.why('nodes')}")
    found = {node.id: node for node in section.data.nodes}
    online = numbers(section.data.online)
    if not online:
        told = section.data.online
        return unknown(why=f"online: {section.data.why('online') if told is None else told[:60]}")
    if online - found.keys():
        there = len(online & found.keys())
        return unknown(why=f"{there} of {len(online)} NUMA nodes that are online were read")
    return found


def has_memory_alone(node: NumaNode) -> bool:
    """Whether a node is one without any CPU: a GPU's memory (Grace Hopper), CXL, HBM.

    A node whose CPUs are all offline is none: it keeps its cpu<N> entries,
    register_cpu_under_node() in the kernel.
    """
    return node.cpulist == "" and node.cpus_present == ""


def nearest(
    evidence: Evidence, node: NumaNode, nodes: Mapping[int, NumaNode]
) -> tuple[NumaNode, ...] | str:
    """The nodes whose CPUs are nearest to a node, itself where it has some; or why not known."""
    if not has_memory_alone(node):
        return (node,)
    order = sorted(numbers(evidence.numa.data.online if evidence.numa.data else None) or ())
    if node.distances is None or len(node.distances) != len(order):
        known = node.why("distances") if node.distances is None else "not one for each node"
        return f"NUMA node {node.id} has no CPUs, and its distances were not read: {known}"
    away = dict(zip(order, node.distances, strict=True))
    if any(each.cpulist is None for each in nodes.values()):
        return "a NUMA node's cpulist was not read"
    with_cpus = [each for each in nodes.values() if numbers(each.cpulist) and each.id in away]
    least = min((away[each.id] for each in with_cpus), default=None)
    if least is None:
        return "no NUMA node has CPUs"
    return tuple(each for each in with_cpus if away[each.id] == least)
