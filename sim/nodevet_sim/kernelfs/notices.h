/* Tells the kernel, which caches names, attributes and contents, what has changed. A thread of its
 * own does: in there the kernel may wait for another request, which `serve` has to answer. */
#ifndef KERNELFS_NOTICES_H
#define KERNELFS_NOTICES_H

#include <stdbool.h>

struct fuse_session;
struct node;

void notice_name(const struct node *node);    /* it is there now, or gone */
void notice_content(const struct node *node); /* its mode, or where a link points */

/* Nothing before this is told: no name was asked for yet. false: there is no thread. */
bool notices_start(struct fuse_session *session);
bool notices_wait(void); /* some are still to be told */
void notices_end(void);  /* none are */

#endif
