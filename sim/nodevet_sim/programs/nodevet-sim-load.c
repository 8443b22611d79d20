/* A process that looks like a CUDA job: it is on GPUs, with memory and utilization, under a name
 * of choice, and with allowed CPUs and memory nodes of choice. It uses none of them.
 *
 * On which GPUs it is, the NVML library reads from <state>.processes/<pid>. For the CPUs and
 * memory nodes, which the machine below may not even have, a changed copy of /proc/<pid>/status
 * is mounted over it; the copy is <state>.processes/<pid>.status. Both go with the process. */
#include "client.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

struct load {
    const char *gpus, *command, *cpus, *mems;
    unsigned long memory_mb, utilization, uid;
};

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "nodevet-sim-load: %s %s%s%s\n", what, name, errno ? ": " : "",
            errno ? strerror(errno) : "");
    exit(1);
}

static unsigned long parse_number(const char *option, const char *text, unsigned long max)
{
    char *end;
    errno = 0;
    unsigned long number = strtoul(text, &end, 10);
    if (errno || end == text || *end || number > max || *text == '-') {
        errno = 0;
        fail("not a number in range:", option);
    }
    return number;
}

/* A list such as 0-3,8. */
static const char *parse_list(const char *option, const char *text, const char *allowed)
{
    errno = 0;
    if (!*text || text[strspn(text, allowed)])
        fail("not a list of numbers:", option);
    return text;
}

static void parse(int count, char **words, struct load *load)
{
    static const struct option known[] = {{"gpus", required_argument, NULL, 'g'},
                                          {"memory-mb", required_argument, NULL, 'm'},
                                          {"utilization", required_argument, NULL, 'u'},
                                          {"command", required_argument, NULL, 'n'},
                                          {"cpus", required_argument, NULL, 'c'},
                                          {"mems", required_argument, NULL, 'M'},
                                          {"uid", required_argument, NULL, 'U'},
                                          {NULL, 0, NULL, 0}};
    int option;
    *load = (struct load){.gpus = "0", .command = NULL};
    while ((option = getopt_long(count, words, "", known, NULL)) != -1)
        switch (option) {
        case 'g':
            load->gpus = parse_list("--gpus", optarg, "0123456789,");
            break;
        case 'm':
            load->memory_mb = parse_number("--memory-mb", optarg, 1ul << 30);
            break;
        case 'u':
            load->utilization = parse_number("--utilization", optarg, 100);
            break;
        case 'n':
            load->command = optarg;
            break;
        case 'c':
            load->cpus = parse_list("--cpus", optarg, "0123456789,-");
            break;
        case 'M':
            load->mems = parse_list("--mems", optarg, "0123456789,-");
            break;
        case 'U':
            load->uid = parse_number("--uid", optarg, 65534);
            break;
        default:
            fputs("nodevet-sim-load [--gpus 0,3] [--memory-mb 1024] [--utilization 90]\n"
                  "                 [--command NAME] [--cpus LIST] [--mems LIST] [--uid NUMBER]\n",
                  stderr);
            exit(2);
        }
}

/* Keep a device open, as a link in /proc/<pid>/fd. Without a driver behind the node it can only
 * be named, not opened. */
static void hold(const char *path)
{
    if (open(path, O_RDWR | O_CLOEXEC) < 0 && open(path, O_PATH | O_CLOEXEC) < 0)
        fprintf(stderr, "nodevet-sim-load: cannot open %s: %s\n", path, strerror(errno));
}

static void hold_gpus(const char *gpus)
{
    char path[64];
    hold("/dev/nvidiactl");
    for (const char *at = gpus; *at; at += strspn(at, ",")) {
        char *end;
        unsigned long index = strtoul(at, &end, 10);
        nvmlDevice_t device;
        unsigned int minor;
        at = end;
        errno = 0;
        if (index > UINT_MAX || client_device((unsigned int)index, &device) != 0)
            fail("NVML has no such GPU:", gpus);
        if (CALL(nvmlDeviceGetMinorNumber, device, &minor) != 0)
            minor = (unsigned int)index;
        snprintf(path, sizeof path, "/dev/nvidia%u", minor);
        hold(path);
    }
}

