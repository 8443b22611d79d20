/* What can be told of a GPU: each value by the name that --query-gpu has for it, and some more
 * names, which no query knows, for what only -q shows. */
#ifndef NODEVET_SIM_FIELDS_H
#define NODEVET_SIM_FIELDS_H

#include "gpus.h"

#include <stddef.h>

enum { VALUE_SIZE = 256 };

struct field;
typedef int reader(const struct gpu *gpu, const struct field *field, char *out);

struct field {
    const char *name, *alias; /* no alias: null */
    const char *unit;         /* behind the value and in the header of a query: "W" */
    reader *read;             /* null: NVML of this library has no call for it */
    const char *call;         /* the NVML function, where the reader serves several */
    unsigned int part;        /* which of what the call answers */
    unsigned int choice;      /* what the call is asked for */
    const char *const *words; /* names of the numbers, ended by null */
};

/* Those without a reader; see unanswered.c. */
extern const struct field unanswered_fields[];
extern const size_t unanswered_count;

/* The field of a query, or null. */
const struct field *field_of_query(const char *name);

/* The field of a query or of a report, or null. */
const struct field *field_named(const char *name);

/* The value without its unit; where it cannot be told, what nvidia-smi shows instead: `N/A`,
 * `GPU is lost`. SUCCESS or the error. */
int field_read(const struct gpu *gpu, const struct field *field, char value[VALUE_SIZE]);

#endif
