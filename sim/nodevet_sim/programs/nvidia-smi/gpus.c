/* See gpus.h. */
#include "gpus.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int exit_code(int error)
{
    switch (error) {
    case 0: case 2: case 3: case 4: case 6: case 8: case 9: case 12: case 13: case 14: case 15:
    case ERROR_VERSION_MISMATCH:
        return error;
    case ERROR_IRQ_ISSUE:
        return 10;
    default:
        return 255;
    }
}

/* Where the driver says that the GPU with this index is, for one that no longer answers: NVML
 * counts GPUs in the order of their addresses. Empty where the driver does not list them. */
static void address_of(unsigned int index, char *address, size_t size)
{
    struct dirent **entries;
    int count = scandir("/proc/driver/nvidia/gpus", &entries, NULL, alphasort);
    unsigned int place = 0;
    *address = '\0';
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.' && place++ == index)
            snprintf(address, size, "%s", entries[i]->d_name);
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
}

int gpu_unreachable(const struct gpu *gpu)
{
    char place[256];
    address_of(gpu->index, place, sizeof place);
    if (!*place)
        snprintf(place, sizeof place, "%u", gpu->index);
    fprintf(stderr, "Unable to determine the device handle for GPU%s: %s%s\n", place,
            client_error(gpu->status),
            gpu->status == ERROR_GPU_IS_LOST ? ".  Reboot the system to recover this GPU" : "");
    return exit_code(gpu->status);
}

static bool same_address(const nvmlPciInfo_t *pci, const char *id)
{
    unsigned int domain = 0, bus, device, function;
    int used = 0;
    if (sscanf(id, "%x:%x:%x.%x%n", &domain, &bus, &device, &function, &used) != 4) {
        domain = 0;
        if (sscanf(id, "%x:%x.%x%n", &bus, &device, &function, &used) != 3)
            return false;
    }
    return id[used] == '\0' && pci->domain == domain && pci->bus == bus && pci->device == device &&
           function == 0;
}

static bool is_named(const struct gpu *gpu, const char *id)
{
    char text[128], *end;
    unsigned long index = strtoul(id, &end, 10);
    if (*id && !*end && index == gpu->index)
        return true;
    if (!gpu->has_handle)
        return false;
    if (gpu->status == 0 && same_address(&gpu->pci, id))
        return true;
    return (CALL(nvmlDeviceGetUUID, gpu->device, text, sizeof text) == 0 &&
            strcmp(text, id) == 0) ||
           (CALL(nvmlDeviceGetSerial, gpu->device, text, sizeof text) == 0 &&
            strcmp(text, id) == 0);
}

static bool is_chosen(const struct gpu *gpu, const char *ids)
{
    bool chosen = !ids;
    char *copy = strdup(ids ? ids : ""), *next = copy, *id;
    while (!chosen && (id = strsep(&next, ",")))
        chosen = is_named(gpu, id);
    free(copy);
    return chosen;
}

int gpus_select(const char *ids, struct gpus *gpus)
{
    memset(gpus, 0, sizeof *gpus);
    int error = client_count(&gpus->attached);
    if (error) {
        printf("Unable to determine the number of GPUs: %s\n", client_error(error));
        return exit_code(error);
    }
    gpus->list = calloc(gpus->attached + 1, sizeof *gpus->list);
    for (unsigned int index = 0; gpus->list && index < gpus->attached; index++) {
        struct gpu gpu = {.index = index};
        gpu.status = client_device(index, &gpu.device);
        gpu.has_handle = gpu.status == 0;
        if (gpu.has_handle)
            gpu.status = CALL(nvmlDeviceGetPciInfo_v3, gpu.device, &gpu.pci);
        if (is_chosen(&gpu, ids))
            gpus->list[gpus->count++] = gpu;
    }
    if (gpus->count == 0) {
        puts("No devices were found");
        return ERROR_NOT_FOUND;
    }
    return 0;
}
