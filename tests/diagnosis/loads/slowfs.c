/* A file system of one file, "data" of 1 GiB, each read of which takes a while.
 *
 *   slowfs MICROSECONDS -f PLACE
 */
#define FUSE_USE_VERSION 31
#include <errno.h>
#include <fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static useconds_t latency;

static int slow_getattr(const char *path, struct stat *out, struct fuse_file_info *file)
{
    (void)file;
    *out = (struct stat){.st_mode = S_IFDIR | 0755, .st_nlink = 2};
    if (strcmp(path, "/") != 0)
        *out = (struct stat){.st_mode = S_IFREG | 0444, .st_nlink = 1, .st_size = 1 << 30};
    return strcmp(path, "/") == 0 || strcmp(path, "/data") == 0 ? 0 : -ENOENT;
}

static int slow_read(const char *path, char *out, size_t size, off_t offset,
                     struct fuse_file_info *file)
{
    (void)path, (void)offset, (void)file;
    usleep(latency);
    memset(out, 0, size);
    return (int)size;
}

static const struct fuse_operations operations = {.getattr = slow_getattr, .read = slow_read};

int main(int count, char **words)
{
    latency = (useconds_t)atoi(words[1]);
    words[1] = words[0];
    return fuse_main(count - 1, words + 1, &operations, NULL);
}
