/* swapon(8) and swapoff(8) of a node: one program, called by either name.
 *
 * The simulated kernel is told through a file, see kernelfs/swap.c. Of the options those are
 * known that scripts use; what simulated swap cannot do (discard) is taken and ignored. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KERNEL "/run/nodevet-sim/kernel/dev/swap"
#define SWAPS "/proc/swaps"

enum { FAILED = 255, OFF_FAILED = 4, OFF_USAGE = 16, OFF_ALL_FAILED = 32 };

struct wish {
    bool all, show, heading, bytes, if_exists;
    const char *priority;
};

static const char *program = "swapon";

static bool is_off(void)
{
    return strcmp(program, "swapoff") == 0;
}

static void usage(void)
{
    fprintf(stderr, "%s: bad usage\nTry '%s --help' for more information.\n", program, program);
    exit(is_off() ? OFF_USAGE : 1);
}

/* Where UUID=x, LABEL=x and links lead to; the device itself need not be there. */
static const char *place_of(const char *name, char *found)
{
    const char *equals = strchr(name, '=');
    if (!equals || *name == '/') {
        if (!realpath(name, found))
            snprintf(found, PATH_MAX, "%s", name);
        return found;
    }
    char link[PATH_MAX], target[NAME_MAX + 1] = "";
    snprintf(link, sizeof link, "/dev/disk/by-%s", name);
    for (char *at = link; *at && *at != '='; at++)
        *at = (char)tolower((unsigned char)*at);
    link[strcspn(link, "=")] = '/';
    ssize_t size = readlink(link, target, sizeof target - 1);
    const char *slash = strrchr(target, '/');
    snprintf(found, PATH_MAX, "/dev/%s", size < 0 ? name : slash ? slash + 1 : target);
    return found;
}

/* false: it could not be done, and was complained of. */
static bool tell(const char *name, const char *priority, bool if_exists)
{
    char found[PATH_MAX], line[PATH_MAX + 64];
    const char *path = place_of(name, found);
    if (strncmp(path, "/dev/", 5) && access(path, F_OK) != 0) {
        if (if_exists)
            return true;
        if (is_off())
            fprintf(stderr, "swapoff: %s: swapoff failed: %s\n", name, strerror(errno));
        else
            fprintf(stderr, "swapon: cannot open %s: %s\n", name, strerror(errno));
        return false;
    }
    int size = snprintf(line, sizeof line, "%s %s%s%s\n", is_off() ? "off" : "on", path,
                        priority ? " " : "", priority ? priority : "");
    int kernel = open(KERNEL, O_WRONLY | O_CLOEXEC);
    bool done = kernel >= 0 && write(kernel, line, (size_t)size) == size;
    if (!done && !(if_exists && errno == ENOENT))
        fprintf(stderr, "%s: %s: %s failed: %s\n", program, name, program,
                errno == EACCES ? "Operation not permitted" : strerror(errno));
    if (kernel >= 0)
        close(kernel);
    return done || (if_exists && errno == ENOENT);
}

static bool is_active(const char *name)
{
    char found[PATH_MAX], row[PATH_MAX + 128];
    size_t size = strlen(place_of(name, found));
    FILE *swaps = fopen(SWAPS, "re");
    bool active = false;
    while (swaps && !active && fgets(row, sizeof row, swaps))
        active = strncmp(row, found, size) == 0 && strchr(" \t", row[size]);
    if (swaps)
        fclose(swaps);
    return active;
}

/* Every line of /etc/fstab that is of swap. */
static bool all_on(bool if_exists)
{
    FILE *table = setmntent("/etc/fstab", "re");
    struct mntent *entry;
    bool done = table != NULL;
    while (table && (entry = getmntent(table))) {
        if (strcmp(entry->mnt_type, "swap") || hasmntopt(entry, "noauto") ||
            is_active(entry->mnt_fsname))
            continue;
        char *priority = hasmntopt(entry, "pri");
        priority = priority && priority[3] == '=' ? priority + 4 : NULL;
        if (priority)
            priority[strcspn(priority, ",")] = '\0';
        done &= tell(entry->mnt_fsname, priority, if_exists || hasmntopt(entry, "nofail"));
    }
    if (table)
        endmntent(table);
    return done;
}

/* Every active one, the last first. */
static bool all_off(void)
{
    char rows[64][PATH_MAX];
    size_t count = 0;
    FILE *swaps = fopen(SWAPS, "re");
    char row[PATH_MAX + 128];
    while (swaps && count < 64 && fgets(row, sizeof row, swaps))
        if (*row == '/')
            snprintf(rows[count++], PATH_MAX, "%.*s", (int)strcspn(row, " \t"), row);
    if (swaps)
        fclose(swaps);
    bool done = true;
    while (count > 0)
        done &= tell(rows[--count], NULL, false);
    return done;
}

