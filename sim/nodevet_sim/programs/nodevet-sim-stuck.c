/* Processes that do not go on, under a name of choice, until this one is ended:
 *
 *   nodevet-sim-stuck blocked COUNT NAME    in state D: each waits in vfork(2) for its child
 *   nodevet-sim-stuck zombies COUNT NAME    ended, and not waited for by this one
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void block(void)
{
    if (vfork() == 0)
        for (;;)
            pause();
}

int main(int count, char **words)
{
    int blocked = count == 4 && strcmp(words[1], "blocked") == 0;
    if (!blocked && (count != 4 || strcmp(words[1], "zombies") != 0)) {
        fputs("nodevet-sim-stuck blocked|zombies COUNT NAME\n", stderr);
        return 2;
    }
    prctl(PR_SET_NAME, words[3]);
    for (long left = strtol(words[2], NULL, 10); left > 0; left--) {
        pid_t child = fork();
        if (child < 0) {
            perror("nodevet-sim-stuck: fork");
            return 1;
        }
        if (child == 0) {
            if (blocked)
                block();
            _exit(0);
        }
    }
    for (;;)
        pause();
}
