/* SPDX-License-Identifier: Apache-2.0
 *
 * Repairs of operations on a GPU (of the fake driver) at chosen places. An operation that has
 * overwritten its input is repeated from that input, however many ranks are lost on the way and
 * however few remain.
 *
 * timeout: 120
 * takes: 11 s
 */
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "core/base/vitals.h"
#include "tests/fake/cuda/use.h"
#include "tests/harness/elastic.h"
#include "tests/harness/gpu_side.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define CHUNK ((int64_t)1 << 20) /* floats of a chunk of a staged operation: STAGED_CHUNK bytes */
#define COUNT (4 * CHUNK)

#define TRIES 8   /* on a busy machine the doomed rank may come too late to its death */
#define LATE  250 /* exit code: the sum was complete before the rank died */

struct plan {
    int doomed; /* this member dies when `chunks` chunks of its tensor are overwritten */
    int chunks;
    float sum;    /* the result of the others */
    float whole;  /* the result if no rank had died */
    int delay_us; /* of each operation on the GPUs */
};

static int fill(struct gpu_side *g, float value)
{
    float *host = (float *)g->host;
    for (int64_t i = 0; i < COUNT; i++)
        host[i] = value;
    return gpu_side_send(g, 0, (size_t)COUNT * 4);
}

static int check(struct gpu_side *g, const struct plan *plan)
{
    const float *host = (const float *)g->host;
    if (gpu_side_read(g, g->in.at, (size_t)COUNT * 4) < 0)
        return FAIL("%s", g->err.msg);
    const float sum = host[0] == plan->whole ? plan->whole : plan->sum;
    for (int64_t i = 0; i < COUNT; i++)
        if (host[i] != sum)
            return FAIL("element %lld is %g, not %g", (long long)i, (double)host[i], (double)sum);
    return sum == plan->whole ? LATE : 0;
}

/* The fake driver's device memory is host memory, so it can be read while a stream writes it. */
__attribute__((no_sanitize("thread"))) static void die_in_the_middle(const struct gpu_side *g,
                                                                     const struct plan *plan,
                                                                     float value)
{
    const volatile float *at = (const volatile float *)g->in.at + plan->chunks * CHUNK - 1;
    while (*at != value) /* until the tensor is on the GPU */
        usleep(100);
    while (*at == value)
        ;
    /* Until the chunk's event is recorded too, and the next chunk begins. */
    usleep((unsigned)plan->delay_us * 5 / 4);
    raise(SIGKILL);
}

static int reduce(struct gpu_side *g, int number, const struct plan *plan)
{
    hvd_handle h;
    const int64_t n = COUNT;
    const struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "sum", HVD_FLOAT32, 1, &n);
    if (fill(g, (float)(1 << number)) < 0)
        return FAIL("%s", g->err.msg);
    if (hvd_submit(&r, 1, &h) < 0)
        return FAIL("%s", hvd_error());
    if (number == plan->doomed)
        die_in_the_middle(g, plan, (float)(1 << number));
    return hvd_wait(h) < 0 ? FAIL("%s", hvd_error()) : check(g, plan);
}

static int work(int number, void *arg)
{
    const struct plan *plan = arg;
    static struct gpu_side g;
    if (gpu_side_open(&g, number, (size_t)COUNT * 4, NULL) < 0)
        return FAIL("%s", g.err.msg);
    g.fake->delay((unsigned)plan->delay_us);
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    int rc = hvd_enter() < 0 ? FAIL("enter: %s", hvd_error()) : reduce(&g, number, plan);
    hvd_shutdown();
    gpu_side_close(&g);
    return rc;
}

/* Runs the job with n members, the last with an environment of its own, until a rank dies in time.
 */
static void run_job(struct elastic *job, struct plan *plan, int n, const char *const *env,
                    const char *const *last_env)
{
    for (int i = 0; i < TRIES; i++) {
        elastic_init(job);
        for (int m = 0; m < n; m++)
            elastic_add(job, work, plan, m == n - 1 ? last_env : env);
        assert_true(elastic_run(job, elastic_all_over, NULL, 60000));
        if (job->members[0].status != LATE << 8)
            return;
        elastic_fini(job);
    }
    fail_msg("%d times a rank died too late", TRIES);
}

static void survive(struct elastic *job, int member)
{
    if (job->members[member].status != 0)
        fail_msg("member %d ended with status %x", member, job->members[member].status);
}

