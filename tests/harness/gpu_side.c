/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_side: see gpu_side.h.
 */
#include "tests/harness/gpu_side.h"

#include <errno.h>
#include <sched.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/backend/nccl_api.h"
#include "core/base/clock.h"
#include "tests/fake/cuda/use.h"

#define READ_MS 20000

bool gpu_side_is_real(void)
{
    return getenv("HVD_TEST_REAL_GPU") != NULL;
}

/* Returns whether ask() succeeds. Calls it in a child process, so that libraries are loaded only
 * there. */
static bool is_had(int (*ask)(struct err *err), struct err *err)
{
    int to[2], status = -1;
    *err = (struct err){0};
    if (pipe(to) < 0)
        return false;
    pid_t pid = fork();
    if (pid == 0) {
        int rc = ask(err);
        if (write(to[1], err, sizeof(*err)) < 0)
            rc = 1;
        _exit(rc != 0);
    }
    close(to[1]);
    if (read(to[0], err, sizeof(*err)) < 0)
        err->code = -errno;
    close(to[0]);
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static int ask_gpu(struct err *err)
{
    struct cuda_device *d = NULL;
    int rc = cuda_device_open(0, &d, err);
    cuda_device_close(d);
    return rc;
}

bool gpu_side_has_gpu(struct err *err)
{
    return is_had(ask_gpu, err);
}

static int ask_nccl(struct err *err)
{
    const struct nccl_api *api;
    return nccl_api_load(&api, err);
}

bool gpu_side_has_nccl(struct err *err)
{
    return is_had(ask_nccl, err);
}

static int ask_nccl_shares(struct err *err)
{
    const struct nccl_api *api;
    int rc = nccl_api_load(&api, err);
    return rc < 0 || api->version >= 23000 ? rc : -ENOTSUP;
}

bool gpu_side_nccl_shares(void)
{
    struct err err;
    return is_had(ask_nccl_shares, &err);
}

/* The ranks of a pretended host (HVD_LOCALITY) share one processor of this machine. Otherwise each
 * such host would count all processors as its own, and its ranks would spin in every wait, where
 * they take them from the ranks of the other hosts. Jobs of one host have ranks that spin. */
static void stay_on_one_cpu(const char *host)
{
    cpu_set_t all, one;
    int before = (unsigned char)*host;
    if (sched_getaffinity(0, sizeof(all), &all) < 0)
        return;
    before %= CPU_COUNT(&all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all) || before-- > 0)
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        (void)sched_setaffinity(0, sizeof(one), &one);
        return;
    }
}

static void use_driver(struct gpu_side *g, const char *script)
{
    char path[PATH_MAX];
    if (gpu_side_is_real()) {
        build_path("hvd_kernels.fatbin", path);
        setenv("HVD_KERNELS", path, 0);
        return;
    }
    const char *host = getenv("HVD_LOCALITY");
    if (host)
        stay_on_one_cpu(host);
    setenv("FAKE_CUDA", script ? script : "count=8", 1);
    g->fake = fake_cuda_use("cuda");
}

int gpu_side_open(struct gpu_side *g, int ordinal, size_t room, const char *script)
{
    struct cuda_visit visit = {0};
    *g = (struct gpu_side){.room = room, .locked.host = true};
    use_driver(g, script);
    int rc = cuda_device_open(ordinal, &g->d, &g->err);
    if (rc == 0)
        rc = cuda_enter(g->d, &visit, &g->err);
    if (rc == 0)
        rc = cuda_stream_create(g->d, &g->stream, &g->err);
    if (rc == 0)
        rc = cuda_event_get(g->d, &g->event, &g->err);
    if (rc == 0)
        rc = cuda_memory_reserve(g->d, &g->in, room, &g->err);
    if (rc == 0)
        rc = cuda_memory_reserve(g->d, &g->out, room, &g->err);
    if (rc == 0)
        rc = cuda_memory_reserve(g->d, &g->locked, 2 * room, &g->err);
    g->host = g->locked.at;
    cuda_leave(&visit);
    return rc;
}

bool gpu_side_close(struct gpu_side *g)
{
    struct cuda_visit visit = {0};
    bool lost = !g->d || g->d->lost.code;
    if (!lost && cuda_enter(g->d, &visit, &g->err) == 0) {
        cuda_memory_free(g->d, &g->in);
        cuda_memory_free(g->d, &g->out);
        cuda_memory_free(g->d, &g->locked);
        cuda_event_put(g->d, g->event);
        cuda_stream_destroy(g->d, g->stream);
    }
    cuda_leave(&visit);
    cuda_device_close(g->d);
    return lost || !g->fake || g->fake->live() == 0;
}

struct hvd_request gpu_side_request(const struct gpu_side *g, enum hvd_kind kind, const char *name,
                                    enum hvd_dtype dtype, int ndim, const int64_t *shape)
{
    return (struct hvd_request){.kind = kind,
                                .name = name,
                                .dtype = dtype,
                                .ndim = ndim,
                                .shape = shape,
                                .op = HVD_SUM,
                                .input = g->in.at,
                                .output = g->in.at,
                                .device = g->d->ordinal,
                                .stream = g->stream,
                                .set = g->set};
}

int gpu_side_send(struct gpu_side *g, size_t at, size_t bytes)
{
    struct cuda_visit visit = {0};
    int rc = cuda_enter(g->d, &visit, &g->err);
    if (rc == 0)
        rc = cuda_copy(g->d, CUDA_COPY_IN, (uint8_t *)g->in.at + at, g->host + at, bytes, g->stream,
                       &g->err);
    cuda_leave(&visit);
    return rc;
}

int gpu_side_read(struct gpu_side *g, const void *from, size_t bytes)
{
    struct cuda_visit visit = {0};
    const struct timespec nap = {.tv_nsec = 20000};
    uint64_t deadline = deadline_in_ms(READ_MS);
    int rc = cuda_enter(g->d, &visit, &g->err);
    if (rc == 0)
        rc = cuda_copy(g->d, CUDA_COPY_OUT, g->host, from, bytes, g->stream, &g->err);
    if (rc == 0)
        rc = cuda_event_record(g->d, g->event, g->stream, &g->err);
    while (rc == 0 && (rc = cuda_event_done(g->d, g->event, &g->err)) == 1) {
        rc = deadline_passed(deadline) ? err_set(&g->err, ETIMEDOUT, "a copy did not end") : 0;
        nanosleep(&nap, NULL);
    }
    cuda_leave(&visit);
    return rc;
}
