/* The command line of nvidia-smi. */
#ifndef NODEVET_SIM_OPTIONS_H
#define NODEVET_SIM_OPTIONS_H

#include <stdbool.h>

enum command {
    COMMAND_SUMMARY, /* no arguments */
    COMMAND_HELP,
    COMMAND_VERSION,
    COMMAND_LIST,
    COMMAND_QUERY,
    COMMAND_QUERY_GPU,
    COMMAND_QUERY_APPS,
    COMMAND_PERSISTENCE, /* from here on: settings */
    COMMAND_POWER_LIMIT,
    COMMAND_LOCK_GPU_CLOCKS,
    COMMAND_RESET_GPU_CLOCKS,
    COMMAND_LOCK_MEMORY_CLOCKS,
    COMMAND_RESET_MEMORY_CLOCKS,
    COMMAND_APPLICATIONS_CLOCKS,
    COMMAND_RESET_APPLICATIONS_CLOCKS,
    COMMAND_ECC,
    COMMAND_RESET_ECC_ERRORS,
    COMMAND_COMPUTE_MODE,
    COMMAND_MIG,
    COMMAND_RESET
};

struct options {
    enum command command;
    const char *argument; /* of the command: the fields to query, the value to set */
    const char *ids;      /* which GPUs, or null for all */
    const char *format;
    const char *display; /* sections of -q, or null for all */
    bool xml, warnings_fail;
};

/* Exit code 0, or 2 with what is wrong said on stdout, as nvidia-smi does. */
int options_parse(int count, char **words, struct options *options);

void options_help(void);

#endif
