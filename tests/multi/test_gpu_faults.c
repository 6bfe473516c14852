/* SPDX-License-Identifier: Apache-2.0
 *
 * GPU tensors through hvd.h, on the fake driver: requests that are refused at once, tensors for
 * which there is no way to exchange them, and a GPU or an NCCL that fails, hangs or loses a rank in
 * the middle.
 *
 * timeout: 300
 * takes: 16 s
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/backend/cuda.h"
#include "core/base/clock.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"

#define PATIENCE_S 20 /* until the other ranks hear of a failure */

/* ---- refused ---- */

static int refuse(const struct hvd_request *r, int code, const char *words)
{
    hvd_handle h;
    int rc = hvd_submit(r, 1, &h);
    if (rc != code || !strstr(hvd_error(), words))
        return FAIL("%d (%s), not %d with \"%s\"", rc, hvd_error(), code, words);
    return 0;
}

static int refused(struct gpu_side *g, int rank, int size)
{
    const int64_t n = 100;
    static float host[100];
    struct hvd_request good = gpu_side_request(g, HVD_ALLREDUCE, "r", HVD_FLOAT32, 1, &n), r = good;
    r = good;
    r.device = -2;
    int rc = refuse(&r, -EINVAL, "device -2");
    r.device = 77;
    rc = rc ? rc : refuse(&r, -ENODEV, "there is no GPU 77");
    rc = rc ? rc : gpu_job_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 10, true, 1);
    r.device = g->d->ordinal + 1;
    rc = rc ? rc : refuse(&r, -EINVAL, "uses one only");
    r = good;
    r.input = r.output = host;
    rc = rc ? rc : refuse(&r, -EINVAL, "its input is in the host's memory");
    r = good;
    g->fake->capture(g->stream, 1);
    rc = rc ? rc : refuse(&r, -EBUSY, "captured into a CUDA graph");
    g->fake->capture(g->stream, 0);
    return rc ? rc : gpu_job_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 10, true, 2);
}

/* A tensor is on a GPU on one rank and in host memory on another: all ranks get an error. */
static int mixed(struct gpu_side *g, int rank, int size)
{
    const int64_t n = 10;
    static float host[10];
    hvd_handle h;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "mixed", HVD_FLOAT32, 1, &n);
    if (rank == 0) {
        r.device = -1;
        r.input = r.output = host;
    }
    if (rank_wait(&r, &h) != -EINVAL || !strstr(hvd_error(), "on a GPU"))
        return FAIL("%s", hvd_error());
    return gpu_job_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 10, true, 3);
}

static int refusing(struct gpu_side *g, const char *words)
{
    const int64_t n = 10;
    float one = 1;
    hvd_handle h;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "t", HVD_FLOAT32, 1, &n);
    if (rank_wait(&r, &h) != -ENOTSUP || !strstr(hvd_error(), words))
        return FAIL("%s", hvd_error());
    /* Every later call returns the same error. */
    if (hvd_allreduce("x", &one, &one, 1, HVD_FLOAT32, HVD_SUM) != -ENOTSUP)
        return FAIL("%s", hvd_error());
    return 0;
}

static int no_way(struct gpu_side *g, int rank, int size)
{
    return refusing(g, "HVD_GPU_FALLBACK=1");
}

static int works(struct gpu_side *g, int rank, int size)
{
    return gpu_job_sum(g, rank, size, HVD_FLOAT32, HVD_AVERAGE, 100001, true, 5);
}

static int shared(struct gpu_side *g, int rank, int size)
{
    return refusing(g, "use the same GPU");
}

