/* The calls that set something, but for clocks. What each does and answers is documented by
 * NVIDIA with the call in nvml.h.
 *
 * The name of a setting in `gpu.N.set.<name>` is the key that the getter reads, where
 * there are a current and a pending one the latter; ecc.volatile or ecc.aggregate of
 * counters to clear; reset. That of clocks is in clocks.c.
 */
#include "processes.h"
#include "setters.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void add_number(struct numbers *numbers, const char *key, unsigned long long number)
{
    size_t at = numbers->count++;
    snprintf(numbers->texts[at], sizeof *numbers->texts, "%llu", number);
    numbers->changes[at] = (struct change){key, numbers->texts[at]};
}

static nvmlReturn_t is_root(void)
{
    return geteuid() == 0 ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

nvmlReturn_t may_set(nvmlDevice_t device, const char *key)
{
    char text[NVML_SIM_VALUE];
    TRY(get_text(device, key, text, sizeof text));
    return is_root();
}

nvmlReturn_t is_since(nvmlDevice_t device, const char *architecture)
{
    unsigned int since = 0, ours;
    for (const struct word *word = architectures; word->name; word++)
        if (strcmp(word->name, architecture) == 0)
            since = word->number;
    nvmlReturn_t result = get_uint(device, architectures, "gpu_architecture", &ours);
    if (result == NVML_ERROR_GPU_IS_LOST)
        return result;
    return result == NVML_SUCCESS && ours < since ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t set_all(nvmlDevice_t device, const char *setting, const struct change *changes,
                     size_t count)
{
    bool ignored;
    TRY(state_refusal(device, setting, &ignored));
    return ignored ? NVML_SUCCESS : state_write(device, changes, count);
}

nvmlReturn_t set_numbers(nvmlDevice_t device, const char *setting, const struct numbers *numbers)
{
    return set_all(device, setting, numbers->changes, numbers->count);
}

/* 0 or 1 */
static nvmlReturn_t set_switch(nvmlDevice_t device, const char *key, unsigned int on)
{
    struct numbers numbers = {.count = 0};
    TRY(may_set(device, key));
    if (on > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    add_number(&numbers, key, on);
    return set_numbers(device, key, &numbers);
}

EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned int mode)
{
    CALL(device, device);
    return set_switch(device, "persistence_mode", mode);
}

/* Current after the next reboot or reset. */
EXPORT nvmlReturn_t nvmlDeviceSetEccMode(nvmlDevice_t device, unsigned int mode)
{
    CALL(device, device);
    return set_switch(device, "ecc_pending", mode);
}

/* Whether what is set stays pending: until a reset where the GPU needs one, as Ampere does
 * (this one has none that NVML may do by itself, as in a virtual machine); and while it is
 * used. */
static nvmlReturn_t mig_activation(nvmlDevice_t device)
{
    bool busy;
    TRY(is_busy(device, &busy));
    if (busy)
        return NVML_ERROR_IN_USE;
    return is_since(device, "HOPPER") == NVML_SUCCESS ? NVML_SUCCESS : NVML_ERROR_RESET_REQUIRED;
}

EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned int mode,
                                         nvmlReturn_t *activation)
{
    unsigned int now;
    struct numbers numbers = {.count = 0};
    CALL(device, activation);
    TRY(may_set(device, "mig_pending"));
    if (mode > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    TRY(get_uint(device, NULL, "mig_current", &now));
    *activation = now == mode ? NVML_SUCCESS : mig_activation(device);
    add_number(&numbers, "mig_pending", mode);
    if (*activation == NVML_SUCCESS)
        add_number(&numbers, "mig_current", mode);
    return set_numbers(device, "mig_pending", &numbers);
}

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode)
{
    CALL(device, device);
    TRY(may_set(device, "compute_mode"));
    for (const struct word *word = compute_modes; word->name; word++)
        if (word->number == mode) {
            struct change change = {"compute_mode", word->name};
            if (strcmp(word->name, "EXCLUSIVE_THREAD") == 0) /* "support removed" */
                return NVML_ERROR_NOT_SUPPORTED;
            return set_all(device, "compute_mode", &change, 1);
        }
    return NVML_ERROR_INVALID_ARGUMENT;
}

/* The enforced limit is the lowest of all; one of another origin below the old one stays. */
EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit(nvmlDevice_t device, unsigned int limit)
{
    unsigned int old, min, max, enforced;
    struct numbers numbers = {.count = 0};
    CALL(device, device);
    TRY(may_set(device, "power_limit_mw"));
    TRY(get_uint(device, NULL, "power_limit_mw", &old));
    TRY(get_uint(device, NULL, "power_limit_min_mw", &min));
    TRY(get_uint(device, NULL, "power_limit_max_mw", &max));
    if (limit < min || limit > max)
        return NVML_ERROR_INVALID_ARGUMENT;
    add_number(&numbers, "power_limit_mw", limit);
    if (get_uint(device, NULL, "power_limit_enforced_mw", &enforced) == NVML_SUCCESS)
        add_number(&numbers, "power_limit_enforced_mw",
                   enforced < old && enforced < limit ? enforced : limit);
    return set_numbers(device, "power_limit_mw", &numbers);
}

/* The limit of the module around the GPU is of Grace Hopper and later, not simulated. */
EXPORT nvmlReturn_t nvmlDeviceSetPowerManagementLimit_v2(nvmlDevice_t device,
                                                         nvmlPowerValue_v2_t *power)
{
    CALL(device, power);
    if (power->version != NVML_POWER_VALUE_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (power->powerScope != 0)
        return NVML_ERROR_NOT_SUPPORTED;
    return nvmlDeviceSetPowerManagementLimit(device, power->powerValueMw);
}

/* Set to zero those of these that are described and above it. */
static void add_zeros(struct numbers *numbers, nvmlDevice_t device, const char *const *keys)
{
    unsigned long long number;
    for (; *keys; keys++)
        if (get_ulonglong(device, *keys, &number) == NVML_SUCCESS && number != 0)
            add_number(numbers, *keys, 0);
}

static const char *const volatile_errors[] = {
    "ecc.volatile_corrected", "ecc.volatile_uncorrected", "ecc.volatile_sram_corrected",
    "ecc.volatile_sram_uncorrected", "ecc.volatile_dram_corrected",
    "ecc.volatile_dram_uncorrected", NULL};
static const char *const aggregate_errors[] = {
    "ecc.aggregate_corrected", "ecc.aggregate_uncorrected", "ecc.aggregate_sram_corrected",
    "ecc.aggregate_sram_uncorrected", "ecc.aggregate_dram_corrected",
    "ecc.aggregate_dram_uncorrected", "ecc.sram_threshold_exceeded", NULL};
static const char *const done_by_reset[] = {"remapping.pending", "retired_pages.pending",
                                            "repair.channel_pending", "repair.tpc_pending", NULL};

EXPORT nvmlReturn_t nvmlDeviceClearEccErrorCounts(nvmlDevice_t device, unsigned int lifetime)
{
    struct numbers numbers = {.count = 0};
    CALL(device, device);
    if (lifetime > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    const char *const *keys = lifetime == 0 ? volatile_errors : aggregate_errors;
    TRY(may_set(device, keys[1]));
    add_zeros(&numbers, device, keys);
    return set_numbers(device, lifetime == 0 ? "ecc.volatile" : "ecc.aggregate", &numbers);
}

static void add_pending(struct numbers *numbers, nvmlDevice_t device, const char *current,
                        const char *pending)
{
    unsigned int mode;
    if (get_uint(device, NULL, pending, &mode) == NVML_SUCCESS)
        add_number(numbers, current, mode);
}

/* Whether a reset repairs the GPU: `cleared_by = reboot` or `power` says what does instead. */
static bool is_cleared_by_reset(nvmlDevice_t device)
{
    char text[NVML_SIM_VALUE];
    return get_text(device, "cleared_by", text, sizeof text) != NVML_SUCCESS ||
           strcmp(text, "reset") == 0;
}

/* What the GPU needed a reset for. */
static void add_repairs(struct numbers *numbers, nvmlDevice_t device)
{
    char text[NVML_SIM_VALUE];
    add_zeros(numbers, device, done_by_reset);
    if (get_text(device, "utilization_gpu_percent", text, sizeof text) ==
        NVML_ERROR_RESET_REQUIRED)
        add_number(numbers, "utilization_gpu_percent", 0);
    if (get_text(device, "recovery_action", text, sizeof text) == NVML_SUCCESS &&
        (strcmp(text, "GPU_RESET") == 0 || strcmp(text, "DRAIN_AND_RESET") == 0))
        numbers->changes[numbers->count++] = (struct change){"recovery_action", "NONE"};
}

/* A reset does what waits for one and forgets what a tear-down does; persistence mode stays.
 * Rows and pages that wait are put out of use. */
EXPORT nvmlReturn_t nodevet_sim_reset(unsigned int index)
{
    nvmlDevice_t device;
    bool busy;
    struct numbers numbers = {.count = 0};
    TRY(nvmlDeviceGetHandleByIndex_v2(index, &device));
    CALL(device, device);
    TRY(may_set(device, "bus_id"));
    TRY(is_busy(device, &busy));
    if (busy)
        return NVML_ERROR_IN_USE;
    for (const char *const *key = forgotten_settings; *key; key++)
        numbers.changes[numbers.count++] = (struct change){*key, NULL};
    add_pending(&numbers, device, "ecc_current", "ecc_pending");
    add_pending(&numbers, device, "mig_current", "mig_pending");
    add_zeros(&numbers, device, volatile_errors);
    if (is_cleared_by_reset(device))
        add_repairs(&numbers, device);
    return set_numbers(device, "reset", &numbers);
}
