/* SPDX-License-Identifier: Apache-2.0
 *
 * Adasum of tensors on GPUs of the fake driver, beside the formula in double precision: in jobs
 * with and without NCCL, beside sums by NCCL whose schedule freezes, in sets, with ranks in
 * hvd_join(), and while members die.
 *
 * timeout: 300
 * takes: 6 s
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

#include "tests/harness/deaths.h"
#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/formula.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define SUMS 5

/* The ranks' hosts in a job with HVD_HIERARCHICAL_ADASUM. */
static const char *by_host;

/* ---- one operation -------------------------------------------------------------------------- */

/* As rank of size, which may be those of a set. */
static int submit(struct gpu_side *g, const struct formula *f, int rank, hvd_handle *ret)
{
    const int64_t count = (int64_t)f->n;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "a", f->dtype, 1, &count);
    r.op = HVD_ADASUM;
    r.output = f->seed % 2 ? g->in.at : g->out.at;
    r.prescale = f->prescale;
    r.postscale = f->postscale;
    formula_fill(f, rank, g->host);
    if (gpu_side_send(g, 0, f->n * hvd_dtype_size(f->dtype)) < 0)
        return FAIL("%s", g->err.msg);
    return hvd_submit(&r, 1, ret) < 0 ? FAIL("%s", hvd_error()) : 0;
}

static int finish(struct gpu_side *g, const struct formula *f, int size, hvd_handle h)
{
    if (hvd_wait(h) < 0)
        return FAIL("%s", hvd_error());
    if (gpu_side_read(g, f->seed % 2 ? g->in.at : g->out.at, f->n * hvd_dtype_size(f->dtype)) < 0)
        return FAIL("%s", g->err.msg);
    return formula_check(f, size, g->host);
}

static int one(struct gpu_side *g, const struct formula *f, int rank, int size)
{
    hvd_handle h;
    int rc = submit(g, f, rank, &h);
    return rc ? rc : finish(g, f, size, h);
}

static int all_types(struct gpu_side *g, int rank, int size)
{
    static const size_t counts[] = {1, 1000, 70001};
    int rc = 0;
    for (int t = 0; t < FORMULA_TYPES; t++)
        for (int c = 0; c < 3; c++)
            for (int seed = 0; seed < (c == 2 ? 2 : 6) && !rc; seed++) {
                const struct formula f = {.dtype = formula_types[t],
                                          .n = counts[c],
                                          .seed = seed,
                                          .prescale = seed % 4 == 1 ? 0.5 : 0,
                                          .postscale = seed % 4 == 1 ? 3 : 0,
                                          .hosts = by_host};
                rc = one(g, &f, rank, size);
            }
    return rc;
}

/* ---- beside other operations ---------------------------------------------------------------- */

/* Of ones, behind the tensor of the Adasum. */
static int submit_sums(struct gpu_side *g, hvd_handle *h)
{
    const int64_t n = 5000;
    const size_t at = g->room / 2;
    float *ones = (float *)(void *)(g->host + at);
    for (int i = 0; i < SUMS * n; i++)
        ones[i] = 1;
    if (gpu_side_send(g, at, SUMS * (size_t)n * 4) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < SUMS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "sum%d", i);
        struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, name, HVD_FLOAT32, 1, &n);
        r.input = r.output = (uint8_t *)g->in.at + at + (size_t)i * (size_t)n * 4;
        if (hvd_submit(&r, 1, &h[i]) < 0)
            return FAIL("%s", hvd_error());
    }
    return 0;
}

static int finish_sums(struct gpu_side *g, int size, const hvd_handle *h)
{
    for (int i = 0; i < SUMS; i++)
        if (hvd_wait(h[i]) < 0)
            return FAIL("%s", hvd_error());
    if (gpu_side_read(g, (uint8_t *)g->in.at + g->room / 2, SUMS * 5000 * 4) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < SUMS * 5000; i++)
        if (((float *)(void *)g->host)[i] != (float)size)
            return FAIL("element %d of the sums is %g", i, (double)((float *)(void *)g->host)[i]);
    return 0;
}

/* While the other ranks are in the plan's next operation, the Adasum, rank 0 waits for one that the
 * plan does not have: the Adasum is cancelled, and begins again. */
static int thaw(struct gpu_side *g, int rank, int size)
{
    const struct formula f = {.dtype = HVD_FLOAT32, .n = 3001, .seed = 5};
    hvd_handle h;
    float one = 1;
    int rc = rank == 0 ? 0 : submit(g, &f, rank, &h);
    if (!rc && hvd_allreduce("thaw", &one, &one, 1, HVD_FLOAT32, HVD_SUM) < 0)
        rc = FAIL("%s", hvd_error());
    rc = rc || rank != 0 ? rc : submit(g, &f, rank, &h);
    rc = rc ? rc : finish(g, &f, size, h);
    return rc || one == (float)size ? rc : FAIL("the sum beside it is %g", (double)one);
}