/* Rank 1's GPU fails in the middle. All ranks get an error that names rank 1. */
static int broken(struct gpu_side *g, int rank, int size)
{
    const int64_t n = 1000000;
    hvd_handle h;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "t", HVD_FLOAT32, 1, &n);
    int rc = gpu_job_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 1000, true, 4);
    if (rc)
        return rc;
    if (rank == 1)
        g->fake->break_device(g->d->ordinal, CUDA_ILLEGAL_ADDRESS);
    rc = rank_wait(&r, &h);
    if (rc >= 0 || !strstr(hvd_error(), "rank 1") || !strstr(hvd_error(), "ILLEGAL_ADDRESS"))
        return FAIL("%d: %s", rc, hvd_error());
    if (rank == 1 && gpu_side_read(g, g->in.at, 4) >= 0)
        return FAIL("the GPU still works");
    return 0;
}

/* ---- NCCL fails: its operation must be off the GPU before the ranks hear of it ---- */

static void go(int signal)
{
    _exit(0);
}

/* ends: rank 1 ends a second later. */
static int fail_second(struct gpu_side *g, int rank, int size, bool ends,
                       const char *const words[3])
{
    const int64_t n = 1000000;
    hvd_handle h;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "t", HVD_FLOAT32, 1, &n);
    int rc = gpu_job_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 1000, true, 4);
    if (rc)
        return rc;
    rc = hvd_barrier("b"); /* behind it every rank has finished the sum, also a slow one */
    if (ends && rank == 1) {
        signal(SIGALRM, go);
        alarm(1);
    }
    rc = rc < 0 ? rc : rank_wait(&r, &h);
    if (rc >= 0)
        return FAIL("it is done");
    for (int i = 0; i < 3 && words[i]; i++)
        if (!strstr(hvd_error(), words[i]))
            return FAIL("\"%s\" is not in: %s", words[i], hvd_error());
    return 0;
}

static int hangs(struct gpu_side *g, int rank, int size)
{
    static const char *const words[3] = {"allreduce 't' has run for", "on the GPUs"};
    if (rank == 1)
        setenv("FAKE_NCCL_HANG", "ncclAllReduce:2:async", 1);
    return fail_second(g, rank, size, false, words);
}

static void *move_on(void *arg)
{
    const struct gpu_side *g = arg;
    sleep(17); /* the failure comes after 6 to 10 s, and then has 15 s to leave the GPU */
    g->fake->stall(false);
    return NULL;
}

/* The program's own work on rank 1's GPU does not end: that is not NCCL's fault. */
static int never_filled(struct gpu_side *g, int rank, int size)
{
    static const char *const words[3] = {"allreduce 't' has run for",
                                         "missing rank 1 (rank 1 waits in the GPU work that fills"};
    const int64_t n = 1000;
    pthread_t thread;
    hvd_handle h;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "t", HVD_FLOAT32, 1, &n);
    int rc = gpu_job_sum(g, rank, size, HVD_FLOAT32, HVD_SUM, 1000, true, 4);
    if (rc == 0 && rank == 1) {
        g->fake->stall(true);
        if (gpu_side_send(g, 0, 4000) < 0 || pthread_create(&thread, NULL, move_on, g) != 0)
            return FAIL("%s", g->err.msg);
    }
    if (rc == 0 && rank_wait(&r, &h) >= 0)
        rc = FAIL("it is done");
    for (int i = 0; i < 3 && words[i] && rc == 0; i++)
        if (!strstr(hvd_error(), words[i]))
            rc = FAIL("\"%s\" is not in: %s", words[i], hvd_error());
    if (rank == 1)
        pthread_join(thread, NULL);
    return rc;
}

/* Rank 1 cannot create its communicator, while the others wait in theirs. */
static int fails_first(struct gpu_side *g, int rank, int size)
{
    const int64_t n = 1000;
    hvd_handle h;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "t", HVD_FLOAT32, 1, &n);
    uint64_t begun = clock_ns();
    if (rank == 1)
        setenv("FAKE_NCCL_FAIL", "ncclCommInitRankConfig:1:sync:2", 1);
    int rc = rank_wait(&r, &h);
    if (rc >= 0 || !strstr(hvd_error(), "rank 1"))
        return FAIL("%d: %s", rc, hvd_error());
    if (clock_ns() - begun > PATIENCE_S * CLOCK_S)
        return FAIL("that took too long");
    return 0;
}

