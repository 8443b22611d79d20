/* GPU performance monitoring: what the parts of a GPU did between two samples, as described.
 *
 *   gpu.3.gpm_supported = 1        without a line: an error, as of drivers before R520
 *   gpu.3.gpm_sm_percent = 12      a metric without a line is NOT_SUPPORTED in the answer
 *   gpu.3.mig.0.gpm_sm_percent = 5 in MIG mode, where the whole GPU has no sample: that of the GPU
 *                                  instance of its first MIG device
 */
#include "getters.h"
#include "processes.h"

#include <stdlib.h>

struct nvmlGpmSample_st {
    nvmlDevice_t device;
    unsigned long long taken; /* a sample that was never taken: 0 */
};

static const struct {
    unsigned int id;
    const char *key;
} metrics[] = {{2, "gpm_sm_percent"},      {5, "gpm_tensor_percent"}, {10, "gpm_dram_percent"},
               {20, "gpm_pcie_tx_mib_s"},  {21, "gpm_pcie_rx_mib_s"}, {60, "gpm_nvlink_rx_mib_s"},
               {61, "gpm_nvlink_tx_mib_s"}};

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *out)
{
    CALL(device, out);
    if (out->version != 1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return get_uint(device, NULL, "gpm_supported", &out->isSupportedDevice);
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *out)
{
    SYSTEM_CALL(out);
    *out = calloc(1, sizeof **out);
    return *out ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    SYSTEM_CALL(sample);
    free(sample);
    return NVML_SUCCESS;
}

static nvmlReturn_t has_samples(nvmlDevice_t device)
{
    unsigned int supported;
    TRY(get_uint(device, NULL, "gpm_supported", &supported));
    return supported ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    bool in_parts;
    CALL(device, sample);
    TRY(has_samples(device));
    TRY(is_in_mig_mode(device, &in_parts));
    if (in_parts)
        return NVML_ERROR_NOT_SUPPORTED;
    *sample = (struct nvmlGpmSample_st){.device = device, .taken = microseconds()};
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int instance,
                                        nvmlGpmSample_t sample)
{
    nvmlDevice_t part;
    unsigned int its;
    CALL(device, sample);
    TRY(has_samples(device));
    for (unsigned int index = 0; index < NVML_SIM_PARTS; index++)
        if (nvmlDeviceGetMigDeviceHandleByIndex(device, index, &part) == NVML_SUCCESS &&
            nvmlDeviceGetGpuInstanceId(part, &its) == NVML_SUCCESS && its == instance) {
            *sample = (struct nvmlGpmSample_st){.device = part, .taken = microseconds()};
            return NVML_SUCCESS;
        }
    return NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *query)
{
    SYSTEM_CALL(query);
    if (query->version != 1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (!query->sample1 || !query->sample2 || !query->sample1->taken || !query->sample2->taken ||
        query->sample1->device != query->sample2->device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i < query->numMetrics; i++) {
        nvmlGpmMetric_t *metric = &query->metrics[i];
        unsigned int value = 0;
        metric->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        for (size_t known = 0; known < sizeof metrics / sizeof *metrics; known++)
            if (metrics[known].id == metric->metricId)
                metric->nvmlReturn =
                    get_uint(query->sample1->device, NULL, metrics[known].key, &value);
        metric->value = value;
    }
    return NVML_SUCCESS;
}