/* Where only root may write; created where it is missing. */
static void make_directory(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0755) != 0 && errno != EEXIST)
            fail("cannot make", path);
        *slash = '/';
    }
    if (mkdir(path, 0755) != 0 && errno != EEXIST)
        fail("cannot make", path);
}

static void write_file(const char *path, const struct load *load)
{
    char new[PATH_MAX + 8];
    snprintf(new, sizeof new, "%s.new", path);
    FILE *file = fopen(new, "we");
    if (!file)
        fail("cannot write", new);
    fputs("gpus =", file);
    for (const char *at = load->gpus; *at; at++)
        if (*at == ',' || at == load->gpus)
            fprintf(file, " %lu", strtoul(at + (*at == ','), NULL, 10));
    fprintf(file, "\nmemory_mb = %lu\nutilization_percent = %lu\n", load->memory_mb,
            load->utilization);
    if (fclose(file) != 0 || rename(new, path) != 0)
        fail("cannot write", path);
}

static void mount_status(const char *own, const char *copy, const struct load *load)
{
    char line[4096];
    FILE *from = fopen(own, "re"), *to = fopen(copy, "we");
    if (!from || !to)
        fail("cannot copy", own);
    while (fgets(line, sizeof line, from))
        if (load->cpus && strncmp(line, "Cpus_allowed_list:", 18) == 0)
            fprintf(to, "Cpus_allowed_list:\t%s\n", load->cpus);
        else if (load->mems && strncmp(line, "Mems_allowed_list:", 18) == 0)
            fprintf(to, "Mems_allowed_list:\t%s\n", load->mems);
        else
            fputs(line, to);
    fclose(from);
    if (fclose(to) != 0)
        fail("cannot write", copy);
    if (mount(copy, own, NULL, MS_BIND, NULL) != 0)
        fail("cannot mount over", own);
}

int main(int count, char **words)
{
    struct load load;
    sigset_t signals;
    char directory[PATH_MAX - 64], path[PATH_MAX], copy[PATH_MAX + 16], own[64];
    const char *state = getenv("NODEVET_SIM_STATE");
    int received;
    parse(count, words, &load);
    if (load.command && strcmp(words[0], load.command) != 0) { /* what NVML and ps will show */
        words[0] = (char *)load.command;
        execv("/proc/self/exe", words);
        fail("cannot start as", load.command);
    }
    bool is_placed = (load.cpus || load.mems) && geteuid() == 0;
    if ((load.cpus || load.mems) && !is_placed)
        fputs("nodevet-sim-load: not root: CPUs and memory nodes stay as they are\n", stderr);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (load.command)
        prctl(PR_SET_NAME, basename(load.command));
    errno = 0;
    int error = client_open();
    if (error)
        fail("cannot use the GPUs:", client_error(error));
    hold_gpus(load.gpus);
    snprintf(directory, sizeof directory, "%s.processes",
             state ? state : "/run/nodevet-sim/nvml.state");
    make_directory(directory);
    snprintf(path, sizeof path, "%s/%d", directory, (int)getpid());
    snprintf(copy, sizeof copy, "%s.status", path);
    snprintf(own, sizeof own, "/proc/%d/status", (int)getpid());
    if (is_placed)
        mount_status(own, copy, &load);
    write_file(path, &load);
    if (load.uid && setresuid((uid_t)load.uid, (uid_t)load.uid, 0) != 0)
        fail("cannot become the user", "of --uid");
    while (sigwait(&signals, &received) != 0)
        ;
    if (load.uid && seteuid(0) != 0)
        perror("nodevet-sim-load: seteuid");
    unlink(path);
    if (is_placed && umount2(own, MNT_DETACH) != 0)
        perror("nodevet-sim-load: umount");
    unlink(copy);
    client_close();
    return 0;
}