/* Member 3 dies before the others have copied any result back to their tensors. */
static void test_second_loss(void **state)
{
    static const char *const env[] = {"HVD_BACKEND=staged", NULL};
    static const char *const fails[] = {"HVD_BACKEND=staged", "HVD_TEST_FAIL=ask:2", NULL};
    struct plan plan = {.doomed = 1, .chunks = 2, .sum = 5, .whole = 15, .delay_us = 20000};
    struct elastic job;
    run_job(&job, &plan, 4, env, fails);
    survive(&job, 0);
    survive(&job, 2);
    assert_int_equal(job.members[3].status, SIGKILL);
    elastic_fini(&job);
}

/* A slow GPU: what the lost operation has put on the stream is still there. */
static void test_one_is_left(void **state)
{
    static const char *const env[] = {"HVD_BACKEND=staged", NULL};
    struct plan plan = {.doomed = 1, .chunks = 3, .sum = 1, .whole = 3, .delay_us = 300000};
    struct elastic job;
    run_job(&job, &plan, 2, env, env);
    survive(&job, 0);
    elastic_fini(&job);
}

/* ---- work that hangs on the GPU when a rank is lost ----------------------------------------- */

#define RESULTS 12 /* more than the engine keeps for reuse */
#define SMALL   1000

static hvd_handle submit(struct gpu_side *g, enum hvd_kind kind, const char *name)
{
    const int64_t n = SMALL;
    hvd_handle h = 0;
    struct hvd_request r = gpu_side_request(g, kind, name, HVD_FLOAT32, 1, &n);
    if (kind != HVD_ALLREDUCE)
        r.output = NULL;
    return hvd_submit(&r, 1, &h) < 0 ? FAIL("%s", hvd_error()) : h;
}

/* Earlier results are released while a sum waits for a rank that will not come. */
static int release(struct gpu_side *g, int number)
{
    hvd_handle results[RESULTS], sum;
    for (int i = 0; i < RESULTS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "result%d", i);
        results[i] = submit(g, HVD_ALLGATHER, name);
    }
    for (int i = 0; i < RESULTS; i++)
        if (hvd_wait(results[i]) < 0)
            return FAIL("%s", hvd_error());
    ((float *)g->host)[SMALL - 1] = (float)(1 << number);
    if (gpu_side_send(g, 0, SMALL * 4) < 0)
        return FAIL("%s", g->err.msg);
    sum = submit(g, HVD_ALLREDUCE, "sum");
    usleep(number == 1 ? 600000 : 300000); /* the sum is on the GPUs, then rank 1 dies */
    if (number == 1)
        raise(SIGKILL);
    for (int i = 0; i < RESULTS; i++)
        hvd_release(results[i]);
    if (hvd_wait(sum) < 0 || gpu_side_read(g, g->in.at, SMALL * 4) < 0)
        return FAIL("%s %s", hvd_error(), g->err.msg);
    const float last = ((float *)g->host)[SMALL - 1];
    return last == 1 ? 0 : FAIL("%g, not 1", (double)last);
}

static _Atomic pid_t *stopped; /* in shared memory: the process that is about to stop */

static bool stands_still(pid_t pid)
{
    struct vitals v;
    return pid > 0 && vitals_read(pid, &v) == 0 && v.stopped;
}

/* One rank dies once another one is stopped and cannot take part in the repair. */
static void leave(int number)
{
    usleep(400000); /* until the sum is on the GPUs */
    if (number == 2) {
        atomic_store(stopped, getpid());
        raise(SIGSTOP);
    }
    for (uint64_t end = deadline_in_ms(20000); !deadline_passed(end) && !stands_still(*stopped);)
        usleep(1000);
    raise(SIGKILL);
}

/* The repair fails. The tensor then belongs to this rank again. */
static int give_up(struct gpu_side *g, int number)
{
    hvd_handle sum = submit(g, HVD_ALLREDUCE, "sum");
    if (number > 0)
        leave(number);
    if (hvd_wait(sum) == 0)
        return FAIL("a sum without the others");
    /* Like cudaFree(), this waits for all work on the GPU. */
    struct cuda_visit visit = {0};
    alarm(20);
    int rc = cuda_enter(g->d, &visit, &g->err);
    cuda_memory_free(g->d, &g->in);
    cuda_leave(&visit);
    return rc < 0 ? FAIL("%s", g->err.msg) : 0;
}

