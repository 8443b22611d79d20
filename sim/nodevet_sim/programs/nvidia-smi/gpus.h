/* Which GPUs a call is about. */
#ifndef NODEVET_SIM_GPUS_H
#define NODEVET_SIM_GPUS_H

#include "../client.h"

#include <stdbool.h>

struct gpu {
    unsigned int index;
    nvmlDevice_t device;
    int status;        /* of its handle and its PCI address */
    bool has_handle;
    nvmlPciInfo_t pci; /* where `status` is SUCCESS */
};

struct gpus {
    struct gpu *list;
    unsigned int count, attached; /* chosen, of these in the machine */
};

/* The GPUs named by `ids` (indices, UUIDs, serials, bus ids, with commas between), all where it
 * is null. Exit code 0, or another with the reason printed. Free `list`. */
int gpus_select(const char *ids, struct gpus *gpus);

/* The exit code of an NVML error: its own number where nvidia-smi(1) lists it, else 255. */
int exit_code(int error);

/* Say on stderr that a GPU cannot be reached. Its exit code. */
int gpu_unreachable(const struct gpu *gpu);

#endif
