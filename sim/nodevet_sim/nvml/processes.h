/* Compute processes on the GPUs. */
#ifndef NODEVET_SIM_PROCESSES_H
#define NODEVET_SIM_PROCESSES_H

#include "nvml.h"

#include <stdbool.h>

/* Whether any process is on the GPU. SUCCESS, also where they are not described; or lost. */
nvmlReturn_t is_busy(nvmlDevice_t device, bool *busy);

#endif
