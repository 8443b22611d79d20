/* Files below /sys/devices/system/cpu that change one another. */
#include "rules.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CPUS 8192 /* the most that the kernel can be built for */

/* The file of this name; NULL where there is none, or something else. */
static struct node *file_in(const struct node *folder, const char *name)
{
    struct node *node = child_of(folder, name);
    return node && S_ISREG(node->mode) ? node : NULL;
}

static struct node *sibling(const struct node *node, const char *name)
{
    return file_in(node->parent, name);
}

/* The word that sscanf("%<most>s") reads. */
static size_t first_word(const char **text, size_t most)
{
    while (isspace((unsigned char)**text))
        (*text)++;
    size_t size = 0;
    while (size < most && (*text)[size] && !isspace((unsigned char)(*text)[size]))
        size++;
    return size;
}

/* intel_pstate.c: intel_pstate_hwp_set(); amd-pstate.c does the same.
 * The governor performance sets the preference performance, and leaving it brings back
 * the one before it, which at boot is the firmware's. */
static void governor_changed(struct node *governor, bool before)
{
    struct node *epp = sibling(governor, "energy_performance_preference");
    bool after = value_is(governor, "performance");
    if (!epp || before == after)
        return;
    if (after) {
        blob_drop(epp->held);
        epp->held = blob_hold(epp->value);
        set_text(epp, "performance", strlen("performance"));
    } else if (value_is(epp, "performance")) {
        static const char firmware[] = "balance_performance";
        if (epp->held)
            set_value(epp, blob_hold(epp->held));
        else if (find_word(epp->words, firmware, strlen(firmware), false))
            set_text(epp, firmware, strlen(firmware));
    }
}

/* drivers/cpufreq/cpufreq.c: store_scaling_governor() */
int store_governor(struct node *node, const char *text)
{
    size_t size = first_word(&text, 15);
    const char *word = find_word(node->words, text, size, true);
    if (!word)
        return -EINVAL;
    bool before = value_is(node, "performance");
    set_text(node, word, size);
    governor_changed(node, before);
    return 0;
}

/* intel_pstate.c: store_energy_performance_preference(); a word or 0 to 255, where the
 * values of the words are shown as the words. */
int store_epp(struct node *node, const char *text)
{
    static const struct {
        const char *word;
        int value;
    } known[] = {{"performance", 0}, {"balance_performance", 128}, {"balance_power", 192},
                 {"power", 255}};
    const size_t count = sizeof known / sizeof *known;
    const char *name = text;
    size_t size = first_word(&name, 20);
    number value = 128; /* the firmware's, which `default` stands for */
    if (find_word(node->words, name, size, false)) {
        for (size_t i = 0; i < count; i++)
            if (strlen(known[i].word) == size && memcmp(known[i].word, name, size) == 0)
                value = known[i].value;
    } else if (parse_number(text, NULL, &value) || value < 0 || value > 255) {
        return -EINVAL;
    }
    if (value > 0 && value_is(sibling(node, "scaling_governor"), "performance"))
        return -EBUSY;
    for (size_t i = 0; i < count; i++)
        if (known[i].value == value) {
            set_text(node, known[i].word, strlen(known[i].word));
            return 0;
        }
    set_number(node, value);
    return 0;
}

static number asked(const struct node *node)
{
    number value = 0;
    const char *end;
    parse_number((node->held ? node->held : node->value)->bytes, &end, &value);
    return value;
}

static number clamp(number value, number low, number high)
{
    return value < low ? low : value > high ? high : value;
}

/* drivers/cpufreq/cpufreq.c: store_scaling_{min,max}_freq(), since Linux 5.3. What is asked
 * is kept and what is shown lies within the hardware's limits; the minimum yields. */
