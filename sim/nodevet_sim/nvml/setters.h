/* What the calls that set something have in common. */
#ifndef NODEVET_SIM_SETTERS_H
#define NODEVET_SIM_SETTERS_H

#include "getters.h"

/* by nvmlDeviceArchitecture_t and nvmlComputeMode_t */
extern const struct word architectures[];
extern const struct word compute_modes[];

/* Numbers to set together. */
struct numbers {
    struct change changes[32];
    char texts[32][24];
    size_t count;
};
void add_number(struct numbers *numbers, const char *key, unsigned long long number);

/* Whether a key can be set now: the error that reading it gives, or NO_PERMISSION for all
 * but root. */
nvmlReturn_t may_set(nvmlDevice_t device, const char *key);

/* NOT_SUPPORTED on a GPU of an older architecture; one without that line counts as newer. */
nvmlReturn_t is_since(nvmlDevice_t device, const char *architecture);

/* Write changes, or do what `set.<setting>` says instead. */
nvmlReturn_t set_all(nvmlDevice_t device, const char *setting, const struct change *changes,
                     size_t count);
nvmlReturn_t set_numbers(nvmlDevice_t device, const char *setting, const struct numbers *numbers);

#endif
