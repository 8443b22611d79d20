/* See settings.h. The texts are those that nvidia-smi prints, as far as they are published. */
#include "settings.h"

#include "changes.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const on_off[] = {"DISABLED", "ENABLED", NULL};
static const char *const modes[] = {"DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED",
                                    "EXCLUSIVE_PROCESS", NULL};
static const char *const counters[] = {"VOLATILE", "AGGREGATE", NULL};

static bool parse_word(const char *text, const char *const *words, struct wanted *wanted)
{
    for (unsigned int i = 0; words[i]; i++) {
        char number[] = {(char)('0' + i), '\0'};
        if (strcmp(text, number) == 0 || strcasecmp(text, words[i]) == 0) {
            wanted->first = wanted->second = i;
            return true;
        }
    }
    return false;
}

static bool parse_clocks(const char *text, struct wanted *wanted)
{
    int used = 0;
    if (!isdigit((unsigned char)*text))
        return false;
    if (sscanf(text, "%u,%u%n", &wanted->first, &wanted->second, &used) == 2 && !text[used]) {
        wanted->pair = true;
        return true;
    }
    if (sscanf(text, "%u%n", &wanted->first, &used) != 1 || text[used])
        return false;
    wanted->second = wanted->first;
    return true;
}

static bool parse_watts(const char *text, struct wanted *wanted)
{
    char *end;
    double watts = strtod(text, &end);
    if (!isdigit((unsigned char)*text) || *end || !(watts < 1e6))
        return false;
    wanted->first = (unsigned int)(watts * 1000 + 0.5);
    return true;
}

struct result done(void)
{
    return (struct result){DONE, 0};
}

struct result warned(int error)
{
    puts("Treating as warning and moving on.");
    return (struct result){WARNED, error};
}

struct result failed(int error)
{
    return (struct result){FAILED, error};
}

void warn_of_persistence(const struct gpu *gpu)
{
    unsigned int on;
    if (CALL(nvmlDeviceGetPersistenceMode, gpu->device, &on) == 0 && !on)
        printf("\nWarning: persistence mode is disabled on device %s. See the Known Issues section "
               "of the nvidia-smi(1) man page for more information. Run with [--help | -h] switch "
               "to get more information on how to enable persistence mode.\n",
               gpu->pci.busId);
}

static struct result set_persistence(const struct gpu *gpu, const struct wanted *wanted)
{
    unsigned int now;
    bool on = wanted->first;
    int error = CALL(nvmlDeviceGetPersistenceMode, gpu->device, &now);
    if (!error && now == wanted->first) {
        printf("Persistence mode is already %s for GPU %s.\n", on ? "Enabled" : "Disabled",
               gpu->pci.busId);
        return done();
    }
    if (!error)
        error = CALL(nvmlDeviceSetPersistenceMode, gpu->device, wanted->first);
    if (!error) {
        printf("%s persistence mode for GPU %s.\n", on ? "Enabled" : "Disabled", gpu->pci.busId);
        return done();
    }
    printf("Unable to set persistence mode for GPU %s: %s\n", gpu->pci.busId, client_error(error));
    return error == ERROR_NOT_SUPPORTED ? warned(error) : failed(error);
}

static struct result set_power_limit(const struct gpu *gpu, const struct wanted *wanted)
{
    unsigned int now, low, high;
    int error = CALL(nvmlDeviceGetPowerManagementLimit, gpu->device, &now);
    if (!error)
        error = CALL(nvmlDeviceGetPowerManagementLimitConstraints, gpu->device, &low,
                     &high);
    if (!error && (wanted->first < low || wanted->first > high)) {
        printf("Provided power limit %.2f W is not a valid power limit which should be between "
               "%.2f W and %.2f W for GPU %s\n",
               wanted->first / 1e3, low / 1e3, high / 1e3, gpu->pci.busId);
        return failed(ERROR_INVALID_ARGUMENT);
    }
    if (!error)
        error = CALL(nvmlDeviceSetPowerManagementLimit, gpu->device, wanted->first);
    if (error == ERROR_NOT_SUPPORTED) {
        printf("Changing power management limit is not supported in current scope for GPU: %s.\n",
               gpu->pci.busId);
        return warned(error);
    }
    if (error) {
        printf("Failed to set power management limit for GPU %s: %s\n", gpu->pci.busId,
               client_error(error));
        return failed(error);
    }
    printf("Power limit for GPU %s was set to %.2f W from %.2f W.\n", gpu->pci.busId,
           wanted->first / 1e3, now / 1e3);
    warn_of_persistence(gpu);
    return done();
}

static struct result set_ecc(const struct gpu *gpu, const struct wanted *wanted)
{
    unsigned int current, pending;
    const char *state = wanted->first ? "Enabled" : "Disabled";
    int error = CALL(nvmlDeviceGetEccMode, gpu->device, &current, &pending);
    if (!error && pending == wanted->first) {
        printf("ECC support is already %s for GPU %s.\n", state, gpu->pci.busId);
        return done();
    }
    if (!error)
        error = CALL(nvmlDeviceSetEccMode, gpu->device, wanted->first);
    if (!error) {
        printf("%s ECC support for GPU %s.\n", state, gpu->pci.busId);
        return (struct result){DONE_AFTER_REBOOT, 0};
    }
    if (error == ERROR_NOT_SUPPORTED) {
        printf("ECC support is not available for GPU %s.\n", gpu->pci.busId);
        return warned(error);
    }
    printf("Unable to set ECC support for GPU %s: %s\n", gpu->pci.busId, client_error(error));
    return failed(error);
}

