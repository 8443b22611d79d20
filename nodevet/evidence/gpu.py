"""Section gpu: what NVML says."""

from typing import Annotated

from msgspec.structs import replace

from nodevet.base import bounds
from nodevet.base.bounds import Real, Text, at_most
from nodevet.evidence.core import Record, SectionRecord
from nodevet.evidence.peers import is_same, mark_unread_values
from nodevet.model import Subject

MIG_DEVICES = at_most(64)  # of one GPU, which is cut into 7 at most
NVLINKS = at_most(64)  # NVML_NVLINK_MAX_LINKS is 18, and 36 in the headers of later drivers


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
    # L1, L2, register file, textures and CBU together, if NVML has no SRAM: before Turing
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


class Repair(Record, frozen=True, kw_only=True):
    """nvmlDeviceGetRepairStatus, nvmlDeviceGetUnrepairableMemoryFlag_v1; Blackwell and later."""

    channel_pending: bool | None = None  # of the memory; at the next reset
    tpc_pending: bool | None = None  # of the cores
    unrepairable_memory: bool | None = None


class Peer(Record, frozen=True, kw_only=True):
    """What a GPU can do with another one's memory, as far as NVML knows. nvmlDeviceGetP2PStatus:
    OK, CHIPSET_NOT_SUPPORTED, GPU_NOT_SUPPORTED, IOH_TOPOLOGY_NOT_SUPPORTED, DISABLED_BY_REGKEY,
    NOT_SUPPORTED, UNKNOWN."""

    index: int  # of the other
    read: Text | None = None  # over PCIe or NVLink
    nvlink: Text | None = None


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
    # errors of each bit or symbol, from NVLink 5 on: NVML_FI_DEV_NVLINK_COUNT_*_BER
    effective_ber: Real | None = None
    symbol_ber: Real | None = None
    # nvmlDeviceGetNvLinkCapability, NVML_NVLINK_CAP_*; read if a baseline asks for it, as are rates
    p2p: bool | None = None
    sysmem_access: bool | None = None
    p2p_atomics: bool | None = None
    sysmem_atomics: bool | None = None


class Fabric(Record, frozen=True, kw_only=True):
    """nvmlDeviceGetGpuFabricInfo(V)."""

    state: Text | None = None  # NOT_SUPPORTED, NOT_STARTED, IN_PROGRESS, COMPLETED
    status: Text | None = None  # an NVML return code's name: SUCCESS, ...
    clique_id: int | None = None
    cluster_uuid: Text | None = None
    health_mask: int | None = None
    health_summary: Text | None = None  # NOT_SUPPORTED, HEALTHY, UNHEALTHY, LIMITED_CAPACITY


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

    apart = ("mig_devices",)
    volatile = (
        "power_draw_mw",
        "clock_graphics_mhz",
        "clock_sm_mhz",
        "clock_memory_mhz",
        "clock_video_mhz",
        "event_reasons",
        "throttled_sw_thermal_ns",
        "throttled_hw_thermal_ns",
        "throttled_power_cap_ns",
        "throttled_power_brake_ns",
        "pstate",
        "temperature_gpu_c",
        "temperature_memory_c",
        "temperature_margin_c",
        "pcie_generation",
        "memory_used_b",
        "utilization_gpu_percent",
        "utilization_memory_percent",
        "processes",
    )

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
    inforom_valid: bool | None = None  # nvmlDeviceValidateInforom; read if a baseline asks for it
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
    mig_devices: Annotated[tuple[MigDevice, ...], MIG_DEVICES] | None = None
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
    locked_clock_graphics_min_mhz: int | None = None  # null if the driver cannot tell
    locked_clock_graphics_max_mhz: int | None = None
    locked_clock_memory_min_mhz: int | None = None
    locked_clock_memory_max_mhz: int | None = None
    event_reasons: int | None = None  # bit mask, nvmlDeviceGetCurrentClocksEventReasons
    event_reasons_supported: int | None = None
    # how long such a reason held since the driver was loaded: NVML_FI_DEV_CLOCKS_EVENT_REASON_*
    throttled_sw_thermal_ns: int | None = None
    throttled_hw_thermal_ns: int | None = None
    throttled_power_cap_ns: int | None = None
    throttled_power_brake_ns: int | None = None
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
    repair: Repair = Repair()
    recovery_action: Text | None = None  # NONE, GPU_RESET, NODE_REBOOT, DRAIN_P2P, DRAIN_AND_RESET
    # fabric
    nvlinks: Annotated[tuple[NvLink, ...], NVLINKS] | None = None
    fabric: Fabric = Fabric()
    # every other GPU; null on a node with more of them than are asked about
    peers: Annotated[tuple[Peer, ...], bounds.GPUS] | None = None
    # load
    utilization_gpu_percent: int | None = None
    utilization_memory_percent: int | None = None
    processes: Annotated[tuple[GpuProcess, ...], bounds.PROCESSES] | None = None


