/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_host: see shm_host.h.
 */
#include "tests/harness/shm_host.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/pause.h"

enum { SPINS = 20000 };

/* Created by the parent and inherited by every rank. */
struct host {
    int ranks, segment;
    uint8_t token[16];
    int doorbells[SHM_MAX_SEATS];
};

static void pin(int rank, int ranks)
{
    cpu_set_t allowed, one;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0 || CPU_COUNT(&allowed) < ranks)
        return;
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || seen++ != rank)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

/* Waits until all ranks have attached, and the parent, which made the segment. The limit is that of
 * fork_all(). */
static void wait_for_all(struct shm *shm)
{
    while (shm_count_attached(shm) <= shm->seats)
        usleep(1000);
}

static int rank_main(const struct host *host, int rank, shm_host_f *program, void *ctx)
{
    struct err err = {0};
    struct shm *shm = NULL;
    pin(rank, host->ranks);
    if (shm_attach(fcntl(host->segment, F_DUPFD_CLOEXEC, 3), rank, host->ranks, host->token, &shm,
                   &err) < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, err_text(&err));
        return 101;
    }
    for (int i = 0; i < host->ranks; i++)
        shm_set_doorbell(shm, i, host->doorbells[i]);
    wait_for_all(shm);
    shm_find_spin(shm);
    int local_size = host->ranks;
    int host_of[SHM_MAX_SEATS] = {0}, local_of[SHM_MAX_SEATS];
    for (int i = 0; i < host->ranks; i++)
        local_of[i] = i;
    struct mesh mesh = {
        .rank = rank,
        .size = host->ranks,
        .local_rank = rank,
        .local_size = host->ranks,
        .host = 0,
        .hosts = 1,
        .host_of = host_of,
        .local_of = local_of,
        .local_size_of = &local_size,
        .lanes = host->ranks,
        .shm = shm,
    };
    int rc = program(&mesh, ctx);
    shm_destroy(shm);
    return rc;
}

static int wait_all(const pid_t *pids, int ranks)
{
    int first = 0;
    for (int i = 0; i < ranks; i++) {
        int status = 0;
        while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR)
            ;
        int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (first == 0)
            first = code;
    }
    return first;
}

static int fork_all(const struct host *host, shm_host_f *program, void *ctx, unsigned seconds)
{
    pid_t pids[SHM_MAX_SEATS];
    int started = 0;
    fflush(NULL);
    for (; started < host->ranks; started++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            alarm(seconds);
            int rc = rank_main(host, started, program, ctx);
            fflush(NULL);
            _exit(rc);
        }
        pids[started] = pid;
    }
    for (int i = 0; started < host->ranks && i < started; i++)
        kill(pids[i], SIGKILL);
    return wait_all(pids, started);
}

int shm_host_run(int ranks, shm_host_f *program, void *ctx, unsigned seconds)
{
    struct host host = {.ranks = ranks};
    struct shm *shm = NULL;
    if (ranks < 1 || ranks > SHM_MAX_SEATS)
        return -EINVAL;
    int rc = shm_create(ranks, host.token, &shm, NULL);
    if (rc < 0)
        return rc;
    host.segment = shm->fd;
    for (int i = 0; i < ranks; i++)
        host.doorbells[i] = shm->doorbells[i];
    rc = fork_all(&host, program, ctx, seconds);
    shm_destroy(shm);
    return rc;
}

int shm_host_drive(struct mesh *mesh, int (*progress)(void *ctx), void *ctx)
{
    struct shm *shm = mesh->shm;
    for (;;) {
        int rc = progress(ctx);
        for (int i = 0; rc == 1 && shm->spin && i < SPINS; i++) {
            cpu_pause();
            rc = progress(ctx);
        }
        if (rc != 1)
            return rc;
        uint64_t rings;
        shm_sleep_begin(shm);
        rc = progress(ctx);
        if (rc == 1) {
            struct pollfd p = {.fd = shm->doorbells[shm->seat], .events = POLLIN};
            (void)poll(&p, 1, 1000);
            if (read(p.fd, &rings, sizeof(rings)) < 0)
                rings = 0;
        }
        shm_sleep_end(shm);
        if (rc != 1)
            return rc;
    }
}
