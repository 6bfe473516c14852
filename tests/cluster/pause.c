// SPDX-License-Identifier: Apache-2.0
//
// The only program of the test cluster's own image (image.py). As the first process of a sandbox,
// and of pods that just have to run, it waits until it is told to end. "pause SECONDS CODE" ends by
// itself.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_end(int sig)
{
    (void)sig;
    _exit(0);
}

static void on_child(int sig)
{
    (void)sig;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int main(int argc, char **argv)
{
    signal(SIGTERM, on_end); // without a handler the first process of a namespace ignores it
    signal(SIGINT, on_end);
    signal(SIGCHLD, on_child);
    if (argc > 2) {
        sleep((unsigned)atoi(argv[1]));
        return atoi(argv[2]);
    }
    while (1)
        pause();
}
