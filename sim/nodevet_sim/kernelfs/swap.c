/* Swap that is simulated: mm/swapfile.c, without a byte of it.
 *
 * The file of the rule `swap` holds the areas that there are, a line `name KiB used-KiB` each.
 * `on name [priority]` and `off name`, written to it, are swapon(2) and swapoff(2); what is
 * active shows in /proc/swaps and /proc/meminfo.
 */
#include "rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AREAS 29       /* MAX_SWAPFILES of a kernel with every option */
#define PRIORITY 32767 /* the highest */

struct area {
    char *name;
    amount size, used;
    int priority;
};

static struct area areas[AREAS];
static size_t count;
static bool changed; /* until then the files are as the manifest has them */

static struct area *active(const char *name)
{
    for (struct area *area = areas; area < areas + count; area++)
        if (strcmp(area->name, name) == 0)
            return area;
    return NULL;
}

/* setup_swap_info(): without a priority, below all others that were given none. */
static int lowest(void)
{
    int priority = -1;
    for (const struct area *area = areas; area < areas + count; area++)
        if (area->priority < priority)
            priority = area->priority;
    return priority - 1;
}

/* swap_show() */
static void show_areas(struct node *file)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        exit(1);
    fputs("Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n", to);
    for (const struct area *area = areas; area < areas + count; area++)
        fprintf(to, "%-39s %s\t%llu\t%s%llu\t%s%d\n", area->name,
                strncmp(area->name, "/dev/", 5) ? "file\t" : "partition", area->size,
                area->size < 10000000 ? "\t" : "", area->used,
                area->used < 10000000 ? "\t" : "", area->priority);
    fclose(to);
    set_value(file, blob_new(text, size));
    free(text);
}

/* fs/proc/meminfo.c: the two lines about swap, the others as they are */
static void show_totals(struct node *file)
{
    amount total = 0, used = 0;
    for (const struct area *area = areas; area < areas + count; area++) {
        total += area->size;
        used += area->used;
    }
    const struct row rows[] = {{"SwapTotal:", total}, {"SwapFree:", total - used}};
    set_rows(file, rows, sizeof rows / sizeof *rows);
}

void swap_show(void)
{
    struct node *swaps = node_at("proc/swaps"), *meminfo = node_at("proc/meminfo");
    if (changed && swaps && swaps->value)
        show_areas(swaps);
    if (changed && meminfo && meminfo->value)
        show_totals(meminfo);
}

/* What a captured /proc/swaps says is active. */
static void read_areas(void)
{
    const struct node *file = node_at("proc/swaps");
    char *text = file && file->value ? strdup(file->value->bytes) : NULL, *next = text, *row;
    struct area area;
    char name[256];
    while (text && count < AREAS && (row = strsep(&next, "\n")))
        if (sscanf(row, "%255s %*s %llu %llu %d", name, &area.size, &area.used,
                   &area.priority) == 4 && !active(name)) {
            area.name = strcpy(allocate(strlen(name) + 1), name);
            areas[count++] = area;
        }
    free(text);
}

static int on(const struct node *node, const char *name, int priority)
{
    char *known = strdup(node->value->bytes), *next = known, *row;
    struct area area = {.priority = priority == -1 ? lowest() : priority};
    int error = -ENOENT;
    while (known && error == -ENOENT && (row = strsep(&next, "\n"))) {
        char *word = strsep(&row, " ");
        if (strcmp(word, name) == 0 && row && sscanf(row, "%llu %llu", &area.size, &area.used) == 2)
            error = active(name) ? -EBUSY : count == AREAS ? -EPERM : 0;
    }
    free(known);
    if (error)
        return error;
    area.name = strcpy(allocate(strlen(name) + 1), name);
    areas[count++] = area;
    return 0;
}

/* Those that were given no priority and come after it move up. */
static int off(const char *name)
{
    struct area *gone = active(name);
    if (!gone)
        return -EINVAL;
    int priority = gone->priority;
    free(gone->name);
    count--;
    memmove(gone, gone + 1, (size_t)(areas + count - gone) * sizeof *gone);
    for (struct area *area = areas; area < areas + count; area++)
        area->priority += priority < 0 && area->priority < priority;
    return 0;
}

int store_swap(struct node *node, const char *text)
{
    char *line = strdup(text), *rest = line;
    if (!line)
        return -ENOMEM;
    line[strcspn(line, "\n")] = '\0';
    if (!changed)
        read_areas();
    const char *verb = strsep(&rest, " "), *name = strsep(&rest, " ");
    number priority = -1;
    int error = -EINVAL;
    if (name && strcmp(verb, "off") == 0 && !rest)
        error = off(name);
    else if (name && strcmp(verb, "on") == 0 &&
             (!rest || (parse_number(rest, NULL, &priority) == 0 && priority >= 0 &&
                        priority <= PRIORITY)))
        error = on(node, name, (int)priority);
    free(line);
    changed |= !error;
    swap_show();
    return error;
}
