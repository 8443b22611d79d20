/* See tree.h. */
#include "tree.h"

#include "notices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BUCKETS 8192

struct node root = {.parent = &root, .name = "", .number = 1, .mode = S_IFDIR | 0755,
                    .present = true};
static struct node *buckets[BUCKETS];
static uint64_t last_number = 2; /* 1 and 2 are where readdir is after "." and ".." */

void *allocate(size_t size)
{
    void *memory = calloc(1, size);
    if (!memory) {
        fputs("kernelfs: out of memory\n", stderr);
        exit(1);
    }
    return memory;
}

struct blob *blob_new(const char *bytes, size_t size)
{
    struct blob *blob = allocate(sizeof *blob + size + 1);
    blob->holders = 1;
    blob->size = size;
    memcpy(blob->bytes, bytes, size);
    return blob;
}

struct blob *blob_hold(struct blob *blob)
{
    if (blob)
        blob->holders++;
    return blob;
}

void blob_drop(struct blob *blob)
{
    if (blob && --blob->holders == 0)
        free(blob);
}

static struct node **bucket_of(const struct node *folder, const char *name)
{
    uint64_t hash = 14695981039346656037u ^ folder->number; /* FNV-1a */
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
    return &buckets[(hash ^ hash >> 32) % BUCKETS];
}

/* The child, there or gone. */
static struct node *known(const struct node *folder, const char *name)
{
    struct node *node = *bucket_of(folder, name);
    while (node && (node->parent != folder || strcmp(node->name, name)))
        node = node->next_in_bucket;
    return node;
}

struct node *child_of(const struct node *folder, const char *name)
{
    struct node *node = known(folder, name);
    return node && node->present ? node : NULL;
}

struct node *node_at(const char *path)
{
    char name[256];
    struct node *node = &root;
    while (node && *path) {
        size_t size = strcspn(path, "/");
        if (size >= sizeof name)
            return NULL;
        memcpy(name, path, size);
        name[size] = '\0';
        node = child_of(node, name);
        path += size + (path[size] == '/');
    }
    return node;
}

/* An inode never changes its type, so a node of another type is left behind for good. */
static void forget(struct node *node)
{
    struct node **at = bucket_of(node->parent, node->name);
    while (*at != node)
        at = &(*at)->next_in_bucket;
    *at = node->next_in_bucket;
    set_present(node, false);
}

struct node *node_make(struct node *folder, const char *name, mode_t type)
{
    struct node *node = known(folder, name);
    if (node && (node->mode & S_IFMT) == type)
        return node;
    if (node)
        forget(node);
    node = allocate(sizeof *node);
    node->parent = folder;
    node->name = strcpy(allocate(strlen(name) + 1), name);
    node->number = ++last_number;
    node->mode = type;
    *(folder->last_child ? &folder->last_child->next_child : &folder->children) = node;
    folder->last_child = node;
    struct node **bucket = bucket_of(folder, name);
    node->next_in_bucket = *bucket;
    *bucket = node;
    return node;
}

void set_present(struct node *node, bool present)
{
    if (node->present == present)
        return;
    node->present = present;
    clock_gettime(CLOCK_REALTIME, &node->parent->changed);
    notice_name(node);
}

void set_mode(struct node *node, mode_t mode)
{
    if (node->mode == mode)
        return;
    node->mode = mode;
    notice_content(node);
}

void set_value(struct node *node, struct blob *value)
{
    blob_drop(node->value);
    node->value = value;
    if (S_ISLNK(node->mode))
        notice_content(node);
}

void set_text(struct node *node, const char *text, size_t size)
{
    char *line = allocate(size + 1);
    memcpy(line, text, size);
    line[size] = '\n';
    set_value(node, blob_new(line, size + 1));
    free(line);
}

bool value_is(const struct node *node, const char *line)
{
    size_t size = strlen(line);
    return node && node->value && node->value->size == size + 1 &&
           memcmp(node->value->bytes, line, size) == 0 && node->value->bytes[size] == '\n';
}
