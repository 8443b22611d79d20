/* nv-fabricmanager of a simulated node. It sets nothing: the state of the fabric is described.
 * Like NVIDIA's it does not start where its version is not the driver's, or where no GPU is on
 * NVSwitches. Its own version is the driver's, unless the configuration file has a line
 * NODEVET_SIM_VERSION=570.86.15. */
#include "client.h"
#include "daemon.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIGURATION "/usr/share/nvidia/nvswitch/fabricmanager.cfg"

enum { FIELD_NVLINK_COUNT = 91 };

/* The version of the configuration file; empty where it has none. False, with errno, where the
 * file cannot be read. */
static bool configured_version(const char *path, char *version, size_t size)
{
    char line[512];
    *version = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (fgets(line, sizeof line, file)) {
        static const char key[] = "NODEVET_SIM_VERSION=";
        line[strcspn(line, "\r\n")] = '\0';
        if (strncmp(line, key, strlen(key)) == 0)
            snprintf(version, size, "%s", line + strlen(key));
    }
    fclose(file);
    return true;
}

static bool has_nvlinks(void)
{
    unsigned int count = 0;
    client_count(&count);
    for (unsigned int index = 0; index < count; index++) {
        nvmlDevice_t device;
        nvmlFieldValue_t links = {.fieldId = FIELD_NVLINK_COUNT};
        if (client_device(index, &device) == 0 &&
            CALL(nvmlDeviceGetFieldValues, device, 1, &links) == 0 &&
            links.nvmlReturn == NVML_SUCCESS && links.value.uiVal > 0)
            return true;
    }
    return false;
}

/* Whether it may start; else why not is on stderr. */
static bool is_compatible(const char *version)
{
    char driver[128];
    int error = client_open();
    if (!error)
        error = CALL(nvmlSystemGetDriverVersion, driver, sizeof driver);
    if (error) {
        fprintf(stderr, "failed to initialize NVML: %s\n", client_error(error));
        return false;
    }
    if (*version && strcmp(version, driver) != 0) {
        fprintf(stderr,
                "fabric manager NVIDIA GPU driver interface version %s don't match with driver "
                "version %s. Please update with matching NVIDIA driver package.\n",
                version, driver);
        return false;
    }
    if (!has_nvlinks()) {
        fputs("request to query NVSwitch device information from NVSwitch driver failed with "
              "error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]\n",
              stderr);
        return false;
    }
    return true;
}

int main(int count, char **words)
{
    static const struct option known[] = {{"config", required_argument, NULL, 'c'},
                                          {"version", no_argument, NULL, 'v'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    const char *path = NULL;
    char version[512];
    bool only_version = false;
    int option;
    while ((option = getopt_long(count, words, "c:vh", known, NULL)) != -1)
        if (option == 'c') {
            path = optarg;
        } else if (option == 'v') {
            only_version = true;
        } else {
            fputs("nv-fabricmanager [-c|--config FILE] [-v|--version] [-h|--help]\n",
                  option == 'h' ? stdout : stderr);
            return option != 'h';
        }
    if (!configured_version(path ? path : CONFIGURATION, version, sizeof version) && path) {
        fprintf(stderr, "failed to open config file %s: %s\n", path, strerror(errno));
        return 1;
    }
    if (only_version) {
        if (!*version && client_open() == 0)
            CALL(nvmlSystemGetDriverVersion, version, sizeof version);
        printf("Fabric Manager version is : %s\n", version);
        return 0;
    }
    daemon_start("Failed to start fabric manager.");
    if (!is_compatible(version))
        return 1;
    if (!daemon_write_pid("/run/nvidia-fabricmanager", "nv-fabricmanager")) {
        fprintf(stderr, "failed to write the PID file: %s\n", strerror(errno));
        return 1;
    }
    daemon_ready();
    daemon_wait();
    client_close();
    daemon_remove_pid();
    return 0;
}
