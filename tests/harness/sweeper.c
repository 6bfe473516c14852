/* SPDX-License-Identifier: Apache-2.0
 *
 * sweeper: see sweeper.h.
 */
#include "tests/harness/sweeper.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void remove_namespace(const char *prefix, const char *which)
{
    char path[64], cmd[128];
    snprintf(path, sizeof(path), "/run/netns/%s%s", prefix, which);
    if (access(path, F_OK) < 0)
        return;
    snprintf(cmd, sizeof(cmd), "ip netns del %s%s >/dev/null 2>&1", prefix, which);
    int rc = system(cmd); /* NOLINT(cert-env33-c): fixed text and our own names */
    (void)rc;
}

static void sweep(const char *dir, const char *prefix, int hosts)
{
    char text[128];
    for (int h = 0; h < hosts; h++) {
        snprintf(text, sizeof(text), "%d", h);
        remove_namespace(prefix, text);
    }
    if (hosts > 0)
        remove_namespace(prefix, "s");
    snprintf(text, sizeof(text), "%s/key", dir);
    unlink(text);
    rmdir(dir);
}

static void sweeper_main(int fd, const char *dir, const char *prefix, int hosts)
{
    char byte;
    setpgid(0, 0);
    while (read(fd, &byte, 1) < 0 && errno == EINTR)
        ;
    sweep(dir, prefix, hosts);
    _exit(0);
}

int sweeper_start(struct sweeper *s, const char *dir, const char *prefix, int hosts)
{
    sigset_t all, before;
    int fds[2];
    /* No close-on-exec: the sweeper then also waits for an "ip netns add" that a killed test leaves
     * running. */
    if (pipe(fds) < 0) /* NOLINT(android-cloexec-pipe) */
        return -errno;
    fflush(NULL);
    /* Signals to the test's process group must not end the sweeper, not even before it has its own
     * group. */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    pid_t pid = fork();
    int rc = pid < 0 ? -errno : 0;
    if (pid == 0) {
        close(fds[1]);
        sweeper_main(fds[0], dir, prefix, hosts);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(fds[0]);
    if (rc < 0)
        close(fds[1]);
    else
        *s = (struct sweeper){.pid = pid, .fd = fds[1]};
    return rc;
}

void sweeper_leave(struct sweeper *s)
{
    if (s->pid > 0)
        close(s->fd);
    s->pid = 0;
}

void sweeper_end(struct sweeper *s)
{
    if (s->pid <= 0)
        return;
    /* Writes a byte in addition to closing: children of the test may still hold the pipe. */
    if (write(s->fd, "", 1) < 0)
        perror("sweeper");
    close(s->fd);
    while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    s->pid = 0;
}
