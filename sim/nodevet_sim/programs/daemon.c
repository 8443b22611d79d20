/* See daemon.h. */
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static int ready_end = -1;
static char pid_path[512], pid_directory[256];

static void end_signals(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGINT);
}

void daemon_start(const char *failure)
{
    int ends[2];
    sigset_t signals;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        perror("pipe");
        exit(1);
    }
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        exit(1);
    }
    if (child > 0) {
        char byte;
        close(ends[1]);
        if (read(ends[0], &byte, 1) == 1)
            _exit(0);
        fprintf(stderr, "%s\n", failure);
        _exit(1);
    }
    close(ends[0]);
    ready_end = ends[1];
    end_signals(&signals);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    setsid();
    umask(022);
    if (chdir("/") != 0)
        perror("chdir /");
}

void daemon_ready(void)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int standard = 0; standard < 3 && nothing >= 0; standard++)
        dup2(nothing, standard);
    if (write(ready_end, "", 1) != 1)
        exit(1);
    close(ready_end);
}

bool daemon_write_pid(const char *directory, const char *name)
{
    if (mkdir(directory, 0755) == 0)
        snprintf(pid_directory, sizeof pid_directory, "%s", directory);
    else if (errno != EEXIST)
        return false;
    snprintf(pid_path, sizeof pid_path, "%s/%s.pid", directory, name);
    int file = open(pid_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0 || flock(file, LOCK_EX | LOCK_NB) != 0 || ftruncate(file, 0) != 0) {
        pid_path[0] = pid_directory[0] = '\0'; /* it is another's */
        return false;
    }
    return dprintf(file, "%d\n", (int)getpid()) > 0;
}

void daemon_remove_pid(void)
{
    if (pid_path[0])
        unlink(pid_path);
    if (pid_directory[0])
        rmdir(pid_directory);
}

void daemon_wait(void)
{
    int received;
    sigset_t signals;
    end_signals(&signals);
    while (sigwait(&signals, &received) != 0)
        ;
}
