/* See client.h. */
#include "client.h"

#include <dlfcn.h>
#include <stddef.h>

static void *library;

void *client_function(const char *name)
{
    return library ? dlsym(library, name) : NULL;
}

int client_open(void)
{
    if (!library)
        library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return ERROR_LIBRARY_NOT_FOUND;
    return CALL(nvmlInit_v2);
}

void client_close(void)
{
    CALL(nvmlShutdown);
}

int client_count(unsigned int *count)
{
    return CALL(nvmlDeviceGetCount_v2, count);
}

int client_device(unsigned int index, nvmlDevice_t *device)
{
    return CALL(nvmlDeviceGetHandleByIndex_v2, index, device);
}

const char *client_error(int error)
{
    static const char *const texts[] = {
        [0] = "Success",
        [1] = "Uninitialized",
        [2] = "Invalid Argument",
        [3] = "Not Supported",
        [4] = "Insufficient Permissions",
        [5] = "Already Initialized",
        [6] = "Not Found",
        [7] = "Insufficient Size",
        [8] = "Insufficient External Power",
        [9] = "Driver Not Loaded",
        [10] = "Timeout",
        [11] = "Interrupt Request Issue",
        [12] = "NVML Shared Library Not Found",
        [13] = "Function Not Found",
        [14] = "Corrupted infoROM",
        [15] = "GPU is lost",
        [16] = "GPU requires reset",
        [17] = "GPU access blocked by the operating system",
        [18] = "Driver/library version mismatch",
        [19] = "In use by another client",
        [20] = "Insufficient Memory",
        [21] = "No data",
        [22] = "ECC is enabled",
        [23] = "Insufficient resources",
        [24] = "Frequency not supported",
        [25] = "Argument version mismatch",
        [26] = "Requested functionality has been deprecated",
        [27] = "Not Ready",
        [28] = "GPU not found",
        [29] = "Invalid state",
        [30] = "Reset type not supported",
    };
    if (error >= 0 && error < (int)(sizeof texts / sizeof *texts) && texts[error])
        return texts[error];
    return "Unknown Error";
}
