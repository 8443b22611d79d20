/* -r. */
#ifndef NODEVET_SIM_RESET_H
#define NODEVET_SIM_RESET_H

#include "gpus.h"

/* The exit code. */
int reset_gpus(const struct gpus *gpus);

#endif
