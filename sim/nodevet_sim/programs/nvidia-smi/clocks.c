/* The changes of clocks; see changes.h. */
#include "changes.h"

#include <stdio.h>

static struct result clocks_refused(const struct gpu *gpu, const char *what, int error)
{
    if (error == ERROR_NOT_SUPPORTED) {
        printf("Setting %s is not supported for GPU %s.\n", what, gpu->pci.busId);
        return warned(error);
    }
    if (error == ERROR_NO_PERMISSION)
        printf("The current user does not have permission to change clocks for GPU %s.\n",
               gpu->pci.busId);
    else
        printf("Setting %s failed for GPU %s: %s\n", what, gpu->pci.busId, client_error(error));
    return failed(error);
}

struct result lock_gpu_clocks(const struct gpu *gpu, const struct wanted *wanted)
{
    int error = CALL(nvmlDeviceSetGpuLockedClocks, gpu->device, wanted->first,
                     wanted->second);
    if (error)
        return clocks_refused(gpu, "locked GPU clocks", error);
    printf("GPU clocks set to \"(gpuClkMin %u, gpuClkMax %u)\" for GPU %s\n", wanted->first,
           wanted->second, gpu->pci.busId);
    warn_of_persistence(gpu);
    return done();
}

struct result lock_memory_clocks(const struct gpu *gpu, const struct wanted *wanted)
{
    int error = CALL(nvmlDeviceSetMemoryLockedClocks, gpu->device, wanted->first,
                     wanted->second);
    if (error)
        return clocks_refused(gpu, "locked memory clocks", error);
    printf("Memory clocks set to \"(memClkMin %u, memClkMax %u)\" for GPU %s\n", wanted->first,
           wanted->second, gpu->pci.busId);
    warn_of_persistence(gpu);
    return done();
}

struct result set_applications_clocks(const struct gpu *gpu, const struct wanted *wanted)
{
    int error = CALL(nvmlDeviceSetApplicationsClocks, gpu->device, wanted->first,
                     wanted->second);
    if (error == ERROR_INVALID_ARGUMENT) {
        printf("Specified clock combination \"(MEM %u, SM %u)\" is not supported for GPU %s. Run "
               "'nvidia-smi -q -d SUPPORTED_CLOCKS' to see list of supported clock combinations\n",
               wanted->first, wanted->second, gpu->pci.busId);
        return warned(error);
    }
    if (error == ERROR_DEPRECATED) {
        puts("The requested functionality has been deprecated.");
        return done();
    }
    if (error)
        return clocks_refused(gpu, "applications clocks", error);
    printf("Applications clocks set to \"(MEM %u, SM %u)\" for GPU %s\n", wanted->first,
           wanted->second, gpu->pci.busId);
    warn_of_persistence(gpu);
    return done();
}

struct result reset_gpu_clocks(const struct gpu *gpu, const struct wanted *wanted)
{
    (void)wanted;
    int error = CALL(nvmlDeviceResetGpuLockedClocks, gpu->device);
    return error ? clocks_refused(gpu, "locked GPU clocks", error) : done();
}

struct result reset_memory_clocks(const struct gpu *gpu, const struct wanted *wanted)
{
    (void)wanted;
    int error = CALL(nvmlDeviceResetMemoryLockedClocks, gpu->device);
    return error ? clocks_refused(gpu, "locked memory clocks", error) : done();
}

struct result reset_applications_clocks(const struct gpu *gpu, const struct wanted *wanted)
{
    (void)wanted;
    int error = CALL(nvmlDeviceResetApplicationsClocks, gpu->device);
    return error ? clocks_refused(gpu, "applications clocks", error) : done();
}
