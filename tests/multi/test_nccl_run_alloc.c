/* SPDX-License-Identifier: Apache-2.0
 *
 * core/backend/nccl_run when calls fail: each call of the driver in turn, with exhausted memory and
 * with a GPU that breaks, and each allocation of the process, through a whole life: GPU, NCCL,
 * communicator, operations with and without packing, the end. Each attempt returns an error or
 * succeeds, nothing waits for ever, and nothing is left behind.
 *
 * timeout: 600
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/gpu_rank.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

/* Limits of a step that may have lost a call: NCCL is not asked again for what it could not do. */
static const struct nccl_limits brief = {
    .init_ms = 4000, .launch_ms = 4000, .abort_ms = 4000, .program_ms = 4000};

/* One life, without the mesh, which is not under test. Returns 0 if all went well, < 0 for a
 * returned error, > 0 for a wrong result. */
static int life(struct gpu_rank *me)
{
    static const size_t many[] = {1, 100, 0, 77};
    static const struct gpu_rank_sum sums[] = {
        {HVD_FLOAT32, HVD_SUM, many + 1, 1, false, false, 5000},
        {HVD_INT16, HVD_SUM, many, 4, true, false, 5000},
        {HVD_FLOAT64, HVD_AVERAGE, many, 4, false, true, 5000},
    };
    int rc = gpu_rank_renew_coll(me);
    me->gpu = NULL;
    me->run = NULL;
    if (rc == 0)
        rc = gpu_rank_open_gpu(me, 0, &brief);
    for (size_t i = 0; i < 3 && rc == 0; i++)
        rc = gpu_rank_allreduce(me, &sums[i]);
    if (rc < 0 && me->run) {
        nccl_run_abort(me->run);
        gpu_rank_drain(me);
    }
    return rc;
}

static bool reached; /* the chosen call or allocation has failed */

/* Nothing fails from here on. */
static void mend(struct gpu_rank *me)
{
#if FAIL_ALLOC
    fail_alloc.fail_at = -1;
#endif
    reached = me->fake->failed() || fail_alloc.failed > 0;
    me->fake->fail_call(-1, 0);
}

/* One life in which one call or allocation fails, and its end. Returns 1 if an error was returned.
 */
static int one(struct gpu_rank *me, const char *what, long n)
{
    uint64_t begun = clock_ns();
    int rc = life(me);
    mend(me);
    int left = me->gpu ? gpu_rank_close_gpu(me) : 0;
    if (rc > 0 || left)
        return FAIL("%s %ld fails: %d, then %d: %s", what, n, rc, left, me->err.msg);
    if (clock_ns() - begun > 15 * CLOCK_S)
        return FAIL("%s %ld fails: it took %d s", what, n, (int)((clock_ns() - begun) / CLOCK_S));
    return rc < 0;
}

static int calls(struct gpu_rank *me)
{
    fail_alloc.failed = 0;
    static const unsigned codes[] = {CUDA_OUT_OF_MEMORY, CUDA_LAUNCH_FAILED};
    for (size_t i = 0; i < 2; i++) {
        int told = 0;
        reached = true;
        for (long n = 0; reached; n++) {
            me->fake->fail_call(n, codes[i]);
            int rc = one(me, "call", n);
            if (rc > 1)
                return rc;
            if (rc == 1 && !me->err.msg[0])
                return FAIL("call %ld fails, and no error was returned", n);
            if (rc == 1 && !reached)
                return FAIL("without a failure: %s", me->err.msg);
            told += rc;
        }
        if (told < 50)
            return FAIL("only %d failures", told);
    }
    return 0;
}

static int allocations(struct gpu_rank *me)
{
#if FAIL_ALLOC
    int told = 0;
    for (long n = 0;; n++) {
        me->fake->fail_call(1000000, 0);
        fail_alloc.failed = 0;
        fail_alloc.fail_at = n;
        int rc = one(me, "allocation", n);
        if (rc > 1)
            return rc;
        if (!reached)
            return rc          ? FAIL("without a failure: %s", me->err.msg)
                   : told < 20 ? FAIL("only %d failures", told)
                               : 0;
        told += rc;
    }
#endif
    return 0;
}

/* While an operation is in flight, a lack of memory for the next one is no failure: it can be added
 * when that one has ended. */
