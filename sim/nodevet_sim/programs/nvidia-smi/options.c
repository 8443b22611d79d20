/* See options.h. */
#include "options.h"

#include <stdio.h>
#include <string.h>

enum kind { COMMAND, IDS, FORMAT, DISPLAY, XML, WARNINGS };

static const struct option {
    const char *name, *long_name;
    enum kind kind;
    enum command command;
    enum { NEITHER, VALUE, MAYBE } takes;
    const char *help;
} known[] = {
    {"-h", "--help", COMMAND, COMMAND_HELP, NEITHER, "Print usage information and exit."},
    {NULL, "--version", COMMAND, COMMAND_VERSION, NEITHER, "Print version information."},
    {"-L", "--list-gpus", COMMAND, COMMAND_LIST, NEITHER, "List the GPUs."},
    {"-q", "--query", COMMAND, COMMAND_QUERY, NEITHER, "Display all GPU information."},
    {"-x", "--xml-format", XML, 0, NEITHER, "With -q: produce XML."},
    {"-d", "--display", DISPLAY, 0, VALUE, "With -q: only these sections."},
    {NULL, "--query-gpu", COMMAND, COMMAND_QUERY_GPU, VALUE, "Query these fields."},
    {NULL, "--query-compute-apps", COMMAND, COMMAND_QUERY_APPS, VALUE,
     "Query these fields of the compute processes."},
    {NULL, "--format", FORMAT, 0, VALUE, "csv[,noheader][,nounits]"},
    {"-i", "--id", IDS, 0, VALUE, "Only these GPUs: index, UUID, serial or bus id."},
    {"-pm", "--persistence-mode", COMMAND, COMMAND_PERSISTENCE, VALUE, "0/DISABLED, 1/ENABLED"},
    {"-e", "--ecc-config", COMMAND, COMMAND_ECC, VALUE, "0/DISABLED, 1/ENABLED"},
    {"-p", "--reset-ecc-errors", COMMAND, COMMAND_RESET_ECC_ERRORS, VALUE,
     "0/VOLATILE, 1/AGGREGATE"},
    {"-c", "--compute-mode", COMMAND, COMMAND_COMPUTE_MODE, VALUE,
     "0/DEFAULT, 1/EXCLUSIVE_THREAD (deprecated), 2/PROHIBITED, 3/EXCLUSIVE_PROCESS"},
    {"-r", "--gpu-reset", COMMAND, COMMAND_RESET, MAYBE, "Reset the GPU; `bus` for a bus reset."},
    {"-lgc", "--lock-gpu-clocks", COMMAND, COMMAND_LOCK_GPU_CLOCKS, VALUE, "MIN,MAX or MHZ"},
    {"-rgc", "--reset-gpu-clocks", COMMAND, COMMAND_RESET_GPU_CLOCKS, NEITHER, ""},
    {"-lmc", "--lock-memory-clocks", COMMAND, COMMAND_LOCK_MEMORY_CLOCKS, VALUE,
     "MIN,MAX or MHZ"},
    {"-rmc", "--reset-memory-clocks", COMMAND, COMMAND_RESET_MEMORY_CLOCKS, NEITHER, ""},
    {"-ac", "--applications-clocks", COMMAND, COMMAND_APPLICATIONS_CLOCKS, VALUE,
     "MEMORY,GRAPHICS"},
    {"-rac", "--reset-applications-clocks", COMMAND, COMMAND_RESET_APPLICATIONS_CLOCKS, NEITHER,
     ""},
    {"-pl", "--power-limit", COMMAND, COMMAND_POWER_LIMIT, VALUE, "WATTS"},
    {"-mig", "--multi-instance-gpu", COMMAND, COMMAND_MIG, VALUE, "0/DISABLED, 1/ENABLED"},
    {"-eow", "--error-on-warning", WARNINGS, 0, NEITHER, "Fail where a setting only warns."},
};

/* The option that a word spells; *value is what follows its `=`, else null. */
static const struct option *find(const char *word, const char **value)
{
    *value = NULL;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const struct option *option = &known[i];
        size_t length = strlen(option->long_name);
        if (option->name && strcmp(word, option->name) == 0)
            return option;
        if (strncmp(word, option->long_name, length) != 0)
            continue;
        if (word[length] == '=' && option->takes != NEITHER)
            *value = word + length + 1;
        else if (word[length] != '\0')
            continue;
        return option;
    }
    return NULL;
}

static int bad_combination(void)
{
    puts("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n");
    return 2;
}

int options_parse(int count, char **words, struct options *options)
{
    memset(options, 0, sizeof *options);
    for (int at = 1; at < count; at++) {
        const char *value;
        const struct option *option = find(words[at], &value);
        if (!option) {
            printf("ERROR: Option %s is not recognized. Please run 'nvidia-smi -h'.\n\n",
                   words[at]);
            return 2;
        }
        bool next = at + 1 < count && (option->takes == VALUE || words[at + 1][0] != '-');
        if (option->takes != NEITHER && !value && next)
            value = words[++at];
        if (option->takes == VALUE && !value)
            return bad_combination();
        switch (option->kind) {
        case IDS:
            options->ids = value;
            break;
        case FORMAT:
            options->format = value;
            break;
        case DISPLAY:
            options->display = value;
            break;
        case XML:
            options->xml = true;
            break;
        case WARNINGS:
            options->warnings_fail = true;
            break;
        case COMMAND:
            if (options->command != COMMAND_SUMMARY)
                return bad_combination();
            options->command = option->command;
            options->argument = value;
        }
    }
    bool selective =
        options->command == COMMAND_QUERY_GPU || options->command == COMMAND_QUERY_APPS;
    bool query = options->command == COMMAND_QUERY;
    if ((options->xml || options->display) && !query)
        return bad_combination();
    if (options->xml && options->display)
        return bad_combination();
    if (selective != (options->format != NULL))
        return bad_combination();
    return 0;
}

void options_help(void)
{
    puts("NVIDIA System Management Interface of a simulated node\n\n"
         "nvidia-smi [OPTION1 [ARG1]] [OPTION2 [ARG2]] ...\n");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        printf("    %-5s %s%s\n%s%s%s", known[i].name ? known[i].name : "", known[i].long_name,
               known[i].takes == VALUE ? "=" : "", *known[i].help ? "              " : "",
               known[i].help, *known[i].help ? "\n" : "");
}
