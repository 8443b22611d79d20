/* See reset.h. The real program asks the kernel module; the library of the simulation has a
 * function of its own for it. */
#include "reset.h"

#include <stdio.h>

int reset_gpus(const struct gpus *gpus)
{
    unsigned int refused = 0, in_use = 0;
    for (unsigned int i = 0; i < gpus->count; i++) {
        const struct gpu *gpu = &gpus->list[i];
        if (gpu->status)
            return gpu_unreachable(gpu);
        int error = CALL(nodevet_sim_reset, gpu->index);
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
    if (refused)
        return 255;
    puts("All done.");
    return 0;
}
