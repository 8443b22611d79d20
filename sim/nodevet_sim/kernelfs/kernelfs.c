/* kernelfs [-b USEC] MANIFEST MOUNTPOINT: serves the /sys, /proc and /dev/kmsg of a simulated
 * kernel, until it gets SIGTERM or is unmounted. SIGHUP: the manifest has changed.
 *
 * -b  the CLOCK_BOOTTIME at which the node booted, in microseconds; otherwise: now
 */
#include "files.h"
#include "kmsg.h"
#include "manifest.h"
#include "notices.h"
#include "rules.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CACHED_S 600.0 /* how long the kernel keeps names and attributes; see notices.h */
#define SYSFS_SIZE 4096

static time_t started;
static bool caches_folders;

static struct node *node_of(fuse_ino_t inode)
{
    return inode == FUSE_ROOT_ID ? &root : (struct node *)inode;
}

static bool is_in(const struct node *node, const char *top)
{
    while (node->parent != &root)
        node = node->parent;
    return strcmp(node->name, top) == 0;
}

static off_t size_of(const struct node *node)
{
    if (S_ISDIR(node->mode))
        return 0;
    if (S_ISREG(node->mode)) {
        if (node->rule->behaviour == KMSG)
            return KMSG_END;
        if (is_in(node, "sys") && node->rule->behaviour != CONFIG)
            return SYSFS_SIZE;
        if (is_in(node, "proc"))
            return 0;
    }
    return node->value ? (off_t)node->value->size : 0;
}

static struct stat stat_of(const struct node *node)
{
    struct stat stat = {.st_ino = node->number, .st_mode = node->mode, .st_blksize = 4096};
    stat.st_nlink = S_ISDIR(node->mode) ? 2 : 1;
    stat.st_size = size_of(node);
    stat.st_atime = stat.st_mtime = stat.st_ctime = started;
    if (node->changed.tv_sec)
        stat.st_mtim = stat.st_ctim = node->changed;
    return stat;
}

/* How long the kernel keeps a node's attributes. A module is there, or gone, as soon as it is
 * loaded or unloaded. */
static double cached(const struct node *node)
{
    return modules_are_in(node) || modules_are_in(node->parent) ? 0 : CACHED_S;
}

static void lookup(fuse_req_t request, fuse_ino_t folder, const char *name)
{
    struct node *node = child_of(node_of(folder), name);
    if (!node_of(folder)->present) {
        fuse_reply_err(request, ENOENT);
        return;
    }
    struct fuse_entry_param entry = {.entry_timeout =
                                         modules_are_in(node_of(folder)) ? 0 : CACHED_S};
    if (node) {
        entry.ino = (uintptr_t)node;
        entry.attr = stat_of(node);
        entry.attr_timeout = cached(node);
    }
    fuse_reply_entry(request, &entry);
}

static void getattr(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info)
{
    (void)info;
    struct stat stat = stat_of(node_of(inode));
    if (node_of(inode)->present)
        fuse_reply_attr(request, &stat, cached(node_of(inode)));
    else
        fuse_reply_err(request, ENOENT);
}

/* Truncating does nothing, and neither does touch(1). */
static void setattr(fuse_req_t request, fuse_ino_t inode, struct stat *attributes, int what,
                    struct fuse_file_info *info)
{
    (void)attributes;
    if (what & (FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID))
        fuse_reply_err(request, EPERM);
    else
        getattr(request, inode, info);
}

static void readlink_of(fuse_req_t request, fuse_ino_t inode)
{
    const struct node *node = node_of(inode);
    if (node->present && node->value)
        fuse_reply_readlink(request, node->value->bytes);
    else
        fuse_reply_err(request, ENOENT);
}

/* The offset of an entry is its inode number, which grows along the children; 1 is "." and
 * 2 is "..". */
static void readdir_of(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
                       struct fuse_file_info *info)
{
    (void)info;
    const struct node *folder = node_of(inode);
    char *entries = allocate(size);
    size_t used = 0;
    struct stat stat = stat_of(folder);
    for (int i = 1; i <= 2; i++)
        if (offset < i) {
            stat.st_ino = i == 1 ? folder->number : folder->parent->number;
            used += fuse_add_direntry(request, entries + used, size - used, i == 1 ? "." : "..",
                                      &stat, i);
        }
    for (const struct node *node = folder->children; node; node = node->next_child) {
        if (!node->present || (off_t)node->number <= offset)
            continue;
        stat = stat_of(node);
        size_t needed = fuse_add_direntry(request, entries + used, size - used, node->name, &stat,
                                          (off_t)node->number);
        if (needed > size - used)
            break;
        used += needed;
    }
    fuse_reply_buf(request, entries, used);
    free(entries);
}

/* ENOSYS: the kernel opens directories by itself from now on, and keeps what they hold. */
static void open_folder(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info)
{
    (void)inode;
    if (caches_folders)
        fuse_reply_err(request, ENOSYS);
    else
        fuse_reply_open(request, info);
}

static void open_file(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info)
{
    file_open(request, node_of(inode), info);
}

/* Nothing is created, renamed or removed: fs/kernfs/dir.c, and the VFS where there is no such
 * operation. */
static void refuse_create(fuse_req_t request, fuse_ino_t folder, const char *name, mode_t mode,
                          struct fuse_file_info *info)
{
    (void)folder, (void)name, (void)mode, (void)info;
    fuse_reply_err(request, EACCES);
}

