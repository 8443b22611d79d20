/* See state.h. */
#include "state.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct nvmlDevice_st {
    unsigned int index;
};

struct entry {
    unsigned int hash;
    char *key, *value; /* into `table.text` */
};

static struct {
    char *text;
    struct entry *entries;
    size_t count;
    struct timespec changed;
    ino_t inode;
    off_t size;
} table;
static struct nvmlDevice_st devices[NVML_SIM_GPUS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

const struct word nvml_errors[] = {
    {"SUCCESS", 0},
    {"NVML_ERROR_UNINITIALIZED", 1},
    {"NVML_ERROR_INVALID_ARGUMENT", 2},
    {"NVML_ERROR_NOT_SUPPORTED", 3},
    {"NVML_ERROR_NO_PERMISSION", 4},
    {"NVML_ERROR_ALREADY_INITIALIZED", 5},
    {"NVML_ERROR_NOT_FOUND", 6},
    {"NVML_ERROR_INSUFFICIENT_SIZE", 7},
    {"NVML_ERROR_INSUFFICIENT_POWER", 8},
    {"NVML_ERROR_DRIVER_NOT_LOADED", 9},
    {"NVML_ERROR_TIMEOUT", 10},
    {"NVML_ERROR_IRQ_ISSUE", 11},
    {"NVML_ERROR_LIBRARY_NOT_FOUND", 12},
    {"NVML_ERROR_FUNCTION_NOT_FOUND", 13},
    {"NVML_ERROR_CORRUPTED_INFOROM", 14},
    {"NVML_ERROR_GPU_IS_LOST", 15},
    {"NVML_ERROR_RESET_REQUIRED", 16},
    {"NVML_ERROR_OPERATING_SYSTEM", 17},
    {"NVML_ERROR_LIB_RM_VERSION_MISMATCH", 18},
    {"NVML_ERROR_IN_USE", 19},
    {"NVML_ERROR_MEMORY", 20},
    {"NVML_ERROR_NO_DATA", 21},
    {"NVML_ERROR_VGPU_ECC_NOT_SUPPORTED", 22},
    {"NVML_ERROR_INSUFFICIENT_RESOURCES", 23},
    {"NVML_ERROR_FREQ_NOT_SUPPORTED", 24},
    {"NVML_ERROR_ARGUMENT_VERSION_MISMATCH", 25},
    {"NVML_ERROR_DEPRECATED", 26},
    {"NVML_ERROR_NOT_READY", 27},
    {"NVML_ERROR_GPU_NOT_FOUND", 28},
    {"NVML_ERROR_INVALID_STATE", 29},
    {"NVML_ERROR_RESET_TYPE_NOT_SUPPORTED", 30},
    {"NVML_ERROR_UNKNOWN", 999},
    {NULL, 0},
};

static unsigned int hash_of(const char *key)
{
    unsigned int hash = 2166136261u; /* FNV-1a */
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash;
}

static char *trim(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r", end[-1]))
        *--end = '\0';
    return text;
}

/* Split `text` into entries, in place. 0, or the number of the line that is none. */
static unsigned int parse(char *text, struct entry **entries, size_t *count)
{
    size_t room = 1;
    for (const char *at = text; *at; at++)
        room += *at == '\n';
    *entries = malloc(room * sizeof **entries);
    *count = 0;
    unsigned int number = 0;
    for (char *next = text; *entries && (text = strsep(&next, "\n"));) {
        number++;
        char *line = trim(text);
        if (*line == '\0' || *line == '#')
            continue;
        char *equals = strchr(line, '=');
        if (!equals || equals == line)
            return number;
        *equals = '\0';
        char *key = trim(line);
        (*entries)[(*count)++] = (struct entry){hash_of(key), key, trim(equals + 1)};
    }
    return *entries ? 0 : number + 1;
}

static char *read_all(FILE *file, off_t size)
{
    char *text = malloc((size_t)size + 1);
    if (text)
        text[fread(text, 1, (size_t)size, file)] = '\0';
    return text;
}

static nvmlReturn_t complain(const char *path, unsigned int line, const char *what)
{
    fprintf(stderr, "libnvidia-ml of nodevet sim: %s:%u: %s\n", path, line, what);
    return NVML_ERROR_UNKNOWN;
}

static nvmlReturn_t load_locked(const char *path)
{
    struct stat now;
    if (stat(path, &now) != 0)
        return complain(path, 0, strerror(errno));
    if (table.text && now.st_ino == table.inode && now.st_size == table.size &&
        memcmp(&now.st_mtim, &table.changed, sizeof now.st_mtim) == 0)
        return NVML_SUCCESS;
    FILE *file = fopen(path, "re");
    if (!file)
        return complain(path, 0, strerror(errno));
    char *text = read_all(file, now.st_size);
    fclose(file);
    struct entry *entries = NULL;
    size_t count = 0;
    unsigned int line = text ? parse(text, &entries, &count) : 1;
    if (line) {
        free(entries);
        free(text);
        return complain(path, line, "not `key = value`");
    }
    free(table.entries);
    free(table.text);
    table.text = text;
    table.entries = entries;
    table.count = count;
    table.changed = now.st_mtim;
    table.inode = now.st_ino;
    table.size = now.st_size;
    return NVML_SUCCESS;
}

nvmlReturn_t state_load(void)
{
    const char *path = getenv("NODEVET_SIM_STATE");
    if (!path)
        return complain("$NODEVET_SIM_STATE", 0, "not set");
    pthread_mutex_lock(&lock);
    nvmlReturn_t result = load_locked(path);
    pthread_mutex_unlock(&lock);
    return result;
}

void state_close(void)
{
    pthread_mutex_lock(&lock);
    free(table.entries);
    free(table.text);
    memset(&table, 0, sizeof table);
    pthread_mutex_unlock(&lock);
}

nvmlDevice_t state_device(unsigned int index)
{
    devices[index].index = index;
    return &devices[index];
}

static const char *find(const char *key)
{
    unsigned int hash = hash_of(key);
    for (size_t i = table.count; i-- > 0;)
        if (table.entries[i].hash == hash && strcmp(table.entries[i].key, key) == 0)
            return table.entries[i].value;
    return NULL;
}

/* The value of a GPU's key, most exact first: gpu.3.nvlinks.4.active, then * for the
 * link, for the GPU, for both. */
static const char *find_of(nvmlDevice_t device, const char *key)
{
    char full[NVML_SIM_VALUE + 32], wild[NVML_SIM_VALUE];
    const char *number = strpbrk(key, "0123456789");
    snprintf(wild, sizeof wild, "%s", key);
    if (number && number > key && number[-1] == '.')
        snprintf(wild, sizeof wild, "%.*s*%s", (int)(number - key), key,
                 number + strspn(number, "0123456789"));
    for (int step = 0; step < 4; step++) {
        const char *part = step % 2 ? wild : key;
        if (step < 2)
            snprintf(full, sizeof full, "gpu.%u.%s", device->index, part);
        else
            snprintf(full, sizeof full, "gpu.*.%s", part);
        const char *value = find(full);
        if (value)
            return value;
    }
    return NULL;
}

static nvmlReturn_t error_named(const char *name)
{
    for (const struct word *word = nvml_errors; word->name; word++)
        if (strcmp(word->name, name) == 0)
            return (nvmlReturn_t)word->number;
    return NVML_ERROR_UNKNOWN;
}

static nvmlReturn_t value_of(nvmlDevice_t device, const char *key, char *text, unsigned int size)
{
    state_load(); /* a file that is broken for now leaves the last good table */
    pthread_mutex_lock(&lock);
    const char *lost = device ? find_of(device, "lost") : NULL;
    const char *value = device ? find_of(device, key) : find(key);
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
    if (result == NVML_SUCCESS && strcmp(text, "hang") == 0)
        for (;;)
            pause();
    return result;
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
    return errno || end == text || *end ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}