static void print_size(unsigned long long kb, bool bytes, char *to, size_t size)
{
    static const char units[] = "KMGTP";
    double value = (double)kb;
    size_t unit = 0;
    for (; value >= 1024 && units[unit + 1]; unit++)
        value /= 1024;
    unsigned long tenths = (unsigned long)(value * 10 + 0.5);
    if (bytes)
        snprintf(to, size, "%llu", kb * 1024);
    else if (kb == 0)
        snprintf(to, size, "0B");
    else
        snprintf(to, size, tenths % 10 ? "%.1f%c" : "%.0f%c", (double)tenths / 10, units[unit]);
}

static void show(const struct wish *wish)
{
    FILE *swaps = fopen(SWAPS, "re");
    char row[PATH_MAX + 128], name[PATH_MAX], type[32], sizes[2][32];
    unsigned long long total, used;
    int priority;
    bool first = wish->heading;
    while (swaps && fgets(row, sizeof row, swaps)) {
        if (sscanf(row, "%4095s %31s %llu %llu %d", name, type, &total, &used, &priority) != 5)
            continue;
        if (first)
            printf("%-19s %-9s %6s %6s %4s\n", "NAME", "TYPE", "SIZE", "USED", "PRIO");
        first = false;
        print_size(total, wish->bytes, sizes[0], sizeof sizes[0]);
        print_size(used, wish->bytes, sizes[1], sizeof sizes[1]);
        printf("%-19s %-9s %6s %6s %4d\n", name, type, sizes[0], sizes[1], priority);
    }
    if (swaps)
        fclose(swaps);
}

static void show_raw(void)
{
    FILE *swaps = fopen(SWAPS, "re");
    for (int letter; swaps && (letter = fgetc(swaps)) != EOF;)
        putchar(letter);
    if (swaps)
        fclose(swaps);
}

/* `pri=5` of an fstab's options. */
static const char *priority_in(const char *options)
{
    char *copy = strdup(options), *found = copy ? strstr(copy, "pri=") : NULL;
    if (!found || (found != copy && found[-1] != ','))
        return NULL;
    found += 4;
    found[strcspn(found, ",")] = '\0';
    return found;
}

static void parse(int argc, char **argv, struct wish *wish)
{
    static const struct option on[] = {
        {"all", 0, NULL, 'a'},      {"discard", 2, NULL, 'd'},    {"ifexists", 0, NULL, 'e'},
        {"fixpgsz", 0, NULL, 'f'},  {"options", 1, NULL, 'o'},    {"priority", 1, NULL, 'p'},
        {"summary", 0, NULL, 's'},  {"verbose", 0, NULL, 'v'},    {"show", 2, NULL, 'S'},
        {"bytes", 0, NULL, 'b'},    {"noheadings", 0, NULL, 'n'}, {"raw", 0, NULL, 'v'},
        {NULL, 0, NULL, 0}};
    static const struct option off[] = {
        {"all", 0, NULL, 'a'}, {"verbose", 0, NULL, 'v'}, {NULL, 0, NULL, 0}};
    int letter;
    while ((letter = getopt_long(argc, argv, is_off() ? "av" : "ad::efo:p:sv",
                                 is_off() ? off : on, NULL)) != -1)
        switch (letter) {
        case 'a': wish->all = true; break;
        case 'e': wish->if_exists = true; break;
        case 'o': wish->priority = priority_in(optarg) ?: wish->priority; break;
        case 'p': wish->priority = optarg; break;
        case 's': show_raw(); exit(0);
        case 'S': wish->show = true; break;
        case 'b': wish->bytes = true; break;
        case 'n': wish->heading = false; break;
        case 'd': case 'f': case 'v': break;
        default: usage();
        }
}

int main(int argc, char **argv)
{
    struct wish wish = {.heading = true};
    program = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    parse(argc, argv, &wish);
    if (wish.show || (!is_off() && !wish.all && optind == argc)) {
        show(&wish);
        return 0;
    }
    if (is_off() && !wish.all && optind == argc)
        usage();
    bool done = true;
    if (wish.all)
        done = is_off() ? all_off() : all_on(wish.if_exists);
    for (; optind < argc; optind++)
        done &= tell(argv[optind], wish.priority, wish.if_exists);
    if (done)
        return 0;
    return !is_off() ? FAILED : wish.all ? OFF_ALL_FAILED : OFF_FAILED;
}
