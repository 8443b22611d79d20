/* What mm/ does once when it is told to: compacts memory, and drops caches. */
#include "rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* mm/compaction.c: sysctl_compaction_handler(). In /proc/buddyinfo the free pages of each zone get
 * into blocks of the largest order, and those that are left over stay single pages. */
int store_compact(struct node *node, const char *text)
{
    struct node *file = node_at("proc/buddyinfo");
    number value;
    if (parse_number(text, NULL, &value) || value != 1)
        return -EINVAL;
    char *rows = strdup(file ? file->value->bytes : ""), *out = allocate(2 * strlen(rows) + 1);
    char *to = out, *rest = NULL;
    for (char *row = strtok_r(rows, "\n", &rest); row; row = strtok_r(NULL, "\n", &rest)) {
        unsigned long long pages = 0, count;
        int last = -1, used = 0, head = 0;
        sscanf(row, "%*s %*s zone %*s%n", &head);
        for (const char *at = row + head; sscanf(at, "%llu%n", &count, &used) == 1; at += used)
            pages += count << ++last;
        to += sprintf(to, "%.*s", head, row);
        for (int order = 0; order <= last; order++)
            to += sprintf(to, " %llu", order == last ? pages >> last
                                       : order == 0  ? pages & ((1ull << last) - 1)
                                                     : 0);
        *to++ = '\n';
    }
    if (file)
        set_value(file, blob_new(out, (size_t)(to - out)));
    free(rows);
    free(out);
    (void)node;
    return 0;
}

/* The KiB of a row of /proc/meminfo; 0 without it. */
static amount row_of(const char *text, const char *name)
{
    amount kb = 0;
    const char *row = text;
    size_t size = strlen(name);
    while (row && strncmp(row, name, size))
        row = (row = strchr(row, '\n')) ? row + 1 : NULL;
    if (row)
        sscanf(row + size, "%llu", &kb);
    return kb;
}

void set_rows(struct node *file, const struct row *rows, size_t count)
{
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (!to)
        exit(1);
    for (const char *old = file->value->bytes; *old;) {
        size_t length = strcspn(old, "\n"), i = 0;
        while (i < count && strncmp(old, rows[i].name, strlen(rows[i].name)))
            i++;
        if (i < count)
            fprintf(to, "%-16s%8llu kB", rows[i].name, rows[i].kb);
        else
            fwrite(old, 1, length, to);
        old += length;
        if (*old)
            fputc(*old++, to);
    }
    fclose(to);
    set_value(file, blob_new(text, size));
    free(text);
}

/* fs/drop_caches.c: drop_caches_sysctl_handler(). 1: the page cache but tmpfs and dirty pages;
 * 2: the slab, of which a sixteenth is in use; 3: both. Freed memory shows as free. */
int store_drop_caches(struct node *node, const char *text)
{
    struct node *file = node_at("proc/meminfo");
    number value;
    if (parse_number(text, NULL, &value) || value < 1 || value > 4)
        return -EINVAL;
    (void)node;
    if (!file || !file->value || value == 4)
        return 0;
    const char *old = file->value->bytes;
    amount cached = row_of(old, "Cached:"), buffers = row_of(old, "Buffers:");
    amount slab = row_of(old, "SReclaimable:"), slab_kept = value & 2 ? slab / 16 : slab;
    amount used = row_of(old, "Shmem:") + row_of(old, "Dirty:");
    amount kept = value & 1 && used < cached ? used : cached, buffers_kept = value & 1 ? 0 : buffers;
    amount freed = cached - kept + buffers - buffers_kept + slab - slab_kept;
    const struct row rows[] = {{"Cached:", kept}, {"Buffers:", buffers_kept},
                               {"SReclaimable:", slab_kept},
                               {"MemFree:", row_of(old, "MemFree:") + freed}};
    set_rows(file, rows, sizeof rows / sizeof *rows);
    return 0;
}