static int starve(struct gpu_rank *me, const struct coll_op *large)
{
    struct coll_tensor t[2] = {
        {me->memory.at, me->memory.at, 100},
        {(uint8_t *)me->memory.at + 4096, (uint8_t *)me->memory.at + 4096, 100}};
    struct coll_op small = *large;
    uint64_t deadline = deadline_in_ms(10000);
    small.tensors = t;
    int rc = nccl_run_add(me->run, &small, false, &me->flight, &me->err);
    if (rc < 0)
        return FAIL("%s", me->err.msg);
    setenv("FAKE_CUDA", "count=8;cuMemAlloc_v2=2", 1);
    rc = nccl_run_add(me->run, large, false, &me->flight, &me->err);
    setenv("FAKE_CUDA", "count=8", 1);
    if (rc != -EAGAIN)
        return FAIL("%d %s", rc, me->err.msg);
    while (nccl_run_count(me->run, FLIGHT_DONE) == 0 && !deadline_passed(deadline))
        if (nccl_run_progress(me->run, &me->err) < 0)
            return FAIL("%s", me->err.msg);
    nccl_run_release(me->run, 1);
    return 0;
}

/* The GPU has no memory for a larger buffer: an error, and the present buffer stays. */
static int short_of_memory(struct gpu_rank *me)
{
    static const size_t many[] = {100, 200}, more[] = {40000, 20000};
    const struct gpu_rank_sum few = {HVD_FLOAT32, HVD_SUM, many, 2, true, false, 0};
    struct coll_tensor t[2];
    int rc = gpu_rank_renew_coll(me);
    if (rc == 0)
        rc = gpu_rank_open_gpu(me, 0, NULL);
    if (rc == 0)
        rc = gpu_rank_allreduce(me, &few);
    if (rc != 0)
        return FAIL("%d %s", rc, me->err.msg);
    for (int i = 0; i < 2; i++)
        t[i] = (struct coll_tensor){me->memory.at, me->memory.at, more[i]};
    struct coll_op op = coll_rank_op(&me->r, HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, t, 2);
    setenv("FAKE_CUDA", "count=8;cuMemAlloc_v2=2", 1);
    rc = nccl_run_add(me->run, &op, false, &me->flight, &me->err);
    if (rc != -ENOMEM || !strstr(me->err.msg, "240000 bytes of the device's memory"))
        return FAIL("%d %s", rc, me->err.msg);
    setenv("FAKE_CUDA", "count=8", 1);
    if (starve(me, &op) != 0)
        return 1;
    if (gpu_rank_allreduce(me, &few) != 0)
        return FAIL("what was there does not serve any more: %s", me->err.msg);
    rc = nccl_run_add(me->run, &op, false, &me->flight, &me->err);
    nccl_run_abort(me->run);
    nccl_run_give_back(me->run);
    if (rc == 0 && gpu_rank_drain(me) != 0)
        rc = -EIO;
    int left = gpu_rank_close_gpu(me);
    return rc ? FAIL("%d %s", rc, me->err.msg) : left;
}

static int rank_main(int rank, int size, void *arg)
{
    int (*body)(struct gpu_rank *) = arg;
    struct gpu_rank me = {0};
    struct gpu_rank_options o = {
        .hosts = "a", .nccl = "2.27", .ordinal = -1, .quiet = true, .room = 1 << 16};
    log_set_level(LOG_ERROR);
    if (gpu_rank_open(&me, rank, &o) < 0)
        return 10;
    int rc = gpu_rank_check(&me); /* tables that are created once */
    if (rc == 0)
        rc = gpu_rank_close_gpu(&me);
    if (rc == 0)
        rc = body(&me);
    me.gpu = NULL;
    me.run = NULL;
    me.visit = (struct cuda_visit){0};
    int left = rc ? 0 : gpu_rank_close(&me);
    return rc ? rc : left;
}

static void test_calls(void **state)
{
    assert_int_equal(world_run(1, rank_main, calls), 0);
}

static void test_allocations(void **state)
{
    assert_int_equal(world_run(1, rank_main, allocations), 0);
}

static void test_short(void **state)
{
    assert_int_equal(world_run(1, rank_main, short_of_memory), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_allocations),
        cmocka_unit_test(test_short),
    };
    return cmocka_run_group_tests_name("multi/nccl_run_alloc", tests, NULL, NULL);
}
