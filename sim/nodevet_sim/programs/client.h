/* A program's side of NVML: libnvidia-ml.so.1 is found at run time, as NVIDIA's own programs
 * find it, so that a missing library, a missing function and a driver that does not answer are
 * met here as on a real node. */
#ifndef NODEVET_SIM_CLIENT_H
#define NODEVET_SIM_CLIENT_H

#include "../nvml/nvml.h"

/* NVML's numbers of the errors that the programs tell apart. */
enum {
    ERROR_INVALID_ARGUMENT = 2,
    ERROR_NOT_SUPPORTED = 3,
    ERROR_NO_PERMISSION = 4,
    ERROR_NOT_FOUND = 6,
    ERROR_INSUFFICIENT_SIZE = 7,
    ERROR_DRIVER_NOT_LOADED = 9,
    ERROR_IRQ_ISSUE = 11,
    ERROR_LIBRARY_NOT_FOUND = 12,
    ERROR_FUNCTION_NOT_FOUND = 13,
    ERROR_GPU_IS_LOST = 15,
    ERROR_VERSION_MISMATCH = 18,
    ERROR_IN_USE = 19,
    ERROR_DEPRECATED = 26,
    ERROR_UNKNOWN = 999
};

/* Load the library and nvmlInit_v2. LIBRARY_NOT_FOUND without the library. */
int client_open(void);

/* nvmlShutdown; the library stays loaded. */
void client_close(void);

/* A function of the library, or null. */
void *client_function(const char *name);

/* What nvidia-smi prints for an error: `Insufficient Permissions`. */
const char *client_error(int error);

/* The handles of all GPUs, by index. */
int client_count(unsigned int *count);
int client_device(unsigned int index, nvmlDevice_t *device);

/* Call a function of nvml.h in the library, FUNCTION_NOT_FOUND where it has none. */
#define CALL(function, ...) CALL_NAMED(__typeof__(function), #function, __VA_ARGS__)

/* The same by a name out of a table, with the type that its kind of function has. */
#define CALL_NAMED(type, name, ...)                                                  \
    ({                                                                               \
        type *called = (type *)client_function(name);                                \
        called ? (int)called(__VA_ARGS__) : (int)ERROR_FUNCTION_NOT_FOUND;           \
    })

#endif
