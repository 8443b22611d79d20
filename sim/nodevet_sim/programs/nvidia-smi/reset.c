/* See reset.h. The real program asks the kernel module; the library of the simulation has a
 * function of its own for it. What the module knows, the program finds out here: who has the
 * GPU's device open, whether persistence mode holds it, and whether it can be reset without its
 * NVLink peers. The last is as the manual of nvidia-smi has it: every GPU since Ampere, but on
 * NVSwitches of Ampere only while the fabric manager runs. */
#include "reset.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FABRIC_MANAGER_PID "/run/nvidia-fabricmanager/nv-fabricmanager.pid"

enum { AMPERE = 7, FIELD_NVLINK_COUNT = 91 };

/* Whether a process has this device open. */
static bool has_open(const char *pid, const char *device)
{
    char folder[PATH_MAX], path[PATH_MAX + 300], target[PATH_MAX];
    bool found = false;
    snprintf(folder, sizeof folder, "/proc/%s/fd", pid);
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && !found && (entry = readdir(directory));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        found = strcmp(target, device) == 0;
    }
    if (directory)
        closedir(directory);
    return found;
}

static bool is_open(const struct gpu *gpu)
{
    char device[64];
    unsigned int minor;
    bool found = false;
    if (CALL(nvmlDeviceGetMinorNumber, gpu->device, &minor) != 0)
        return false;
    snprintf(device, sizeof device, "/dev/nvidia%u", minor);
    DIR *directory = opendir("/proc");
    for (struct dirent *entry; directory && !found && (entry = readdir(directory));)
        found = isdigit((unsigned char)*entry->d_name) && atoi(entry->d_name) != getpid() &&
                has_open(entry->d_name, device);
    if (directory)
        closedir(directory);
    return found;
}

static bool is_held(const struct gpu *gpu)
{
    unsigned int persistent = 0;
    return (CALL(nvmlDeviceGetPersistenceMode, gpu->device, &persistent) == 0 && persistent) ||
           is_open(gpu);
}

static bool fabric_manager_runs(void)
{
    int pid = 0;
    FILE *file = fopen(FABRIC_MANAGER_PID, "re");
    if (!file)
        return false;
    bool read = fscanf(file, "%d", &pid) == 1;
    fclose(file);
    return read && pid > 0 && kill(pid, 0) == 0;
}

/* Whether the GPU is reset only with all that NVLink connects. */
static bool needs_peers(const struct gpu *gpu)
{
    unsigned int architecture = 0;
    nvmlFieldValue_t links = {.fieldId = FIELD_NVLINK_COUNT};
    bool linked = CALL(nvmlDeviceGetFieldValues, gpu->device, 1, &links) == 0 &&
                  links.nvmlReturn == NVML_SUCCESS && links.value.uiVal > 0;
    if (!linked || CALL(nvmlDeviceGetArchitecture, gpu->device, &architecture) != 0)
        return false;
    return architecture < AMPERE || (architecture == AMPERE && !fabric_manager_runs());
}

static int reset(const struct gpu *gpu)
{
    return geteuid() == 0 && is_held(gpu) ? ERROR_IN_USE
                                          : CALL(nodevet_sim_reset, gpu->index);
}

/* The exit code if a GPU needs others that were not chosen, else 0. */
static int refused_without_peers(const struct gpus *gpus)
{
    for (unsigned int i = 0; i < gpus->count; i++)
        if (gpus->count < gpus->attached && !gpus->list[i].status && needs_peers(&gpus->list[i])) {
            printf("GPU %s cannot be reset alone: reset all GPUs that NVLink connects with it in "
                   "one command.\n",
                   gpus->list[i].pci.busId);
            return 255;
        }
    return 0;
}

int reset_gpus(const struct gpus *gpus)
{
    unsigned int refused = 0, in_use = 0;
    int code = refused_without_peers(gpus);
    for (unsigned int i = 0; !code && i < gpus->count; i++) {
        const struct gpu *gpu = &gpus->list[i];
        if (gpu->status)
            return gpu_unreachable(gpu);
        int error = reset(gpu);
        if (!error) {
            printf("GPU %s was successfully reset.\n", gpu->pci.busId);
        } else if (error == ERROR_NOT_SUPPORTED || error == ERROR_NO_PERMISSION ||
                   error == ERROR_FUNCTION_NOT_FOUND) {
            if (error == ERROR_NOT_SUPPORTED)
                printf("Resetting GPU %s is not supported.\n", gpu->pci.busId);
            else
                printf("Unable to reset GPU %s: %s\n", gpu->pci.busId, client_error(error));
            return exit_code(error);
        } else {
            if (!refused++)
                puts("The following GPUs could not be reset:");
            printf("  GPU %s: %s\n", gpu->pci.busId, client_error(error));
            in_use += error == ERROR_IN_USE;
        }
    }
    if (in_use)
        printf("\n%u device%s currently being used by one or more other processes (e.g., Fabric "
               "Manager, CUDA application, graphics application such as an X server, or a "
               "monitoring application such as another instance of nvidia-smi). Please first kill "
               "all processes using %s and all compute applications running in the system.\n",
               in_use, in_use == 1 ? " is" : "s are",
               in_use == 1 ? "this device" : "these devices");
    if (refused || code)
        return 255;
    puts("All done.");
    return 0;
}
