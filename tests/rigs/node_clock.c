/* The clock of a node, which no program may set: adjtimex(2) and its like keep what is set in a
 * file, which nodevet's probe reads. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <time.h>

#define STORED "/run/nodevet-sim/adjtimex"

int adjtimex(struct timex *clock)
{
    int state = 5, status = STA_UNSYNC;
    long most = 16000000, estimated = 16000000;
    FILE *file = fopen(STORED, "r");
    if (file) {
        if (fscanf(file, "%d %i %ld %ld", &state, &status, &most, &estimated) != 4)
            status = STA_UNSYNC;
        fclose(file);
    }
    if (clock->modes & ADJ_STATUS)
        status = clock->status;
    if (clock->modes & ADJ_MAXERROR)
        most = clock->maxerror;
    if (clock->modes & ADJ_ESTERROR)
        estimated = clock->esterror;
    state = status & STA_UNSYNC ? TIME_ERROR : TIME_OK;
    if (clock->modes && (file = fopen(STORED, "w"))) {
        fprintf(file, "%d %d %ld %ld\n", state, status, most, estimated);
        fclose(file);
    }
    clock->status = status;
    clock->maxerror = most;
    clock->esterror = estimated;
    clock->tick = 10000;
    return state;
}

int adjtime(const struct timeval *by, struct timeval *left)
{
    if (left)
        left->tv_sec = left->tv_usec = 0;
    return (void)by, 0;
}

int ntp_adjtime(struct timex *clock) { return adjtimex(clock); }
int clock_adjtime(clockid_t id, struct timex *clock) { return (void)id, adjtimex(clock); }
int clock_settime(clockid_t id, const struct timespec *time) { return (void)id, (void)time, 0; }
int settimeofday(const struct timeval *time, const struct timezone *zone) { return (void)time, (void)zone, 0; }
