/* What the GPUs do: their load as described, and that of live processes, see processes.c.
 *
 * Samples are of one sixth of a second, as the driver's are, and the last 120 of them are kept.
 */
#include "getters.h"
#include "processes.h"

enum { SAMPLES = 120, SAMPLE_US = 166667, SECOND_US = 1000000, SAMPLING_TYPES = 8 };
enum { GPU_UTILIZATION_SAMPLES = 1, MEMORY_UTILIZATION_SAMPLES = 2 };

static unsigned int least(unsigned int one, unsigned int other)
{
    return one < other ? one : other;
}

/* The load of a span that ends at a moment: the mean of what it was at ten moments of it. */
static unsigned int load_until(const struct processes *live, unsigned int described,
                               unsigned long long end, unsigned long long length)
{
    unsigned int sum = 0;
    for (unsigned int step = 0; step < 10; step++) {
        unsigned int now = described;
        for (unsigned int i = 0; i < live->count; i++)
            now += busy_at(&live->list[i], end - length + length * step / 10);
        sum += least(now, 100);
    }
    return (sum + 5) / 10;
}

bool is_computing(nvmlDevice_t device, unsigned int *percent)
{
    struct processes live = {.count = 0};
    unsigned long long reasons;
    if (get_ulonglong(device, "event_reasons", &reasons) != NVML_SUCCESS || reasons != GPU_IDLE)
        return false;
    add_live(&live, state_index(device));
    *percent = live.count ? load_until(&live, 0, microseconds(), SECOND_US) : 0;
    return *percent > 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    struct processes live = {.count = 0};
    CALL(device, out);
    TRY(get_uint(device, NULL, "utilization_gpu_percent", &out->gpu));
    TRY(get_uint(device, NULL, "utilization_memory_percent", &out->memory));
    add_live(&live, state_index(device));
    if (live.count)
        out->gpu = load_until(&live, out->gpu, microseconds(), SECOND_US);
    return NVML_SUCCESS;
}

/* Without a place for samples: how many there may be. */
EXPORT nvmlReturn_t nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int type,
                                         unsigned long long since, unsigned int *kind,
                                         unsigned int *count, nvmlSample_t *out)
{
    struct processes live = {.count = 0};
    unsigned int described, filled = 0;
    CALL(device, count);
    if (!kind || type >= SAMPLING_TYPES)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (type != GPU_UTILIZATION_SAMPLES && type != MEMORY_UTILIZATION_SAMPLES)
        return NVML_ERROR_NOT_SUPPORTED;
    TRY(get_uint(device, NULL,
                 type == GPU_UTILIZATION_SAMPLES ? "utilization_gpu_percent"
                                                 : "utilization_memory_percent",
                 &described));
    *kind = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!out) {
        *count = SAMPLES;
        return NVML_SUCCESS;
    }
    if (type == GPU_UTILIZATION_SAMPLES)
        add_live(&live, state_index(device));
    unsigned long long last = microseconds() / SAMPLE_US * SAMPLE_US;
    for (unsigned int i = SAMPLES; i-- > 0 && filled < *count;) {
        unsigned long long stamp = last - (unsigned long long)i * SAMPLE_US;
        if (stamp > since) {
            out[filled].timeStamp = stamp;
            out[filled++].sampleValue.uiVal = load_until(&live, described, stamp, SAMPLE_US);
        }
    }
    *count = filled;
    return filled ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
                                                    nvmlProcessUtilizationSample_t *out,
                                                    unsigned int *count, unsigned long long since)
{
    struct processes live = {.count = 0};
    unsigned int described, room;
    unsigned long long now = microseconds();
    CALL(device, count);
    TRY(get_uint(device, NULL, "utilization_gpu_percent", &described));
    add_live(&live, state_index(device));
    room = *count;
    *count = live.count;
    if (live.count == 0 || since >= now)
        return NVML_ERROR_NOT_FOUND;
    if (!out || room < live.count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < live.count; i++) {
        struct processes one = {.count = 1};
        one.list[0] = live.list[i];
        unsigned long long length = since && now - since < 60 * SECOND_US ? now - since : SECOND_US;
        out[i] = (nvmlProcessUtilizationSample_t){
            .pid = live.list[i].pid, .timeStamp = now, .smUtil = load_until(&one, 0, now, length)};
    }
    return NVML_SUCCESS;
}

/* 0 is out of the GPU, 1 into it. What is described has no line where a GPU cannot tell. */
EXPORT nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t device, unsigned int counter,
                                                unsigned int *out)
{
    struct processes live = {.count = 0};
    CALL(device, out);
    if (counter > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(get_uint(device, NULL, counter ? "pcie_rx_kb_s" : "pcie_tx_kb_s", out));
    add_live(&live, state_index(device));
    for (unsigned int i = 0; i < live.count; i++)
        *out += counter ? live.list[i].rx_kb_s : live.list[i].tx_kb_s;
    return NVML_SUCCESS;
}
