/* See readers.h. */
#include "readers.h"

#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define TRY(expression)         \
    do {                        \
        int tried = expression; \
        if (tried)              \
            return tried;       \
    } while (0)

/* The kinds of functions that serve several fields. */
typedef nvmlReturn_t text_call(nvmlDevice_t, char *, unsigned int);
typedef nvmlReturn_t buffer_call(nvmlDevice_t, char *);
typedef nvmlReturn_t version_call(char *, unsigned int);
typedef nvmlReturn_t get_call(nvmlDevice_t, unsigned int *);
typedef nvmlReturn_t pair_call(nvmlDevice_t, unsigned int *, unsigned int *);
typedef nvmlReturn_t choice_call(nvmlDevice_t, unsigned int, unsigned int *);
typedef nvmlReturn_t mask_call(nvmlDevice_t, unsigned long long *);

/* NVML marks a number that it cannot tell by all bits set. */
static bool is_unavailable(unsigned int number)
{
    return number == 0xffffffff;
}

static int print_number(const struct field *field, unsigned int number, char *out)
{
    if (is_unavailable(number))
        return ERROR_NOT_SUPPORTED;
    if (!field->words) {
        snprintf(out, VALUE_SIZE, "%u", number);
        return 0;
    }
    for (unsigned int i = 0; field->words[i]; i++)
        if (i == number) {
            snprintf(out, VALUE_SIZE, "%s", field->words[i]);
            return 0;
        }
    snprintf(out, VALUE_SIZE, "Unknown");
    return 0;
}

int read_text(const struct gpu *gpu, const struct field *field, char *out)
{
    return CALL_NAMED(text_call, field->call, gpu->device, out, VALUE_SIZE);
}

/* Of the calls that are not told how much room there is; 64 bytes are theirs. */
int read_buffer(const struct gpu *gpu, const struct field *field, char *out)
{
    return CALL_NAMED(buffer_call, field->call, gpu->device, out);
}

int read_number(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned int number;
    TRY(CALL_NAMED(get_call, field->call, gpu->device, &number));
    return print_number(field, number, out);
}

int read_pair(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned int numbers[2];
    TRY(CALL_NAMED(pair_call, field->call, gpu->device, &numbers[0], &numbers[1]));
    return print_number(field, numbers[field->part], out);
}

int read_choice(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned int number;
    TRY(CALL_NAMED(choice_call, field->call, gpu->device, field->choice, &number));
    return print_number(field, number, out);
}

int read_hex(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned long long mask;
    TRY(CALL_NAMED(mask_call, field->call, gpu->device, &mask));
    snprintf(out, VALUE_SIZE, "0x%016llX", mask);
    return 0;
}

int read_reason(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned long long mask;
    TRY(CALL(nvmlDeviceGetCurrentClocksThrottleReasons, gpu->device, &mask));
    snprintf(out, VALUE_SIZE, "%s", mask & field->choice ? "Active" : "Not Active");
    return 0;
}

static int print_watts(unsigned int milliwatts, char *out)
{
    if (is_unavailable(milliwatts))
        return ERROR_NOT_SUPPORTED;
    snprintf(out, VALUE_SIZE, "%u.%02u", milliwatts / 1000, milliwatts % 1000 / 10);
    return 0;
}

int read_watts(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned int milliwatts;
    TRY(CALL_NAMED(get_call, field->call, gpu->device, &milliwatts));
    return print_watts(milliwatts, out);
}

int read_watts_pair(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned int milliwatts[2];
    TRY(CALL_NAMED(pair_call, field->call, gpu->device, &milliwatts[0], &milliwatts[1]));
    return print_watts(milliwatts[field->part], out);
}

int read_version(const struct gpu *gpu, const struct field *field, char *out)
{
    (void)gpu;
    return CALL_NAMED(version_call, field->call, out, VALUE_SIZE);
}

int read_index(const struct gpu *gpu, const struct field *field, char *out)
{
    return print_number(field, gpu->index, out);
}

