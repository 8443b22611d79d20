/* See summary.h. The layout is that of drivers since 550. */
#include "summary.h"

#include "fields.h"
#include "query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* clang-format off */
static const char rule[] =
    "+-----------------------------------------------------------------------------------------+";
static const char columns[] =
    "+-----------------------------------------+------------------------+----------------------+";
static const char head[] =
    "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |\n"
    "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |\n"
    "|                                         |                        |               MIG M. |\n"
    "|=========================================+========================+======================|";
static const char processes_head[] =
    "| Processes:                                                                              |\n"
    "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |\n"
    "|        ID   ID                                                               Usage      |\n"
    "|=========================================================================================|";
/* clang-format on */

/* A value without its unit; `unsupported` where there is none, ERR! where it cannot be read. */
static void get(const struct gpu *gpu, const char *name, const char *unsupported, char *value)
{
    int error = field_read(gpu, field_named(name), value);
    if (error)
        snprintf(value, VALUE_SIZE, "%s", error == ERROR_NOT_SUPPORTED ? unsupported : "ERR!");
}

/* The value with what stands behind a number: 8W, 81559MiB; as it is where it is none. */
static void get_with(const struct gpu *gpu, const char *name, const char *unit, char *value)
{
    get(gpu, name, "N/A", value);
    if (strchr("-0123456789", *value)) {
        value[strcspn(value, ".")] = '\0';
        snprintf(value + strlen(value), VALUE_SIZE - strlen(value), "%s", unit);
    }
}

static void get_switch(const struct gpu *gpu, const char *name, char *value)
{
    get(gpu, name, "N/A", value);
    if (strcmp(value, "Enabled") == 0)
        strcpy(value, "On");
    else if (strcmp(value, "Disabled") == 0)
        strcpy(value, "Off");
}

static void print_head(void)
{
    char driver[VALUE_SIZE] = "N/A", cuda[32] = "N/A", now[64];
    int number;
    time_t seconds = time(NULL);
    struct tm local;
    strftime(now, sizeof now, "%a %b %e %H:%M:%S %Y", localtime_r(&seconds, &local));
    CALL(nvmlSystemGetDriverVersion, driver, sizeof driver);
    if (CALL(nvmlSystemGetCudaDriverVersion_v2, &number) == 0)
        snprintf(cuda, sizeof cuda, "%d.%d", number / 1000, number % 1000 / 10);
    printf("%s       \n%s\n"
           "| NVIDIA-SMI %-22.22s Driver Version: %-14.14s CUDA Version: %-8.8s |\n",
           now, rule, driver, driver, cuda);
    printf("%s\n%s\n", columns, head);
}

static void print_gpu(const struct gpu *gpu)
{
    char name[VALUE_SIZE], on[VALUE_SIZE], display[VALUE_SIZE], ecc[VALUE_SIZE], fan[VALUE_SIZE];
    char heat[VALUE_SIZE], state[VALUE_SIZE], draw[VALUE_SIZE], cap[VALUE_SIZE];
    char used[VALUE_SIZE], total[VALUE_SIZE], load[VALUE_SIZE], mode[VALUE_SIZE], mig[VALUE_SIZE];
    get(gpu, "name", "N/A", name);
    get_switch(gpu, "persistence_mode", on);
    get_switch(gpu, "display_active", display);
    get(gpu, "ecc.errors.uncorrected.volatile.total", "N/A", ecc);
    get_with(gpu, "fan.speed", "%", fan);
    get_with(gpu, "temperature.gpu", "C", heat);
    get(gpu, "pstate", "N/A", state);
    get_with(gpu, "power.draw", "W", draw);
    get_with(gpu, "enforced.power.limit", "W", cap);
    get_with(gpu, "memory.used", "MiB", used);
    get_with(gpu, "memory.total", "MiB", total);
    get_with(gpu, "utilization.gpu", "%", load);
    get(gpu, "compute_mode", "N/A", mode);
    get(gpu, "mig.mode.current", "N/A", mig);
    if (strcmp(mode, "Exclusive_Process") == 0)
        strcpy(mode, "E. Process");
    printf("| %3u  %-25.25s %7.7s  | %18.18s %3.3s | %20.20s |\n", gpu->index, name, on,
           gpu->pci.busId, display, ecc);
    printf("| %-4.4s %4.4s    %-4.4s%14.14s / %5.5s | %10.10s / %9.9s | %7.7s %12.12s |\n", fan,
           heat, state, draw, cap, used, total, load, mode);
    printf("| %39s | %22s | %20.20s |\n", "", "", mig);
    puts(columns);
}

static unsigned int print_processes(const struct gpu *gpu)
{
    struct processes processes;
    processes_read(gpu, &processes);
    for (unsigned int i = 0; i < processes.count; i++) {
        const nvmlProcessInfo_t *process = &processes.list[i];
        char name[VALUE_SIZE], memory[32] = "N/A";
        process_name(process->pid, name, sizeof name);
        if (process->usedGpuMemory != -1ULL)
            snprintf(memory, sizeof memory, "%lluMiB", process->usedGpuMemory >> 20);
        printf("| %4u   N/A  N/A %15u      C   %-34.34s %11.11s |\n", gpu->index, process->pid,
               name, memory);
    }
    free(processes.list);
    return processes.count;
}

int summary_print(const struct gpus *gpus)
{
    int code = 0;
    unsigned int processes = 0;
    print_head();
    for (unsigned int i = 0; i < gpus->count; i++)
        if (gpus->list[i].status)
            code = gpu_unreachable(&gpus->list[i]);
        else
            print_gpu(&gpus->list[i]);
    printf("\n%s\n%s\n", rule, processes_head);
    for (unsigned int i = 0; i < gpus->count; i++)
        if (!gpus->list[i].status)
            processes += print_processes(&gpus->list[i]);
    if (!processes)
        printf("| %-87s |\n", " No running processes found");
    puts(rule);
    return code;
}
