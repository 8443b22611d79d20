/* The described hardware: a table of `key = value` lines, read from $NODEVET_SIM_STATE.
 *
 *   driver_version = 550.90.07          the library and the driver
 *   gpu.*.power_limit_mw = 700000       every GPU, or
 *   gpu.3.power_limit_mw = 500000       one; the more exact key wins, then the later line
 *   gpu.*.nvlinks.*.active = 1          a part of a GPU, by number
 *
 * A value may also be the name of an NVML error, which the call then answers;
 * `hang`, on which it never returns; or `unavailable`, NVML's mark of all bits set.
 * What has no line is NVML_ERROR_NOT_SUPPORTED. Blank lines and # comments are free.
 *
 * A GPU with `lost = 1` answers NVML_ERROR_GPU_IS_LOST to everything but its handle.
 */
#ifndef NODEVET_SIM_STATE_H
#define NODEVET_SIM_STATE_H

#include "nvml.h"

enum { NVML_SIM_GPUS = 256, NVML_SIM_VALUE = 256 };

/* The number of each name, ended by a null name. */
struct word {
    const char *name;
    unsigned int number;
};
extern const struct word nvml_errors[];

/* Read the state file, if it is not the one already read. UNKNOWN, and a line on
 * stderr, where it cannot be read or is no table. */
nvmlReturn_t state_load(void);
void state_close(void);

/* The handle of the GPU with this index, 0 to NVML_SIM_GPUS - 1. */
nvmlDevice_t state_device(unsigned int index);

/* The value of a key: of the whole library where `device` is null, else of that GPU.
 * The key is a printf format. SUCCESS and the text, or the error to answer. */
nvmlReturn_t state_text(nvmlDevice_t device, char *text, unsigned int size, const char *key, ...)
    __attribute__((format(printf, 4, 5)));

/* The same, as a number: decimal, 0x hexadecimal, or one of `words` where given. */
nvmlReturn_t state_number(nvmlDevice_t device, const struct word *words, long long *number,
                          const char *key, ...) __attribute__((format(printf, 4, 5)));

#endif
