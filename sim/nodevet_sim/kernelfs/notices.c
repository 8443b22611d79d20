/* See notices.h. */
#include "notices.h"

#include "tree.h"

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct notice {
    const struct node *node;
    bool name;
    struct notice *next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static struct notice *first, **last = &first;
static struct fuse_session *session;
static pthread_t thread;
static bool busy, ended;

static void add(const struct node *node, bool name)
{
    if (!session)
        return;
    struct notice *notice = allocate(sizeof *notice);
    *notice = (struct notice){node, name, NULL};
    pthread_mutex_lock(&mutex);
    *last = notice;
    last = &notice->next;
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&mutex);
}

void notice_name(const struct node *node)
{
    add(node, true);
}

void notice_content(const struct node *node)
{
    add(node, false);
}

/* -ENOENT is what the kernel does not know. */
static void tell(const struct notice *notice)
{
    const struct node *node = notice->node, *folder = node->parent;
    if (notice->name) {
        fuse_ino_t inode = folder == &root ? FUSE_ROOT_ID : (uintptr_t)folder;
        fuse_lowlevel_notify_inval_inode(session, inode, 0, 0);
        fuse_lowlevel_notify_inval_entry(session, inode, node->name, strlen(node->name));
    }
    fuse_lowlevel_notify_inval_inode(session, (uintptr_t)node, 0, 0);
}

static void *run(void *unused)
{
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (!first && !ended)
            pthread_cond_wait(&more, &mutex);
        struct notice *notice = first;
        if (!notice)
            break;
        first = notice->next;
        if (!first)
            last = &first;
        busy = true;
        pthread_mutex_unlock(&mutex);
        tell(notice);
        free(notice);
        pthread_mutex_lock(&mutex);
        busy = false;
    }
    pthread_mutex_unlock(&mutex);
    return unused;
}

bool notices_start(struct fuse_session *of)
{
    session = of;
    return pthread_create(&thread, NULL, run, NULL) == 0;
}

bool notices_wait(void)
{
    pthread_mutex_lock(&mutex);
    bool waits = first || busy;
    pthread_mutex_unlock(&mutex);
    return waits;
}

void notices_end(void)
{
    pthread_mutex_lock(&mutex);
    ended = true;
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, NULL);
    session = NULL;
}
