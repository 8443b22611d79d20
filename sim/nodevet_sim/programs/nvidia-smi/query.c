/* See query.h. */
#include "query.h"

#include "fields.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 256 };

struct format {
    bool header, units;
};

static int parse_format(const char *text, struct format *format)
{
    bool csv = false;
    char *copy = strdup(text), *next = copy, *word;
    *format = (struct format){true, true};
    int code = 0;
    while ((word = strsep(&next, ",")))
        if (strcmp(word, "csv") == 0)
            csv = true;
        else if (strcmp(word, "noheader") == 0)
            format->header = false;
        else if (strcmp(word, "nounits") == 0)
            format->units = false;
        else
            code = ERROR_INVALID_ARGUMENT;
    free(copy);
    if (code || !csv) {
        puts("\"--format=\" switch is missing \"csv\" or has an option that is not valid. "
             "Please run 'nvidia-smi -h' for help.");
        return ERROR_INVALID_ARGUMENT;
    }
    return 0;
}

/* One cell of a row of `count`. */
static void print_name(const char *name, const char *unit, unsigned int at, bool units,
                       unsigned int count)
{
    bool with_unit = unit && units;
    printf("%s%s%s%s%s", name, with_unit ? " [" : "", with_unit ? unit : "", with_unit ? "]" : "",
           at + 1 < count ? ", " : "\n");
}

static void print_value(const char *text, int error, const char *unit, unsigned int at, bool units,
                        unsigned int count)
{
    bool with_unit = unit && units && !error;
    printf("%s%s%s%s%s%s", error ? "[" : "", text, error ? "]" : "", with_unit ? " " : "",
           with_unit ? unit : "", at + 1 < count ? ", " : "\n");
}

int query_list(const struct gpus *gpus)
{
    int code = 0;
    for (unsigned int i = 0; i < gpus->count; i++) {
        const struct gpu *gpu = &gpus->list[i];
        char name[VALUE_SIZE], uuid[VALUE_SIZE];
        if (gpu->status) {
            code = gpu_unreachable(gpu);
            continue;
        }
        field_read(gpu, field_named("name"), name);
        field_read(gpu, field_named("uuid"), uuid);
        printf("GPU %u: %s (UUID: %s)\n", gpu->index, name, uuid);
    }
    return code;
}

struct columns {
    const void *fields[FIELDS_MAX];
    unsigned int count;
};

/* Each name, with commas and perhaps blanks between, as `find` knows it. */
static int parse_columns(const char *text, const void *(*find)(const char *),
                         struct columns *columns)
{
    char *copy = strdup(text), *name, *next = copy;
    int code = 0;
    columns->count = 0;
    while (!code && (name = strsep(&next, ","))) {
        name += strspn(name, " ");
        name[strcspn(name, " ")] = '\0';
        const void *field = find(name);
        if (field && columns->count < FIELDS_MAX) {
            columns->fields[columns->count++] = field;
        } else {
            printf("Field \"%s\" is not a valid field to query.\n\n", name);
            code = ERROR_INVALID_ARGUMENT;
        }
    }
    free(copy);
    return code;
}

static const void *find_field(const char *name)
{
    return field_of_query(name);
}

int query_gpus(const struct options *options, const struct gpus *gpus)
{
    struct columns columns;
    struct format format;
    int code = parse_format(options->format, &format);
    if (!code)
        code = parse_columns(options->argument, find_field, &columns);
    if (code)
        return code;
    const struct field *const *fields = (const struct field *const *)columns.fields;
    for (unsigned int at = 0; format.header && at < columns.count; at++)
        print_name(fields[at]->name, fields[at]->unit, at, format.units, columns.count);
    for (unsigned int i = 0; i < gpus->count; i++) {
        const struct gpu *gpu = &gpus->list[i];
        if (!gpu->has_handle) {
            code = gpu_unreachable(gpu);
            continue;
        }
        if (gpu->status)
            code = exit_code(gpu->status);
        for (unsigned int at = 0; at < columns.count; at++) {
            char value[VALUE_SIZE];
            int error = field_read(gpu, fields[at], value);
            print_value(value, error, fields[at]->unit, at, format.units, columns.count);
        }
    }
    return code;
}