static void refuse_mknod(fuse_req_t request, fuse_ino_t folder, const char *name, mode_t mode,
                         dev_t device)
{
    (void)folder, (void)name, (void)mode, (void)device;
    fuse_reply_err(request, EPERM);
}

static void refuse_mkdir(fuse_req_t request, fuse_ino_t folder, const char *name, mode_t mode)
{
    (void)folder, (void)name, (void)mode;
    fuse_reply_err(request, EPERM);
}

static void refuse_remove(fuse_req_t request, fuse_ino_t folder, const char *name)
{
    (void)folder, (void)name;
    fuse_reply_err(request, EPERM);
}

static void refuse_symlink(fuse_req_t request, const char *target, fuse_ino_t folder,
                           const char *name)
{
    (void)target, (void)folder, (void)name;
    fuse_reply_err(request, EPERM);
}

static void refuse_link(fuse_req_t request, fuse_ino_t inode, fuse_ino_t folder,
                        const char *name)
{
    (void)inode, (void)folder, (void)name;
    fuse_reply_err(request, EPERM);
}

static void refuse_rename(fuse_req_t request, fuse_ino_t folder, const char *name,
                          fuse_ino_t new_folder, const char *new_name, unsigned int flags)
{
    (void)folder, (void)name, (void)new_folder, (void)new_name, (void)flags;
    fuse_reply_err(request, EPERM);
}

/* Splicing costs pipes and gains nothing for contents this small. */
static void init(void *unused, struct fuse_conn_info *connection)
{
    (void)unused;
    connection->want &= ~(unsigned int)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
                                        FUSE_CAP_SPLICE_MOVE | FUSE_CAP_ASYNC_DIO);
    connection->want |= connection->capable & FUSE_CAP_CACHE_SYMLINKS;
    caches_folders = connection->capable & FUSE_CAP_NO_OPENDIR_SUPPORT;
}

static const struct fuse_lowlevel_ops operations = {
    .init = init, .lookup = lookup, .getattr = getattr, .setattr = setattr,
    .readlink = readlink_of, .opendir = open_folder, .readdir = readdir_of, .open = open_file, .release = file_release,
    .read = file_read, .write = file_write, .poll = file_poll, .lseek = file_lseek,
    .create = refuse_create, .mknod = refuse_mknod, .mkdir = refuse_mkdir,
    .unlink = refuse_remove, .rmdir = refuse_remove, .symlink = refuse_symlink,
    .link = refuse_link, .rename = refuse_rename,
};

/* Until SIGTERM, SIGINT or the end of the mount. */
static void serve(struct fuse_session *session, int signals, const char *manifest)
{
    bool ends = false;
    struct pollfd ready[] = {{.fd = fuse_session_fd(session), .events = POLLIN},
                             {.fd = signals, .events = POLLIN}};
    struct fuse_buf buffer = {.mem = NULL};
    /* A request may be withdrawn between poll and read. */
    fcntl(ready[0].fd, F_SETFL, fcntl(ready[0].fd, F_GETFL) | O_NONBLOCK);
    while (!fuse_session_exited(session) && !(ends && !notices_wait())) {
        struct signalfd_siginfo signal;
        if (poll(ready, 2, ends ? 1 : -1) < 0 && errno != EINTR)
            break;
        if (ready[1].revents && read(signals, &signal, sizeof signal) == sizeof signal) {
            if (signal.ssi_signo == SIGHUP)
                manifest_load(manifest, false);
            else
                ends = true;
        }
        if (ready[0].revents && fuse_session_receive_buf(session, &buffer) > 0)
            fuse_session_process_buf(session, &buffer);
    }
    free(buffer.mem);
}

static int run(const char *manifest, const char *mountpoint, int signals)
{
    char *arguments[] = {
        "kernelfs", "-o", "allow_other,default_permissions,fsname=nodevet-sim,subtype=kernelfs"};
    struct fuse_args args = FUSE_ARGS_INIT(3, arguments);
    struct fuse_session *session = fuse_session_new(&args, &operations, sizeof operations, NULL);
    fuse_opt_free_args(&args);
    if (!session)
        return 1;
    int failed = !notices_start(session) || fuse_session_mount(session, mountpoint);
    if (!failed) {
        serve(session, signals, manifest);
        files_close();
        notices_end();
        fuse_session_unmount(session);
    }
    fuse_session_destroy(session);
    return failed ? 1 : 0;
}

static int usage(void)
{
    fputs("usage: kernelfs [-b USEC] MANIFEST MOUNTPOINT\n", stderr);
    return 2;
}

/* From here on signals wait until `serve` reads them. */
static int take_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int main(int argc, char **argv)
{
    int signals = take_signals();
    if (signals < 0) {
        perror("kernelfs: signalfd");
        return 1;
    }
    started = time(NULL);
    kmsg_start(0);
    int64_t boot = kmsg_now();
    for (int option; (option = getopt(argc, argv, "b:")) != -1;) {
        number usec;
        if (option != 'b' || parse_number(optarg, NULL, &usec) || usec > INT64_MAX)
            return usage();
        boot = (int64_t)usec;
    }
    if (argc - optind != 2)
        return usage();
    kmsg_start(boot);
    if (!manifest_load(argv[optind], true))
        return 1;
    return run(argv[optind], argv[optind + 1], signals);
}
