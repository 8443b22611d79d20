"""What each element of <gpu> is in an NVML state: the table, and how it is applied.

The keys are those of nodevet.evidence.gpu.Gpu; nodevet/remote/probe/gpu_values.py and gpu_health.py
say which NVML call answers each. Names of elements are those of the schemas v10 (driver 418) to v13
(580 and later); if one was renamed, the first one with a value counts.

Fields of the evidence that `nvidia-smi -q -x` does not print, so NVML answers NOT_SUPPORTED: the
NVLinks, gsp_firmware_enabled, event_reasons_supported, the locked clocks. Printed values that the
evidence has no field for: MIG devices and their memory, the counters by part of the SRAM, remapped
rows that are inactive, addresses of retired pages, reset_required, power of memory and module,
power smoothing, fans, PCIe throughput, encoders, supported clocks, how long sw_power_cap and
sync_boost held, platform (chassis, tray, slot), graphics processes, accounting. Memory is in whole
MiB there and power in hundredths of a watt, so no finer here.
"""

from xml.etree.ElementTree import Element

from nodevet_sim.xml.document import XmlDocument
from nodevet_sim.xml.text import (
    Read,
    architecture,
    banks,
    celsius,
    convert,
    identity,
    lanes,
    mebibytes,
    megahertz,
    microseconds,
    pci_id,
    percent,
    plain,
    pstate,
    switch,
    text,
    watts,
    word,
)

Row = tuple[str, Read, tuple[str, ...]]

LINK = "pci/pci_gpu_link_info"
POWER = ("gpu_power_readings", "power_readings")


def power(*names: str) -> tuple[str, ...]:
    """These elements, newer names first, of the newer and the older readings."""
    return tuple(f"{readings}/{name}" for name in names for readings in POWER)


IDENTITY: tuple[Row, ...] = (
    ("uuid", identity, ("uuid",)),
    ("name", text, ("product_name",)),
    ("brand", word, ("product_brand",)),
    ("gpu_architecture", architecture, ("product_architecture",)),
    ("serial", text, ("serial",)),
    ("board_part_number", text, ("board_part_number",)),
    ("vbios_version", text, ("vbios_version",)),
    ("inforom_image_version", text, ("inforom_version/img_version",)),
    ("gsp_firmware_version", text, ("gsp_firmware_version",)),
    ("minor_number", plain, ("minor_number",)),
    ("module_id", plain, ("platformInfo/module_id", "gpu_module_id")),
    ("pci_device", pci_id, ("pci/pci_device_id",)),
    ("pci_subsystem", pci_id, ("pci/pci_sub_system_id",)),
)


def _ecc(life: str) -> tuple[Row, ...]:
    """Counters joined by + are added up, as NVML counts them: parity and SEC-DED are what
    a driver before 545 shows as SRAM uncorrectable, and the total is SRAM and DRAM."""
    here = f"ecc_errors/{life}"
    parts = f"{here}/sram_uncorrectable_parity+{here}/sram_uncorrectable_secded"
    dram = f"{here}/dram_uncorrectable"
    sram = f"{here}/sram_uncorrectable"
    corrected = f"{here}/sram_correctable+{here}/dram_correctable"
    rows = {
        "corrected": (f"{here}/single_bit/total", corrected),
        "uncorrected": (f"{here}/double_bit/total", f"{parts}+{dram}", f"{sram}+{dram}"),
        "sram_corrected": (f"{here}/sram_correctable",),
        "sram_uncorrected": (parts, sram),
        "dram_corrected": (f"{here}/dram_correctable", f"{here}/single_bit/device_memory"),
        "dram_uncorrected": (dram, f"{here}/double_bit/device_memory"),
    }
    return tuple((f"ecc.{life}_{name}", plain, paths) for name, paths in rows.items())


