/* See kmsg.h. kernel/printk/printk.c: devkmsg_read(), devkmsg_write(), devkmsg_poll() */
#include "kmsg.h"

#include "tree.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define USER 1    /* LOG_USER, the facility of what user space writes */
#define WARNING 4 /* its level when it says none */

struct record {
    unsigned int priority;
    int64_t usec;
    size_t size;
    char *text;
};

static struct record records[KMSG_RECORDS];
static uint64_t first, next; /* sequence numbers of the oldest record and of the next */
static int64_t boot, last_usec;

static int64_t clock_usec(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

void kmsg_start(int64_t zero)
{
    boot = zero;
}

int64_t kmsg_now(void)
{
    return clock_usec() - boot;
}

void kmsg_append(unsigned int priority, const char *text, size_t size, int64_t usec)
{
    struct record *record = &records[next++ % KMSG_RECORDS];
    size = size < KMSG_TEXT ? size : KMSG_TEXT;
    if (next - first > KMSG_RECORDS)
        first++;
    last_usec = usec > last_usec ? usec : last_usec;
    free(record->text);
    *record = (struct record){priority, last_usec, size, memcpy(allocate(size + 1), text, size)};
}

ssize_t kmsg_write(const char *text, size_t size)
{
    unsigned long priority = USER << 3 | WARNING;
    if (size > KMSG_TEXT)
        return -EINVAL;
    char line[KMSG_TEXT + 1] = "", *at = line, *end;
    memcpy(line, text, size);
    if (*at == '<') {
        unsigned long given = strtoul(at + 1, &end, 10);
        if (*end == '>') {
            unsigned long facility = given >> 3 & 0xff;
            priority = (facility ? facility : USER) << 3 | (given & 7);
            at = end + 1;
        }
    }
    size_t length = strlen(at);
    length -= length > 0 && at[length - 1] == '\n';
    kmsg_append((unsigned int)priority, at, length, kmsg_now());
    return (ssize_t)size;
}

/* The size of the line that begins here with its newline, or 0 where it is none. */
static size_t inject_line(const char *text, bool append)
{
    char *end;
    int64_t usec = -1;
    const char *at = text;
    size_t size = strcspn(text, "\n");
    if (*at == '-') {
        at++;
    } else {
        usec = strtoll(at, &end, 10);
        if (end == at || *at < '0' || *at > '9')
            return 0;
        at = end;
    }
    if (*at++ != ' ' || *at < '0' || *at > '9')
        return 0;
    unsigned long priority = strtoul(at, &end, 10);
    if (priority > KMSG_PRIORITY || (*end != ' ' && *end != '\n' && *end != '\0'))
        return 0;
    at = end + (*end == ' ');
    if (append)
        kmsg_append((unsigned int)priority, at, size - (size_t)(at - text),
                    usec < 0 ? kmsg_now() : usec);
    return size + (text[size] == '\n');
}

ssize_t kmsg_inject(const char *text, size_t size)
{
    char *lines = memcpy(allocate(size + 1), text, size);
    ssize_t result = strlen(lines) == size ? (ssize_t)size : -EINVAL;
    for (int append = 0; append < 2 && result > 0; append++) {
        size_t length;
        for (const char *at = lines; *at && result > 0; at += length) {
            length = inject_line(at, append);
            if (length == 0)
                result = -EINVAL;
        }
    }
    free(lines);
    return result;
}

void kmsg_open(struct reader *reader)
{
    *reader = (struct reader){.sequence = first};
}

/* Where the seek went that came before this read, if there was one. */
static void seek(struct reader *reader, off_t offset)
{
    if (offset == reader->offset)
        return;
    if (offset == 0)
        reader->sequence = first;
    else if (offset == KMSG_END)
        reader->sequence = next;
    reader->offset = offset;
}

ssize_t kmsg_read(struct reader *reader, off_t offset, char *out, size_t size)
{
    seek(reader, offset);
    if (reader->sequence < first) {
        reader->sequence = first;
        return -EPIPE;
    }
    if (reader->sequence >= next)
        return -EAGAIN;
    const struct record *record = &records[reader->sequence % KMSG_RECORDS];
    char head[96];
    int head_size = snprintf(head, sizeof head, "%u,%llu,%llu,-;", record->priority,
                             (unsigned long long)reader->sequence,
                             (unsigned long long)record->usec);
    char *line = allocate((size_t)head_size + 4 * record->size + 2), *to = line + head_size;
    memcpy(line, head, (size_t)head_size);
    for (size_t i = 0; i < record->size; i++) {
        unsigned char byte = (unsigned char)record->text[i];
        if (byte < ' ' || byte >= 127 || byte == '\\')
            to += sprintf(to, "\\x%02x", byte);
        else
            *to++ = (char)byte;
    }
    *to++ = '\n';
    ssize_t length = to - line;
    if ((size_t)length <= size) {
        memcpy(out, line, (size_t)length);
        reader->sequence++;
        reader->offset += length;
    } else {
        length = -EINVAL;
    }
    free(line);
    return length;
}

unsigned int kmsg_poll(const struct reader *reader)
{
    if (reader->sequence < first)
        return POLLIN | POLLRDNORM | POLLERR | POLLPRI;
    return reader->sequence < next ? POLLIN | POLLRDNORM : 0;
}