static struct result reset_ecc_errors(const struct gpu *gpu, const struct wanted *wanted)
{
    const char *which = wanted->first ? "aggregate" : "volatile";
    int error = CALL(nvmlDeviceClearEccErrorCounts, gpu->device, wanted->first);
    if (!error) {
        printf("Reset %s ECC errors to zero for GPU %s.\n", which, gpu->pci.busId);
        return done();
    }
    printf("Unable to reset %s ECC errors for GPU %s: %s\n", which, gpu->pci.busId,
           client_error(error));
    return error == ERROR_NOT_SUPPORTED ? warned(error) : failed(error);
}

static struct result set_compute_mode(const struct gpu *gpu, const struct wanted *wanted)
{
    unsigned int now;
    int error = CALL(nvmlDeviceGetComputeMode, gpu->device, &now);
    if (!error && now == wanted->first) {
        printf("Compute mode is already set to %s for GPU %s.\n", modes[wanted->first],
               gpu->pci.busId);
        return done();
    }
    if (!error)
        error = CALL(nvmlDeviceSetComputeMode, gpu->device, wanted->first);
    if (!error) {
        printf("Set compute mode to %s for GPU %s.\n", modes[wanted->first], gpu->pci.busId);
        return done();
    }
    printf("Unable to set compute mode to %s for GPU %s: %s\n", modes[wanted->first],
           gpu->pci.busId, client_error(error));
    return error == ERROR_NOT_SUPPORTED ? warned(error) : failed(error);
}

static struct result set_mig(const struct gpu *gpu, const struct wanted *wanted)
{
    nvmlReturn_t activation = NVML_SUCCESS;
    const char *place = gpu->pci.busId, *verb = wanted->first ? "enable" : "disable";
    int error = CALL(nvmlDeviceSetMigMode, gpu->device, wanted->first, &activation);
    if (error) {
        printf("Unable to %s MIG Mode for GPU %s: %s\n", verb, place, client_error(error));
        return error == ERROR_NOT_SUPPORTED ? warned(error) : failed(error);
    }
    if (activation == NVML_SUCCESS) {
        printf("%s MIG Mode for GPU %s\n", wanted->first ? "Enabled" : "Disabled", place);
    } else {
        printf("Warning: MIG mode is in pending %s state for GPU %s:%s\n", verb, place,
               client_error((int)activation));
        if (activation == NVML_ERROR_IN_USE)
            printf("%s is currently being used by one or more other processes (e.g. CUDA "
                   "application or a monitoring application such as another instance of "
                   "nvidia-smi). Please first kill all processes using the device and retry the "
                   "command or reboot the system to make MIG mode effective.\n",
                   place);
        else
            printf("Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on "
                   "GPU %s\n",
                   place);
    }
    warn_of_persistence(gpu);
    return done();
}

static const struct setting {
    enum command command;
    change *apply;
    bool (*parse)(const char *text, struct wanted *wanted); /* null: by `words`, or no argument */
    const char *const *words;
    bool pair_only;
} settings[] = {
    {COMMAND_PERSISTENCE, set_persistence, NULL, on_off, false},
    {COMMAND_POWER_LIMIT, set_power_limit, parse_watts, NULL, false},
    {COMMAND_LOCK_GPU_CLOCKS, lock_gpu_clocks, parse_clocks, NULL, false},
    {COMMAND_RESET_GPU_CLOCKS, reset_gpu_clocks, NULL, NULL, false},
    {COMMAND_LOCK_MEMORY_CLOCKS, lock_memory_clocks, parse_clocks, NULL, false},
    {COMMAND_RESET_MEMORY_CLOCKS, reset_memory_clocks, NULL, NULL, false},
    {COMMAND_APPLICATIONS_CLOCKS, set_applications_clocks, parse_clocks, NULL, true},
    {COMMAND_RESET_APPLICATIONS_CLOCKS, reset_applications_clocks, NULL, NULL, false},
    {COMMAND_ECC, set_ecc, NULL, on_off, false},
    {COMMAND_RESET_ECC_ERRORS, reset_ecc_errors, NULL, counters, false},
    {COMMAND_COMPUTE_MODE, set_compute_mode, NULL, modes, false},
    {COMMAND_MIG, set_mig, NULL, on_off, false},
};

static bool parse(const struct setting *setting, const char *text, struct wanted *wanted)
{
    if (setting->parse)
        return setting->parse(text, wanted) && (!setting->pair_only || wanted->pair);
    return !setting->words || parse_word(text, setting->words, wanted);
}

int settings_apply(const struct options *options, const struct gpus *gpus)
{
    const struct setting *setting = settings;
    struct wanted wanted = {0, 0, false};
    bool reboot = false;
    int warning = 0;
    while (setting->command != options->command)
        setting++;
    if (!parse(setting, options->argument, &wanted)) {
        puts("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
        return ERROR_INVALID_ARGUMENT;
    }
    for (unsigned int i = 0; i < gpus->count; i++) {
        const struct gpu *gpu = &gpus->list[i];
        if (gpu->status)
            return gpu_unreachable(gpu);
        struct result result = setting->apply(gpu, &wanted);
        if (result.outcome == FAILED) {
            puts("Terminating early due to previous errors.");
            return exit_code(result.error);
        }
        if (result.outcome == WARNED)
            warning = exit_code(result.error);
        reboot = reboot || result.outcome == DONE_AFTER_REBOOT;
    }
    puts("All done.");
    if (reboot)
        puts("Reboot required.");
    return options->warnings_fail ? warning : 0;
}