/* Sums this rank's value into the last element of the tensor. */
static int begin_sum(struct gpu_side *g, float value, hvd_handle *ret)
{
    ((float *)g->host)[SMALL - 1] = value;
    if (gpu_side_send(g, 0, SMALL * 4) < 0)
        return FAIL("%s", g->err.msg);
    *ret = submit(g, HVD_ALLREDUCE, "sum");
    return 0;
}

static int end_sum(struct gpu_side *g, hvd_handle sum, float want)
{
    if (hvd_wait(sum) < 0 || gpu_side_read(g, g->in.at, SMALL * 4) < 0)
        return FAIL("%s %s", hvd_error(), g->err.msg);
    const float last = ((float *)g->host)[SMALL - 1];
    return last == want ? 0 : FAIL("%g, not %g", (double)last, (double)want);
}

/* Rank 1 shuts down in the second sum, for which the others wait on their GPUs: its abort ends the
 * sum there, with what rank 1 contributed to the first one. */
static int depart(struct gpu_side *g, int number)
{
    hvd_handle sum;
    int rc = begin_sum(g, 100, &sum);
    rc = rc ? rc : end_sum(g, sum, 300);
    rc = rc ? rc : begin_sum(g, (float)(1 << number), &sum);
    if (rc || number != 1)
        return rc ? rc : end_sum(g, sum, 5);
    usleep(400000); /* until the sum is on the GPUs */
    /* The abort waits for this copy. */
    g->fake->delay(300000);
    return gpu_side_send(g, 0, SMALL * 4) < 0 ? FAIL("%s", g->err.msg) : 0;
}

static int hang(int number, void *arg)
{
    static struct gpu_side g;
    int (*const *use)(struct gpu_side * g, int number) = arg;
    if (gpu_side_open(&g, number, SMALL * 4, NULL) < 0)
        return FAIL("%s", g.err.msg);
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    int rc = hvd_enter() < 0 ? FAIL("enter: %s", hvd_error()) : (*use)(&g, number);
    hvd_shutdown();
    return gpu_side_close(&g) || rc ? rc : FAIL("%ld objects were not freed", g.fake->live());
}

/* The allreduce of that number hangs on member 1. */
static void hang_job(struct elastic *job, int n, int number,
                     int (**use)(struct gpu_side *g, int number))
{
    static char lib[PATH_MAX + 16], at[64];
    static const char *const env[] = {lib, NULL};
    static const char *const hangs[] = {lib, at, NULL};
    char path[PATH_MAX];
    build_path("tests/fake/nccl-2.27/libnccl.so.2", path);
    snprintf(lib, sizeof(lib), "HVD_NCCL_LIB=%s", path);
    snprintf(at, sizeof(at), "FAKE_NCCL_HANG=ncclAllReduce:%d:async", number);
    elastic_init(job);
    for (int m = 0; m < n; m++)
        elastic_add(job, hang, (void *)use, m == 1 ? hangs : env);
}

static void test_release(void **state)
{
    int (*use)(struct gpu_side * g, int number) = release;
    struct elastic job;
    hang_job(&job, 2, 1, &use);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 30000));
    survive(&job, 0);
    elastic_fini(&job);
}

static bool wants_an_epoch(struct elastic *job, void *arg)
{
    return job->members[1].over && job->members[0].waiting;
}

static bool first_is_over(struct elastic *job, void *arg)
{
    return job->members[0].over;
}

/* Member 2 is stopped, so that the next epoch waits. */
static void test_give_up(void **state)
{
    int (*use)(struct gpu_side * g, int number) = give_up;
    struct elastic job;
    stopped = world_shared(sizeof(*stopped));
    assert_non_null(stopped);
    hang_job(&job, 3, 1, &use);
    assert_true(elastic_run(&job, wants_an_epoch, NULL, 30000));
    elastic_dismiss(&job, 0, "enough");
    assert_true(elastic_run(&job, first_is_over, NULL, 30000));
    survive(&job, 0);
    elastic_fini(&job);
}

static void test_depart(void **state)
{
    int (*use)(struct gpu_side * g, int number) = depart;
    struct elastic job;
    hang_job(&job, 3, 2, &use);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 30000));
    for (int m = 0; m < 3; m++)
        survive(&job, m);
    elastic_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_second_loss), cmocka_unit_test(test_one_is_left),
        cmocka_unit_test(test_release),     cmocka_unit_test(test_give_up),
        cmocka_unit_test(test_depart),
    };
    return cmocka_run_group_tests_name("multi/test_gpu_repair", tests, NULL, NULL);
}