COUNTERS = "clocks_event_reasons_counters"
READINGS: tuple[Row, ...] = (
    ("persistence_mode", switch, ("persistence_mode",)),
    ("ecc_current", switch, ("ecc_mode/current_ecc",)),
    ("ecc_pending", switch, ("ecc_mode/pending_ecc",)),
    ("mig_current", switch, ("mig_mode/current_mig",)),
    ("mig_pending", switch, ("mig_mode/pending_mig",)),
    ("compute_mode", word, ("compute_mode",)),
    # since 535 `current` is what the driver enforces and `requested` what was set
    ("power_limit_mw", watts, power("requested_power_limit", "power_limit")),
    ("power_limit_enforced_mw", watts, power("current_power_limit", "enforced_power_limit")),
    ("power_limit_default_mw", watts, power("default_power_limit")),
    ("power_limit_min_mw", watts, power("min_power_limit")),
    ("power_limit_max_mw", watts, power("max_power_limit")),
    ("power_draw_mw", watts, power("average_power_draw", "power_draw", "instant_power_draw")),
    ("clock_graphics_mhz", megahertz, ("clocks/graphics_clock",)),
    ("clock_sm_mhz", megahertz, ("clocks/sm_clock",)),
    ("clock_memory_mhz", megahertz, ("clocks/mem_clock",)),
    ("clock_video_mhz", megahertz, ("clocks/video_clock",)),
    ("app_clock_graphics_mhz", megahertz, ("applications_clocks/graphics_clock",)),
    ("app_clock_memory_mhz", megahertz, ("applications_clocks/mem_clock",)),
    (
        "app_clock_graphics_default_mhz",
        megahertz,
        ("default_applications_clocks/graphics_clock",),
    ),
    ("app_clock_memory_default_mhz", megahertz, ("default_applications_clocks/mem_clock",)),
    ("max_clock_graphics_mhz", megahertz, ("max_clocks/graphics_clock",)),
    ("max_clock_sm_mhz", megahertz, ("max_clocks/sm_clock",)),
    ("max_clock_memory_mhz", megahertz, ("max_clocks/mem_clock",)),
    ("max_clock_video_mhz", megahertz, ("max_clocks/video_clock",)),
    ("pstate", pstate, ("performance_state",)),
    *(
        (f"throttled_{name}_ns", microseconds, (f"{COUNTERS}/{COUNTERS}_{reason}",))
        for name, reason in (
            ("sw_thermal", "sw_therm_slowdown"),
            ("hw_thermal", "hw_therm_slowdown"),
            ("power_cap", "sw_power_cap"),
            ("power_brake", "hw_power_brake"),
        )
    ),
    ("temperature_gpu_c", celsius, ("temperature/gpu_temp",)),
    ("temperature_memory_c", celsius, ("temperature/memory_temp",)),
    ("temperature_shutdown_c", celsius, ("temperature/gpu_temp_max_threshold",)),
    ("temperature_slowdown_c", celsius, ("temperature/gpu_temp_slow_threshold",)),
    ("temperature_gpu_max_c", celsius, ("temperature/gpu_temp_max_gpu_threshold",)),
    ("temperature_memory_max_c", celsius, ("temperature/gpu_temp_max_mem_threshold",)),
    ("temperature_margin_c", celsius, ("temperature/gpu_temp_tlimit",)),
    ("tlimit_shutdown_c", celsius, ("temperature/gpu_temp_max_tlimit_threshold",)),
    ("tlimit_slowdown_c", celsius, ("temperature/gpu_temp_slow_tlimit_threshold",)),
    ("tlimit_gpu_max_c", celsius, ("temperature/gpu_temp_max_gpu_tlimit_threshold",)),
    ("tlimit_memory_max_c", celsius, ("temperature/gpu_temp_max_mem_tlimit_threshold",)),
    ("pcie_generation", plain, (f"{LINK}/pcie_gen/current_link_gen",)),
    ("pcie_generation_max", plain, (f"{LINK}/pcie_gen/max_link_gen",)),
    ("pcie_generation_device_max", plain, (f"{LINK}/pcie_gen/max_device_link_gen",)),
    ("pcie_width", lanes, (f"{LINK}/link_widths/current_link_width",)),
    ("pcie_width_max", lanes, (f"{LINK}/link_widths/max_link_width",)),
    ("pcie_replay_counter", plain, ("pci/replay_counter",)),
    ("memory_total_b", mebibytes, ("fb_memory_usage/total",)),
    ("memory_used_b", mebibytes, ("fb_memory_usage/used",)),
    ("memory_reserved_b", mebibytes, ("fb_memory_usage/reserved",)),
    ("bar1_total_b", mebibytes, ("bar1_memory_usage/total",)),
    ("utilization_gpu_percent", percent, ("utilization/gpu_util",)),
    ("utilization_memory_percent", percent, ("utilization/memory_util",)),
    *_ecc("volatile"),
    *_ecc("aggregate"),
    ("ecc.sram_threshold_exceeded", switch, ("ecc_errors/aggregate/sram_threshold_exceeded",)),
    ("remapping.corrected", plain, ("remapped_rows/remapped_row_corr",)),
    ("remapping.uncorrected", plain, ("remapped_rows/remapped_row_unc",)),
    ("remapping.pending", switch, ("remapped_rows/remapped_row_pending",)),
    ("remapping.failure", switch, ("remapped_rows/remapped_row_failure",)),
    *(
        (
            f"remapping.banks_{kind}",
            banks,
            (f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{kind}",),
        )
        for kind in ("max", "high", "partial", "low", "none")
    ),
    (
        "retired_pages.single_bit",
        plain,
        ("retired_pages/multiple_single_bit_retirement/retired_count",),
    ),
    ("retired_pages.double_bit", plain, ("retired_pages/double_bit_retirement/retired_count",)),
    (
        "retired_pages.pending",
        switch,
        ("retired_pages/pending_retirement", "retired_pages/pending_blacklist"),
    ),
    ("repair.channel_pending", switch, ("ecc_errors/channel_repair_pending",)),
    ("repair.tpc_pending", switch, ("ecc_errors/tpc_repair_pending",)),
    ("repair.unrepairable_memory", switch, ("ecc_errors/unrepairable_memory",)),
)


def _first(document: XmlDocument, gpu: Element, read: Read, paths: tuple[str, ...]) -> str | None:
    """The first of these elements that has a value, else the first error."""
    failure = None
    for path in paths:
        parts = [convert(document, gpu.find(part), read) for part in path.split("+")]
        failed = [part for part in parts if part is None or part.startswith("NVML_ERROR_")]
        if failed:
            failure = failure or failed[0]
        elif len(parts) == 1:
            return parts[0]
        else:
            return str(sum(int(part or 0) for part in parts))
    return failure


def rows(document: XmlDocument, gpu: Element, table: tuple[Row, ...]) -> dict[str, str]:
    """Key -> value of every row of the table that the GPU has. Raises StateError."""
    values = {key: _first(document, gpu, read, paths) for key, read, paths in table}
    return {key: value for key, value in values.items() if value is not None}
