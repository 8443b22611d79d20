/* Errors, memory repairs, NVLinks, the fabric, and the calls by field number. */
#include "getters.h"

#include <stdio.h>
#include <string.h>

static const struct word recovery_actions[] = {
    {"NONE", 0}, {"GPU_RESET", 1}, {"NODE_REBOOT", 2}, {"DRAIN_P2P", 3}, {"DRAIN_AND_RESET", 4},
    {"RECOVER_IMEX_DOMAIN", 5}, {"BUS_RESET", 6}, {"SYSTEM_REBOOT", 7}, {NULL, 0}};
static const struct word peer_states[] = {
    {"OK", 0}, {"CHIPSET_NOT_SUPPORTED", 1}, {"GPU_NOT_SUPPORTED", 2},
    {"IOH_TOPOLOGY_NOT_SUPPORTED", 3}, {"DISABLED_BY_REGKEY", 4}, {"NOT_SUPPORTED", 5},
    {"UNKNOWN", 6}, {NULL, 0}};
static const struct word fabric_states[] = {
    {"NOT_SUPPORTED", 0}, {"NOT_STARTED", 1}, {"IN_PROGRESS", 2}, {"COMPLETED", 3}, {NULL, 0}};
static const struct word fabric_summaries[] = {
    {"NOT_SUPPORTED", 0}, {"HEALTHY", 1}, {"UNHEALTHY", 2}, {"LIMITED_CAPACITY", 3}, {NULL, 0}};

/* 14 is NVML_ERROR_CORRUPTED_INFOROM */
EXPORT nvmlReturn_t nvmlDeviceValidateInforom(nvmlDevice_t device)
{
    unsigned int valid;
    CALL(device, device);
    TRY(get_uint(device, NULL, "inforom_valid", &valid));
    return valid ? NVML_SUCCESS : (nvmlReturn_t)14;
}

/* errors */

/* by nvmlEccCounterType_t and nvmlMemoryErrorType_t */
static const char *const lifetimes[] = {"volatile", "aggregate"};
static const char *const severities[] = {"corrected", "uncorrected"};

static nvmlReturn_t get_ecc(nvmlDevice_t device, unsigned int severity, unsigned int lifetime,
                            const char *location, unsigned long long *out)
{
    char key[NVML_SIM_VALUE];
    if (severity > 1 || lifetime > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(key, sizeof key, "ecc.%s_%s%s", lifetimes[lifetime], location, severities[severity]);
    return get_ulonglong(device, key, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int severity,
                                                unsigned int lifetime, unsigned long long *out)
{
    CALL(device, out);
    return get_ecc(device, severity, lifetime, "", out);
}

/* by nvmlMemoryLocation_t: 2 is DRAM, 7 SRAM; 1, the L2 cache, stands for all before Turing */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int severity,
                                                    unsigned int lifetime, unsigned int location,
                                                    unsigned long long *out)
{
    CALL(device, out);
    if (location != 1 && location != 2 && location != 7)
        return NVML_ERROR_NOT_SUPPORTED;
    return get_ecc(device, severity, lifetime,
                   location == 2 ? "dram_" : location == 1 ? "cache_" : "sram_", out);
}

EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device,
                                                    nvmlEccSramErrorStatus_t *out)
{
    CALL(device, out);
    if (out->version != 0x1000068)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memset(out, 0, sizeof *out);
    out->version = 0x1000068;
    return get_uint(device, NULL, "ecc.sram_threshold_exceeded", &out->bThresholdExceeded);
}

/* NOT_SUPPORTED in MIG mode, as NVIDIA documents it of the rows. */
static nvmlReturn_t has_rows(nvmlDevice_t device)
{
    bool in_parts;
    return is_in_mig_mode(device, &in_parts) == NVML_SUCCESS && in_parts
               ? NVML_ERROR_NOT_SUPPORTED
               : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected,
                                              unsigned int *uncorrected, unsigned int *pending,
                                              unsigned int *failure)
{
    CALL(device, corrected);
    TRY(has_rows(device));
    TRY(get_uint(device, NULL, "remapping.corrected", corrected));
    TRY(get_uint(device, NULL, "remapping.uncorrected", uncorrected));
    TRY(get_uint(device, NULL, "remapping.pending", pending));
    return get_uint(device, NULL, "remapping.failure", failure);
}

EXPORT nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device,
                                                      nvmlRowRemapperHistogramValues_t *out)
{
    CALL(device, out);
    TRY(has_rows(device));
    TRY(get_uint(device, NULL, "remapping.banks_max", &out->max));
    TRY(get_uint(device, NULL, "remapping.banks_high", &out->high));
    TRY(get_uint(device, NULL, "remapping.banks_partial", &out->partial));
    TRY(get_uint(device, NULL, "remapping.banks_low", &out->low));
    return get_uint(device, NULL, "remapping.banks_none", &out->none);
}

