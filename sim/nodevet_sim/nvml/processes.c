/* Compute processes, and the memory of the GPU that they take.
 *
 * Described ones are `gpu.N.processes = PID:BYTES PID:BYTES`; a PID alone has no known memory.
 * Live ones each have a file <state>.processes/<pid>:
 *
 *   gpus = 0 3
 *   memory_mb = 1024             on each of them, in units of 1024 * 1024 bytes
 *   utilization_percent = 90     of each of them
 *   pattern = 90:100 0:900       the same over time: 90 % for 100 ms, then nothing for 900 ms
 *   recent = 1700000000050000 90 0    the same as it happened: in each 50 ms up to this moment,
 *                                     in microseconds since 1970, the newest first
 *   pcie_rx_kb_s = 12000000      over PCIe, into each of them
 *   pcie_tx_kb_s = 1000000       and out of it
 *
 * The file of a process that is gone says nothing. What live processes take is added to
 * what is described.
 */
#include "processes.h"
#include "getters.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool has_number(const char *text, unsigned int number)
{
    char *end;
    for (unsigned long found; (found = strtoul(text, &end, 10)), end != text; text = end)
        if (found == number)
            return true;
    return false;
}

/* What a process says that it did: the end of the newest span, and percent. */
static void read_recent(const char *text, struct process *process)
{
    char *end;
    process->recent_end = strtoull(text, &end, 10);
    for (unsigned int i = 0; i < SLOTS; i++) {
        text = end;
        unsigned long percent = strtoul(text, &end, 10);
        if (end == text)
            break;
        process->recent[i] = (unsigned char)(percent < 100 ? percent : 100);
    }
}

/* Whether the process of the file is on the GPU, and then how. */
static bool read_process(const char *path, unsigned int gpu, struct process *process)
{
    char line[4096];
    unsigned long long mebibytes;
    bool is_on = false;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "gpus = ", 7) == 0)
            is_on = has_number(line + 7, gpu);
        else if (sscanf(line, "memory_mb = %llu", &mebibytes) == 1)
            process->memory = mebibytes << 20;
        else if (strncmp(line, "pattern = ", 10) == 0)
            snprintf(process->pattern, sizeof process->pattern, "%s", line + 10);
        else if (strncmp(line, "recent = ", 9) == 0)
            read_recent(line + 9, process);
        else if (sscanf(line, "pcie_rx_kb_s = %u", &process->rx_kb_s) != 1 &&
                 sscanf(line, "pcie_tx_kb_s = %u", &process->tx_kb_s) != 1)
            sscanf(line, "utilization_percent = %u", &process->utilization);
    }
    fclose(file);
    return is_on;
}

void add_live(struct processes *found, unsigned int gpu)
{
    char folder[PATH_MAX], path[PATH_MAX + 300];
    snprintf(folder, sizeof folder, "%s.processes", state_path());
    DIR *directory = opendir(folder);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        struct process process = {.memory = -1ULL};
        char *end;
        process.pid = (unsigned int)strtoul(entry->d_name, &end, 10);
        if (!isdigit((unsigned char)*entry->d_name) || *end || process.pid == 0)
            continue;
        if (kill((pid_t)process.pid, 0) != 0 && errno == ESRCH)
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (found->count < LIVE_PROCESSES && read_process(path, gpu, &process))
            found->list[found->count++] = process;
    }
    if (directory)
        closedir(directory);
}

unsigned long long microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000;
}

/* The next `percent:milliseconds` of a pattern. */
static bool next_phase(const char **at, unsigned int *percent, unsigned long long *length)
{
    int read = 0;
    if (sscanf(*at, "%u:%llu%n", percent, length, &read) != 2)
        return false;
    *at += read;
    *length *= 1000;
    return true;
}

unsigned int busy_at(const struct process *process, unsigned long long moment)
{
    unsigned long long whole = 0, length;
    unsigned int percent;
    if (process->recent_end > 0) {
        unsigned long long age = (process->recent_end - 1 - moment) / SLOT_US;
        return moment < process->recent_end && age < SLOTS ? process->recent[age] : 0;
    }
    for (const char *at = process->pattern; next_phase(&at, &percent, &length);)
        whole += length;
    if (whole == 0)
        return process->utilization;
    moment %= whole;
    for (const char *at = process->pattern; next_phase(&at, &percent, &length);) {
        if (moment < length)
            return percent;
        moment -= length;
    }
    return 0;
}

