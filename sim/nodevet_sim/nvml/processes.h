/* Compute processes on the GPUs. */
#ifndef NODEVET_SIM_PROCESSES_H
#define NODEVET_SIM_PROCESSES_H

#include "nvml.h"

#include <stdbool.h>

enum { LIVE_PROCESSES = 256, PATTERN = 128, SLOTS = 420, SLOT_US = 50000 };

enum { GPU_IDLE = 1, APPLICATIONS_CLOCKS = 2, SW_POWER_CAP = 4 }; /* nvmlClocksEventReasons */

/* A process on a GPU. What a live one does is in its file, see processes.c. */
struct process {
    unsigned int pid, utilization; /* percent */
    unsigned long long memory;     /* bytes; all bits set where it is not known */
    unsigned int rx_kb_s, tx_kb_s; /* over PCIe, into the GPU and out of it */
    char pattern[PATTERN];         /* of utilization over time; empty: it is constant */
    unsigned long long recent_end; /* microseconds since 1970; 0: it does not tell what it did */
    unsigned char recent[SLOTS];   /* percent in each span of SLOT_US before that, newest first */
};

struct processes {
    struct process list[LIVE_PROCESSES];
    unsigned int count;
};

/* The live processes on a GPU, added to those found. */
void add_live(struct processes *found, unsigned int gpu);

/* How busy a process keeps each of its GPUs at a moment, percent; microseconds since 1970. */
unsigned int busy_at(const struct process *process, unsigned long long moment);

/* Whether live processes have kept a GPU that was described as idle busy in the last second, and
 * how busy, percent. One that is described as busy, or as held down, is as described. */
bool is_computing(nvmlDevice_t device, unsigned int *percent);

/* Microseconds since 1970. */
unsigned long long microseconds(void);

/* Whether any process is on the GPU. SUCCESS, also where they are not described; or lost. */
nvmlReturn_t is_busy(nvmlDevice_t device, bool *busy);

#endif
