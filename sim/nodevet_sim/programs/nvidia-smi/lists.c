/* The parts of a report that are lists; see report.h. */
#include "report.h"

#include "fields.h"
#include "markup.h"
#include "query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_process(const nvmlProcessInfo_t *process, bool xml)
{
    char pid[16], name[VALUE_SIZE], memory[32] = "N/A";
    snprintf(pid, sizeof pid, "%u", process->pid);
    process_name(process->pid, name, sizeof name);
    if (process->usedGpuMemory != -1ULL)
        snprintf(memory, sizeof memory, "%llu MiB", process->usedGpuMemory >> 20);
    if (!xml) {
        printf("        GPU instance ID                   : N/A\n"
               "        Compute instance ID               : N/A\n"
               "        Process ID                        : %s\n"
               "            Type                          : C\n"
               "            Name                          : %s\n"
               "            Used GPU Memory               : %s\n",
               pid, name, memory);
        return;
    }
    element_open(3, "process_info");
    element(4, "gpu_instance_id", "N/A");
    element(4, "compute_instance_id", "N/A");
    element(4, "pid", pid);
    element(4, "type", "C");
    element(4, "process_name", name);
    element(4, "used_memory", memory);
    element_close(3, "process_info");
}

/* Every graphics clock that goes with every memory clock. */
static void print_clocks(const struct gpu *gpu, bool xml)
{
    unsigned int memory[64], graphics[512], memories = 64;
    if (CALL(nvmlDeviceGetSupportedMemoryClocks, gpu->device, &memories, memory))
        memories = 0;
    if (memories == 0 && xml)
        element(2, "supported_clocks", "N/A");
    else if (memories == 0)
        line(1, "Supported Clocks", "N/A");
    else if (xml)
        element_open(2, "supported_clocks");
    else
        line_head(1, "Supported Clocks");
    for (unsigned int i = 0; i < memories; i++) {
        char value[32];
        unsigned int count = 512;
        if (CALL(nvmlDeviceGetSupportedGraphicsClocks, gpu->device, memory[i], &count, graphics))
            count = 0;
        snprintf(value, sizeof value, "%u MHz", memory[i]);
        if (xml)
            element_open(3, "supported_mem_clock");
        if (xml)
            element(4, "value", value);
        else
            line(2, "Memory", value);
        for (unsigned int at = 0; at < count; at++) {
            snprintf(value, sizeof value, "%u MHz", graphics[at]);
            if (xml)
                element(4, "supported_graphics_clock", value);
            else
                line(3, "Graphics", value);
        }
        if (xml)
            element_close(3, "supported_mem_clock");
    }
    if (memories && xml)
        element_close(2, "supported_clocks");
}

static void print_processes(const struct gpu *gpu, bool xml)
{
    struct processes processes;
    processes_read(gpu, &processes);
    if (xml)
        element_open(2, "processes");
    else if (processes.count)
        line_head(1, "Processes");
    else
        line(1, "Processes", "None");
    for (unsigned int i = 0; i < processes.count; i++)
        print_process(&processes.list[i], xml);
    if (xml)
        element_close(2, "processes");
    free(processes.list);
}

void print_list(const struct gpu *gpu, const char *name, bool xml)
{
    if (strcmp(name, "supported_clocks") == 0)
        print_clocks(gpu, xml);
    else if (strcmp(name, "processes") == 0)
        print_processes(gpu, xml);
    else if (xml) /* nothing describes MIG devices or accounting */
        printf("\t\t<%s>\n%s\t\t</%s>\n", name,
               strcmp(name, "mig_devices") == 0 ? "\t\t\tNone\n" : "", name);
}
