/* See files.h. Reads that must wait are kept and answered later, so one thread is enough. */
#include "files.h"

#include "kmsg.h"
#include "rules.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STORE_BYTES 4096     /* kernfs passes on a page at most; the rest is another write */
#define CONFIG_BYTES 64      /* pci_read_config(): what all may read; here, nobody writes it */

struct file {
    struct node *node;
    struct blob *content; /* since the last read at 0, as seq_file keeps it */
    bool wrote;
    struct reader reader;         /* of the kernel log */
    struct fuse_pollhandle *poll; /* of the kernel log */
    struct file *next;
};

struct waiter {
    fuse_req_t request;
    struct file *file;
    off_t offset;
    size_t size;
    struct waiter *next;
};

static struct file *opened;
static struct waiter *waiters;

static struct file *file_of(const struct fuse_file_info *info)
{
    return (struct file *)(uintptr_t)info->fh;
}

static void forget(struct file *file)
{
    struct file **at = &opened;
    while (*at != file)
        at = &(*at)->next;
    *at = file->next;
    if (file->poll)
        fuse_pollhandle_destroy(file->poll);
    blob_drop(file->content);
    free(file);
}

/* fs/kernfs/file.c: kernfs_fop_open(). Not even root may do what the mode does not allow to
 * anyone. kernel/printk/printk.c: check_syslog_permissions() */
static int may_open(const struct node *node, int flags, uid_t user)
{
    bool reads = (flags & O_ACCMODE) != O_WRONLY, writes = (flags & O_ACCMODE) != O_RDONLY;
    if (!node->present)
        return ENOENT;
    if (node->rule->behaviour == PROCFS)
        return 0;
    if ((reads && !(node->mode & 0444)) || (writes && !(node->mode & 0222)))
        return EACCES;
    const struct node *restricted = node_at("proc/sys/kernel/dmesg_restrict");
    if (node->rule->behaviour == KMSG && reads && user != 0 && restricted &&
        !value_is(restricted, "0"))
        return EPERM;
    return 0;
}

void file_open(fuse_req_t request, struct node *node, struct fuse_file_info *info)
{
    int error = may_open(node, info->flags, fuse_req_ctx(request)->uid);
    if (error) {
        fuse_reply_err(request, error);
        return;
    }
    struct file *file = allocate(sizeof *file);
    file->node = node;
    kmsg_open(&file->reader);
    file->next = opened;
    opened = file;
    info->fh = (uintptr_t)file;
    info->direct_io = 1;
    info->noflush = 1;
    if (fuse_reply_open(request, info) == -ENOENT)
        forget(file); /* interrupted: there will be no release */
}

void file_release(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info)
{
    (void)inode;
    forget(file_of(info));
    fuse_reply_err(request, 0);
}

static struct waiter **waiter_of(fuse_req_t request)
{
    struct waiter **at = &waiters;
    while (*at && (*at)->request != request)
        at = &(*at)->next;
    return at;
}

static void interrupted(fuse_req_t request, void *unused)
{
    (void)unused;
    struct waiter **at = waiter_of(request), *waiter = *at;
    *at = waiter->next;
    free(waiter);
    fuse_reply_err(request, EINTR);
}

static void wait_for(fuse_req_t request, struct file *file, off_t offset, size_t size)
{
    if (fuse_req_interrupted(request)) {
        fuse_reply_err(request, EINTR);
        return;
    }
    struct waiter *waiter = allocate(sizeof *waiter);
    *waiter = (struct waiter){request, file, offset, size, waiters};
    waiters = waiter;
    fuse_req_interrupt_func(request, interrupted, NULL);
}

/* false: there is nothing to read yet. */
static bool reply_record(fuse_req_t request, struct file *file, off_t offset, size_t size)
{
    char record[128 + 4 * KMSG_TEXT];
    ssize_t length = kmsg_read(&file->reader, offset, record,
                               size < sizeof record ? size : sizeof record);
    if (length == -EAGAIN)
        return false;
    if (length < 0)
        fuse_reply_err(request, (int)-length);
    else
        fuse_reply_buf(request, record, (size_t)length);
    return true;
}

/* The log has grown: answer the readers, wake those that poll. */
static void log_grew(void)
{
    for (struct waiter **at = &waiters; *at;) {
        struct waiter *waiter = *at;
        if (waiter->file->node->rule->behaviour == KMSG &&
            reply_record(waiter->request, waiter->file, waiter->offset, waiter->size)) {
            *at = waiter->next;
            free(waiter);
        } else {
            at = &waiter->next;
        }
    }
    for (struct file *file = opened; file; file = file->next)
        if (file->poll)
            fuse_lowlevel_notify_poll(file->poll);
}

static void read_log(fuse_req_t request, struct file *file, size_t size, off_t offset, int flags)
{
    if (reply_record(request, file, offset, size))
        return;
    if (flags & O_NONBLOCK)
        fuse_reply_err(request, EAGAIN);
    else
        wait_for(request, file, offset, size);
}

