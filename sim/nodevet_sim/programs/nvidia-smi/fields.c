/* See fields.h. The names and units are those of `nvidia-smi --help-query-gpu`, driver 590. */
#include "fields.h"

#include "readers.h"

#include <stdio.h>
#include <string.h>


typedef const char *const names[];
static names enabled = {"Disabled", "Enabled", NULL};
static names yes = {"No", "Yes", NULL};
static names compute_modes = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process",
                              NULL};
static names recovery_actions = {"None", "Reset", "Reboot", "Drain P2P", "Drain and Reset", NULL};
static names brands = {"Unknown", "Quadro", "Tesla", "NVS", "Grid", "GeForce", "Titan",
                       "NVIDIA Virtual Applications", "NVIDIA Virtual PC",
                       "NVIDIA Virtual Compute Server", "NVIDIA RTX Virtual Workstation",
                       "NVIDIA Cloud Gaming", "Quadro RTX", "NVIDIA RTX", "NVIDIA", "GeForce RTX",
                       "Titan RTX", NULL};
static names architectures = {"Unknown", "Unknown", "Kepler", "Maxwell", "Pascal", "Volta",
                              "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", "Unknown",
                              "Unknown", "Rubin", NULL};
static names answers = {"True", "False", NULL};
static names bandwidths = {"Degraded", "Full", NULL};

#define REASON(part, bit)                                                            \
    {"clocks_event_reasons." part, "clocks_throttle_reasons." part, .read = read_reason, \
     .choice = bit}
#define ECC(severity, lifetime, number)                                              \
    {"ecc.errors." severity "." lifetime ".total", .read = read_ecc, .part = number}, \
    {"ecc.errors." severity "." lifetime ".sram", .read = read_ecc, .part = number,  \
     .choice = 7},                                                                   \
    {"ecc.errors." severity "." lifetime ".dram", .read = read_ecc, .part = number,  \
     .choice = 2},                                                                   \
    {"ecc.errors." severity "." lifetime ".device_memory", .read = read_ecc, .part = number, \
     .choice = 2},                                                                   \
    {.name = "ecc.errors." severity "." lifetime ".register_file"}, /* before Volta */ \
    {.name = "ecc.errors." severity "." lifetime ".l1_cache"},                       \
    {.name = "ecc.errors." severity "." lifetime ".l2_cache"},                       \
    {.name = "ecc.errors." severity "." lifetime ".texture_memory"},                 \
    {.name = "ecc.errors." severity "." lifetime ".cbu"}
#define CLOCK(name, alias, call_, type)                                              \
    {name, alias, "MHz", read_choice, call_, .choice = type}

