/* SPDX-License-Identifier: Apache-2.0
 *
 * A second thread's sums on a GPU (of the fake driver) beside hvd_commit() that admits a rank. Each
 * ends in one of two ways, the same on all ranks: it is complete, or it has -ESTALE, and then
 * nothing has touched its tensor or does so later.
 *
 * timeout: 120
 * takes: 6 s
 */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/fake/cuda/use.h"
#include "tests/harness/elastic.h"
#include "tests/harness/gpu_side.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define N       1000
#define SLOW_US 20000

struct board {
    _Atomic int at;
    _Atomic int sums[2]; /* complete ones of each member */
};

struct member {
    struct gpu_side g;
    struct board *b;
    int number, failure;
    uint32_t epoch;
};

/* Whether all elements are `want`. */
static int check(struct member *m, float want, const char *what)
{
    const float *host = (float *)m->g.host;
    if (gpu_side_read(&m->g, m->g.in.at, N * 4) < 0)
        return FAIL("%s", m->g.err.msg);
    for (int i = 0; i < N; i++)
        if (host[i] != want)
            return FAIL("%s: element %d is %g, not %g", what, i, (double)host[i], (double)want);
    return 0;
}

/* The input of member 1 is late, so that the sum is in flight on all ranks. */
static int sum(struct member *m, float value, uint32_t epoch)
{
    const int64_t n = N;
    struct hvd_request r = gpu_side_request(&m->g, HVD_ALLREDUCE, "sum", HVD_FLOAT32, 1, &n);
    hvd_handle h;
    r.epoch = epoch;
    for (int i = 0; i < N; i++)
        ((float *)m->g.host)[i] = value;
    m->g.fake->delay(m->number == 1 ? SLOW_US : 0);
    if (gpu_side_send(&m->g, 0, N * 4) < 0)
        return FAIL("%s", m->g.err.msg);
    int rc = rank_wait(&r, &h);
    m->g.fake->delay(0);
    return rc;
}

/* Sums until the world has changed. */
static void *go_beside(void *arg)
{
    struct member *m = arg;
    const float mine = (float)(1 << m->number);
    int rc;
    while ((rc = sum(m, mine, m->epoch)) == 0 && m->failure == 0) {
        m->failure = check(m, 3, "a sum");
        atomic_fetch_add(&m->b->sums[m->number], 1);
    }
    if (m->failure == 0 && rc != -ESTALE)
        m->failure = FAIL("a sum: %d %s", rc, hvd_error());
    if (m->failure == 0)
        m->failure = check(m, mine, "after -ESTALE");
    return NULL;
}

/* Commits until this member enters another world. */
static int commit(struct member *m)
{
    int rc = 0;
    while (rc == 0) {
        float one = 1;
        if (hvd_allreduce("step", &one, &one, 1, HVD_FLOAT32, HVD_SUM) < 0)
            return FAIL("step: %s", hvd_error());
        if (m->number == 0)
            atomic_fetch_add(&m->b->at, 1);
        while ((rc = hvd_commit()) == -EBUSY)
            ;
    }
    return rc == 1 ? 0 : FAIL("commit: %s", hvd_error());
}

static int train(struct member *m)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    pthread_t thread;
    hvd_world(&w);
    if (w.is_new)
        return 0;
    m->epoch = w.epoch;
    if (pthread_create(&thread, NULL, go_beside, m) != 0)
        return FAIL("no thread");
    int rc = commit(m);
    pthread_join(thread, NULL);
    return rc ? rc : m->failure;
}

static int work(int number, void *arg)
{
    static struct member m;
    m = (struct member){.b = arg, .number = number};
    if (gpu_side_open(&m.g, number, N * 4, NULL) < 0)
        return FAIL("%s", m.g.err.msg);
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    int rc = hvd_enter() < 0 ? FAIL("enter: %s", hvd_error()) : train(&m);
    if (rc == 0 && sum(&m, (float)(10 << number), 0) < 0)
        rc = FAIL("in the new world: %s", hvd_error());
    rc = rc ? rc : check(&m, 70, "in the new world");
    hvd_shutdown();
    gpu_side_close(&m.g);
    return rc;
}

static void test_boundary(void **state)
{
    static char lib[PATH_MAX + 16];
    static const char *const env[] = {lib, NULL};
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    char path[PATH_MAX];
    fake_nccl_path("2.27", path);
    snprintf(lib, sizeof(lib), "HVD_NCCL_LIB=%s", path);
    elastic_init(&job);
    for (int m = 0; m < 2; m++)
        elastic_add(&job, work, b, env);
    assert_true(elastic_run_to(&job, &b->at, 2, 60000));
    elastic_add(&job, work, b, env);
    assert_true(elastic_run(&job, elastic_joiners_wait, &(int){2}, 60000));
    elastic_announce(&job);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    for (int m = 0; m < 3; m++)
        assert_int_equal(job.members[m].status, 0);
    assert_int_equal(b->sums[0], b->sums[1]);
    elastic_fini(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_boundary)};
    return cmocka_run_group_tests_name("multi/test_gpu_boundary", tests, NULL, NULL);
}
