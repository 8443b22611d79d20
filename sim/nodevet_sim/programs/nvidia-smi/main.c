/* nvidia-smi of a simulated node: the options, the output and the exit codes of NVIDIA's, as far
 * as fixes and people use them, over NVML. */
#include "gpus.h"
#include "options.h"
#include "query.h"
#include "report.h"
#include "reset.h"
#include "settings.h"
#include "summary.h"

#include <stdio.h>
#include <stdlib.h>

static int init_failed(int error)
{
    char version[128];
    if (error == ERROR_LIBRARY_NOT_FOUND)
        puts("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure "
             "that the NVIDIA Display Driver is properly installed and present in your system.\n"
             "Please also try adding directory that contains libnvidia-ml.so to your system PATH.");
    else if (error == ERROR_DRIVER_NOT_LOADED)
        puts("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make "
             "sure that the latest NVIDIA driver is installed and running.\n");
    else
        printf("Failed to initialize NVML: %s\n", client_error(error));
    if (error == ERROR_VERSION_MISMATCH &&
        CALL(nvmlSystemGetNVMLVersion, version, sizeof version) == 0)
        printf("NVML library version: %s\n", version);
    return exit_code(error);
}

static int print_version(void)
{
    char driver[128] = "N/A", nvml[128] = "N/A";
    int cuda = 0;
    CALL(nvmlSystemGetDriverVersion, driver, sizeof driver);
    CALL(nvmlSystemGetNVMLVersion, nvml, sizeof nvml);
    CALL(nvmlSystemGetCudaDriverVersion_v2, &cuda);
    printf("NVIDIA-SMI version  : %s\nNVML version        : %s\nDRIVER version      : %s\n"
           "CUDA Version        : %d.%d\n",
           driver, nvml, driver, cuda / 1000, cuda % 1000 / 10);
    return 0;
}

static int run(const struct options *options, const struct gpus *gpus)
{
    switch (options->command) {
    case COMMAND_SUMMARY:
        return summary_print(gpus);
    case COMMAND_LIST:
        return query_list(gpus);
    case COMMAND_QUERY:
        return report_print(options, gpus);
    case COMMAND_QUERY_GPU:
        return query_gpus(options, gpus);
    case COMMAND_QUERY_APPS:
        return query_apps(options, gpus);
    case COMMAND_RESET:
        return reset_gpus(gpus);
    default:
        return settings_apply(options, gpus);
    }
}

int main(int count, char **words)
{
    struct options options;
    struct gpus gpus = {NULL, 0, 0};
    int code = options_parse(count, words, &options);
    if (code)
        return code;
    if (options.command == COMMAND_HELP) {
        options_help();
        return 0;
    }
    int error = client_open();
    if (error)
        return init_failed(error);
    if (options.command == COMMAND_VERSION)
        code = print_version();
    else
        code = gpus_select(options.ids, &gpus);
    if (!code && gpus.count)
        code = run(&options, &gpus);
    free(gpus.list);
    client_close();
    return fflush(stdout) ? 255 : code;
}
