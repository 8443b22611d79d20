/* Open files: what reading, writing and polling them does, and readers that wait. */
#ifndef KERNELFS_FILES_H
#define KERNELFS_FILES_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "tree.h"

void file_open(fuse_req_t request, struct node *node, struct fuse_file_info *info);
void file_release(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info);
void file_read(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
               struct fuse_file_info *info);
void file_write(fuse_req_t request, fuse_ino_t inode, const char *text, size_t size,
                off_t offset, struct fuse_file_info *info);
void file_poll(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info,
               struct fuse_pollhandle *poll);
void file_lseek(fuse_req_t request, fuse_ino_t inode, off_t offset, int whence,
                struct fuse_file_info *info);

/* At the end: every reader that still waits is told that it was interrupted. */
void files_close(void);

#endif
