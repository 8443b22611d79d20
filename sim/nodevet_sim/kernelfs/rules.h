/* What happens when a file is opened, read and written: one rule for each file. */
#ifndef KERNELFS_RULES_H
#define KERNELFS_RULES_H

#include "tree.h"

enum behaviour {
    KERNFS,  /* the mode is held to, even for root; each write is one store */
    SYSCTL,  /* the same, and a write that does not begin at 0 is ignored */
    PROCFS,  /* root may open it for writing; a write is EIO */
    CONFIG,  /* of a PCI function: its first 64 bytes for all, the rest for root */
    ERROR,   /* reading fails with the errno `low` */
    RISING,  /* each number in it is how much it grows in a second, since the node booted */
    HANG,    /* reading never ends by itself */
    KMSG,    /* the kernel log */
    INJECT,  /* what is written becomes records of the kernel log */
};

/* `text` is what was written, ended by a NUL. 0, or a negative errno. */
typedef int store_function(struct node *node, const char *text);

struct rule {
    const char *name;
    enum behaviour behaviour;
    int numbers; /* how many integers the rule begins with: none, `low`, or `low` and `high` */
    store_function *store;
};

const struct rule *rule_named(const char *name, size_t size);

/* As kstrtoll(text, 0) or, with `end`, as strtoll does: 0, -EINVAL or -ERANGE. */
int parse_number(const char *text, const char **end, number *out);
void set_number(struct node *node, number value);

typedef unsigned long long amount;

/* The rows of /proc/meminfo with these names get these KiB; the others stay as they are. */
struct row {
    const char *name;
    amount kb;
};
void set_rows(struct node *file, const struct row *rows, size_t count);

/* The word of `words` (separated by spaces) that begins like `text` of this size; or NULL. */
const char *find_word(const char *words, const char *text, size_t size, bool ignore_case);

store_function store_governor, store_epp, store_freq, store_online, store_smt; /* cpu.c */
store_function store_swap;                                                     /* swap.c */
store_function store_modules;                                                  /* modules.c */
store_function store_compact, store_drop_caches;                               /* memory.c */

/* Once the manifest was read again: what is active is not in it. */
void swap_show(void);
void modules_show(void);

/* Whether what a directory holds comes and goes with modules. */
bool modules_are_in(const struct node *folder);

#endif