/* What a row leaves out is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

/* clang-format off */
static const struct field of_query[] = {
    {"timestamp", .read = read_timestamp},
    {"driver_version", .read = read_version, .call = "nvmlSystemGetDriverVersion"},
    {"count", .read = read_count},
    {"index", .read = read_index},
    {"name", "gpu_name", NULL, read_text, "nvmlDeviceGetName"},
    {"serial", "gpu_serial", NULL, read_text, "nvmlDeviceGetSerial"},
    {"uuid", "gpu_uuid", NULL, read_text, "nvmlDeviceGetUUID"},
    {"vbios_version", .read = read_text, .call = "nvmlDeviceGetVbiosVersion"},
    {"inforom.img", "inforom.image", NULL, read_text, "nvmlDeviceGetInforomImageVersion"},
    {"pci.bus_id", "gpu_bus_id", .read = read_pci},
    {"pci.domain", .read = read_pci, .part = 1},
    {"pci.bus", .read = read_pci, .part = 2},
    {"pci.device", .read = read_pci, .part = 3},
    {"pci.device_id", .read = read_pci, .part = 4},
    {"pci.sub_device_id", .read = read_pci, .part = 5},
    {"pcie.link.gen.current", .read = read_number, .call = "nvmlDeviceGetCurrPcieLinkGeneration"},
    {"pcie.link.gen.gpucurrent", .read = read_number, .call = "nvmlDeviceGetCurrPcieLinkGeneration"},
    {"pcie.link.gen.max", .read = read_number, .call = "nvmlDeviceGetMaxPcieLinkGeneration"},
    {"pcie.link.gen.gpumax", .read = read_number, .call = "nvmlDeviceGetGpuMaxPcieLinkGeneration"},
    {"pcie.link.width.current", .read = read_number, .call = "nvmlDeviceGetCurrPcieLinkWidth"},
    {"pcie.link.width.max", .read = read_number, .call = "nvmlDeviceGetMaxPcieLinkWidth"},
    {"persistence_mode", NULL, NULL, read_number, "nvmlDeviceGetPersistenceMode", .words = enabled},
    {"display_mode", NULL, NULL, read_number, "nvmlDeviceGetDisplayMode", .words = enabled},
    {"display_active", NULL, NULL, read_number, "nvmlDeviceGetDisplayActive", .words = enabled},
    {"power.management", NULL, NULL, read_number, "nvmlDeviceGetPowerManagementMode", .words = enabled},
    {"compute_mode", NULL, NULL, read_number, "nvmlDeviceGetComputeMode", .words = compute_modes},
    {"ecc.mode.current", NULL, NULL, read_pair, "nvmlDeviceGetEccMode", 0, .words = enabled},
    {"ecc.mode.pending", NULL, NULL, read_pair, "nvmlDeviceGetEccMode", 1, .words = enabled},
    {"mig.mode.current", NULL, NULL, read_pair, "nvmlDeviceGetMigMode", 0, .words = enabled},
    {"mig.mode.pending", NULL, NULL, read_pair, "nvmlDeviceGetMigMode", 1, .words = enabled},
    {"gsp.mode.current", NULL, NULL, read_pair, "nvmlDeviceGetGspFirmwareMode", 0, .words = enabled},
    {"gsp.mode.default", NULL, NULL, read_pair, "nvmlDeviceGetGspFirmwareMode", 1, .words = enabled},
    {"gpu_recovery_action", .read = read_field, .choice = 230, .words = recovery_actions},
    {"fan.speed", NULL, "%", read_number, "nvmlDeviceGetFanSpeed"},
    {"pstate", .read = read_pstate, .call = "nvmlDeviceGetPerformanceState"},
    {"clocks_event_reasons.supported", "clocks_throttle_reasons.supported", NULL, read_hex, "nvmlDeviceGetSupportedClocksThrottleReasons"},
    {"clocks_event_reasons.active", "clocks_throttle_reasons.active", NULL, read_hex, "nvmlDeviceGetCurrentClocksThrottleReasons"},
    REASON("gpu_idle", 0x1),
    REASON("applications_clocks_setting", 0x2),
    REASON("sw_power_cap", 0x4),
    REASON("hw_slowdown", 0x8),
    REASON("sync_boost", 0x10),
    REASON("sw_thermal_slowdown", 0x20),
    REASON("hw_thermal_slowdown", 0x40),
    REASON("hw_power_brake_slowdown", 0x80),
    {"memory.total", NULL, "MiB", read_memory, .part = 0},
    {"memory.reserved", NULL, "MiB", read_memory, .part = 1},
    {"memory.used", NULL, "MiB", read_memory, .part = 2},
    {"memory.free", NULL, "MiB", read_memory, .part = 3},
    {"utilization.gpu", NULL, "%", read_utilization, .part = 0},
    {"utilization.memory", NULL, "%", read_utilization, .part = 1},
    ECC("corrected", "volatile", 0),
    ECC("uncorrected", "volatile", 1),
    ECC("corrected", "aggregate", 2),
    ECC("uncorrected", "aggregate", 3),
    {"ecc.errors.uncorrected.volatile.sram.parity", .read = read_sram, .choice = 0},
    {"ecc.errors.uncorrected.aggregate.sram.parity", .read = read_sram, .choice = 1},
    {"ecc.errors.uncorrected.volatile.sram.secded", .read = read_sram_secded, .part = 1, .choice = 7},
    {"ecc.errors.uncorrected.aggregate.sram.secded", .read = read_sram_secded, .part = 3, .choice = 7},
    {"ecc.errors.uncorrected.aggregate.sram.thresholdExceeded", .read = read_sram, .words = yes},
    {"ecc.errors.uncorrected.aggregate.sram.l2", .read = read_sram, .choice = 2},
    {"ecc.errors.uncorrected.aggregate.sram.sm", .read = read_sram, .choice = 3},
    {"ecc.errors.uncorrected.aggregate.sram.mcu", .read = read_sram, .choice = 4},
    {"ecc.errors.uncorrected.aggregate.sram.pcie", .read = read_sram, .choice = 5},
    {"ecc.errors.uncorrected.aggregate.sram.other", .read = read_sram, .choice = 6},
    {"retired_pages.single_bit_ecc.count", "retired_pages.sbe", .read = read_retired, .part = 0},
    {"retired_pages.double_bit.count", "retired_pages.dbe", .read = read_retired, .part = 1},
    {"retired_pages.pending", NULL, NULL, read_number, "nvmlDeviceGetRetiredPagesPendingStatus", .words = yes},
    {"remapped_rows.correctable", "remapped_rows.sbe", .read = read_remapping, .part = 0},
    {"remapped_rows.uncorrectable", "remapped_rows.dbe", .read = read_remapping, .part = 1},
    {"remapped_rows.pending", .read = read_remapping, .part = 2, .words = yes},
    {"remapped_rows.failure", .read = read_remapping, .part = 3, .words = yes},
    {"remapped_rows.histogram.max", .read = read_histogram, .part = 0},
    {"remapped_rows.histogram.high", .read = read_histogram, .part = 1},
    {"remapped_rows.histogram.partial", .read = read_histogram, .part = 2},
    {"remapped_rows.histogram.low", .read = read_histogram, .part = 3},
    {"remapped_rows.histogram.none", .read = read_histogram, .part = 4},
    {"temperature.gpu", NULL, NULL, read_choice, "nvmlDeviceGetTemperature", .choice = 0},
    {"temperature.gpu.tlimit", .read = read_margin},
    {"temperature.memory", .read = read_field, .choice = 82},
    {"power.draw", NULL, "W", read_watts, "nvmlDeviceGetPowerUsage"},
    {"power.draw.average", "gpu.power.draw.average", "W", read_watts, "nvmlDeviceGetPowerUsage"},
    {"power.draw.instant", "gpu.power.draw.instant", "W", read_watts, "nvmlDeviceGetPowerUsage"},
    {"power.limit", "gpu.power.requested_limit", "W", read_watts, "nvmlDeviceGetPowerManagementLimit"},
    {"enforced.power.limit", "gpu.power.current_limit", "W", read_watts, "nvmlDeviceGetEnforcedPowerLimit"},
    {"power.default_limit", "gpu.power.default_limit", "W", read_watts, "nvmlDeviceGetPowerManagementDefaultLimit"},
    {"power.min_limit", "gpu.power.min_limit", "W", read_watts_pair, "nvmlDeviceGetPowerManagementLimitConstraints", 0},
    {"power.max_limit", "gpu.power.max_limit", "W", read_watts_pair, "nvmlDeviceGetPowerManagementLimitConstraints", 1},
    CLOCK("clocks.current.graphics", "clocks.gr", "nvmlDeviceGetClockInfo", 0),
    CLOCK("clocks.current.sm", "clocks.sm", "nvmlDeviceGetClockInfo", 1),
    CLOCK("clocks.current.memory", "clocks.mem", "nvmlDeviceGetClockInfo", 2),
    CLOCK("clocks.current.video", "clocks.video", "nvmlDeviceGetClockInfo", 3),
    CLOCK("clocks.applications.graphics", "clocks.applications.gr", "nvmlDeviceGetApplicationsClock", 0),
    CLOCK("clocks.applications.memory", "clocks.applications.mem", "nvmlDeviceGetApplicationsClock", 2),
    CLOCK("clocks.default_applications.graphics", "clocks.default_applications.gr", "nvmlDeviceGetDefaultApplicationsClock", 0),
    CLOCK("clocks.default_applications.memory", "clocks.default_applications.mem", "nvmlDeviceGetDefaultApplicationsClock", 2),
    CLOCK("clocks.max.graphics", "clocks.max.gr", "nvmlDeviceGetMaxClockInfo", 0),
    CLOCK("clocks.max.sm", NULL, "nvmlDeviceGetMaxClockInfo", 1),
    CLOCK("clocks.max.memory", "clocks.max.mem", "nvmlDeviceGetMaxClockInfo", 2),
    {"fabric.state", .read = read_fabric, .part = 0},
    {"fabric.status", .read = read_fabric, .part = 1},
    {"fabric.cliqueId", .read = read_fabric, .part = 2},
    {"fabric.clusterUuid", .read = read_fabric, .part = 3},
    {"fabric.health.bandwidth", .read = read_fabric_health, .choice = 0, .words = bandwidths},
    {"fabric.health.route_recovery_in_progress", .read = read_fabric_health, .choice = 2, .words = answers},
    {"fabric.health.route_unhealthy", .read = read_fabric_health, .choice = 4, .words = answers},
    {"fabric.health.access_timeout_recovery", .read = read_fabric_health, .choice = 6, .words = answers},
    {"platform.module_id", .read = read_number, .call = "nvmlDeviceGetModuleId"},
};

