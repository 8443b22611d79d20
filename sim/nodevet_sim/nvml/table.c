/* See table.h. */
#include "table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

nvmlReturn_t complain(const char *path, unsigned int line, const char *what)
{
    fprintf(stderr, "libnvidia-ml of nodevet sim: %s:%u: %s\n", path, line, what);
    return NVML_ERROR_UNKNOWN;
}

static unsigned int hash_of(const char *key)
{
    unsigned int hash = 2166136261u; /* FNV-1a */
    for (; *key; key++)
        hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash;
}

static char *trim(char *text)
{
    while (*text == ' ' || *text == '\t')
        text++;
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r", end[-1]))
        *--end = '\0';
    return text;
}

/* Split the table's text into entries, in place. 0, or the number of the line that is none. */
static unsigned int parse(struct table *table)
{
    size_t room = 1;
    for (const char *at = table->text; *at; at++)
        room += *at == '\n';
    table->entries = malloc(room * sizeof *table->entries);
    table->described = strlen(table->text);
    unsigned int number = 0;
    bool set = false;
    for (char *text, *next = table->text; table->entries && (text = strsep(&next, "\n"));) {
        number++;
        if (!set && strcmp(text, SINCE_BOOT) == 0) {
            set = true;
            table->described = (size_t)(text - table->text);
        }
        char *line = trim(text);
        if (*line == '\0' || *line == '#')
            continue;
        char *equals = strchr(line, '=');
        if (!equals || equals == line)
            return number;
        *equals = '\0';
        char *key = trim(line);
        table->entries[table->count++] =
            (struct entry){hash_of(key), set, key, trim(equals + 1)};
        table->hooked = table->hooked || strstr(key, "call.");
    }
    return table->entries ? 0 : number + 1;
}

static char *read_all(const char *path)
{
    struct stat now;
    FILE *file = fopen(path, "re");
    char *text = NULL;
    if (file && fstat(fileno(file), &now) == 0 && (text = malloc((size_t)now.st_size + 1)))
        text[fread(text, 1, (size_t)now.st_size, file)] = '\0';
    if (file)
        fclose(file);
    return text;
}

nvmlReturn_t table_read(const char *path, struct table *table)
{
    *table = (struct table){.text = read_all(path)};
    if (!table->text)
        return complain(path, 0, strerror(errno));
    table->whole = strdup(table->text);
    unsigned int line = table->whole ? parse(table) : 1;
    if (line == 0)
        return NVML_SUCCESS;
    table_free(table);
    return complain(path, line, "not `key = value`");
}

void table_free(struct table *table)
{
    free(table->entries);
    free(table->text);
    free(table->whole);
    *table = (struct table){.text = NULL};
}

const char *table_find(const struct table *table, const char *key)
{
    unsigned int hash = hash_of(key);
    for (size_t i = table->count; i-- > 0;)
        if (table->entries[i].hash == hash && strcmp(table->entries[i].key, key) == 0)
            return table->entries[i].value;
    return NULL;
}

const char *table_find_of(const struct table *table, unsigned int index, const char *key)
{
    char full[NVML_SIM_VALUE + 32], wild[NVML_SIM_VALUE];
    const char *number = strpbrk(key, "0123456789");
    snprintf(wild, sizeof wild, "%s", key);
    if (number && number > key && number[-1] == '.')
        snprintf(wild, sizeof wild, "%.*s*%s", (int)(number - key), key,
                 number + strspn(number, "0123456789"));
    for (int step = 0; step < 4; step++) {
        const char *part = step % 2 ? wild : key;
        if (step < 2)
            snprintf(full, sizeof full, "gpu.%u.%s", index, part);
        else
            snprintf(full, sizeof full, "gpu.*.%s", part);
        const char *value = table_find(table, full);
        if (value)
            return value;
    }
    return NULL;
}

const char *entry_set_for(const struct entry *entry, unsigned int *index)
{
    int length = 0;
    if (!entry->set || sscanf(entry->key, "gpu.%u.%n", index, &length) != 1 || length == 0)
        return NULL;
    return entry->key + length;
}
