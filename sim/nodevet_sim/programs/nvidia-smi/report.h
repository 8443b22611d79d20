/* -q and -q -x. */
#ifndef NODEVET_SIM_REPORT_H
#define NODEVET_SIM_REPORT_H

#include "gpus.h"
#include "options.h"

/* One line of a report, in both forms. Groups are followed by what they hold, one deeper. */
struct row {
    unsigned int depth;
    const char *tag;   /* the XML element */
    const char *label; /* the line of text, null where it is only in XML */
    const char *value; /* a field; "=TEXT" as it is; "@NAME" a list; null: a group;
                          "?FIELD": a group, but N/A where there is no such field */
    const char *suffix;         /* behind the value where the field itself has no unit */
    unsigned int since, before; /* driver branches that print it; 0: all */
};
extern const struct row report_rows[]; /* ended by a null tag */

/* `mig_devices`, `supported_clocks`, `processes` or `accounted_processes`. */
void print_list(const struct gpu *gpu, const char *name, bool xml);

int report_print(const struct options *options, const struct gpus *gpus);

#endif
