/* The kernel log, as /dev/kmsg shows it: Documentation/ABI/testing/dev-kmsg. */
#ifndef KERNELFS_KMSG_H
#define KERNELFS_KMSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define KMSG_RECORDS 4096
#define KMSG_PRIORITY 0x7ff /* the highest: eight bits of facility, three of level */
#define KMSG_TEXT 1024      /* the longest text of a record; the rest is cut off */

/* `zero`: the CLOCK_BOOTTIME at which the node booted, in microseconds. */
void kmsg_start(int64_t zero);

/* A time before the last record's becomes that record's. */
void kmsg_append(unsigned int priority, const char *text, size_t size, int64_t usec);
int64_t kmsg_now(void);

/* What user space writes: "<priority>text" or "text". The size, or a negative errno. */
ssize_t kmsg_write(const char *text, size_t size);

/* What the supervisor writes: lines "usec priority text", where usec may be "-" for now. */
ssize_t kmsg_inject(const char *text, size_t size);

/* One reader of the log. The kernel passes no seeks on to a FUSE file
 * system, so they are told from the offset of the next read: it is not where the last one
 * ended. SEEK_SET leads to 0, SEEK_END to the file's size, which is KMSG_END; no read ends
 * there, as every record is longer. */
#define KMSG_END 1
struct reader {
    uint64_t sequence;
    off_t offset;
};

void kmsg_open(struct reader *reader);

/* The next record. Its size, or -EAGAIN, -EPIPE or -EINVAL. */
ssize_t kmsg_read(struct reader *reader, off_t offset, char *out, size_t size);
unsigned int kmsg_poll(const struct reader *reader); /* of poll(2) */

#endif
