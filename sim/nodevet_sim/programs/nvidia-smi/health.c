/* The readers of errors, memory repairs and the fabric; see readers.h. */
#include "readers.h"

#include <stdio.h>
#include <string.h>

#define TRY(expression)         \
    do {                        \
        int tried = expression; \
        if (tried)              \
            return tried;       \
    } while (0)

enum { DRAM = 2, SRAM = 7 }; /* nvmlMemoryLocation_t */
enum { FABRIC_NOT_SUPPORTED = 0, FABRIC_COMPLETED = 3 };

/* `part` is the lifetime and the severity, as LIFETIME * 2 + SEVERITY in NVML's numbers; `choice`
 * the location, or 0 for the total. */
static int ecc_count(const struct gpu *gpu, const struct field *field, unsigned long long *count)
{
    unsigned int severity = field->part % 2, lifetime = field->part / 2;
    if (!field->choice)
        return CALL(nvmlDeviceGetTotalEccErrors, gpu->device, severity, lifetime,
                    count);
    return CALL(nvmlDeviceGetMemoryErrorCounter, gpu->device, severity, lifetime,
                field->choice, count);
}

int read_ecc(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned long long count;
    TRY(ecc_count(gpu, field, &count));
    snprintf(out, VALUE_SIZE, "%llu", count);
    return 0;
}

static int sram_status(const struct gpu *gpu, nvmlEccSramErrorStatus_t *status)
{
    *status = (nvmlEccSramErrorStatus_t){.version = 0x1000068};
    return CALL(nvmlDeviceGetSramEccErrorStatus, gpu->device, status);
}

int read_sram(const struct gpu *gpu, const struct field *field, char *out)
{
    nvmlEccSramErrorStatus_t status;
    TRY(sram_status(gpu, &status));
    const unsigned long long parts[] = {
        status.volatileUncParity,      status.aggregateUncParity,    status.aggregateUncBucketL2,
        status.aggregateUncBucketSm,   status.aggregateUncBucketMcu, status.aggregateUncBucketPcie,
        status.aggregateUncBucketOther};
    if (field->words)
        snprintf(out, VALUE_SIZE, "%s", field->words[status.bThresholdExceeded != 0]);
    else
        snprintf(out, VALUE_SIZE, "%llu", parts[field->choice]);
    return 0;
}

/* The library does not describe parity errors one by one: what the counter has more is SEC-DED. */
int read_sram_secded(const struct gpu *gpu, const struct field *field, char *out)
{
    nvmlEccSramErrorStatus_t status;
    unsigned long long count;
    TRY(sram_status(gpu, &status));
    TRY(ecc_count(gpu, field, &count));
    bool aggregate = field->part / 2;
    unsigned long long parity = aggregate ? status.aggregateUncParity : status.volatileUncParity;
    snprintf(out, VALUE_SIZE, "%llu", count > parity ? count - parity : 0);
    return 0;
}

int read_remapping(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned int parts[4];
    TRY(CALL(nvmlDeviceGetRemappedRows, gpu->device, &parts[0], &parts[1],
             &parts[2], &parts[3]));
    if (field->words)
        snprintf(out, VALUE_SIZE, "%s", field->words[parts[field->part] != 0]);
    else
        snprintf(out, VALUE_SIZE, "%u", parts[field->part]);
    return 0;
}

int read_histogram(const struct gpu *gpu, const struct field *field, char *out)
{
    nvmlRowRemapperHistogramValues_t banks;
    TRY(CALL(nvmlDeviceGetRowRemapperHistogram, gpu->device, &banks));
    const unsigned int parts[] = {banks.max, banks.high, banks.partial, banks.low, banks.none};
    snprintf(out, VALUE_SIZE, "%u", parts[field->part]);
    return 0;
}

int read_retired(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned int count = 0;
    int error = CALL(nvmlDeviceGetRetiredPages, gpu->device, field->part, &count,
                     NULL);
    if (error && error != ERROR_INSUFFICIENT_SIZE)
        return error;
    snprintf(out, VALUE_SIZE, "%u", count);
    return 0;
}

static int fabric_of(const struct gpu *gpu, nvmlGpuFabricInfoV_t *fabric)
{
    *fabric = (nvmlGpuFabricInfoV_t){.version = 0x2000024};
    TRY(CALL(nvmlDeviceGetGpuFabricInfoV, gpu->device, fabric));
    return fabric->state == FABRIC_NOT_SUPPORTED ? ERROR_NOT_SUPPORTED : 0;
}

int read_fabric(const struct gpu *gpu, const struct field *field, char *out)
{
    static const char *const states[] = {"Not Supported", "Not Started", "In Progress",
                                         "Completed"};
    nvmlGpuFabricInfoV_t fabric;
    const unsigned char *id = fabric.clusterUuid;
    TRY(fabric_of(gpu, &fabric));
    if (field->part == 0) {
        snprintf(out, VALUE_SIZE, "%s", fabric.state <= FABRIC_COMPLETED ? states[fabric.state]
                                                                         : "Unknown");
        return 0;
    }
    if (fabric.state != FABRIC_COMPLETED)
        return ERROR_NOT_SUPPORTED;
    if (field->part == 1)
        snprintf(out, VALUE_SIZE, "%s", client_error((int)fabric.status));
    else if (field->part == 2)
        snprintf(out, VALUE_SIZE, "%u", fabric.cliqueId);
    else
        snprintf(out, VALUE_SIZE,
                 "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", id[0],
                 id[1], id[2], id[3], id[4], id[5], id[6], id[7], id[8], id[9], id[10], id[11],
                 id[12], id[13], id[14], id[15]);
    return 0;
}

/* Two bits of the health mask, from `choice` on: 0 not told, 1 true, 2 false. */
int read_fabric_health(const struct gpu *gpu, const struct field *field, char *out)
{
    nvmlGpuFabricInfoV_t fabric;
    TRY(fabric_of(gpu, &fabric));
    unsigned int answer = fabric.healthMask >> field->choice & 3;
    if (fabric.state != FABRIC_COMPLETED || answer == 0 || answer == 3)
        return ERROR_NOT_SUPPORTED;
    snprintf(out, VALUE_SIZE, "%s", field->words[answer - 1]);
    return 0;
}
