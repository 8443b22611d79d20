/* How a call answers from the described hardware: the macros that make most calls one line. */
#ifndef NODEVET_SIM_GETTERS_H
#define NODEVET_SIM_GETTERS_H

#include "nvml.h"
#include "state.h"

#define EXPORT __attribute__((visibility("default")))
#define TRY(expression)                      \
    do {                                     \
        nvmlReturn_t tried = (expression);   \
        if (tried != NVML_SUCCESS)           \
            return tried;                    \
    } while (0)

/* First in every exported function: UNINITIALIZED before nvmlInit, INVALID_ARGUMENT without
 * a device or a place to answer, and what the description does to this call. */
#define CALL(device, out) TRY(enter(__func__, device, device, out))
/* The same in a function of the whole library. */
#define SYSTEM_CALL(out) TRY(enter(__func__, NULL, out, out))
nvmlReturn_t enter(const char *function, nvmlDevice_t device, const void *given, const void *out);

/* All of these: UNINITIALIZED or INVALID_ARGUMENT as above. */
nvmlReturn_t get_text(nvmlDevice_t device, const char *key, char *out, unsigned int size);
nvmlReturn_t get_uint(nvmlDevice_t device, const struct word *words, const char *key,
                      unsigned int *out);
nvmlReturn_t get_ulonglong(nvmlDevice_t device, const char *key, unsigned long long *out);

/* Whether its MIG mode is on: not that of a GPU without one. SUCCESS; or lost. */
nvmlReturn_t is_in_mig_mode(nvmlDevice_t device, bool *on);

/* A bus id as sysfs spells it, into the parts and both spellings of NVML. */
nvmlReturn_t set_bus_id(nvmlPciInfo_t *pci, const char *text);

#define TEXT(function, key)                                                          \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, char *out, unsigned int size)  \
    {                                                                                \
        CALL(device, out);                                                           \
        return get_text(device, key, out, size);                                     \
    }
#define NAMED(function, words, key)                                                  \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *out)             \
    {                                                                                \
        CALL(device, out);                                                           \
        return get_uint(device, words, key, out);                                    \
    }
#define UINT(function, key) NAMED(function, NULL, key)
#define ULONGLONG(function, key)                                                     \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned long long *out)       \
    {                                                                                \
        CALL(device, out);                                                           \
        return get_ulonglong(device, key, out);                                      \
    }
#define PAIR(function, first_key, second_key)                                        \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *first,           \
                                 unsigned int *second)                               \
    {                                                                                \
        CALL(device, first);                                                         \
        TRY(get_uint(device, NULL, first_key, first));                               \
        return get_uint(device, NULL, second_key, second);                           \
    }
/* A number out of several, chosen by an argument of the call. */
#define CHOICE(function, ...)                                                        \
    EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int which,            \
                                 unsigned int *out)                                  \
    {                                                                                \
        static const char *const keys[] = {__VA_ARGS__};                             \
        CALL(device, out);                                                           \
        if (which >= sizeof keys / sizeof *keys)                                     \
            return NVML_ERROR_INVALID_ARGUMENT;                                      \
        return get_uint(device, NULL, keys[which], out);                             \
    }

#endif