static nvmlReturn_t add_described(struct processes *found, nvmlDevice_t device)
{
    char text[NVML_SIM_VALUE], *next = text, *item;
    TRY(get_text(device, "processes", text, sizeof text));
    while ((item = strsep(&next, " ")))
        if (*item) {
            struct process process = {.memory = -1ULL};
            if (sscanf(item, "%u:%llu", &process.pid, &process.memory) < 1)
                return NVML_ERROR_UNKNOWN;
            found->list[found->count++] = process;
        }
    return NVML_SUCCESS;
}

static nvmlReturn_t find_processes(nvmlDevice_t device, struct processes *found)
{
    found->count = 0;
    TRY(add_described(found, device));
    add_live(found, state_index(device));
    return NVML_SUCCESS;
}

nvmlReturn_t is_busy(nvmlDevice_t device, bool *busy)
{
    struct processes found = {.count = 0};
    nvmlReturn_t result = add_described(&found, device);
    if (result == NVML_ERROR_GPU_IS_LOST)
        return result;
    add_live(&found, state_index(device));
    *busy = found.count > 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device,
                                                            unsigned int *count,
                                                            nvmlProcessInfo_t *out)
{
    struct processes found;
    CALL(device, count);
    TRY(find_processes(device, &found));
    for (unsigned int i = 0; out && i < found.count && i < *count; i++)
        out[i] = (nvmlProcessInfo_t){found.list[i].pid, found.list[i].memory, -1u, -1u};
    bool fits = found.count <= *count;
    *count = found.count;
    return fits ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device,
                                                            unsigned int *count,
                                                            nvmlProcessInfo_t *out)
{
    CALL(device, count);
    return nvmlDeviceGetComputeRunningProcesses_v3(device, count, out);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                         nvmlProcessInfo_v1_t *out)
{
    nvmlProcessInfo_t whole[LIVE_PROCESSES];
    unsigned int room;
    CALL(device, count);
    room = !out ? 0 : *count < LIVE_PROCESSES ? *count : LIVE_PROCESSES;
    nvmlReturn_t result = nvmlDeviceGetComputeRunningProcesses_v3(device, &room, whole);
    if (result == NVML_SUCCESS)
        for (unsigned int i = 0; i < room; i++)
            out[i] = (nvmlProcessInfo_v1_t){whole[i].pid, whole[i].usedGpuMemory};
    if (result == NVML_SUCCESS || result == NVML_ERROR_INSUFFICIENT_SIZE)
        *count = room;
    return result;
}

/* There are none. */
EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device,
                                                             unsigned int *count,
                                                             nvmlProcessInfo_t *out)
{
    struct processes found;
    (void)out;
    CALL(device, count);
    TRY(find_processes(device, &found));
    *count = 0;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device,
                                                             unsigned int *count,
                                                             nvmlProcessInfo_t *out)
{
    CALL(device, count);
    return nvmlDeviceGetGraphicsRunningProcesses_v3(device, count, out);
}

/* The program of any process, as its first argument says. */
EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *out, unsigned int size)
{
    char path[64], text[PATH_MAX];
    SYSTEM_CALL(out);
    if (size == 0)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return NVML_ERROR_NOT_FOUND;
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    snprintf(out, size, "%s", text);
    return NVML_SUCCESS;
}

/* memory */

/* What is used as described, and what live processes take of the rest of `room`. */
static nvmlReturn_t get_used(nvmlDevice_t device, unsigned long long room, unsigned long long *out)
{
    struct processes live = {.count = 0};
    TRY(get_ulonglong(device, "memory_used_b", out));
    add_live(&live, state_index(device));
    for (unsigned int i = 0; i < live.count; i++) {
        unsigned long long memory = live.list[i].memory, left = room > *out ? room - *out : 0;
        if (memory != -1ULL)
            *out += memory < left ? memory : left;
    }
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    CALL(device, out);
    if (out->version != 0x2000028)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    TRY(get_ulonglong(device, "memory_total_b", &out->total));
    TRY(get_ulonglong(device, "memory_reserved_b", &out->reserved));
    TRY(get_used(device, out->total - out->reserved, &out->used));
    out->free = out->total - out->used - out->reserved;
    return NVML_SUCCESS;
}

/* The first version counts what the driver reserves as used. */
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    unsigned long long reserved;
    CALL(device, out);
    TRY(get_ulonglong(device, "memory_total_b", &out->total));
    if (get_ulonglong(device, "memory_reserved_b", &reserved) != NVML_SUCCESS)
        reserved = 0;
    TRY(get_used(device, out->total - reserved, &out->used));
    out->used += reserved;
    out->free = out->total - out->used;
    return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *out)
{
    CALL(device, out);
    TRY(get_ulonglong(device, "bar1_total_b", &out->bar1Total));
    out->bar1Used = 0;
    out->bar1Free = out->bar1Total;
    return NVML_SUCCESS;
}