/* Only of reports: no query knows these names. */
static const struct field of_report[] = {
    {"brand", NULL, NULL, read_number, "nvmlDeviceGetBrand", .words = brands},
    {"architecture", NULL, NULL, read_number, "nvmlDeviceGetArchitecture", .words = architectures},
    {"minor_number", .read = read_number, .call = "nvmlDeviceGetMinorNumber"},
    {"board_part_number", .read = read_text, .call = "nvmlDeviceGetBoardPartNumber"},
    {"gsp_firmware_version", .read = read_buffer, .call = "nvmlDeviceGetGspFirmwareVersion"},
    {"replays", .read = read_number, .call = "nvmlDeviceGetPcieReplayCounter"},
    {"display_clocks_setting", .read = read_reason, .choice = 0x100},
    {"bar1.total", NULL, "MiB", read_bar1, .part = 0},
    {"bar1.used", NULL, "MiB", read_bar1, .part = 1},
    {"bar1.free", NULL, "MiB", read_bar1, .part = 2},
    {"shutdown", NULL, "C", read_choice, "nvmlDeviceGetTemperatureThreshold", .choice = 0},
    {"slowdown", NULL, "C", read_choice, "nvmlDeviceGetTemperatureThreshold", .choice = 1},
    {"memory_max", NULL, "C", read_choice, "nvmlDeviceGetTemperatureThreshold", .choice = 2},
    {"gpu_max", NULL, "C", read_choice, "nvmlDeviceGetTemperatureThreshold", .choice = 3},
    {"tlimit.shutdown", NULL, "C", read_field, .choice = 193},
    {"tlimit.slowdown", NULL, "C", read_field, .choice = 194},
    {"tlimit.memory_max", NULL, "C", read_field, .choice = 195},
    {"tlimit.gpu_max", NULL, "C", read_field, .choice = 196},
    CLOCK("clocks.max.video", NULL, "nvmlDeviceGetMaxClockInfo", 3),
};
/* clang-format on */

static const struct field *find(const struct field *fields, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(fields[i].name, name) == 0 ||
            (fields[i].alias && strcmp(fields[i].alias, name) == 0))
            return &fields[i];
    return NULL;
}

const struct field *field_of_query(const char *name)
{
    const struct field *field = find(of_query, sizeof of_query / sizeof *of_query, name);
    return field ? field : find(unanswered_fields, unanswered_count, name);
}

const struct field *field_named(const char *name)
{
    const struct field *field = field_of_query(name);
    return field ? field : find(of_report, sizeof of_report / sizeof *of_report, name);
}

int field_read(const struct gpu *gpu, const struct field *field, char value[VALUE_SIZE])
{
    int error = field->read ? field->read(gpu, field, value) : ERROR_NOT_SUPPORTED;
    if (error == ERROR_FUNCTION_NOT_FOUND) /* of another driver version; the real one has all */
        error = ERROR_NOT_SUPPORTED;
    if (error)
        snprintf(value, VALUE_SIZE, "%s",
                 error == ERROR_NOT_SUPPORTED ? "N/A" : client_error(error));
    return error;
}
