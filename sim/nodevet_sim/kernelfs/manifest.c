/* See manifest.h. A manifest is read and checked as a whole before anything is changed. */
#include "manifest.h"

#include "kmsg.h"
#include "rules.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COLUMNS 5
#define NAME_BYTES 255
#define LARGEST 4095 /* errno; a string that is written is no longer either */

enum column { PATH, KIND, MODE, RULE, CONTENT };

struct line {
    char *text[COLUMNS]; /* unescaped, each ended by a NUL */
    size_t size[COLUMNS];
    uint64_t hash;
    mode_t mode;
    const struct rule *rule;
    const char *words;
    number low, high;
    struct line *next_in_bucket;
};

struct manifest {
    const char *path;
    char *text;
    size_t size, count;
    struct line *lines;
    struct line **buckets; /* `count` of them and one more: lines that are files, by path */
};

static bool complain(const struct manifest *manifest, const struct line *line,
                     const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Always false. */
static bool complain(const struct manifest *manifest, const struct line *line,
                     const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "kernelfs: %s:%zu: ", manifest->path, (size_t)(line - manifest->lines) + 1);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}

static uint64_t hash_of(const char *text, size_t size)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    return hash ^ hash >> 32;
}

/* In place. The size, or -1 where a backslash stands for nothing. */
static ssize_t unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at; at++) {
        if (*at != '\\') {
            *to++ = *at;
            continue;
        }
        char byte[3] = "";
        at++;
        if (*at == 'x' && isxdigit((unsigned char)at[1]) && isxdigit((unsigned char)at[2])) {
            memcpy(byte, at + 1, 2);
            *to++ = (char)strtol(byte, NULL, 16);
            at += 2;
        } else if (*at == 't' || *at == 'n' || *at == '\\') {
            *to++ = *at == 't' ? '\t' : *at == 'n' ? '\n' : '\\';
        } else {
            return -1;
        }
    }
    *to = '\0';
    return to - text;
}

/* Neither empty, nor leading out of the mount. */
static bool good_path(const char *path, size_t size)
{
    if (strlen(path) != size)
        return false;
    for (;; path++) {
        size_t length = strcspn(path, "/");
        if (length == 0 || length > NAME_BYTES || (length <= 2 && strspn(path, ".") >= length))
            return false;
        path += length;
        if (*path == '\0')
            return true;
    }
}

static bool read_rule(const struct manifest *manifest, struct line *line)
{
    char *name = line->text[RULE];
    size_t size = strcspn(name, " ");
    line->rule = rule_named(name, size);
    if (!line->rule)
        return complain(manifest, line, "no rule is called '%.*s'", (int)size, name);
    const char *at = name + size;
    number *numbers[] = {&line->low, &line->high};
    for (int i = 0; i < line->rule->numbers; i++) {
        at += strspn(at, " ");
        if (parse_number(at, &at, numbers[i]) || !strchr(" ", *at))
            return complain(manifest, line, "the rule %s needs %d integers", line->rule->name,
                            line->rule->numbers);
    }
    if (line->rule->numbers == 1 && (line->low < 1 || line->low > LARGEST))
        return complain(manifest, line, "the integer of the rule %s is not 1 to %d",
                        line->rule->name, LARGEST);
    line->words = at + strspn(at, " ");
    return true;
}

static bool read_mode(const struct manifest *manifest, struct line *line)
{
    char *end;
    unsigned long mode = strtoul(line->text[MODE], &end, 8);
    if (*end || end == line->text[MODE] || mode > 0777)
        return complain(manifest, line, "'%s' is not an octal mode", line->text[MODE]);
    line->mode = (mode_t)mode;
    return true;
}

static bool read_record(const struct manifest *manifest, struct line *line)
{
    if (strcmp(line->text[MODE], "-") == 0)
        line->low = -1;
    else if (parse_number(line->text[MODE], NULL, &line->low) || line->low < 0 ||
             line->low > INT64_MAX)
        return complain(manifest, line, "'%s' is not a time in microseconds", line->text[MODE]);
    if (parse_number(line->text[RULE], NULL, &line->high) || line->high < 0 ||
        line->high > KMSG_PRIORITY)
        return complain(manifest, line, "'%s' is not a priority", line->text[RULE]);
    return true;
}

static bool read_line(const struct manifest *manifest, struct line *line, char *text)
{
    line->hash = hash_of(text, strlen(text));
    for (int i = 0; i < COLUMNS; i++) {
        line->text[i] = strsep(&text, "\t");
        if (!line->text[i] || (i == CONTENT && text))
            return complain(manifest, line, "a line has %d columns, separated by tabs", COLUMNS);
        ssize_t size = unescape(line->text[i]);
        if (size < 0)
            return complain(manifest, line, "a backslash must be followed by t, n, \\ or xNN");
        line->size[i] = (size_t)size;
    }
    if (!good_path(line->text[PATH], line->size[PATH]))
        return complain(manifest, line,
                        "a path is relative, without empty names, '.' and '..', and a name has "
                        "at most %d bytes", NAME_BYTES);
    const char *kind = line->text[KIND];
    if (strcmp(kind, "d") == 0)
        return read_mode(manifest, line);
    if (strcmp(kind, "f") == 0)
        return read_mode(manifest, line) && read_rule(manifest, line);
    if (strcmp(kind, "r") == 0)
        return read_record(manifest, line);
    line->mode = 0777;
    if (strcmp(kind, "l") == 0)
        return (line->size[CONTENT] > 0 && line->size[CONTENT] < 4096 &&
                !memchr(line->text[CONTENT], '\0', line->size[CONTENT])) ||
               complain(manifest, line, "a link needs a target");
    return complain(manifest, line, "'%s' is not a kind; known are d, f, l and r", kind);
}

