/* One change of one GPU: what is wanted, and what came of it. */
#ifndef NODEVET_SIM_CHANGES_H
#define NODEVET_SIM_CHANGES_H

#include "gpus.h"

/* What the argument of a command says. */
struct wanted {
    unsigned int first, second; /* the second equals the first where only one is given */
    bool pair;
};

/* What a change came to. */
enum outcome { DONE, DONE_AFTER_REBOOT, WARNED, FAILED };

struct result {
    enum outcome outcome;
    int error;
};

struct result done(void);
struct result warned(int error); /* says so */
struct result failed(int error);

/* Settings are forgotten when the driver lets go of a GPU, unless persistence mode is on. */
void warn_of_persistence(const struct gpu *gpu);

typedef struct result change(const struct gpu *gpu, const struct wanted *wanted);
change lock_gpu_clocks, lock_memory_clocks, set_applications_clocks; /* clocks.c */
change reset_gpu_clocks, reset_memory_clocks, reset_applications_clocks;

#endif