int read_count(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned int count;
    (void)gpu;
    TRY(client_count(&count));
    return print_number(field, count, out);
}

int read_timestamp(const struct gpu *gpu, const struct field *field, char *out)
{
    struct timeval now;
    struct tm local;
    (void)gpu, (void)field;
    gettimeofday(&now, NULL);
    localtime_r(&now.tv_sec, &local);
    size_t length = strftime(out, VALUE_SIZE, "%Y/%m/%d %H:%M:%S", &local);
    snprintf(out + length, VALUE_SIZE - length, ".%03ld", (long)now.tv_usec / 1000);
    return 0;
}

int read_pci(const struct gpu *gpu, const struct field *field, char *out)
{
    TRY(gpu->status);
    const nvmlPciInfo_t *pci = &gpu->pci;
    switch (field->part) {
    case 0:
        snprintf(out, VALUE_SIZE, "%s", pci->busId);
        break;
    case 1:
        snprintf(out, VALUE_SIZE, "0x%04X", pci->domain);
        break;
    case 2:
        snprintf(out, VALUE_SIZE, "0x%02X", pci->bus);
        break;
    case 3:
        snprintf(out, VALUE_SIZE, "0x%02X", pci->device);
        break;
    case 4:
        snprintf(out, VALUE_SIZE, "0x%08X", pci->pciDeviceId);
        break;
    default:
        snprintf(out, VALUE_SIZE, "0x%08X", pci->pciSubSystemId);
    }
    return 0;
}

int read_memory(const struct gpu *gpu, const struct field *field, char *out)
{
    nvmlMemory_v2_t memory = {.version = 0x2000028};
    TRY(CALL(nvmlDeviceGetMemoryInfo_v2, gpu->device, &memory));
    const unsigned long long parts[] = {memory.total, memory.reserved, memory.used, memory.free};
    snprintf(out, VALUE_SIZE, "%llu", parts[field->part] >> 20);
    return 0;
}

int read_bar1(const struct gpu *gpu, const struct field *field, char *out)
{
    nvmlBAR1Memory_t memory;
    TRY(CALL(nvmlDeviceGetBAR1MemoryInfo, gpu->device, &memory));
    const unsigned long long parts[] = {memory.bar1Total, memory.bar1Used, memory.bar1Free};
    snprintf(out, VALUE_SIZE, "%llu", parts[field->part] >> 20);
    return 0;
}

int read_utilization(const struct gpu *gpu, const struct field *field, char *out)
{
    nvmlUtilization_t utilization;
    TRY(CALL(nvmlDeviceGetUtilizationRates, gpu->device, &utilization));
    return print_number(field, field->part ? utilization.memory : utilization.gpu, out);
}

int read_pstate(const struct gpu *gpu, const struct field *field, char *out)
{
    unsigned int state;
    TRY(CALL_NAMED(get_call, field->call, gpu->device, &state));
    if (state > 15)
        return ERROR_NOT_SUPPORTED;
    snprintf(out, VALUE_SIZE, "P%u", state);
    return 0;
}

/* Degrees below or above a threshold, so the number may be negative. */
int read_margin(const struct gpu *gpu, const struct field *field, char *out)
{
    nvmlMarginTemperature_t margin = {.version = 0x1000008};
    (void)field;
    TRY(CALL(nvmlDeviceGetMarginTemperature, gpu->device, &margin));
    snprintf(out, VALUE_SIZE, "%d", margin.marginTemperature);
    return 0;
}

int read_field(const struct gpu *gpu, const struct field *field, char *out)
{
    nvmlFieldValue_t value = {.fieldId = field->choice};
    TRY(CALL(nvmlDeviceGetFieldValues, gpu->device, 1, &value));
    TRY((int)value.nvmlReturn);
    if (value.valueType != NVML_VALUE_TYPE_SIGNED_INT)
        return print_number(field, value.value.uiVal, out);
    snprintf(out, VALUE_SIZE, "%d", value.value.siVal);
    return 0;
}
