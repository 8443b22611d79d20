/* The described hardware: a table of `key = value` lines, read from $NODEVET_SIM_STATE, or
 * where that is not set from the place given when the library was built.
 *
 *   driver_version = 550.90.07          the library and the driver
 *   gpu.*.power_limit_mw = 700000       every GPU, or
 *   gpu.3.power_limit_mw = 500000       one; the more exact key wins, then the later line
 *   gpu.*.nvlinks.*.active = 1          a part of a GPU, by number
 *
 * A value may also be the name of an NVML error, which the call then answers, as does
 * the call that sets it; `hang`, on which it never returns; or `unavailable`, NVML's mark
 * of all bits set. What has no line is NVML_ERROR_NOT_SUPPORTED. Blank lines and #
 * comments are free.
 *
 * A GPU with `lost = 1` answers NVML_ERROR_GPU_IS_LOST to everything but its handle.
 *
 *   gpu.3.set.power_limit_mw = ignored  setting it succeeds and changes nothing; or the name
 *                                       of an NVML error; or hang. See settings.c for names
 *   call.nvmlDeviceGetSerial = hang     the call of this name, here of any GPU and version
 *   gpu.3.call.nvmlDeviceGetName = NVML_ERROR_TIMEOUT       (_v2, ...); or an error; or
 *   gpu.*.call.nvmlDeviceGetUUID = delay:500                first so many milliseconds
 *
 * The line `# set since boot` ends the description. What setters wrote stands below it,
 * one line for each key, and wins as the later line; see forget.c for how long. Beside
 * the file are
 *
 *   <state>.lock         locked by who changes the file, which is by renaming <state>.new
 *   <state>.clients      locked by all clients; see clients.c
 *   <state>.processes/   live processes on the GPUs; see processes.c
 */
#ifndef NODEVET_SIM_STATE_H
#define NODEVET_SIM_STATE_H

#include "nvml.h"

#include <stdbool.h>
#include <stddef.h>

enum { NVML_SIM_GPUS = 256, NVML_SIM_PARTS = 7, NVML_SIM_VALUE = 256 };

/* The number of each name, ended by a null name. */
struct word {
    const char *name;
    unsigned int number;
};
struct error {
    const char *name;
    unsigned int number;
    const char *text; /* what nvmlErrorString says */
};
extern const struct error nvml_errors[];

const char *state_path(void);

/* Read the state file, if it is not the one already read. UNKNOWN, and a line on
 * stderr, where it cannot be read or is no table; DRIVER_NOT_LOADED where no file was
 * named and there is none in the usual place. */
nvmlReturn_t state_load(void);
void state_close(void);

/* The session of clients in which this process is; 0 where that is not known. */
void state_set_session(unsigned long long number);
unsigned long long state_session(void);

/* The handle of the GPU with this index, 0 to NVML_SIM_GPUS - 1. */
nvmlDevice_t state_device(unsigned int index);
/* The handle of a GPU's MIG device, 0 to NVML_SIM_PARTS - 1: its keys are those of the GPU that
 * begin with `mig.<index>.`. */
nvmlDevice_t state_part(nvmlDevice_t gpu, unsigned int index);
/* The index of the GPU, also where the handle is that of its MIG device. */
unsigned int state_index(nvmlDevice_t device);

/* The value of a key: of the whole library where `device` is null, else of that GPU.
 * The key is a printf format. SUCCESS and the text, or the error to answer. */
nvmlReturn_t state_text(nvmlDevice_t device, char *text, unsigned int size, const char *key, ...)
    __attribute__((format(printf, 4, 5)));

/* The same, as a number: decimal, 0x hexadecimal, or one of `words` where given. */
nvmlReturn_t state_number(nvmlDevice_t device, const struct word *words, long long *number,
                          const char *key, ...) __attribute__((format(printf, 4, 5)));

/* What the description does to a call, of a GPU or (null) of the library; it may take long. */
nvmlReturn_t state_call(nvmlDevice_t device, const char *function);

/* What the description does to a valid wish to set something: the error to answer, or
 * `ignored`, where it is to be answered but not done. */
nvmlReturn_t state_refusal(nvmlDevice_t device, const char *setting, bool *ignored);

/* What a setter changes of a GPU: a null value takes back what was set since boot. */
struct change {
    const char *key, *value;
};

/* The settings of a GPU that end with the driver's hold on it, ended by null; see forget.c. */
extern const char *const forgotten_settings[];

/* Write all changes at once. SUCCESS, or UNKNOWN and a line on stderr. */
nvmlReturn_t state_write(nvmlDevice_t device, const struct change *changes, size_t count);

#endif
