/* Clients hold a shared lock on <state>.clients, so that one that is killed is gone too.
 * Who finds nobody else there is the first of a new session, and writes its number into
 * that file, which everybody may do: also an unprivileged process can be the first. What a
 * new session has forgotten is said in forget.c.
 *
 * The lock is not taken from a client by another one's fork or exec: a child has the
 * lock for as long as it lives, as it would have its parent's files of the driver.
 */
#include "clients.h"
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int entered; /* nvmlInit calls not yet shut down */
static int file = -1;

/* Negative where there is none and it cannot be made: then no client that may set something
 * was ever there. Without O_CREAT first, which in a directory such as /tmp the kernel
 * refuses for another user's file. */
static int open_clients(void)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.clients", state_path());
    int found = open(path, O_RDWR | O_CLOEXEC);
    if (found < 0 && errno == EACCES)
        return open(path, O_RDONLY | O_CLOEXEC);
    if (found < 0 && errno == ENOENT) {
        found = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (found >= 0)
            fchmod(found, 0666); /* whatever the umask is */
    }
    return found;
}

static bool lock_clients(int how)
{
    int result;
    while ((result = flock(file, how)) != 0 && errno == EINTR)
        ;
    return result == 0;
}

static unsigned long long read_session(void)
{
    char text[32] = "";
    return pread(file, text, sizeof text - 1, 0) > 0 ? strtoull(text, NULL, 10) : 0;
}

/* While one takes the lock down from exclusive to shared another may find it free, and be
 * the first once more: nobody has answered anything in between. */
static unsigned long long join(void)
{
    unsigned long long ours = 0;
    if (lock_clients(LOCK_EX | LOCK_NB)) {
        char text[32];
        ours = read_session() + 1;
        int length = snprintf(text, sizeof text, "%020llu\n", ours);
        if (pwrite(file, text, (size_t)length, 0) == length)
            ours = 0; /* read again below: it may be the next by then */
    }
    lock_clients(LOCK_SH);
    return ours ? ours : read_session();
}

void clients_enter(void)
{
    pthread_mutex_lock(&lock);
    if (entered++ == 0) {
        file = open_clients();
        state_set_session(file >= 0 ? join() : 0);
    }
    pthread_mutex_unlock(&lock);
}

bool clients_leave(void)
{
    pthread_mutex_lock(&lock);
    bool was_client = entered > 0;
    if (was_client && --entered == 0) {
        state_close();
        if (file >= 0)
            close(file);
        file = -1;
    }
    pthread_mutex_unlock(&lock);
    return was_client;
}

bool is_client(void)
{
    return entered > 0;
}