static int fails_later(struct gpu_side *g, int rank, int size)
{
    static const char *const words[3] = {"rank 1", "NCCL 2.27", "ncclAllReduce"};
    if (rank == 1)
        setenv("FAKE_NCCL_FAIL", "ncclAllReduce:2:async:6", 1);
    return fail_second(g, rank, size, false, words);
}

/* Rank 1 exits without a farewell while NCCL runs. */
static int dies(struct gpu_side *g, int rank, int size)
{
    static const char *const words[3] = {"rank 1"};
    if (rank == 1)
        setenv("FAKE_NCCL_HANG", "ncclAllReduce:2:async", 1);
    return fail_second(g, rank, size, true, words);
}

/* ---- jobs ---- */

static void test_refused(void **state)
{
    gpu_job_run(1, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, -1, refused});
    gpu_job_run(2, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, -1, refused});
    gpu_job_run(2, gpu_job_nccl("2.27", NULL), (struct gpu_job){"nccl", NULL, 0, -1, refused});
    gpu_job_run(2, gpu_job_nccl("2.27", NULL), (struct gpu_job){"nccl", NULL, 0, -1, mixed});
    gpu_job_run(2, gpu_job_fallback, (struct gpu_job){"staged", NULL, 0, -1, mixed});
}

static void test_no_way(void **state)
{
    static const char *const none[] = {"HVD_NCCL_LIB=/none", NULL};
    gpu_job_run(2, none, (struct gpu_job){NULL, NULL, 0, -1, no_way});
    gpu_job_run(2, gpu_job_nccl("2.27", NULL), (struct gpu_job){NULL, NULL, 0, 0, shared});
    gpu_job_run(2, gpu_job_nccl("2.27", "HVD_GPU_FALLBACK=1"),
                (struct gpu_job){"staged", NULL, 0, 0, works});
}

static void test_broken(void **state)
{
    gpu_job_run(2, gpu_job_fallback, (struct gpu_job){NULL, NULL, 0, -1, broken});
    gpu_job_run(3, gpu_job_fallback, (struct gpu_job){NULL, NULL, 100, -1, broken});
    gpu_job_run(3, gpu_job_nccl("2.27", NULL), (struct gpu_job){NULL, NULL, 0, -1, broken});
    gpu_job_run_on("aabb", gpu_job_nccl("2.27", NULL), (struct gpu_job){NULL, NULL, 0, -1, broken});
}

static void test_nccl_fails(void **state)
{
    const char *const *env = gpu_job_nccl("2.27", NULL);
    /* The operation before the one that hangs has 6 s, too. A rank has a quarter of the check time,
     * at most 4 s, to answer that it still runs. */
    const char *const stall[] = {env[0], "HVD_STALL_CHECK_TIME_SECONDS=16",
                                 "HVD_STALL_SHUTDOWN_TIME_SECONDS=6", NULL};
    gpu_job_run(2, stall, (struct gpu_job){NULL, NULL, 0, -1, hangs});
    gpu_job_run(2, stall, (struct gpu_job){NULL, NULL, 0, -1, never_filled});
    gpu_job_run(3, env, (struct gpu_job){NULL, NULL, 0, -1, fails_later});
    gpu_job_run(3, env, (struct gpu_job){NULL, NULL, 0, -1, fails_first});
    gpu_job_run(3, env, (struct gpu_job){NULL, NULL, 0, -1, dies});
    gpu_job_run(2, gpu_job_nccl("2.14", NULL), (struct gpu_job){NULL, NULL, 0, -1, dies});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_way),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_nccl_fails),
    };
    return cmocka_run_group_tests_name("multi/test_gpu_faults", tests, NULL, NULL);
}