/* From the first operation of the job on, before any rank knows the way of its GPUs. */
static int beside_sums(struct gpu_side *g, int rank, int size)
{
    struct hvd_stats s = {.size = sizeof(s)};
    int rc = 0;
    for (int step = 0; step < 12 && !rc; step++) {
        const struct formula f = {.dtype = HVD_FLOAT32, .n = 3001, .seed = step};
        hvd_handle sums[SUMS], h;
        float mine = (float)rank;
        rc = step % 2 ? submit_sums(g, sums) : submit(g, &f, rank, &h);
        rc = rc ? rc : step % 2 ? submit(g, &f, rank, &h) : submit_sums(g, sums);
        if (!rc && hvd_allreduce("host", &mine, &mine, 1, HVD_FLOAT32, HVD_SUM) < 0)
            rc = FAIL("%s", hvd_error());
        rc = rc ? rc : finish(g, &f, size, h);
        rc = rc ? rc : finish_sums(g, size, sums);
        if (!rc && mine != (float)(size * (size - 1) / 2))
            rc = FAIL("the host's sum is %g", (double)mine);
    }
    uint64_t allocations = 0;
    for (int step = 0; step < 12 && !rc; step++) { /* in one order: the schedule freezes */
        const struct formula f = {.dtype = HVD_FLOAT32, .n = 3001, .seed = step % 2 * 3};
        hvd_handle sums[SUMS], h;
        rc = submit(g, &f, rank, &h);
        rc = rc ? rc : submit_sums(g, sums);
        rc = rc ? rc : finish(g, &f, size, h);
        rc = rc ? rc : finish_sums(g, size, sums);
        hvd_stats(&s);
        allocations = step == 8 ? s.allocations : allocations;
    }
    if (!rc && s.frozen == 0)
        rc = FAIL("the schedule did not freeze");
    if (!rc && s.allocations != allocations)
        rc = FAIL("%d allocations in three steps", (int)(s.allocations - allocations));
    return rc ? rc : thaw(g, rank, size);
}

static int in_sets(struct gpu_side *g, int rank, int size)
{
    static const int ranks[2][3] = {{3, 1, 0}, {1, 2}}, n[2] = {3, 2};
    int rc = 0;
    for (int s = 0; s < 2 && !rc; s++) {
        int set;
        if (hvd_set_add(ranks[s], n[s], &set) != 0)
            return FAIL("%s", hvd_error());
        g->set = set;
        int mine = hvd_set_rank(set);
        for (int seed = 0; seed < 6 && mine >= 0 && !rc; seed++) {
            const struct formula f = {.dtype = formula_types[seed % 4], .n = 997, .seed = seed};
            rc = one(g, &f, mine, n[s]);
        }
        g->set = 0;
        const struct formula f = {.dtype = HVD_FLOAT32, .n = 10, .seed = s};
        rc = rc ? rc : one(g, &f, rank, size);
    }
    return rc;
}