static struct line **bucket_of(const struct manifest *manifest, const char *path, size_t size)
{
    return &manifest->buckets[hash_of(path, size) % (manifest->count + 1)];
}

static struct line *line_of(const struct manifest *manifest, const char *path, size_t size)
{
    struct line *line = *bucket_of(manifest, path, size);
    while (line && (line->size[PATH] != size || memcmp(line->text[PATH], path, size) != 0))
        line = line->next_in_bucket;
    return line;
}

/* A path is there once, and below directories only. */
static bool agree(const struct manifest *manifest)
{
    for (struct line *line = manifest->lines; line < manifest->lines + manifest->count; line++) {
        if (*line->text[KIND] == 'r')
            continue;
        const struct line *other = line_of(manifest, line->text[PATH], line->size[PATH]);
        if (other)
            return complain(manifest, line, "this path is in line %zu already",
                            (size_t)(other - manifest->lines) + 1);
        struct line **bucket = bucket_of(manifest, line->text[PATH], line->size[PATH]);
        line->next_in_bucket = *bucket;
        *bucket = line;
    }
    for (struct line *line = manifest->lines; line < manifest->lines + manifest->count; line++)
        for (const char *at = line->text[PATH]; (at = strchr(at, '/')); at++) {
            const struct line *above =
                line_of(manifest, line->text[PATH], (size_t)(at - line->text[PATH]));
            if (above && *above->text[KIND] != 'd')
                return complain(manifest, line, "this path lies below line %zu, no directory",
                                (size_t)(above - manifest->lines) + 1);
        }
    return true;
}

static bool parse(struct manifest *manifest)
{
    for (size_t i = 0; i < manifest->size; i++)
        manifest->count += manifest->text[i] == '\n';
    manifest->lines = allocate((manifest->count + 1) * sizeof *manifest->lines);
    manifest->buckets = allocate((manifest->count + 1) * sizeof *manifest->buckets);
    char *next = manifest->text;
    for (size_t i = 0; i < manifest->count; i++) {
        char *text = next;
        char *end = memchr(text, '\n', manifest->size - (size_t)(text - manifest->text));
        *end = '\0';
        next = end + 1;
        if (strlen(text) != (size_t)(end - text))
            return complain(manifest, &manifest->lines[i], "a line with a NUL; write \\x00");
        if (!read_line(manifest, &manifest->lines[i], text))
            return false;
    }
    if (next != manifest->text + manifest->size)
        return complain(manifest, &manifest->lines[manifest->count], "the line is cut short");
    return agree(manifest);
}

/* The node at the line's path; directories above it are made. */
static struct node *place(const struct line *line, mode_t type, unsigned int loaded)
{
    struct node *node = &root;
    for (char *name = line->text[PATH], *next = name; next; name = next) {
        strsep(&next, "/");
        bool last = next == NULL;
        node = node_make(node, name, last ? type : S_IFDIR);
        if (!last) {
            next[-1] = '/';
            if (node->loaded != loaded)
                set_mode(node, S_IFDIR | (strncmp(line->text[PATH], "proc/", strlen("proc/"))
                                              ? 0755 : 0555));
            node->loaded = loaded;
            set_present(node, true);
        }
    }
    return node;
}

static void apply(const struct line *line, unsigned int loaded)
{
    mode_t type = *line->text[KIND] == 'd' ? S_IFDIR : *line->text[KIND] == 'l' ? S_IFLNK : S_IFREG;
    struct node *node = place(line, type, loaded);
    node->loaded = loaded;
    set_mode(node, type | line->mode);
    if (node->present && node->line == line->hash)
        return;
    set_present(node, true);
    node->line = line->hash;
    node->rule = line->rule;
    node->low = line->low;
    node->high = line->high;
    free(node->words);
    node->words = line->words ? strcpy(allocate(strlen(line->words) + 1), line->words) : NULL;
    blob_drop(node->held);
    node->held = NULL;
    set_value(node, blob_new(line->text[CONTENT], line->size[CONTENT]));
}

/* What this load did not have is gone. */
static void sweep(struct node *folder, unsigned int loaded)
{
    for (struct node *node = folder->children; node; node = node->next_child) {
        if (node->loaded != loaded)
            set_present(node, false);
        sweep(node, loaded);
    }
}

static char *read_all(const char *path, size_t *size)
{
    FILE *file = fopen(path, "re");
    struct stat stat;
    char *text = NULL;
    if (file && fstat(fileno(file), &stat) == 0) {
        text = allocate((size_t)stat.st_size + 1);
        *size = fread(text, 1, (size_t)stat.st_size, file);
        if (ferror(file)) {
            free(text);
            text = NULL;
        }
    }
    if (!text)
        fprintf(stderr, "kernelfs: %s: %s\n", path, strerror(errno));
    if (file)
        fclose(file);
    return text;
}

bool manifest_load(const char *path, bool boot)
{
    static unsigned int loaded;
    struct manifest manifest = {.path = path};
    manifest.text = read_all(path, &manifest.size);
    if (!manifest.text)
        return false;
    bool good = parse(&manifest);
    if (good) {
        loaded++;
        for (size_t i = 0; i < manifest.count; i++) {
            const struct line *line = &manifest.lines[i];
            if (*line->text[KIND] != 'r')
                apply(line, loaded);
            else if (boot)
                kmsg_append((unsigned int)line->high, line->text[CONTENT], line->size[CONTENT],
                            line->low < 0 ? kmsg_now() : (int64_t)line->low);
        }
        sweep(&root, loaded);
        swap_show();
        modules_show();
    }
    free(manifest.buckets);
    free(manifest.lines);
    free(manifest.text);
    return good;
}
