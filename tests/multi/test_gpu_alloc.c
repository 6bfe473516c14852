/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of an allreduce on GPUs: an engine's first operation on GPUs (GPU, NCCL, communicator, the
 * choice of the way), a second one and an Adasum, with each allocation of hvd's own code on one
 * rank failing in turn. Each attempt returns an error or succeeds. All ranks choose the same way,
 * no rank waits for ever, nothing is left on the GPU, and the next engine of the same processes
 * works.
 *
 * timeout: 900
 * takes: 17 s
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/effort.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/gpu_job.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define WORLDS  4 /* side by side, because ranks mostly wait; each takes a share of the places */
#define RANKS   4
#define COUNT   3001
#define MOST    2000 /* allocations */
#define SECONDS 150  /* of a life: NCCL waits 60 s for a rank that does not come */

struct board {
    int world, victim;
    _Atomic int over, told;
};

/* What a rank has, of which the result is computed: a sum, or the Adasum of equal tensors. */
static float value(bool adasum, int rank, int salt, int i)
{
    return (float)(adasum ? 1 + i % 10 : rank + salt + i % 10);
}

static float result(bool adasum, int salt, int i)
{
    return (float)(adasum ? 1 + i % 10 : 6 + RANKS * (salt + i % 10));
}

/* One operation. fail_at counts the engine's allocations, without those of this test. */
static int one(struct gpu_side *g, int rank, int salt, long *fail_at)
{
    const int64_t n = COUNT;
    const bool adasum = salt == 2;
    struct hvd_request r = gpu_side_request(g, HVD_ALLREDUCE, "sum", HVD_FLOAT32, 1, &n);
    hvd_handle h;
    float *f = (float *)g->host;
    r.op = adasum ? HVD_ADASUM : HVD_SUM;
    for (int i = 0; i < COUNT; i++)
        f[i] = value(adasum, rank, salt, i);
    if (gpu_side_send(g, 0, COUNT * 4) < 0)
        return FAIL("%s", g->err.msg);
    /* No allocation inside NCCL fails: the other ranks would notice that only by a long wait. */
    fail_alloc.own = true;
    fail_alloc.fail_at = *fail_at;
    int rc = rank_wait(&r, &h);
    *fail_at = fail_alloc.fail_at;
    fail_alloc.fail_at = -1;
    if (rc < 0)
        return rc;
    if (gpu_side_read(g, g->in.at, COUNT * 4) < 0)
        return FAIL("%s", g->err.msg);
    for (int i = 0; i < COUNT; i++)
        if (!(fabsf(f[i] - result(adasum, salt, i)) < 1e-4F))
            return FAIL("element %d is %g", i, (double)f[i]);
    return 0;
}

/* Returns 0 if all went well, < 0 for an error that was returned, > 0 for a wrong result. */
static int live(struct gpu_side *g, int rank, long fail_at, long *ret_failed)
{
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    /* A rank that fails after the barrier may be gone before the barrier is done here. */
    int rc = hvd_barrier("all");
    fail_alloc.failed = 0;
    for (int i = 0; i < 3 && rc == 0; i++)
        rc = one(g, rank, i, &fail_at);
    *ret_failed = fail_alloc.failed;
    if (rc < 0 && !hvd_error()[0])
        rc = FAIL("it failed without a reason");
    hvd_shutdown();
    return rc;
}

/* n: the victim's allocation that fails; -1: none. */
static int attempt(const struct board *b, int rank, long n, bool *ret_failed)
{
    struct gpu_side g;
    uint64_t begun = clock_ns();
    long failed = 0;
    if (gpu_side_open(&g, rank, COUNT * 4, NULL) < 0)
        return FAIL("%s", g.err.msg);
    int rc = live(&g, rank, rank == b->victim ? n : -1, &failed);
    if (rc < 0 && rank == b->victim && failed == 0)
        rc = FAIL("allocation %ld: it was not this rank: %s", n, hvd_error());
    if (!gpu_side_close(&g) && rc <= 0)
        rc = FAIL("allocation %ld: %ld things are left on the GPU", n, g.fake->live());
    if (rc <= 0 && clock_ns() - begun > SECONDS * CLOCK_S)
        rc = FAIL("allocation %ld: it took too long", n);
    *ret_failed = failed > 0;
    return rc;
}

static int rank_main(int rank, int size, void *arg)
{
    struct board *b = arg;
    bool failed;
    setenv("HVD_LOCALITY", rank < 2 ? "a" : "b", 1);
    int rc = attempt(b, rank, -1, &failed); /* what is allocated once and kept */
    const long stride = (long)WORLDS * effort_share();
    for (long n = b->world; n < MOST && rc == 0 && !atomic_load(&b->over); n += stride) {
        rc = attempt(b, rank, n, &failed);
        if (rc > 0)
            return rc;
        if (rank == b->victim) {
            b->told += rc < 0;
            atomic_store(&b->over, !failed);
        }
        rc = attempt(b, rank, -1,
                     &failed); /* no rank begins the next attempt before all have read `over` */
        if (rc != 0)
            return FAIL("after allocation %ld: %d %s", n, rc, hvd_error());
    }
    return rc;
}

static void test_allocations(void **state)
{
    struct world *worlds[WORLDS];
    struct board *boards[WORLDS];
    int bad = 0, told = 0;
    if (!FAIL_ALLOC) {
        printf("SKIP: multi/gpu_alloc: a sanitizer has its own allocator\n");
        skip();
    }
    for (int w = 0; w < WORLDS; w++) {
        const char *const env[] = {*gpu_job_nccl("2.27", NULL), "HVD_LOG_LEVEL=error", NULL};
        struct world_options o = {.size = RANKS, .timeout_s = 800, .env = env};
        boards[w] = world_shared(sizeof(*boards[w]));
        boards[w]->world = w;
        boards[w]->victim = w % RANKS;
        assert_int_equal(world_start(&o, rank_main, boards[w], &worlds[w]), 0);
    }
    for (int w = 0; w < WORLDS; w++) {
        bad += world_wait(worlds[w], NULL);
        told += boards[w]->told;
    }
    assert_int_equal(bad, 0);
    assert_in_range(told, 20 / effort_share(), MOST);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_allocations)};
    return cmocka_run_group_tests_name("multi/gpu_alloc", tests, NULL, NULL);
}
