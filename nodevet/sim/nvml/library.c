/* The library itself: nvmlInit, versions, handles; and the readers behind the macros. */
#include "getters.h"

#include <stdio.h>

static unsigned int clients; /* nvmlInit calls not yet shut down */

nvmlReturn_t ready(const void *device, const void *out)
{
    if (!clients)
        return NVML_ERROR_UNINITIALIZED;
    return device && out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t get_text(nvmlDevice_t device, const char *key, char *out, unsigned int size)
{
    TRY(ready(device, out));
    return state_text(device, out, size, "%s", key);
}

nvmlReturn_t get_uint(nvmlDevice_t device, const struct word *words, const char *key,
                             unsigned int *out)
{
    long long number;
    TRY(ready(device, out));
    TRY(state_number(device, words, &number, "%s", key));
    *out = (unsigned int)number;
    return NVML_SUCCESS;
}

nvmlReturn_t get_ulonglong(nvmlDevice_t device, const char *key, unsigned long long *out)
{
    long long number;
    TRY(ready(device, out));
    TRY(state_number(device, NULL, &number, "%s", key));
    *out = (unsigned long long)number;
    return NVML_SUCCESS;
}

nvmlReturn_t set_bus_id(nvmlPciInfo_t *pci, const char *text)
{
    unsigned int function;
    if (sscanf(text, "%x:%x:%x.%x", &pci->domain, &pci->bus, &pci->device, &function) != 4)
        return NVML_ERROR_UNKNOWN;
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.%X", pci->domain, pci->bus,
             pci->device, function);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.%X",
             pci->domain & 0xffff, pci->bus & 0xff, pci->device & 0x1f, function & 7);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    char text[NVML_SIM_VALUE];
    (void)flags;
    TRY(state_load());
    nvmlReturn_t refused = state_text(NULL, text, sizeof text, "init");
    if (refused != NVML_SUCCESS && refused != NVML_ERROR_NOT_SUPPORTED)
        return refused;
    clients++;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    if (!clients)
        return NVML_ERROR_UNINITIALIZED;
    if (--clients == 0)
        state_close();
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    for (const struct word *word = nvml_errors; word->name; word++)
        if (word->number == (unsigned int)result)
            return word->name;
    return "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned int size)
{
    TRY(ready(out, out));
    return state_text(NULL, out, size, "driver_version");
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned int size)
{
    TRY(ready(out, out));
    return state_text(NULL, out, size, "nvml_version");
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    char text[NVML_SIM_VALUE];
    int major, minor;
    TRY(ready(out, out));
    TRY(state_text(NULL, text, sizeof text, "cuda_version"));
    if (sscanf(text, "%d.%d", &major, &minor) != 2)
        return NVML_ERROR_UNKNOWN;
    *out = major * 1000 + minor * 10;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out)
{
    return nvmlSystemGetCudaDriverVersion_v2(out);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *out)
{
    long long number;
    TRY(ready(out, out));
    TRY(state_number(NULL, NULL, &number, "count"));
    *out = (unsigned int)number;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
    unsigned int count;
    char text[NVML_SIM_VALUE];
    TRY(nvmlDeviceGetCount_v2(&count));
    if (!out || index >= count || index >= NVML_SIM_GPUS)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t refused = state_text(state_device(index), text, sizeof text, "handle");
    if (refused != NVML_SUCCESS && refused != NVML_ERROR_NOT_SUPPORTED)
        return refused;
    *out = state_device(index);
    return NVML_SUCCESS;
}