int store_freq(struct node *node, const char *text)
{
    number value;
    int error = parse_number(text, NULL, &value);
    if (error)
        return error;
    if (value < 0 || value > INT32_MAX)
        return -EINVAL;
    struct node *min = sibling(node, "scaling_min_freq"), *max = sibling(node, "scaling_max_freq");
    char line[24];
    int size = snprintf(line, sizeof line, "%lld", (long long)value);
    blob_drop(node->held);
    node->held = blob_new(line, (size_t)size);
    number top = node->high;
    if (max) {
        if (!max->held)
            max->held = blob_hold(max->value);
        top = clamp(asked(max), node->low, node->high);
        set_number(max, top);
    }
    if (min) {
        if (!min->held)
            min->held = blob_hold(min->value);
        set_number(min, clamp(asked(min), node->low, top));
    }
    return 0;
}

/* N of a directory cpuN, or -1. */
static int cpu_of(const struct node *node)
{
    char *end;
    if (!node->present || strncmp(node->name, "cpu", 3) || !isdigit((unsigned char)node->name[3]))
        return -1;
    long cpu = strtol(node->name + 3, &end, 10);
    return *end || cpu >= CPUS ? -1 : (int)cpu;
}

static bool is_online(const struct node *folder)
{
    struct node *file = file_in(folder, "online");
    return file ? !value_is(file, "0") : !folder->offline;
}

static void set_online(struct node *folder, bool online)
{
    struct node *file = file_in(folder, "online");
    folder->offline = !online;
    if (file && file->rule->store == store_online)
        set_number(file, online);
}

static void show_list(struct node *file, const unsigned char *state, unsigned char wanted)
{
    static char list[CPUS * 6];
    char *to = list;
    for (int cpu = 0; file && cpu < CPUS; cpu++) {
        if (state[cpu] != wanted)
            continue;
        int last = cpu;
        while (last + 1 < CPUS && state[last + 1] == wanted)
            last++;
        to += sprintf(to, last > cpu ? "%s%d-%d" : "%s%d", to == list ? "" : ",", cpu, last);
        cpu = last;
    }
    if (file)
        set_text(file, list, (size_t)(to - list));
}

static void show_lists(struct node *cpus)
{
    static unsigned char state[CPUS]; /* 0 where there is no CPU, 1 online, 2 offline */
    memset(state, 0, sizeof state);
    for (struct node *folder = cpus->children; folder; folder = folder->next_child)
        if (cpu_of(folder) >= 0)
            state[cpu_of(folder)] = is_online(folder) ? 1 : 2;
    show_list(file_in(cpus, "online"), state, 1);
    show_list(file_in(cpus, "offline"), state, 2);
}

/* drivers/base/core.c: online_store(), a kstrtobool() */
int store_online(struct node *node, const char *text)
{
    if (!strchr("01yYnN", *text) || *text == '\0')
        return -EINVAL;
    set_online(node->parent, strchr("1yY", *text) != NULL);
    show_lists(node->parent->parent);
    return 0;
}

/* The first of the CPUs that share the core of this one. */
static int primary_of(const struct node *folder)
{
    struct node *topology = child_of(folder, "topology");
    struct node *list = topology ? file_in(topology, "thread_siblings_list") : NULL;
    return list ? atoi(list->value->bytes) : cpu_of(folder);
}

/* kernel/cpu.c: __store_smt_control() */
int store_smt(struct node *node, const char *text)
{
    size_t size = strcspn(text, "\n");
    const char *word = find_word("on off forceoff", text, size, false);
    if (!word || text[size + (text[size] == '\n')])
        return -EINVAL;
    if (value_is(node, "forceoff"))
        return -EPERM;
    if (!value_is(node, "on") && !value_is(node, "off"))
        return -ENODEV;
    bool on = size == 2;
    struct node *cpus = node->parent->parent, *active = sibling(node, "active");
    for (struct node *folder = cpus->children; folder; folder = folder->next_child)
        if (cpu_of(folder) >= 0 && primary_of(folder) != cpu_of(folder))
            set_online(folder, on);
    set_text(node, text, size);
    if (active)
        set_number(active, on);
    show_lists(cpus);
    return 0;
}