/* by nvmlPageRetirementCause_t; the pages are one after the other */
EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned int cause,
                                              unsigned int *count, unsigned long long *pages)
{
    static const char *const causes[] = {"retired_pages.single_bit", "retired_pages.double_bit"};
    unsigned int found;
    CALL(device, count);
    if (cause > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(get_uint(device, NULL, causes[cause], &found));
    for (unsigned int page = 0; pages && page < found && page < *count; page++)
        pages[page] = 0x100000ULL * (cause + 1) + page;
    nvmlReturn_t result = found > *count ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
    *count = found;
    return result;
}

UINT(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pages.pending")

EXPORT nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t device, nvmlRepairStatus_t *out)
{
    CALL(device, out);
    if (out->version != 0x100000c)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(get_uint(device, NULL, "repair.channel_pending", &out->bChannelRepairPending));
    return get_uint(device, NULL, "repair.tpc_pending", &out->bTpcRepairPending);
}

EXPORT nvmlReturn_t nvmlDeviceGetUnrepairableMemoryFlag_v1(nvmlDevice_t device,
                                                           nvmlUnrepairableMemory_t *out)
{
    CALL(device, out);
    if (out->version != 0x1000008)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return get_uint(device, NULL, "repair.unrepairable_memory", &out->unrepairableMemory);
}

/* NVLink and fabric. `nvlinks` is how many links there are. */

static nvmlReturn_t get_link(nvmlDevice_t device, unsigned int link, const char *key,
                             unsigned long long *out)
{
    char full[NVML_SIM_VALUE];
    unsigned int links;
    TRY(get_uint(device, NULL, "nvlinks", &links));
    if (link >= links)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(full, sizeof full, "nvlinks.%u.%s", link, key);
    return get_ulonglong(device, full, out);
}

#define LINK(function, key)                                                          \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int link,             \
                                 unsigned int *out)                                  \
    {                                                                                \
        unsigned long long number;                                                   \
        CALL(device, out);                                                           \
        TRY(get_link(device, link, key, &number));                                   \
        *out = (unsigned int)number;                                                 \
        return NVML_SUCCESS;                                                         \
    }

LINK(nvmlDeviceGetNvLinkState, "active")
LINK(nvmlDeviceGetNvLinkVersion, "version")

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t device, unsigned int link,
                                                  unsigned int capability, unsigned int *out)
{
    static const char *const keys[] = {"p2p", "sysmem_access", "p2p_atomics", "sysmem_atomics"};
    unsigned long long number;
    CALL(device, out);
    if (capability >= sizeof keys / sizeof *keys)
        return NVML_ERROR_NOT_SUPPORTED;
    TRY(get_link(device, link, keys[capability], &number));
    *out = (unsigned int)number;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link,
                                                    unsigned int counter, unsigned long long *out)
{
    static const char *const keys[] = {"replay_errors", "recovery_errors", "crc_flit_errors",
                                       "crc_data_errors"};
    CALL(device, out);
    if (counter >= sizeof keys / sizeof *keys)
        return NVML_ERROR_NOT_SUPPORTED;
    return get_link(device, link, keys[counter], out);
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                        nvmlPciInfo_t *out)
{
    char text[NVML_SIM_VALUE];
    unsigned int links;
    CALL(device, out);
    memset(out, 0, sizeof *out);
    TRY(get_uint(device, NULL, "nvlinks", &links));
    if (link >= links)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(state_text(device, text, sizeof text, "nvlinks.%u.remote_bus_id", link));
    return set_bus_id(out, text);
}

/* The code of a return code's name without its prefix: SUCCESS, NOT_READY. */
static nvmlReturn_t get_status(nvmlDevice_t device, const char *key, nvmlReturn_t *out)
{
    char text[NVML_SIM_VALUE];
    TRY(get_text(device, key, text, sizeof text));
    for (const struct error *error = nvml_errors; error->name; error++)
        if (strcmp(error->name + (error->number ? strlen("NVML_ERROR_") : 0), text) == 0) {
            *out = (nvmlReturn_t)error->number;
            return NVML_SUCCESS;
        }
    return NVML_ERROR_UNKNOWN;
}

