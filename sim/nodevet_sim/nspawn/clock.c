/* A wall clock that is wrong by $NODEVET_SIM_CLOCK seconds, for programs that preload this. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static double offset(void)
{
    const char *text = getenv("NODEVET_SIM_CLOCK");
    return text ? strtod(text, NULL) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        double whole = (double)(long long)offset();
        now->tv_sec += (time_t)whole;
        now->tv_nsec += (long)((offset() - whole) * 1e9);
        if (now->tv_nsec >= 1000000000) {
            now->tv_sec++;
            now->tv_nsec -= 1000000000;
        } else if (now->tv_nsec < 0) {
            now->tv_sec--;
            now->tv_nsec += 1000000000;
        }
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &exact) != 0)
        return -1;
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (out)
        *out = exact.tv_sec;
    return exact.tv_sec;
}