/* Counters that rise: the text with each number multiplied by the seconds since boot. */
static struct blob *risen(const char *text)
{
    char out[STORE_BYTES], *to = out;
    while (*text && to < out + sizeof out - 24) {
        if (*text < '0' || *text > '9' || (to > out && to[-1] != ' ')) {
            *to++ = *text++;
            continue;
        }
        char *end;
        unsigned long long per_second = strtoull(text, &end, 10);
        to += sprintf(to, "%llu", per_second * (unsigned long long)kmsg_now() / 1000000);
        text = end;
    }
    return blob_new(out, (size_t)(to - out));
}

void file_read(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
               struct fuse_file_info *info)
{
    (void)inode;
    struct file *file = file_of(info);
    struct node *node = file->node;
    if (!node->present) {
        fuse_reply_err(request, ENODEV);
        return;
    }
    switch (node->rule->behaviour) {
    case KMSG:
        read_log(request, file, size, offset, info->flags);
        return;
    case ERROR:
        fuse_reply_err(request, (int)node->low);
        return;
    case HANG:
        wait_for(request, file, offset, size);
        return;
    default:
        break;
    }
    if (offset == 0 || !file->content || node->rule->behaviour == CONFIG) {
        blob_drop(file->content);
        file->content = node->rule->behaviour == RISING ? risen(node->value->bytes)
                                                        : blob_hold(node->value);
    }
    size_t end = file->content->size;
    if (node->rule->behaviour == CONFIG && fuse_req_ctx(request)->uid != 0 && end > CONFIG_BYTES)
        end = CONFIG_BYTES;
    if ((size_t)offset >= end)
        fuse_reply_buf(request, NULL, 0);
    else
        fuse_reply_buf(request, file->content->bytes + offset,
                       size < end - (size_t)offset ? size : end - (size_t)offset);
}

/* How much was taken, or a negative errno. */
static ssize_t store(struct file *file, const char *text, size_t size, off_t offset, int flags)
{
    struct node *node = file->node;
    bool begins = offset == 0 || ((flags & O_APPEND) && !file->wrote);
    file->wrote = true;
    if (!node->rule->store)
        return -EIO;
    if (size > STORE_BYTES)
        size = STORE_BYTES;
    /* kernel/sysctl.c: proc_first_pos_non_zero_ignore() */
    if (node->rule->behaviour == SYSCTL && !begins)
        return (ssize_t)size;
    char line[STORE_BYTES + 1];
    memcpy(line, text, size);
    line[size] = '\0';
    int error = node->rule->store(node, line);
    return error ? error : (ssize_t)size;
}

/* drivers/pci/pci-sysfs.c: pci_write_config(). Beyond the header a device keeps what it is given. */
static ssize_t store_config(struct node *node, const char *text, size_t size, off_t offset)
{
    size_t whole = node->value->size;
    if ((size_t)offset >= whole)
        return 0;
    if (size > whole - (size_t)offset)
        size = whole - (size_t)offset;
    if (offset >= CONFIG_BYTES) {
        struct blob *changed = blob_new(node->value->bytes, whole);
        memcpy(changed->bytes + offset, text, size);
        set_value(node, changed);
    }
    return (ssize_t)size;
}

void file_write(fuse_req_t request, fuse_ino_t inode, const char *text, size_t size,
                off_t offset, struct fuse_file_info *info)
{
    (void)inode;
    struct file *file = file_of(info);
    ssize_t taken;
    if (!file->node->present)
        taken = -ENODEV;
    else if (file->node->rule->behaviour == KMSG)
        taken = kmsg_write(text, size);
    else if (file->node->rule->behaviour == INJECT)
        taken = kmsg_inject(text, size);
    else if (file->node->rule->behaviour == CONFIG)
        taken = store_config(file->node, text, size, offset);
    else
        taken = store(file, text, size, offset, info->flags);
    if (taken < 0)
        fuse_reply_err(request, (int)-taken);
    else
        fuse_reply_write(request, (size_t)taken);
    if (file->node->rule->behaviour == KMSG || file->node->rule->behaviour == INJECT)
        log_grew();
}

void file_poll(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info,
               struct fuse_pollhandle *poll)
{
    (void)inode;
    struct file *file = file_of(info);
    bool is_log = file->node->rule->behaviour == KMSG;
    if (is_log && poll) {
        if (file->poll)
            fuse_pollhandle_destroy(file->poll);
        file->poll = poll;
    } else if (poll) {
        fuse_pollhandle_destroy(poll);
    }
    fuse_reply_poll(request, is_log ? kmsg_poll(&file->reader)
                                    : POLLIN | POLLRDNORM | POLLOUT | POLLWRNORM);
}

/* The kernel asks for SEEK_DATA and SEEK_HOLE only. In the log, SEEK_DATA leads to the first
 * record since the log was cleared, and a container may not clear it. */
void file_lseek(fuse_req_t request, fuse_ino_t inode, off_t offset, int whence,
                struct fuse_file_info *info)
{
    (void)inode, (void)offset;
    struct file *file = file_of(info);
    if (file->node->rule->behaviour == KMSG && whence == SEEK_DATA)
        fuse_reply_lseek(request, 0);
    else
        fuse_reply_err(request, EINVAL);
}

void files_close(void)
{
    while (waiters)
        interrupted(waiters->request, NULL);
    while (opened)
        forget(opened);
}
