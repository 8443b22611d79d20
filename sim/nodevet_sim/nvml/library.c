/* The library itself: nvmlInit, versions, handles; and the readers behind the macros. */
#include "clients.h"
#include "getters.h"

#include <stdio.h>
#include <string.h>

static nvmlReturn_t ready(const void *device, const void *out)
{
    if (!is_client())
        return NVML_ERROR_UNINITIALIZED;
    return device && out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t enter(const char *function, nvmlDevice_t device, const void *given, const void *out)
{
    TRY(ready(given, out));
    return state_call(device, function);
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

/* What the description says of starting: `init`, and this call. */
static nvmlReturn_t start(const char *function)
{
    char text[NVML_SIM_VALUE];
    TRY(state_load());
    TRY(state_call(NULL, function));
    nvmlReturn_t refused = state_text(NULL, text, sizeof text, "init");
    return refused == NVML_ERROR_NOT_SUPPORTED ? NVML_SUCCESS : refused;
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    TRY(state_load()); /* before there is any trace of a client */
    clients_enter();
    nvmlReturn_t refused = start(__func__);
    if (refused != NVML_SUCCESS)
        clients_leave();
    return refused;
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
    return clients_leave() ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    for (const struct error *error = nvml_errors; error->name; error++)
        if (error->number == (unsigned int)result)
            return error->text;
    return "Unknown Error";
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned int size)
{
    SYSTEM_CALL(out);
    return state_text(NULL, out, size, "driver_version");
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned int size)
{
    SYSTEM_CALL(out);
    return state_text(NULL, out, size, "nvml_version");
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    char text[NVML_SIM_VALUE];
    int major, minor;
    SYSTEM_CALL(out);
    TRY(state_text(NULL, text, sizeof text, "cuda_version"));
    if (sscanf(text, "%d.%d", &major, &minor) != 2)
        return NVML_ERROR_UNKNOWN;
    *out = major * 1000 + minor * 10;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out)
{
    SYSTEM_CALL(out);
    return nvmlSystemGetCudaDriverVersion_v2(out);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *out)
{
    long long number;
    SYSTEM_CALL(out);
    TRY(state_number(NULL, NULL, &number, "count"));
    if (number < 0 || number > NVML_SIM_GPUS)
        return NVML_ERROR_UNKNOWN;
    *out = (unsigned int)number;
    return NVML_SUCCESS;
}

/* handles */

static nvmlReturn_t get_handle(unsigned int index, nvmlDevice_t *out)
{
    unsigned int count;
    char text[NVML_SIM_VALUE];
    TRY(nvmlDeviceGetCount_v2(&count));
    if (index >= count || index >= NVML_SIM_GPUS)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t refused = state_text(state_device(index), text, sizeof text, "handle");
    if (refused != NVML_SUCCESS && refused != NVML_ERROR_NOT_SUPPORTED)
        return refused;
    *out = state_device(index);
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
    SYSTEM_CALL(out);
    return get_handle(index, out);
}

/* The GPU of which `is_it` holds; GPU_IS_LOST, where it is none of those that answer. */
static nvmlReturn_t find_handle(bool (*is_it)(const char *ours, const char *wanted),
                                const char *key, const char *wanted, nvmlDevice_t *out)
{
    unsigned int count;
    nvmlReturn_t result = NVML_ERROR_NOT_FOUND;
    if (!wanted)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(nvmlDeviceGetCount_v2(&count));
    for (unsigned int index = 0; index < count && index < NVML_SIM_GPUS; index++) {
        char text[NVML_SIM_VALUE];
        nvmlReturn_t answer = state_text(state_device(index), text, sizeof text, "%s", key);
        if (answer == NVML_SUCCESS && is_it(text, wanted))
            return get_handle(index, out);
        if (answer == NVML_ERROR_GPU_IS_LOST)
            result = answer;
    }
    return result;
}

static bool is_same_text(const char *ours, const char *wanted)
{
    return strcmp(ours, wanted) == 0;
}

/* Either spelling of NVML, that of sysfs, and none with a domain. */
static bool is_same_bus_id(const char *ours, const char *wanted)
{
    nvmlPciInfo_t our = {.domain = 0}, their = {.domain = 0};
    char whole[NVML_SIM_VALUE];
    snprintf(whole, sizeof whole, "0:%s", wanted);
    return set_bus_id(&our, ours) == NVML_SUCCESS &&
           (set_bus_id(&their, wanted) == NVML_SUCCESS ||
            set_bus_id(&their, whole) == NVML_SUCCESS) &&
           strcmp(our.busId, their.busId) == 0;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    SYSTEM_CALL(out);
    return find_handle(is_same_text, "uuid", uuid, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *out)
{
    SYSTEM_CALL(out);
    return find_handle(is_same_text, "serial", serial, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *out)
{
    SYSTEM_CALL(out);
    return find_handle(is_same_bus_id, "bus_id", bus_id, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *out)
{
    CALL(device, out);
    *out = state_index(device);
    return NVML_SUCCESS;
}
