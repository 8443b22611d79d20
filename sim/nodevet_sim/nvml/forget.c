/* What a driver forgets of a GPU once its last client has left.
 *
 * The source is "Data Persistence" of NVIDIA's Driver Persistence guide: compute mode,
 * application clocks, the power limit set by software and the volatile ECC counts last
 * from the first client of a GPU to its last. Locked clocks go back to their default
 * after a driver reload (nvml.h at nvmlDeviceSetGpuLockedClocks), and with persistence
 * mode off the driver's state of the GPU is torn down just so. ECC and MIG mode and the
 * aggregate ECC counts outlast it. Cleared volatile counts are kept: they are zero after
 * a tear-down too.
 *
 * What is forgotten are lines below the mark, so that a GPU goes back to its description.
 *
 * Sessions. From the first client to the last is a session, and each has a number (see
 * clients.c). The setters write with their lines the number of the session in which they
 * are: `session = 5`. Who reads them in a later one takes those of them as forgotten that
 * a driver would have, as the persistence mode written there says. Persistence mode is
 * written by setters alone, and these first leave out what is forgotten, so that
 * everybody comes to the same answer, in any order, whether or not he may write the file.
 */
#include "table.h"

#include <stdlib.h>
#include <string.h>

const char *const forgotten_settings[] = {
    "power_limit_mw", "power_limit_enforced_mw", "app_clock_graphics_mhz", "app_clock_memory_mhz",
    "compute_mode", "locked_clock_graphics_min_mhz", "locked_clock_graphics_max_mhz",
    "locked_clock_memory_min_mhz", "locked_clock_memory_max_mhz", NULL};

static bool is_forgotten(const char *key)
{
    for (size_t i = 0; forgotten_settings[i]; i++)
        if (strcmp(forgotten_settings[i], key) == 0)
            return true;
    return false;
}

/* Whether nothing holds the GPU between two sessions: neither the driver itself nor a
 * described process. (A process of <state>.processes is a client like any other.) */
static bool is_let_go(const struct table *table, unsigned int index)
{
    const char *mode = table_find_of(table, index, "persistence_mode");
    const char *processes = table_find_of(table, index, "processes");
    bool held = processes && *processes && strncmp(processes, "NVML_ERROR_", 11) != 0;
    return mode && strcmp(mode, "0") == 0 && !held;
}

void table_forget(struct table *table, unsigned long long session)
{
    const char *written = table_find(table, "session");
    if (!written || !session || strtoull(written, NULL, 10) == session)
        return;
    size_t kept = 0;
    for (size_t i = 0; i < table->count; i++) {
        unsigned int index;
        const char *key = entry_set_for(&table->entries[i], &index);
        if (!key || !is_forgotten(key) || !is_let_go(table, index))
            table->entries[kept++] = table->entries[i];
    }
    table->count = kept;
}
