/* The files of the simulated kernel: a tree of nodes that are never freed.
 *
 * The kernel holds a node's address as its inode for as long as it likes; a node that
 * the manifest no longer has is only marked as gone. One thread uses all of this.
 */
#ifndef KERNELFS_TREE_H
#define KERNELFS_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Wide enough for every integer that the kernel takes, signed or not. */
typedef __int128 number;

/* Bytes that do not change, ended by a NUL that is not counted. */
struct blob {
    unsigned int holders;
    size_t size;
    char bytes[];
};

struct node {
    struct node *parent, *children, *last_child, *next_child, *next_in_bucket;
    char *name;
    uint64_t number; /* st_ino, and the order in its directory */
    mode_t mode;     /* type and permissions */
    const struct rule *rule;
    char *words;         /* of the rule: what may be written */
    number low, high;    /* of the rule: the range of what may be written */
    struct blob *value;  /* what is read, or where the link points */
    struct blob *held;   /* what the kernel remembers besides, NULL when nothing */
    uint64_t line;       /* hash of the line of the manifest that set it */
    bool present;        /* false: gone, as by hot-unplug */
    struct timespec changed; /* of a directory: when a child came or went; 0: never */
    bool offline;        /* a directory cpuN */
    unsigned int loaded; /* the last load of the manifest that had it */
};

extern struct node root;

void *allocate(size_t size); /* never NULL: the daemon ends when there is no memory */

struct blob *blob_new(const char *bytes, size_t size);
struct blob *blob_hold(struct blob *blob);
void blob_drop(struct blob *blob);

/* The child that is there now, or NULL. */
struct node *child_of(const struct node *folder, const char *name);

/* The node at a path relative to the root, or NULL. */
struct node *node_at(const char *path);

/* A child of that type, made where there was none or one of another type. */
struct node *node_make(struct node *folder, const char *name, mode_t type);

void set_present(struct node *node, bool present);
void set_mode(struct node *node, mode_t mode);                   /* of the same type */
void set_value(struct node *node, struct blob *value);           /* takes the blob */
void set_text(struct node *node, const char *text, size_t size); /* with a newline after it */

/* The node is there and all that it holds is this line. */
bool value_is(const struct node *node, const char *line);

#endif