/* With this seed the tensor of rank 1 is all 0: that of a rank which has joined. */
static int joined(struct gpu_side *g, int rank, int size)
{
    const struct formula f = {.dtype = HVD_FLOAT16, .n = 300, .seed = 2};
    int rc = rank == 1 ? 0 : one(g, &f, rank, size);
    return rc ? rc : hvd_join() < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* A reduce, and a tensor that is on a GPU on some of the ranks only. */
static int others(struct gpu_side *g, int rank, int size)
{
    const struct formula f = {.dtype = HVD_FLOAT32, .n = 200, .seed = 0};
    const int64_t count = 200;
    hvd_handle h;
    struct hvd_request r = gpu_side_request(g, HVD_REDUCE, "r", HVD_FLOAT32, 1, &count);
    r.op = HVD_ADASUM;
    r.root = size - 1;
    formula_fill(&f, rank, g->host);
    if (gpu_side_send(g, 0, 800) < 0 || rank_wait(&r, &h) < 0 ||
        gpu_side_read(g, r.output, 800) < 0)
        return FAIL("%s %s", g->err.msg, hvd_error());
    if (rank == r.root && formula_check(&f, size, g->host) != 0)
        return 1;
    r.kind = HVD_ALLREDUCE;
    r.name = "mixed";
    if (rank == 0) {
        r.device = -1;
        r.stream = NULL;
        r.input = r.output = g->host;
    }
    if (rank_wait(&r, &h) != -EINVAL || !strstr(hvd_error(), "adasum on a GPU"))
        return FAIL("mixed: %s", hvd_error());
    return 0;
}

static int in_turn(struct gpu_side *g, int rank, int size)
{
    int rc = others(g, rank, size);
    rc = rc ? rc : joined(g, rank, size);
    return rc ? rc : all_types(g, rank, size);
}

static void run(const char *hosts, const char *const *env, const char *way, const char *script,
                int (*body)(struct gpu_side *g, int rank, int size))
{
    gpu_job_run_on(hosts, env, (struct gpu_job){way, script, 0, -1, body});
}

static void test_staged(void **state)
{
    run("a", gpu_job_fallback, "staged", NULL, all_types);
    run("aaa", gpu_job_fallback, "staged", NULL, in_turn);
    run("aabb", gpu_job_fallback, "staged", NULL, in_sets);
}

static void test_nccl(void **state)
{
    const char *const *env = gpu_job_nccl("2.27", NULL);
    run("aaa", env, "nccl", NULL, beside_sums);
    run("aabb", env, "nccl", "count=8;delay_us=200", beside_sums);
    run("aba", env, "nccl", NULL, in_turn);
    run("aaaa", env, "nccl", NULL, in_sets);
}

static void test_by_host(void **state)
{
    by_host = "abaa";
    setenv("HVD_HIERARCHICAL_ADASUM", "1", 1);
    run(by_host, gpu_job_fallback, "staged", NULL, all_types);
    run(by_host, gpu_job_nccl("2.27", NULL), "nccl", NULL, all_types);
    unsetenv("HVD_HIERARCHICAL_ADASUM");
    by_host = NULL;
}

/* ---- deaths --------------------------------------------------------------------------------- */

enum { LONG = 3000, DOOM = 5 };

static struct gpu_side side;
static int set; /* in which the members are; 0: the world */

static int begin_step(int member, int step, hvd_handle *ret)
{
    const int64_t count = LONG;
    if (!side.d && gpu_side_open(&side, member, 1 << 16, "count=8;delay_us=100") < 0)
        return FAIL("%s", side.err.msg);
    struct hvd_request r = gpu_side_request(&side, HVD_ALLREDUCE, "x", HVD_FLOAT32, 1, &count);
    r.op = HVD_ADASUM;
    r.set = set;
    r.prescale = FORMULA_PRESCALE;
    r.output = step % 2 ? side.in.at : side.out.at;
    formula_fill_orthogonal(member, step, (float *)(void *)side.host, LONG);
    if (gpu_side_send(&side, 0, (size_t)LONG * 4) < 0 || hvd_submit(&r, 1, ret) < 0)
        return FAIL("step %d: %s %s", step, side.err.msg, hvd_error());
    return 0;
}

static int end_step(int member, int step, hvd_handle h)
{
    void *result = step % 2 ? side.in.at : side.out.at;
    if (hvd_wait(h) < 0 || gpu_side_read(&side, result, (size_t)LONG * 4) < 0)
        return FAIL("step %d: %s %s", step, side.err.msg, hvd_error());
    return formula_check_orthogonal(member, step, (float *)(void *)side.host, LONG, NULL);
}

static int death_step(int member, int step, void *arg)
{
    hvd_handle h;
    int rc = begin_step(member, step, &h);
    return rc ? rc : end_step(member, step, h);
}

/* At any moment. */
static void run_deaths(unsigned seeds)
{
    struct deaths *d = world_board(sizeof(*d));
    assert_non_null(d);
    d->step = death_step;
    d->gap = 16;
    d->within_us = 6000;
    deaths_run_all(d, seeds);
}

/* Member 1 dies when it copies its result to the GPU. The copies of the others are still under way
 * then: in place, they end after all steps have begun again. */
static void *watch(void *arg)
{
    const long *call = arg;
    while (side.fake->calls("cuMemcpyHtoDAsync_v2") < *call)
        usleep(20);
    raise(SIGKILL);
    return NULL;
}

/* arg: NULL, or in a set of all members. */
static int doomed(int member, void *arg)
{
    static const int all[] = {0, 1, 2};
    pthread_t thread;
    hvd_handle h;
    long call;
    int rc = hvd_init() < 0 ? FAIL("%s", hvd_error()) : 0;
    if (!rc && arg && hvd_set_add(all, 3, &set) < 0)
        rc = FAIL("%s", hvd_error());
    for (int step = 0; step < 2 * DOOM && !rc; step++) {
        if (step == DOOM)
            side.fake->delay(20000);
        rc = begin_step(member, step, &h);
        call = rc ? 0 : side.fake->calls("cuMemcpyHtoDAsync_v2") + 1;
        if (!rc && step == DOOM && member == 1)
            rc = pthread_create(&thread, NULL, watch, &call);
        rc = rc ? rc : end_step(member, step, h);
    }
    return rc ? rc : hvd_shutdown();
}

static void run_doomed(bool in_a_set)
{
    struct elastic job;
    elastic_init(&job);
    for (int i = 0; i < 3; i++)
        elastic_add(&job, doomed, in_a_set ? &job : NULL, NULL);
    deaths_expect_end(&job, 0x5, "a death at the end");
    elastic_fini(&job);
}

static void test_deaths(void **state)
{
    setenv("HVD_GPU_FALLBACK", "1", 1);
    setenv("HVD_NCCL_LIB", "/none", 1);
    run_doomed(false);
    run_deaths((unsigned)effort(12));
    unsetenv("HVD_GPU_FALLBACK");
    putenv((char *)(uintptr_t)gpu_job_nccl("2.27", NULL)[0]);
    run_doomed(false);
    run_doomed(true);
    run_deaths((unsigned)effort(12));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_staged),
        cmocka_unit_test(test_nccl),
        cmocka_unit_test(test_by_host),
        cmocka_unit_test(test_deaths),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/gpu_adasum", tests, NULL, NULL);
}
