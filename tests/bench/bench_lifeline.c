/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_lifeline: time from SIGKILL until a process's lifeline reports its death, and in the same
 * kills its pidfd and the end of its socket. Prints a JSON line for each way.
 *
 *     bench_lifeline [KILLS [MIB resident [HOGS beside]]]
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/lifeline.h"
#include "tests/harness/times.h"

enum { LIFELINE, PIDFD, SOCKET, WAYS, MAX_KILLS = 10000, MAX_HOGS = 64, WAIT_MS = 60000 };

static const char *const names[WAYS] = {"lifeline", "pidfd", "socket"};
static uint64_t took[WAYS][MAX_KILLS];

static _Noreturn void victim(int sock, pid_t parent, size_t bytes)
{
    char byte = 'h';
    int fd;
    size_t nfds = 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char *much = bytes ? mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0)
                       : NULL;
    if (much == MAP_FAILED || getppid() != parent || fd_recv(sock, &byte, 1, &fd, &nfds) != 1 ||
        nfds != 1 || lifeline_hold(fd, NULL) < 0 || write(sock, &byte, 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

/* Kills pid, and stores in took[] the nanoseconds until each of the three descriptors is readable.
 * Returns 0, or -1 after WAIT_MS. */
static int time_kill(pid_t pid, const int fds[WAYS], int round)
{
    struct pollfd p[WAYS];
    int left = WAYS;
    for (int i = 0; i < WAYS; i++)
        p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    uint64_t start = clock_ns();
    kill(pid, SIGKILL);
    while (left > 0 && poll(p, WAYS, WAIT_MS) > 0) {
        uint64_t now = clock_ns();
        for (int i = 0; i < WAYS; i++) {
            if (p[i].fd < 0 || !p[i].revents)
                continue;
            took[i][round] = now - start;
            p[i].fd = -1;
            left--;
        }
    }
    return left ? -1 : 0;
}

static int kill_one(size_t bytes, int round)
{
    struct lifeline *l;
    int pair[2], fd, rc = -1;
    char byte;
    pid_t parent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    pid_t pid = fork();
    if (pid < 0)
        return -1;
    if (pid == 0)
        victim(pair[1], parent, bytes);
    close(pair[1]);
    if (lifeline_create(&l, LIFELINE_BEAT_MS, &fd, NULL) == 0) {
        if (fd_send(pair[0], "l", 1, &fd, 1) == 1 &&
            fd_read_full(pair[0], &byte, 1, deadline_in_ms(WAIT_MS)) == 0) {
            const int fds[] = {lifeline_event_fd(l), (int)syscall(SYS_pidfd_open, pid, 0), pair[0]};
            rc = fds[PIDFD] < 0 ? -1 : time_kill(pid, fds, round);
            close(fds[PIDFD]);
        }
        if (rc == 0 && lifeline_state(l) != LIFELINE_DEAD)
            rc = -1;
        close(fd);
        lifeline_destroy(l);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(pair[0]);
    return rc;
}

static pid_t start_hog(void)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile bool on = getppid() == parent; on;)
            ;
        _exit(0);
    }
    return pid;
}

static void print(int kills, size_t mib, int hogs)
{
    double load[1] = {0};
    getloadavg(load, 1);
    for (int i = 0; i < WAYS; i++) {
        uint64_t *t = took[i];
        times_sort(t, (size_t)kills);
        printf(
            "{\"bench\": \"lifeline\", \"way\": \"%s\", \"mib\": %zu, \"hogs\": %d, \"kills\": %d, "
            "\"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f, \"load\": %.1f}\n",
            names[i], mib, hogs, kills, (double)t[kills / 2] / 1e6,
            (double)t[kills * 99 / 100] / 1e6, (double)t[kills - 1] / 1e6, load[0]);
    }
}

int main(int argc, char **argv)
{
    int kills = argc > 1 ? atoi(argv[1]) : 200;
    size_t mib = argc > 2 ? strtoul(argv[2], NULL, 10) : 1024;
    int hogs = argc > 3 ? atoi(argv[3]) : 0, rc = 0;
    pid_t hog[MAX_HOGS];
    if (kills < 1 || kills > MAX_KILLS || hogs < 0 || hogs > MAX_HOGS)
        return 2;
    for (int i = 0; i < hogs; i++)
        hog[i] = start_hog();
    lifeline_raise_priority();
    for (int round = 0; round < kills && rc == 0; round++)
        rc = kill_one(mib << 20, round);
    for (int i = 0; i < hogs; i++) {
        if (hog[i] <= 0)
            continue;
        kill(hog[i], SIGKILL);
        waitpid(hog[i], NULL, 0);
    }
    if (rc < 0) {
        fprintf(stderr, "bench_lifeline: a kill failed: its process did not start, or its death "
                        "was not reported\n");
        return 1;
    }
    print(kills, mib, hogs);
    return 0;
}
