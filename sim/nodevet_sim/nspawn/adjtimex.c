/* adjtimex(2) as /run/nodevet-sim/adjtimex has it, for programs that preload this: what it
 * returns, and status, maxerror and esterror of struct timex. Nothing can be set. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/timex.h>

int adjtimex(struct timex *out)
{
    int state, status;
    long most, estimated;
    if (out->modes) {
        errno = EPERM;
        return -1;
    }
    FILE *file = fopen("/run/nodevet-sim/adjtimex", "re");
    int found = file ? fscanf(file, "%d %i %ld %ld", &state, &status, &most, &estimated) : 0;
    if (file)
        fclose(file);
    if (found != 4) {
        errno = EPERM; /* as a container without CAP_SYS_TIME */
        return -1;
    }
    memset(out, 0, sizeof *out);
    out->status = status;
    out->maxerror = most;
    out->esterror = estimated;
    return state;
}
