/* See state.h. */
#include "table.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct nvmlDevice_st {
    unsigned int index;
    const struct nvmlDevice_st *gpu; /* of a MIG device, whose index is that among the GPU's */
};

/* The table as it was read, and of which file. */
static struct {
    struct table table;
    struct stat file;
    bool settled; /* a later change of the file has another time */
} known;
static unsigned long long session;
static struct nvmlDevice_st devices[NVML_SIM_GPUS], parts[NVML_SIM_GPUS][NVML_SIM_PARTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const struct error nvml_errors[] = {
    {"SUCCESS", 0, "Success"},
    {"NVML_ERROR_UNINITIALIZED", 1, "Uninitialized"},
    {"NVML_ERROR_INVALID_ARGUMENT", 2, "Invalid Argument"},
    {"NVML_ERROR_NOT_SUPPORTED", 3, "Not Supported"},
    {"NVML_ERROR_NO_PERMISSION", 4, "Insufficient Permissions"},
    {"NVML_ERROR_ALREADY_INITIALIZED", 5, "Already Initialized"},
    {"NVML_ERROR_NOT_FOUND", 6, "Not Found"},
    {"NVML_ERROR_INSUFFICIENT_SIZE", 7, "Insufficient Size"},
    {"NVML_ERROR_INSUFFICIENT_POWER", 8, "Insufficient External Power"},
    {"NVML_ERROR_DRIVER_NOT_LOADED", 9, "Driver Not Loaded"},
    {"NVML_ERROR_TIMEOUT", 10, "Timeout"},
    {"NVML_ERROR_IRQ_ISSUE", 11, "Interrupt Request Issue"},
    {"NVML_ERROR_LIBRARY_NOT_FOUND", 12, "NVML Shared Library Not Found"},
    {"NVML_ERROR_FUNCTION_NOT_FOUND", 13, "Function Not Found"},
    {"NVML_ERROR_CORRUPTED_INFOROM", 14, "Corrupted infoROM"},
    {"NVML_ERROR_GPU_IS_LOST", 15, "GPU is lost"},
    {"NVML_ERROR_RESET_REQUIRED", 16, "GPU requires restart"},
    {"NVML_ERROR_OPERATING_SYSTEM", 17, "The operating system has blocked the request."},
    {"NVML_ERROR_LIB_RM_VERSION_MISMATCH", 18, "RM has detected an NVML/RM version mismatch."},
    {"NVML_ERROR_IN_USE", 19, "In use by another client"},
    {"NVML_ERROR_MEMORY", 20, "Insufficient Memory"},
    {"NVML_ERROR_NO_DATA", 21, "No data"},
    {"NVML_ERROR_VGPU_ECC_NOT_SUPPORTED", 22,
     "The requested vgpu operation is not available on target device, because ECC is enabled"},
    {"NVML_ERROR_INSUFFICIENT_RESOURCES", 23, "Insufficient resources"},
    {"NVML_ERROR_FREQ_NOT_SUPPORTED", 24, "Frequency not supported"},
    {"NVML_ERROR_ARGUMENT_VERSION_MISMATCH", 25, "The provided version is invalid/unsupported"},
    {"NVML_ERROR_DEPRECATED", 26, "The requested functionality has been deprecated"},
    {"NVML_ERROR_NOT_READY", 27, "The system is not ready for the request"},
    {"NVML_ERROR_GPU_NOT_FOUND", 28, "No GPUs were found"},
    {"NVML_ERROR_INVALID_STATE", 29,
     "Resource not in correct state to perform requested operation"},
    {"NVML_ERROR_RESET_TYPE_NOT_SUPPORTED", 30, "Reset not supported for given device/parameters"},
    {"NVML_ERROR_UNKNOWN", 999, "Unknown Error"},
    {NULL, 0, NULL},
};

const char *state_path(void)
{
    const char *path = getenv("NODEVET_SIM_STATE");
    return path ? path : NODEVET_SIM_DEFAULT_STATE;
}

static bool is_known(const struct stat *now)
{
    return known.table.text && known.settled && now->st_ino == known.file.st_ino &&
           now->st_size == known.file.st_size &&
           memcmp(&now->st_mtim, &known.file.st_mtim, sizeof now->st_mtim) == 0;
}

/* Two changes within a tick of the kernel's clock can give a file of the same size, time and
 * number. Asked of the kernel, as a library loaded before libc may tell another time. */
static bool is_older_than_a_tick(const struct stat *file)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    long long age = (now.tv_sec - file->st_mtim.tv_sec) * 1000000000LL + now.tv_nsec -
                    file->st_mtim.tv_nsec;
    return age > 50000000;
}

static nvmlReturn_t load_locked(const char *path)
{
    struct stat now;
    if (stat(path, &now) != 0)
        return getenv("NODEVET_SIM_STATE") ? complain(path, 0, strerror(errno))
                                           : NVML_ERROR_DRIVER_NOT_LOADED;
    if (is_known(&now))
        return NVML_SUCCESS;
    bool settled = is_older_than_a_tick(&now);
    struct table fresh;
    nvmlReturn_t result = table_read(path, &fresh);
    if (result != NVML_SUCCESS)
        return result;
    table_forget(&fresh, session);
    table_free(&known.table);
    known.table = fresh;
    known.file = now;
    known.settled = settled;
    return NVML_SUCCESS;
}

nvmlReturn_t state_load(void)
{
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = load_locked(state_path());
    pthread_mutex_unlock(&lock);
    return result;
}

void state_close(void)
{
    pthread_mutex_lock(&lock);
    table_free(&known.table);
    pthread_mutex_unlock(&lock);
}

