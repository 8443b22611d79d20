/* The kernel's modules. dev/modules describes them, a row for each: "name how needs size users",
 * where `how` is boot, device or available and `needs` is separated by commas, or `-`. What is
 * written to it is init_module(2) and delete_module(2): "load NAME", "unload NAME". A module
 * that is loaded has a row in proc/modules, and its directory sys/module/NAME shows.
 */
#include "rules.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ROW 1024

struct module {
    char name[64], how[16], needs[512];
    unsigned int size, users; /* that hold it, besides other modules */
    bool live, described;
    struct module *next;
};

static struct module *modules; /* as /proc/modules has them: the one loaded last is the first */

static struct module *find(const char *name, size_t size)
{
    struct module *module = modules;
    while (module && (strlen(module->name) != size || memcmp(module->name, name, size)))
        module = module->next;
    return module;
}

static bool needs(const struct module *module, const char *name)
{
    size_t size = strlen(name);
    for (const char *at = module->needs; *at; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");
        if (length == size && memcmp(at, name, size) == 0)
            return true;
        at += length;
    }
    return false;
}

/* How many loaded modules need this one. */
static unsigned int holders(const char *name)
{
    unsigned int count = 0;
    for (const struct module *module = modules; module; module = module->next)
        count += module->live && needs(module, name);
    return count;
}

/* kernel/module/procfs.c: m_show() */
static void show_rows(struct node *file)
{
    char *text;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    for (const struct module *module = modules; to && module; module = module->next) {
        if (!module->live)
            continue;
        unsigned int count = holders(module->name);
        fprintf(to, "%s %u %u %s", module->name, module->size, module->users + count,
                count ? "" : "-");
        for (const struct module *other = modules; other; other = other->next)
            if (other->live && needs(other, module->name))
                fprintf(to, "%s,", other->name);
        fputs(" Live 0x0000000000000000\n", to);
    }
    if (to && fclose(to) == 0) {
        set_value(file, blob_new(text, size));
        free(text);
    }
}

static void show(void)
{
    struct node *rows = node_at("proc/modules"), *folder = node_at("sys/module");
    if (rows)
        show_rows(rows);
    for (const struct module *module = modules; folder && module; module = module->next) {
        struct node *own = node_make(folder, module->name, S_IFDIR);
        set_mode(own, S_IFDIR | 0755);
        set_present(own, module->live);
    }
}

/* A module is as it was, unless its row is new: then it is loaded where somebody asks for it,
 * but at boot only where that is the initramfs; a device's are loaded by the node itself. */
static void describe(const struct module *row, bool boot)
{
    struct module **at = &modules;
    while (*at && strcmp((*at)->name, row->name))
        at = &(*at)->next;
    struct module *module = *at;
    if (!module)
        module = *at = allocate(sizeof *module);
    module->described = true;
    if (module->size == row->size && module->users == row->users &&
        !strcmp(module->how, row->how) && !strcmp(module->needs, row->needs))
        return;
    struct module *next = module->next;
    *module = *row;
    module->next = next;
    module->described = true;
    module->live = !strcmp(row->how, "boot") || (!boot && !strcmp(row->how, "device"));
}

void modules_show(void)
{
    static bool booted;
    const struct node *file = node_at("dev/modules");
    if (!file || !file->value)
        return;
    for (const char *line = file->value->bytes; *line; line += strcspn(line, "\n"),
                    line += *line == '\n') {
        char text[ROW];
        struct module row = {.live = false};
        snprintf(text, sizeof text, "%.*s", (int)strcspn(line, "\n"), line);
        if (sscanf(text, "%63s %15s %511s %u %u", row.name, row.how, row.needs, &row.size,
                   &row.users) == 5) {
            if (!strcmp(row.needs, "-"))
                row.needs[0] = '\0';
            describe(&row, !booted);
        }
    }
    booted = true;
    for (struct module **at = &modules; *at;) {
        struct module *module = *at;
        if (module->described) {
            module->described = false;
            at = &module->next;
        } else {
            *at = module->next;
            free(module);
        }
    }
    show();
}

/* What /sys/module holds comes and goes. */
bool modules_are_in(const struct node *folder)
{
    return strcmp(folder->name, "module") == 0 && folder == node_at("sys/module");
}

/* kernel/module/main.c: what a module needs and is not loaded are unknown symbols. */
static int load(struct module *module)
{
    if (module->live)
        return -EEXIST;
    for (const char *at = module->needs; *at; at += strspn(at, ",")) {
        size_t length = strcspn(at, ",");
        const struct module *other = find(at, length);
        if (!other || !other->live)
            return -ENOENT;
        at += length;
    }
    struct module **at = &modules;
    while (*at != module)
        at = &(*at)->next;
    *at = module->next;
    module->next = modules;
    modules = module;
    module->live = true;
    return 0;
}

/* kernel/module/main.c: delete_module() with O_NONBLOCK */
static int unload(struct module *module)
{
    if (!module->live)
        return -ENOENT;
    if (module->users || holders(module->name))
        return -EWOULDBLOCK;
    module->live = false;
    return 0;
}

int store_modules(struct node *node, const char *text)
{
    (void)node;
    int (*deed)(struct module *) = strncmp(text, "load ", 5) == 0     ? load
                                   : strncmp(text, "unload ", 7) == 0 ? unload
                                                                      : NULL;
    if (!deed)
        return -EINVAL;
    text += strcspn(text, " ") + 1;
    struct module *module = find(text, strcspn(text, "\n"));
    int error = module ? deed(module) : -ENOENT;
    if (!error)
        show();
    return error;
}