class Gpus(SectionRecord, frozen=True, kw_only=True):
    """NVML as a whole. The section is `absent` without the library, and `error`
    with the NVML error's name if nvmlInit fails (driver not loaded, mismatch)."""

    unique = (
        "gpus[].uuid",
        "gpus[].bus_id",
        "gpus[].index",
        "gpus[].mig_devices[].index",
        "gpus[].mig_devices[].uuid",
        "gpus[].nvlinks[].link",
        "gpus[].peers[].index",
    )

    driver_version: Text | None = None  # nvmlSystemGetDriverVersion
    nvml_version: Text | None = None
    cuda_version: Text | None = None  # what the driver supports, as 12.4
    count: int | None = None  # nvmlDeviceGetCount
    gpus: Annotated[tuple[Gpu, ...], bounds.GPUS] | None = None

    def with_parts_compared(self) -> "Gpus":
        gpus = self.gpus or ()
        compared_gpus = mark_unread_values(
            gpus, is_alike=have_same_features, label=lambda gpu: subject_of(gpu).label
        )
        is_unchanged = all(one is other for one, other in zip(gpus, compared_gpus, strict=True))
        return self if is_unchanged else replace(self, gpus=compared_gpus)


LIKENESS = ("gpu.gpus[].mig_current", "gpu.gpus[].pci_device", "gpu.gpus[].virtualization_mode")
"""The fields that decide which GPUs must have the same features: they can change any finding about
a GPU, but no check lists them in `reads` for that."""


def have_same_features(gpu: Gpu, other: Gpu) -> bool:
    """Whether two GPUs should have the same features: same model, both or neither in MIG mode, both
    or neither virtual."""
    return is_same(gpu.pci_device, other.pci_device) and (
        (bool(gpu.mig_current), gpu.virtualization_mode == "VGPU")
        == (bool(other.mig_current), other.virtualization_mode == "VGPU")
    )


def subject_of(gpu: Gpu) -> Subject:
    """The subject of a finding about this GPU."""
    return Subject(kind="gpu", id=str(gpu.index), uuid=gpu.uuid, bus_id=gpu.bus_id)


def board(gpu: Gpu) -> dict[str, str]:
    """What identifies a GPU's board for its replacement.

    >>> board(Gpu(index=3, bus_id="0000:5d:00.0", serial="1652922010101"))
    {'bus id': '0000:5d:00.0', 'serial': '1652922010101'}
    """
    values = {"bus id": gpu.bus_id, "serial": gpu.serial, "VBIOS": gpu.vbios_version}
    return {word: value[:40] for word, value in values.items() if value}


LOST = frozenset(("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED"))
"""NVML's errors for a GPU that no longer works."""


NO_HANDLE = (*LOST, "NVML_ERROR_UNKNOWN", "NVML_ERROR_INSUFFICIENT_POWER", "NVML_ERROR_IRQ_ISSUE")
"""Why NVML gives no handle, if it is the GPU's fault."""


def lost_error(gpu: Gpu) -> str | None:
    """The NVML error of a GPU that no longer works, or None."""
    handle = gpu.errors.get("handle")
    if handle in NO_HANDLE:
        return handle
    parts = (gpu, gpu.ecc, gpu.remapping, gpu.retired_pages, gpu.repair, gpu.fabric)
    for part in (*parts, *(gpu.nvlinks or ())):
        if part.errors and not LOST.isdisjoint(part.errors.values()):
            return next(why for why in part.errors.values() if why in LOST)
    return None


NO_LIBRARY = "NVML_ERROR_LIBRARY_NOT_FOUND"
