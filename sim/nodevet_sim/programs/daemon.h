/* What the daemons of a node have in common: into the background once they are ready, a PID
 * file, and waiting for their end. */
#ifndef NODEVET_SIM_DAEMON_H
#define NODEVET_SIM_DAEMON_H

#include <stdbool.h>

/* Fork. The first process waits here and exits: 0 once the other calls daemon_ready, 1 with
 * `failure` on stderr where it ends before. */
void daemon_start(const char *failure);
void daemon_ready(void);

/* <directory>/<name>.pid, which says who we are. It stays locked, so that a second daemon is
 * refused. False, with errno, where it cannot be made. */
bool daemon_write_pid(const char *directory, const char *name);
void daemon_remove_pid(void);

/* Until SIGTERM or SIGINT. */
void daemon_wait(void);

#endif
