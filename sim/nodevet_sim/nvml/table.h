/* A state file, parsed. Private to state.c and store.c; the format is in state.h. */
#ifndef NODEVET_SIM_TABLE_H
#define NODEVET_SIM_TABLE_H

#include "state.h"

#include <stdbool.h>

/* The line that separates the description, above, from what setters wrote, below. */
#define SINCE_BOOT "# set since boot"

struct entry {
    unsigned int hash;
    bool set; /* by a setter, below the mark */
    char *key, *value; /* into `text` of the table */
};

struct table {
    char *text;
    struct entry *entries;
    size_t count;
    char *whole;      /* the file as it is, */
    size_t described; /* and its bytes above the mark */
    bool hooked;      /* some line holds a call up or refuses it */
};

/* The table of the text at `path`. SUCCESS, or UNKNOWN and a line on stderr. */
nvmlReturn_t table_read(const char *path, struct table *table);
void table_free(struct table *table);

/* The value of a key, or null. */
const char *table_find(const struct table *table, const char *key);

/* The value of a GPU's key, most exact first: gpu.3.nvlinks.4.active, then * for the
 * link, for the GPU, for both. */
const char *table_find_of(const struct table *table, unsigned int index, const char *key);

/* Whether a line was set by a setter for a GPU, which `index` then is; the key of that
 * GPU, or null. */
const char *entry_set_for(const struct entry *entry, unsigned int *index);

/* Drop the lines that a driver has forgotten by the time of a session of clients. */
void table_forget(struct table *table, unsigned long long session);

nvmlReturn_t complain(const char *path, unsigned int line, const char *what);

#endif
