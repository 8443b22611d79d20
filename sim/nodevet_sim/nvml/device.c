/* What a GPU is and how it is set: one line for each call and the key it answers.
 *
 * Keys are the field names of nodevet.evidence.gpu.Gpu wherever there is one. What a call
 * means is documented by NVIDIA; how a value is described, in state.h.
 */
#include "setters.h"

#include <stdio.h>
#include <string.h>

static const struct word brands[] = {
    {"UNKNOWN", 0}, {"QUADRO", 1}, {"TESLA", 2}, {"NVS", 3}, {"GRID", 4}, {"GEFORCE", 5},
    {"TITAN", 6}, {"NVIDIA_VAPPS", 7}, {"NVIDIA_VPC", 8}, {"NVIDIA_VCS", 9}, {"NVIDIA_VWS", 10},
    {"NVIDIA_CLOUD_GAMING", 11}, {"QUADRO_RTX", 12}, {"NVIDIA_RTX", 13}, {"NVIDIA", 14},
    {"GEFORCE_RTX", 15}, {"TITAN_RTX", 16}, {NULL, 0}};
const struct word architectures[] = {
    {"KEPLER", 2}, {"MAXWELL", 3}, {"PASCAL", 4}, {"VOLTA", 5}, {"TURING", 6}, {"AMPERE", 7},
    {"ADA", 8}, {"HOPPER", 9}, {"BLACKWELL", 10}, {"RUBIN", 13}, {"UNKNOWN", 0xffffffff},
    {NULL, 0}};
const struct word compute_modes[] = {
    {"DEFAULT", 0}, {"EXCLUSIVE_THREAD", 1}, {"PROHIBITED", 2}, {"EXCLUSIVE_PROCESS", 3},
    {NULL, 0}};
static const struct word virtualization_modes[] = {
    {"NONE", 0}, {"PASSTHROUGH", 1}, {"VGPU", 2}, {"HOST_VGPU", 3}, {"HOST_VSGA", 4}, {NULL, 0}};
TEXT(nvmlDeviceGetUUID, "uuid")
TEXT(nvmlDeviceGetName, "name")
TEXT(nvmlDeviceGetSerial, "serial")
TEXT(nvmlDeviceGetBoardPartNumber, "board_part_number")
TEXT(nvmlDeviceGetVbiosVersion, "vbios_version")
TEXT(nvmlDeviceGetInforomImageVersion, "inforom_image_version")
NAMED(nvmlDeviceGetBrand, brands, "brand")
NAMED(nvmlDeviceGetArchitecture, architectures, "gpu_architecture")
UINT(nvmlDeviceGetMinorNumber, "minor_number")
UINT(nvmlDeviceGetModuleId, "module_id")
UINT(nvmlDeviceGetDisplayMode, "display_mode")
UINT(nvmlDeviceGetDisplayActive, "display_active")

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *out)
{
    CALL(device, out);
    return get_text(device, "gsp_firmware_version", out, 64);
}

EXPORT nvmlReturn_t nvmlDeviceGetGspFirmwareMode(nvmlDevice_t device, unsigned int *enabled,
                                                 unsigned int *initially)
{
    CALL(device, enabled);
    if (!initially)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(get_uint(device, NULL, "gsp_firmware_enabled", enabled));
    *initially = *enabled;
    return NVML_SUCCESS;
}

static nvmlReturn_t get_pci_id(nvmlDevice_t device, const char *key, unsigned int *out)
{
    char text[NVML_SIM_VALUE];
    unsigned int vendor, part;
    TRY(get_text(device, key, text, sizeof text));
    if (sscanf(text, "%x:%x", &vendor, &part) != 2)
        return NVML_ERROR_UNKNOWN;
    *out = part << 16 | vendor;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    char text[NVML_SIM_VALUE];
    CALL(device, out);
    memset(out, 0, sizeof *out);
    TRY(get_text(device, "bus_id", text, sizeof text));
    TRY(set_bus_id(out, text));
    TRY(get_pci_id(device, "pci_device", &out->pciDeviceId));
    return get_pci_id(device, "pci_subsystem", &out->pciSubSystemId);
}

/* settings */

UINT(nvmlDeviceGetPersistenceMode, "persistence_mode")
PAIR(nvmlDeviceGetEccMode, "ecc_current", "ecc_pending")
PAIR(nvmlDeviceGetMigMode, "mig_current", "mig_pending")
NAMED(nvmlDeviceGetVirtualizationMode, virtualization_modes, "virtualization_mode")
NAMED(nvmlDeviceGetComputeMode, compute_modes, "compute_mode")
UINT(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
UINT(nvmlDeviceGetEnforcedPowerLimit, "power_limit_enforced_mw")
UINT(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw")
PAIR(nvmlDeviceGetPowerManagementLimitConstraints, "power_limit_min_mw", "power_limit_max_mw")

/* Whether there is a limit at all; the older name of that question. */
EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementMode(nvmlDevice_t device, unsigned int *out)
{
    CALL(device, out);
    TRY(get_uint(device, NULL, "power_limit_mw", out));
    *out = 1;
    return NVML_SUCCESS;
}

ULONGLONG(nvmlDeviceGetSupportedClocksEventReasons, "event_reasons_supported")
ULONGLONG(nvmlDeviceGetSupportedClocksThrottleReasons, "event_reasons_supported")

/* temperatures */

CHOICE(nvmlDeviceGetTemperature, "temperature_gpu_c")
CHOICE(nvmlDeviceGetTemperatureThreshold, "temperature_shutdown_c", "temperature_slowdown_c",
       "temperature_memory_max_c", "temperature_gpu_max_c")

EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out)
{
    unsigned int number;
    CALL(device, out);
    if (out->version != 0x100000c)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(nvmlDeviceGetTemperature(device, out->sensorType, &number));
    out->temperature = (int)number;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t device,
                                                   nvmlMarginTemperature_t *out)
{
    unsigned int number;
    CALL(device, out);
    if (out->version != 0x1000008)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(get_uint(device, NULL, "temperature_margin_c", &number));
    out->marginTemperature = (int)number;
    return NVML_SUCCESS;
}

UINT(nvmlDeviceGetFanSpeed, "fan_speed_percent")

/* PCIe */

UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max")
UINT(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_generation_device_max")
UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
UINT(nvmlDeviceGetPcieReplayCounter, "pcie_replay_counter")