int processes_read(const struct gpu *gpu, struct processes *processes)
{
    int error = ERROR_UNKNOWN; /* without memory */
    processes->list = NULL;
    processes->count = 0;
    do { /* more may have come since they were counted */
        nvmlProcessInfo_t *list =
            realloc(processes->list, (processes->count + 1) * sizeof *processes->list);
        if (!list)
            break;
        processes->list = list;
        error = CALL(nvmlDeviceGetComputeRunningProcesses_v3, gpu->device,
                     &processes->count, list);
    } while (error == ERROR_INSUFFICIENT_SIZE);
    if (error) {
        free(processes->list);
        *processes = (struct processes){NULL, 0};
    }
    return error;
}

void process_name(unsigned int pid, char *name, size_t size)
{
    if (CALL(nvmlSystemGetProcessName, pid, name, (unsigned int)size))
        snprintf(name, size, "[Not Found]");
    name[strcspn(name, "\r\n")] = '\0'; /* a process may call itself anything */
}

enum app_value { OF_GPU, APP_PID, APP_NAME, APP_MEMORY };

static const struct app_field {
    const char *name, *alias, *unit;
    enum app_value value;
    const char *of_gpu; /* the field of the GPU that it is */
} app_fields[] = {
    {"timestamp", NULL, NULL, OF_GPU, "timestamp"},
    {"gpu_name", NULL, NULL, OF_GPU, "name"},
    {"gpu_bus_id", NULL, NULL, OF_GPU, "pci.bus_id"},
    {"gpu_serial", NULL, NULL, OF_GPU, "serial"},
    {"gpu_uuid", NULL, NULL, OF_GPU, "uuid"},
    {"pid", NULL, NULL, APP_PID, NULL},
    {"process_name", "name", NULL, APP_NAME, NULL},
    {"used_gpu_memory", "used_memory", "MiB", APP_MEMORY, NULL},
};

static const void *find_app_field(const char *name)
{
    for (size_t i = 0; i < sizeof app_fields / sizeof *app_fields; i++)
        if (strcmp(name, app_fields[i].name) == 0 ||
            (app_fields[i].alias && strcmp(name, app_fields[i].alias) == 0))
            return &app_fields[i];
    return NULL;
}

static int read_app(const struct gpu *gpu, const nvmlProcessInfo_t *process,
                    const struct app_field *field, char value[VALUE_SIZE])
{
    switch (field->value) {
    case OF_GPU:
        return field_read(gpu, field_named(field->of_gpu), value);
    case APP_PID:
        snprintf(value, VALUE_SIZE, "%u", process->pid);
        return 0;
    case APP_NAME:
        process_name(process->pid, value, VALUE_SIZE);
        return 0;
    default:
        snprintf(value, VALUE_SIZE, "N/A");
        if (process->usedGpuMemory == -1ULL)
            return ERROR_NOT_SUPPORTED;
        snprintf(value, VALUE_SIZE, "%llu", process->usedGpuMemory >> 20);
        return 0;
    }
}

int query_apps(const struct options *options, const struct gpus *gpus)
{
    struct columns columns;
    struct format format;
    int code = parse_format(options->format, &format);
    if (!code)
        code = parse_columns(options->argument, find_app_field, &columns);
    if (code)
        return code;
    const struct app_field *const *fields = (const struct app_field *const *)columns.fields;
    for (unsigned int at = 0; format.header && at < columns.count; at++)
        print_name(fields[at]->name, fields[at]->unit, at, format.units, columns.count);
    for (unsigned int i = 0; i < gpus->count; i++) {
        const struct gpu *gpu = &gpus->list[i];
        struct processes processes;
        if (gpu->status) {
            code = gpu_unreachable(gpu);
            continue;
        }
        if (processes_read(gpu, &processes))
            continue;
        for (unsigned int app = 0; app < processes.count; app++)
            for (unsigned int at = 0; at < columns.count; at++) {
                char value[VALUE_SIZE];
                int error = read_app(gpu, &processes.list[app], fields[at], value);
                print_value(value, error, fields[at]->unit, at, format.units, columns.count);
            }
        free(processes.list);
    }
    return code;
}
