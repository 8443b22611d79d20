/* What nvidia-smi prints without arguments. */
#ifndef NODEVET_SIM_SUMMARY_H
#define NODEVET_SIM_SUMMARY_H

#include "gpus.h"

int summary_print(const struct gpus *gpus);

#endif
