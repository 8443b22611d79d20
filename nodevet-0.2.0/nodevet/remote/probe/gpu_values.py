"""The NVML call for each value of a GPU, and how to read its answer."""

from nodevet.remote.probe.files import Reading
from nodevet.remote.probe.gpu_nvml import CallError, flag, number, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable


def cuda_version(value: int) -> str:
    """12040 -> 12.4"""
    return "{}.{}".format(number(value) // 1000, number(value) % 1000 // 10)


def bus_id(value: "bytes | str") -> str:
    """NVML's bus id in sysfs's spelling.

    >>> bus_id("00000000:3B:00.0")
    '0000:3b:00.0'
    """
    domain, bus, device = text(value).split(":")
    return "{:04x}:{}:{}".format(int(domain, 16), bus, device).lower()


def pci_id(value: int) -> str:
    """vendor:device, of NVML's device << 16 | vendor.

    >>> pci_id(0x233010DE)
    '10de:2330'
    """
    return "{:04x}:{:04x}".format(number(value) & 0xFFFF, number(value) >> 16)


NO_BIT_ERRORS = 0xFFF  # NVML's least value, 15e-255


def bit_error_rate(value: int) -> float:
    """nvml.h: bits 0 to 7 are the exponent, bits 8 to 11 the mantissa.

    >>> bit_error_rate(0x10C), bit_error_rate(0xFFF), bit_error_rate(0)
    (1e-12, 0.0, 0.0)
    """
    code = number(value)
    mantissa, exponent = code >> 8 & 0xF, code & 0xFF
    if mantissa > 10**exponent:
        raise ValueError("{:#x} is not a bit error rate".format(code))
    return 0.0 if code == NO_BIT_ERRORS else float("{}e-{}".format(mantissa, exponent))


def memory_temperature(value: int) -> int:
    """Degrees Celsius. A GPU without a memory sensor answers 0."""
    if number(value) == 0:
        raise CallError("NVML returned 0: no sensor")
    return number(value)


def limit(value: "int | None") -> int:
    """A T.Limit threshold, degrees below the limit. Some drivers return it unsigned.

    >>> limit(-2), limit(0xFFFFFFFE)
    (-2, -2)
    """
    degrees = number(value)
    return degrees - (1 << 32) if degrees >= 1 << 31 else degrees


def pstate(value: int) -> int:
    if number(value) == 32:
        raise CallError("NVML_PSTATE_UNKNOWN")
    return number(value)


# rows of gpu_nvml.fill
NVML = (
    ("driver_version", text, None, ("nvmlSystemGetDriverVersion",)),
    ("nvml_version", text, None, ("nvmlSystemGetNVMLVersion",)),
    (
        "cuda_version",
        cuda_version,
        None,
        ("nvmlSystemGetCudaDriverVersion_v2",),
        ("nvmlSystemGetCudaDriverVersion",),
    ),
    ("count", number, None, ("nvmlDeviceGetCount",)),
)

IDENTITY = (
    ("uuid", text, None, ("nvmlDeviceGetUUID",)),
    ("name", text, None, ("nvmlDeviceGetName",)),
    ("brand", "NVML_BRAND_", None, ("nvmlDeviceGetBrand",)),
    ("gpu_architecture", "NVML_DEVICE_ARCH_", None, ("nvmlDeviceGetArchitecture",)),
    ("serial", text, None, ("nvmlDeviceGetSerial",)),
    ("board_part_number", text, None, ("nvmlDeviceGetBoardPartNumber",)),
    ("vbios_version", text, None, ("nvmlDeviceGetVbiosVersion",)),
    ("inforom_image_version", text, None, ("nvmlDeviceGetInforomImageVersion",)),
    ("gsp_firmware_version", text, None, ("nvmlDeviceGetGspFirmwareVersion",)),
    ("gsp_firmware_enabled", flag, 0, ("nvmlDeviceGetGspFirmwareMode",)),
    ("minor_number", number, None, ("nvmlDeviceGetMinorNumber",)),
    ("module_id", number, None, ("nvmlDeviceGetModuleId",)),
    ("bus_id", bus_id, "busId", ("nvmlDeviceGetPciInfo_v3",)),
    ("pci_device", pci_id, "pciDeviceId", ("nvmlDeviceGetPciInfo_v3",)),
    ("pci_subsystem", pci_id, "pciSubSystemId", ("nvmlDeviceGetPciInfo_v3",)),
)

SETTINGS = (
    ("persistence_mode", flag, None, ("nvmlDeviceGetPersistenceMode",)),
    ("ecc_current", flag, 0, ("nvmlDeviceGetEccMode",)),
    ("ecc_pending", flag, 1, ("nvmlDeviceGetEccMode",)),
    ("mig_current", flag, 0, ("nvmlDeviceGetMigMode",)),
    ("mig_pending", flag, 1, ("nvmlDeviceGetMigMode",)),
    (
        "virtualization_mode",
        "NVML_GPU_VIRTUALIZATION_MODE_",
        None,
        ("nvmlDeviceGetVirtualizationMode",),
    ),
    ("compute_mode", "NVML_COMPUTEMODE_", None, ("nvmlDeviceGetComputeMode",)),
    ("power_limit_mw", number, None, ("nvmlDeviceGetPowerManagementLimit",)),
    ("power_limit_enforced_mw", number, None, ("nvmlDeviceGetEnforcedPowerLimit",)),
    ("power_limit_default_mw", number, None, ("nvmlDeviceGetPowerManagementDefaultLimit",)),
    ("power_limit_min_mw", number, 0, ("nvmlDeviceGetPowerManagementLimitConstraints",)),
    ("power_limit_max_mw", number, 1, ("nvmlDeviceGetPowerManagementLimitConstraints",)),
    ("power_draw_mw", number, None, ("nvmlDeviceGetPowerUsage",)),
)


def clock(field: str, function: str, domain: str) -> "tuple[Any, ...]":
    return (field, number, None, (function, domain))


def app_clock(field: str, identity: str, function: str, domain: str) -> "tuple[Any, ...]":
    """Application clocks, by their own call or the general one of newer drivers."""
    return (field, number, None, (function, domain), ("nvmlDeviceGetClock", domain, identity))


GRAPHICS, SM, MEMORY, VIDEO = (
    "NVML_CLOCK_GRAPHICS",
    "NVML_CLOCK_SM",
    "NVML_CLOCK_MEM",
    "NVML_CLOCK_VIDEO",
)
TARGET, DEFAULT = ("NVML_CLOCK_ID_APP_CLOCK_TARGET", "NVML_CLOCK_ID_APP_CLOCK_DEFAULT")
APP, APP_DEFAULT = ("nvmlDeviceGetApplicationsClock", "nvmlDeviceGetDefaultApplicationsClock")

CLOCKS = (
    clock("clock_graphics_mhz", "nvmlDeviceGetClockInfo", GRAPHICS),
    clock("clock_sm_mhz", "nvmlDeviceGetClockInfo", SM),
    clock("clock_memory_mhz", "nvmlDeviceGetClockInfo", MEMORY),
    clock("clock_video_mhz", "nvmlDeviceGetClockInfo", VIDEO),
    app_clock("app_clock_graphics_mhz", TARGET, APP, GRAPHICS),
    app_clock("app_clock_memory_mhz", TARGET, APP, MEMORY),
    app_clock("app_clock_graphics_default_mhz", DEFAULT, APP_DEFAULT, GRAPHICS),
    app_clock("app_clock_memory_default_mhz", DEFAULT, APP_DEFAULT, MEMORY),
    clock("max_clock_graphics_mhz", "nvmlDeviceGetMaxClockInfo", GRAPHICS),
    clock("max_clock_sm_mhz", "nvmlDeviceGetMaxClockInfo", SM),
    clock("max_clock_memory_mhz", "nvmlDeviceGetMaxClockInfo", MEMORY),
    clock("max_clock_video_mhz", "nvmlDeviceGetMaxClockInfo", VIDEO),
    (
        "event_reasons",
        number,
        None,
        ("nvmlDeviceGetCurrentClocksEventReasons",),
        ("nvmlDeviceGetCurrentClocksThrottleReasons",),
    ),
    (
        "event_reasons_supported",
        number,
        None,
        ("nvmlDeviceGetSupportedClocksEventReasons",),
        ("nvmlDeviceGetSupportedClocksThrottleReasons",),
    ),
    ("pstate", pstate, None, ("nvmlDeviceGetPerformanceState",)),
)

REASON = "NVML_FI_DEV_CLOCKS_EVENT_REASON_"
THROTTLED = (
    ("throttled_sw_thermal_ns", number, None, ("field", REASON + "SW_THERM_SLOWDOWN")),
    ("throttled_hw_thermal_ns", number, None, ("field", REASON + "HW_THERM_SLOWDOWN")),
    ("throttled_power_cap_ns", number, None, ("field", REASON + "SW_POWER_CAP")),
    ("throttled_power_brake_ns", number, None, ("field", REASON + "HW_POWER_BRAKE_SLOWDOWN")),
)


def threshold(field: str, name: str) -> "tuple[Any, ...]":
    return (field, number, None, ("nvmlDeviceGetTemperatureThreshold", name))


TEMPERATURES = (
    (
        "temperature_gpu_c",
        number,
        None,
        ("nvmlDeviceGetTemperatureV", "NVML_TEMPERATURE_GPU"),
        ("nvmlDeviceGetTemperature", "NVML_TEMPERATURE_GPU"),
    ),
    ("temperature_memory_c", memory_temperature, None, ("field", "NVML_FI_DEV_MEMORY_TEMP")),
    threshold("temperature_shutdown_c", "NVML_TEMPERATURE_THRESHOLD_SHUTDOWN"),
    threshold("temperature_slowdown_c", "NVML_TEMPERATURE_THRESHOLD_SLOWDOWN"),
    threshold("temperature_gpu_max_c", "NVML_TEMPERATURE_THRESHOLD_GPU_MAX"),
    threshold("temperature_memory_max_c", "NVML_TEMPERATURE_THRESHOLD_MEM_MAX"),
    ("temperature_margin_c", number, None, ("nvmlDeviceGetMarginTemperature",)),
    ("tlimit_shutdown_c", limit, None, ("field", "NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT")),
    ("tlimit_slowdown_c", limit, None, ("field", "NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT")),
    ("tlimit_gpu_max_c", limit, None, ("field", "NVML_FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT")),
    ("tlimit_memory_max_c", limit, None, ("field", "NVML_FI_DEV_TEMPERATURE_MEM_MAX_TLIMIT")),
)

PCIE = (
    ("pcie_generation", number, None, ("nvmlDeviceGetCurrPcieLinkGeneration",)),
    ("pcie_generation_max", number, None, ("nvmlDeviceGetMaxPcieLinkGeneration",)),
    ("pcie_generation_device_max", number, None, ("nvmlDeviceGetGpuMaxPcieLinkGeneration",)),
    ("pcie_width", number, None, ("nvmlDeviceGetCurrPcieLinkWidth",)),
    ("pcie_width_max", number, None, ("nvmlDeviceGetMaxPcieLinkWidth",)),
    (
        "pcie_replay_counter",
        number,
        None,
        ("nvmlDeviceGetPcieReplayCounter",),
        ("field", "NVML_FI_DEV_PCIE_REPLAY_COUNTER"),
    ),
)

MEMORY_INFO = ("nvmlDeviceGetMemoryInfo", "nvmlMemory_v2")  # used excludes reserved
MEMORY_INFO_V1 = ("nvmlDeviceGetMemoryInfo",)  # used includes reserved
LOAD = (
    ("memory_total_b", number, "total", MEMORY_INFO, MEMORY_INFO_V1),
    ("memory_used_b", number, "used", MEMORY_INFO, MEMORY_INFO_V1),
    ("memory_reserved_b", number, "reserved", MEMORY_INFO),
    ("bar1_total_b", number, "bar1Total", ("nvmlDeviceGetBAR1MemoryInfo",)),
    ("utilization_gpu_percent", number, "gpu", ("nvmlDeviceGetUtilizationRates",)),
    ("utilization_memory_percent", number, "memory", ("nvmlDeviceGetUtilizationRates",)),
)


def processes(answer: "Iterable[Any]") -> "list[Reading]":
    """[{pid, memory_used_b}] of compute processes."""
    records = []
    for item in answer:
        process = Reading(pid=int(item.pid), memory_used_b=item.usedGpuMemory)
        if item.usedGpuMemory is None:
            process.fail("memory_used_b", "NVML_VALUE_NOT_AVAILABLE")
        records.append(process)
    return records


VALUES = (
    SETTINGS
    + CLOCKS
    + THROTTLED
    + TEMPERATURES
    + PCIE
    + LOAD
    + (
        (
            "recovery_action",
            "NVML_GPU_RECOVERY_ACTION_",
            None,
            ("field", "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"),
        ),
        (
            "processes",
            processes,
            None,
            ("nvmlDeviceGetComputeRunningProcesses_v3",),
            ("nvmlDeviceGetComputeRunningProcesses_v2",),
        ),
    )
)
