/* -L, --query-gpu and --query-compute-apps. */
#ifndef NODEVET_SIM_QUERY_H
#define NODEVET_SIM_QUERY_H

#include "gpus.h"
#include "options.h"

#include <stddef.h>

int query_list(const struct gpus *gpus);
int query_gpus(const struct options *options, const struct gpus *gpus);
int query_apps(const struct options *options, const struct gpus *gpus);

/* The compute processes of a GPU. Free `list`. SUCCESS or the error. */
struct processes {
    nvmlProcessInfo_t *list;
    unsigned int count;
};
int processes_read(const struct gpu *gpu, struct processes *processes);

/* The name of a process as NVML gives it, or `[Not Found]`. */
void process_name(unsigned int pid, char *name, size_t size);

#endif