void state_set_session(unsigned long long number)
{
    pthread_mutex_lock(&lock);
    session = number;
    table_free(&known.table);
    pthread_mutex_unlock(&lock);
}

unsigned long long state_session(void)
{
    return session;
}

nvmlDevice_t state_device(unsigned int index)
{
    devices[index].index = index;
    return &devices[index];
}

nvmlDevice_t state_part(nvmlDevice_t gpu, unsigned int index)
{
    struct nvmlDevice_st *part = &parts[gpu->index][index];
    *part = (struct nvmlDevice_st){.index = index, .gpu = gpu};
    return part;
}

unsigned int state_index(nvmlDevice_t device)
{
    return device->gpu ? device->gpu->index : device->index;
}

static nvmlReturn_t error_named(const char *name)
{
    for (const struct error *error = nvml_errors; error->name; error++)
        if (strcmp(error->name, name) == 0)
            return (nvmlReturn_t)error->number;
    return NVML_ERROR_UNKNOWN;
}

/* What a value does to the call that meets it. */
static nvmlReturn_t obey(const char *value)
{
    long milliseconds;
    if (strncmp(value, "NVML_ERROR_", 11) == 0)
        return error_named(value);
    while (strcmp(value, "hang") == 0)
        pause();
    if (sscanf(value, "delay:%ld", &milliseconds) == 1) {
        struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
        while (nanosleep(&left, &left) != 0 && errno == EINTR)
            ;
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t value_of(nvmlDevice_t device, const char *key, char *text, unsigned int size)
{
    state_load(); /* a file that is broken for now leaves the last good table */
    pthread_mutex_lock(&lock);
    const struct table *table = &known.table;
    const char *lost = device ? table_find_of(table, state_index(device), "lost") : NULL;
    char of_part[2 * NVML_SIM_VALUE];
    if (device && device->gpu) {
        snprintf(of_part, sizeof of_part, "mig.%u.%s", device->index, key);
        key = of_part;
    }
    const char *value =
        device ? table_find_of(table, state_index(device), key) : table_find(table, key);
    nvmlReturn_t result = NVML_SUCCESS;
    if (lost && strcmp(lost, "1") == 0 && strcmp(key, "handle") != 0)
        result = NVML_ERROR_GPU_IS_LOST;
    else if (!value)
        result = NVML_ERROR_NOT_SUPPORTED;
    else if (strncmp(value, "NVML_ERROR_", 11) == 0)
        result = error_named(value);
    else if (strlen(value) >= size)
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    else
        strcpy(text, value);
    pthread_mutex_unlock(&lock);
    return result == NVML_SUCCESS ? obey(text) : result;
}

/* The value of a line about a call or a setting, of the GPU or of the whole library; empty
 * where there is none. */
static void find_hook(nvmlDevice_t device, const char *key, char *text, size_t size)
{
    pthread_mutex_lock(&lock);
    const char *value = device ? table_find_of(&known.table, state_index(device), key) : NULL;
    if (!value)
        value = table_find(&known.table, key);
    snprintf(text, size, "%s", value ? value : "");
    pthread_mutex_unlock(&lock);
}

nvmlReturn_t state_call(nvmlDevice_t device, const char *function)
{
    char key[NVML_SIM_VALUE], text[NVML_SIM_VALUE];
    state_load();
    pthread_mutex_lock(&lock);
    bool hooked = known.table.hooked;
    pthread_mutex_unlock(&lock);
    if (!hooked)
        return NVML_SUCCESS;
    snprintf(key, sizeof key, "call.%s", function);
    find_hook(device, key, text, sizeof text);
    char *version = strrchr(key, '_');
    if (!*text && version && version[1] == 'v') {
        *version = '\0';
        find_hook(device, key, text, sizeof text);
    }
    return obey(text);
}

nvmlReturn_t state_refusal(nvmlDevice_t device, const char *setting, bool *ignored)
{
    char key[NVML_SIM_VALUE], text[NVML_SIM_VALUE];
    snprintf(key, sizeof key, "set.%s", setting);
    find_hook(device, key, text, sizeof text);
    *ignored = strcmp(text, "ignored") == 0;
    return obey(text);
}

nvmlReturn_t state_text(nvmlDevice_t device, char *text, unsigned int size, const char *key, ...)
{
    char name[NVML_SIM_VALUE];
    va_list arguments;
    va_start(arguments, key);
    vsnprintf(name, sizeof name, key, arguments);
    va_end(arguments);
    return value_of(device, name, text, size);
}

/* Of a counter that rises, which is written `100/s`: 100 for each second since boot. Asked of the
 * kernel, as above. */
static bool rise(const char *end, long long *number)
{
    struct timespec up;
    if (strcmp(end, "/s") != 0)
        return false;
    syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &up);
    *number *= up.tv_sec;
    return true;
}

nvmlReturn_t state_number(nvmlDevice_t device, const struct word *words, long long *number,
                          const char *key, ...)
{
    char name[NVML_SIM_VALUE], text[NVML_SIM_VALUE];
    va_list arguments;
    va_start(arguments, key);
    vsnprintf(name, sizeof name, key, arguments);
    va_end(arguments);
    nvmlReturn_t result = value_of(device, name, text, sizeof text);
    if (result != NVML_SUCCESS)
        return result;
    for (; words && words->name; words++)
        if (strcmp(words->name, text) == 0) {
            *number = words->number;
            return NVML_SUCCESS;
        }
    if (strcmp(text, "unavailable") == 0) {
        *number = -1;
        return NVML_SUCCESS;
    }
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 0);
    if (errno || end == text || (*end && !rise(end, number)))
        return NVML_ERROR_UNKNOWN;
    return NVML_SUCCESS;
}