/* Which parts of the fabric mean something depends on the state: 3 is COMPLETED. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *out)
{
    char text[NVML_SIM_VALUE];
    unsigned int state, at = 0;
    CALL(device, out);
    TRY(get_uint(device, fabric_states, "fabric.state", &state));
    memset(out, 0, sizeof *out);
    out->state = (unsigned char)state;
    if (state != 3)
        return NVML_SUCCESS;
    TRY(get_status(device, "fabric.status", &out->status));
    TRY(get_uint(device, NULL, "fabric.clique_id", &out->cliqueId));
    TRY(get_text(device, "fabric.cluster_uuid", text, sizeof text));
    for (const char *digit = text; *digit && at < sizeof out->clusterUuid;)
        if (*digit == '-')
            digit++;
        else if (sscanf(digit, "%2hhx", &out->clusterUuid[at++]) == 1 && digit[1])
            digit += 2;
        else
            return NVML_ERROR_UNKNOWN;
    return NVML_SUCCESS;
}

/* `fabric.version` is the highest version that the driver knows; 3 where it has no line. */
EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *out)
{
    nvmlGpuFabricInfo_t fabric;
    unsigned int known, summary;
    CALL(device, out);
    if (get_uint(device, NULL, "fabric.version", &known) != NVML_SUCCESS)
        known = 3;
    if (out->version != 0x2000024 && (out->version != 0x3000028 || known < 3))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(nvmlDeviceGetGpuFabricInfo(device, &fabric));
    memcpy(out->clusterUuid, fabric.clusterUuid, sizeof out->clusterUuid);
    out->status = fabric.status;
    out->cliqueId = fabric.cliqueId;
    out->state = fabric.state;
    out->healthMask = 0;
    if (out->version == 0x3000028)
        out->healthSummary = 0;
    if (fabric.state != 3)
        return NVML_SUCCESS;
    if (out->version == 0x3000028) { /* NOT_SUPPORTED where it has no line */
        nvmlReturn_t told =
            get_uint(device, fabric_summaries, "fabric.health_summary", &summary);
        if (told != NVML_ERROR_NOT_SUPPORTED)
            TRY(told);
        out->healthSummary = told == NVML_SUCCESS ? (unsigned char)summary : 0;
    }
    return get_uint(device, NULL, "fabric.health_mask", &out->healthMask);
}

/* By nvmlGpuP2PCapsIndex_t: 0 and 1 are read and write, 2 is NVLink. A GPU is described as what
 * it can do with every other one, and two can do what both can. */
EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t one, nvmlDevice_t other,
                                           unsigned int capability, unsigned int *out)
{
    const char *key = capability == 2 ? "peers.nvlink" : "peers.read";
    unsigned int its;
    CALL(one, out);
    CALL(other, out);
    if (one == other || capability > 2)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(get_uint(one, peer_states, key, out));
    TRY(get_uint(other, peer_states, key, &its));
    *out = *out ? *out : its;
    return NVML_SUCCESS;
}

/* fields */

static const struct {
    unsigned int id, type;
    const char *key;
} fields[] = {
    {82, NVML_VALUE_TYPE_UNSIGNED_INT, "temperature_memory_c"},
    {91, NVML_VALUE_TYPE_UNSIGNED_INT, "nvlinks"},
    {94, NVML_VALUE_TYPE_UNSIGNED_INT, "pcie_replay_counter"},
    {193, NVML_VALUE_TYPE_SIGNED_INT, "tlimit_shutdown_c"},
    {194, NVML_VALUE_TYPE_SIGNED_INT, "tlimit_slowdown_c"},
    {195, NVML_VALUE_TYPE_SIGNED_INT, "tlimit_memory_max_c"},
    {196, NVML_VALUE_TYPE_SIGNED_INT, "tlimit_gpu_max_c"},
    {230, NVML_VALUE_TYPE_UNSIGNED_INT, "recovery_action"},
};
static const struct {
    unsigned int id;
    const char *key;
} link_fields[] = {
    {161, "replay_errors"},
    {162, "recovery_errors"},
    {164, "speed_mbps"},
    {165, "active"},
    {166, "version"},
    {220, "effective_ber"}, /* as NVML has them: mantissa << 8 | exponent */
    {222, "symbol_ber"},
};

static const struct {
    unsigned int id;
    const char *key;
} time_fields[] = {
    {74, "throttled_power_cap_ns"},
    {269, "throttled_sw_thermal_ns"},
    {270, "throttled_hw_thermal_ns"},
    {271, "throttled_power_brake_ns"},
};

static nvmlReturn_t get_field(nvmlDevice_t device, nvmlFieldValue_t *field)
{
    field->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
    for (size_t i = 0; i < sizeof time_fields / sizeof *time_fields; i++)
        if (time_fields[i].id == field->fieldId)
            return get_ulonglong(device, time_fields[i].key, &field->value.ullVal);
    for (size_t i = 0; i < sizeof link_fields / sizeof *link_fields; i++)
        if (link_fields[i].id == field->fieldId)
            return get_link(device, field->scopeId, link_fields[i].key, &field->value.ullVal);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (fields[i].id == field->fieldId) {
            field->valueType = fields[i].type;
            return get_uint(device, field->fieldId == 230 ? recovery_actions : NULL,
                            fields[i].key, &field->value.uiVal);
        }
    return NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                             nvmlFieldValue_t *out)
{
    CALL(device, out);
    for (int i = 0; i < count; i++) {
        out[i].value.ullVal = 0;
        out[i].nvmlReturn = get_field(device, &out[i]);
        if (out[i].nvmlReturn == NVML_ERROR_GPU_IS_LOST)
            return NVML_ERROR_GPU_IS_LOST;
    }
    return NVML_SUCCESS;
}
