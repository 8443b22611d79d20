/* The settings: -pm, -pl, -lgc and so on, and -r. */
#ifndef NODEVET_SIM_SETTINGS_H
#define NODEVET_SIM_SETTINGS_H

#include "gpus.h"
#include "options.h"

/* The exit code. */
int settings_apply(const struct options *options, const struct gpus *gpus);

#endif
