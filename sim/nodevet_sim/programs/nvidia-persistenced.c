/* nvidia-persistenced of a simulated node. Like NVIDIA's it is in the background once the GPUs
 * are held, holds them until SIGTERM, and then lets go of all, so that persistence mode is off.
 * (The real one opens the device of each GPU, by which the driver counts it as persistent.) */
#include "client.h"
#include "daemon.h"

#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#define DIRECTORY "/run/nvidia-persistenced"

enum { GPUS = 256 };

struct options {
    bool verbose, persistence;
    const struct passwd *user; /* null: stay who we are */
};

static void usage(FILE *to)
{
    fputs("nvidia-persistenced [-V|--verbose] [-u|--user USER] [--persistence-mode]\n"
          "                    [--no-persistence-mode] [-v|--version] [-h|--help]\n",
          to);
}

static void parse(int count, char **words, struct options *options)
{
    static const struct option known[] = {
        {"verbose", no_argument, NULL, 'V'},     {"user", required_argument, NULL, 'u'},
        {"help", no_argument, NULL, 'h'},        {"version", no_argument, NULL, 'v'},
        {"persistence-mode", no_argument, NULL, 'p'},
        {"no-persistence-mode", no_argument, NULL, 'n'},
        {NULL, 0, NULL, 0},
    };
    int option;
    *options = (struct options){.persistence = true};
    while ((option = getopt_long(count, words, "Vu:hv", known, NULL)) != -1)
        switch (option) {
        case 'V':
            options->verbose = true;
            break;
        case 'u':
            options->user = getpwnam(optarg);
            if (!options->user) {
                fprintf(stderr, "nvidia-persistenced: no user is called '%s'\n", optarg);
                exit(1);
            }
            break;
        case 'p':
        case 'n':
            options->persistence = option == 'p';
            break;
        case 'h':
            usage(stdout);
            exit(0);
        case 'v':
            puts("nvidia-persistenced of a simulated node");
            exit(0);
        default:
            usage(stderr);
            exit(1);
        }
}

/* Which GPUs are held, by index. */
static void set_persistence(bool on, bool *held, unsigned int count)
{
    for (unsigned int index = 0; index < count && index < GPUS; index++) {
        nvmlDevice_t device;
        if (!on && !held[index])
            continue;
        int error = client_device(index, &device);
        if (!error)
            error = CALL(nvmlDeviceSetPersistenceMode, device, on);
        held[index] = on && !error;
        if (error)
            syslog(LOG_ERR, "device %u - failed to %s: %s", index, on ? "open" : "close",
                   client_error(error));
        else
            syslog(LOG_INFO, "device %u - persistence mode %s.", index,
                   on ? "enabled" : "disabled");
    }
}

/* Be the user, but so that root can be taken back for what is done to the GPUs at the end. */
static bool become(const struct passwd *user)
{
    return (chown(DIRECTORY, user->pw_uid, user->pw_gid) == 0 &&
            setgroups(0, NULL) == 0 && setegid(user->pw_gid) == 0 && seteuid(user->pw_uid) == 0) ||
           (syslog(LOG_ERR, "Failed to become user %s: %s", user->pw_name, strerror(errno)), false);
}

int main(int count, char **words)
{
    struct options options;
    bool held[GPUS] = {false};
    unsigned int gpus = 0;
    parse(count, words, &options);
    daemon_start("nvidia-persistenced failed to initialize. Check syslog for more details.");
    openlog("nvidia-persistenced", LOG_PID, LOG_DAEMON);
    setlogmask(LOG_UPTO(options.verbose ? LOG_DEBUG : LOG_NOTICE));
    if (!daemon_write_pid(DIRECTORY, "nvidia-persistenced")) {
        syslog(LOG_ERR, "Failed to lock PID file: %s", strerror(errno));
        return 1;
    }
    syslog(LOG_NOTICE, "Started (%d)", (int)getpid());
    int error = client_open();
    if (!error)
        error = client_count(&gpus);
    if (error || gpus == 0) {
        if (error)
            syslog(LOG_ERR, "Failed to query NVIDIA devices: %s", client_error(error));
        else
            syslog(LOG_ERR, "Unable to find any NVIDIA devices");
        daemon_remove_pid();
        return 1;
    }
    if (options.persistence)
        set_persistence(true, held, gpus);
    if (options.user && !become(options.user)) {
        daemon_remove_pid();
        return 1;
    }
    daemon_ready();
    daemon_wait();
    if (options.user && (seteuid(0) != 0 || setegid(0) != 0))
        syslog(LOG_ERR, "Failed to become root again: %s", strerror(errno));
    set_persistence(false, held, gpus);
    client_close();
    daemon_remove_pid();
    syslog(LOG_NOTICE, "Shutdown (%d)", (int)getpid());
    return 0;
}
