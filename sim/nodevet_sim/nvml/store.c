/* Writing the state file: one writer at a time, and readers see the old or the new one. */
#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Until closed nobody else writes. Negative where it cannot be. */
static int lock_writers(const char *state)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.lock", state);
    int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (lock >= 0 && flock(lock, LOCK_EX) != 0)
        if (errno != EINTR) {
            close(lock);
            return -1;
        }
    return lock;
}

static bool is_changed(const struct entry *entry, unsigned int device,
                       const struct change *changes, size_t count)
{
    unsigned int index;
    const char *key = entry_set_for(entry, &index);
    if (key && index == device)
        for (size_t i = 0; i < count; i++)
            if (strcmp(changes[i].key, key) == 0)
                return true;
    return strcmp(entry->key, "session") == 0;
}

/* The file anew: the description as it is, then what is set. */
static void print(FILE *file, const struct table *table, unsigned int device,
                  const struct change *changes, size_t count)
{
    fwrite(table->whole, 1, table->described, file);
    if (table->described && table->whole[table->described - 1] != '\n')
        fputc('\n', file);
    fprintf(file, "%s\nsession = %llu\n", SINCE_BOOT, state_session());
    for (size_t i = 0; i < table->count; i++)
        if (table->entries[i].set && !is_changed(&table->entries[i], device, changes, count))
            fprintf(file, "%s = %s\n", table->entries[i].key, table->entries[i].value);
    for (size_t i = 0; i < count; i++)
        if (changes[i].value)
            fprintf(file, "gpu.%u.%s = %s\n", device, changes[i].key, changes[i].value);
}

static nvmlReturn_t write_locked(const char *state, unsigned int device,
                                 const struct change *changes, size_t count)
{
    char path[PATH_MAX];
    struct table table;
    nvmlReturn_t result = table_read(state, &table);
    if (result != NVML_SUCCESS)
        return result;
    table_forget(&table, state_session());
    snprintf(path, sizeof path, "%s.new", state);
    FILE *file = fopen(path, "we");
    bool done = file != NULL;
    if (done) {
        fchmod(fileno(file), 0644);
        print(file, &table, device, changes, count);
        done = !ferror(file);
        done = fclose(file) == 0 && done;
        done = done && rename(path, state) == 0;
    }
    if (!done)
        result = complain(path, 0, strerror(errno));
    table_free(&table);
    return result;
}

nvmlReturn_t state_write(nvmlDevice_t device, const struct change *changes, size_t count)
{
    const char *state = state_path();
    int lock = lock_writers(state);
    if (lock < 0)
        return complain(state, 0, strerror(errno));
    nvmlReturn_t result = write_locked(state, state_index(device), changes, count);
    close(lock);
    return result;
}
