/* See rules.h. Each store function is named by the kernel's own that it follows. */
#include "rules.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int parse_number(const char *text, const char **end, number *out)
{
    static const char digits[] = "0123456789abcdef";
    bool negative = *text == '-';
    text += *text == '-' || *text == '+';
    int base = *text != '0' ? 10 : (text[1] | 32) == 'x' ? 16 : 8;
    text += base == 16 ? 2 : 0;
    const char *first = text, *digit;
    number value = 0;
    bool over = false;
    while (*text && (digit = strchr(digits, tolower((unsigned char)*text))) &&
           digit - digits < base) {
        if (!over)
            value = value * base + (digit - digits);
        over |= value > UINT64_MAX;
        text++;
    }
    if (text == first)
        return -EINVAL;
    if (end)
        *end = text;
    else if (text[*text == '\n'])
        return -EINVAL;
    *out = negative ? -value : value;
    return over || *out < INT64_MIN ? -ERANGE : 0;
}

void set_number(struct node *node, number value)
{
    char text[32];
    int size = value < 0 ? snprintf(text, sizeof text, "%lld", (long long)value)
                         : snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    set_text(node, text, (size_t)size);
}

const char *find_word(const char *words, const char *text, size_t size, bool ignore_case)
{
    int (*compare)(const char *, const char *, size_t) = ignore_case ? strncasecmp : strncmp;
    for (const char *word = words; *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        if (length == size && size > 0 && compare(word, text, size) == 0)
            return word;
        word += length;
    }
    return NULL;
}

/* The length of the line that sysfs_streq() compares: one newline at the end is ignored. */
static size_t line_size(const char *text)
{
    size_t size = strlen(text);
    return size > 0 && text[size - 1] == '\n' ? size - 1 : size;
}

/* sysfs_match_string() */
static int store_word(struct node *node, const char *text)
{
    size_t size = line_size(text);
    if (!find_word(node->words, text, size, false))
        return -EINVAL;
    set_text(node, text, size);
    return 0;
}

/* mm/huge_memory.c: enabled_store(). What is chosen is shown in brackets. */
static int store_choice(struct node *node, const char *text)
{
    size_t size = line_size(text);
    if (!find_word(node->words, text, size, false))
        return -EINVAL;
    char *shown = allocate(strlen(node->words) + 3), *to = shown;
    for (const char *word = node->words; *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        bool chosen = length == size && memcmp(word, text, size) == 0;
        to += sprintf(to, "%s%s%.*s%s", to == shown ? "" : " ", chosen ? "[" : "", (int)length,
                      word, chosen ? "]" : "");
        word += length;
    }
    set_text(node, shown, (size_t)(to - shown));
    free(shown);
    return 0;
}

/* kstrtoint() and the like, then a range. */
static int store_int(struct node *node, const char *text)
{
    number value;
    int error = parse_number(text, NULL, &value);
    if (error)
        return error;
    if (value < node->low || value > node->high)
        return -EINVAL;
    set_number(node, value);
    return 0;
}

/* drivers/cpufreq/intel_pstate.c: store_no_turbo(), sscanf("%u") and clamp_t() */
static int store_clamp(struct node *node, const char *text)
{
    number value;
    while (isspace((unsigned char)*text))
        text++;
    if (!isdigit((unsigned char)*text) || parse_number(text, &text, &value))
        return -EINVAL;
    set_number(node, value < node->low ? node->low : value > node->high ? node->high : value);
    return 0;
}

/* drivers/pci/pci-sysfs.c: remove_store() and the like, whose effect is left out. */
static int store_sink(struct node *node, const char *text)
{
    number value;
    (void)node;
    return parse_number(text, NULL, &value) || value < 0 ? -EINVAL : 0;
}

static int store_io_error(struct node *node, const char *text)
{
    (void)node, (void)text;
    return -EIO;
}

/* kernel/sysctl.c: proc_dointvec_minmax(). Values that are not given stay. */
static int store_sysctl(struct node *node, const char *text)
{
    number values[64];
    size_t count = 0, given = 0;
    const char *shown = node->value->bytes;
    while (count < 64 && !parse_number(shown + strspn(shown, " \t\n"), &shown, &values[count]))
        count++;
    for (; given < count; given++) {
        text += strspn(text, " \t\n\r\v\f");
        if (*text == '\0')
            break;
        if (parse_number(text, &text, &values[given]) ||
            (*text && !isspace((unsigned char)*text)) || values[given] < node->low ||
            values[given] > node->high)
            return -EINVAL;
    }
    if (given == 0)
        return -EINVAL;
    char line[64 * 24], *to = line;
    for (size_t i = 0; i < count; i++)
        to += sprintf(to, values[i] < 0 ? "%s%lld" : "%s%llu", i ? "\t" : "",
                      (long long)values[i]);
    set_text(node, line, (size_t)(to - line));
    return 0;
}

/* kernel/sysctl.c: proc_dostring(); `low` is the size of the kernel's buffer. */
static int store_string(struct node *node, const char *text)
{
    size_t size = strcspn(text, "\n");
    set_text(node, text, (number)size < node->low ? size : (size_t)node->low - 1);
    return 0;
}

/* kernel/irq/proc.c: write_irq_affinity(). The interrupt goes to the first of these CPUs. */
static int store_affinity(struct node *node, const char *text)
{
    struct node *effective = child_of(node->parent, "effective_affinity_list");
    size_t size = line_size(text), first = strspn(text, "0123456789");
    if (first == 0 || strspn(text, "0123456789,-") != size)
        return -EINVAL;
    set_text(node, text, size);
    if (effective)
        set_text(effective, text, first);
    return 0;
}

static const struct rule rules[] = {
    {"ro", KERNFS, 0, NULL},
    {"word", KERNFS, 0, store_word},
    {"choice", KERNFS, 0, store_choice},
    {"int", KERNFS, 2, store_int},
    {"clamp", KERNFS, 2, store_clamp},
    {"sink", KERNFS, 0, store_sink},
    {"governor", KERNFS, 0, store_governor},
    {"epp", KERNFS, 0, store_epp},
    {"freq", KERNFS, 2, store_freq},
    {"online", KERNFS, 0, store_online},
    {"smt", KERNFS, 0, store_smt},
    {"sysctl", SYSCTL, 2, store_sysctl},
    {"string", SYSCTL, 1, store_string},
    {"compact", SYSCTL, 0, store_compact},
    {"drop_caches", SYSCTL, 0, store_drop_caches},
    {"proc", PROCFS, 0, store_io_error},
    {"affinity", PROCFS, 0, store_affinity},
    {"swap", KERNFS, 0, store_swap},
    {"modules", KERNFS, 0, store_modules},
    {"config", CONFIG, 0, NULL},
    {"error", ERROR, 1, NULL},
    {"hang", HANG, 0, NULL},
    {"rising", RISING, 0, NULL},
    {"kmsg", KMSG, 0, NULL},
    {"kmsg_inject", INJECT, 0, NULL},
};

const struct rule *rule_named(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (strlen(rules[i].name) == size && memcmp(rules[i].name, name, size) == 0)
            return &rules[i];
    return NULL;
}
