/* SPDX-License-Identifier: Apache-2.0
 *
 * core/backend/nccl_run: the limits for an aborted operation begin when the program's own work on
 * the GPU, behind which the operation is, has ended; also if a message is behind that.
 *
 * takes: 20 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "tests/harness/gpu_rank.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

/* Until nccl_run_drained() returns something else than 1, or ms have passed. */
static int drain_for(struct gpu_rank *me, int ms)
{
    uint64_t deadline = deadline_in_ms((uint64_t)ms);
    int rc;
    while ((rc = nccl_run_drained(me->run, &me->err)) == 1 && !deadline_passed(deadline))
        nap_ms(1);
    return rc;
}

/* A message from rank 0 to rank 1, whose memory is ready. */
static int add_message(struct gpu_rank *me, int rank)
{
    enum { BYTES = 100, AT = 1 << 20 };
    size_t counts[4] = {0};
    counts[rank == 0 ? 1 : 2] = BYTES;
    const struct coll_tensor tensor = {.in = rank == 0 ? me->in + AT : NULL,
                                       .out = rank == 0 ? NULL : me->out + AT,
                                       .count = BYTES};
    const struct coll_op op = {.kind = HVD_ALLTOALL,
                               .dtype = HVD_UINT8,
                               .op = HVD_SUM,
                               .prescale = 1,
                               .postscale = 1,
                               .contributors = 1,
                               .device = rank,
                               .tensors = &tensor,
                               .n = 1,
                               .send_counts = counts,
                               .recv_counts = counts + 2};
    struct nccl_flight *flight;
    int rc = nccl_run_add(me->run, &op, false, &flight, &me->err);
    for (int i = 0; i < 100 && rc >= 0; i++, nap_ms(1)) {
        flight->aside = true;
        rc = nccl_run_progress(me->run, &me->err);
    }
    return rc < 0 ? FAIL("%s", me->err.msg) : 0;
}

/* The program's work, five operations of 1.2 s, ends later than the limit for what was aborted.
 * arg: and later than the program's own limit. Otherwise a message is behind it. */
static int behind(int rank, int size, void *arg)
{
    static const size_t one = 100;
    const struct gpu_rank_sum sum = {HVD_FLOAT32, HVD_SUM, &one, 1, true, false, 3000};
    static struct gpu_rank me;
    struct gpu_rank_options o = {.hosts = "aa",
                                 .nccl = "2.27",
                                 .ordinal = -1,
                                 .quiet = true,
                                 .limits = {.init_ms = 5000,
                                            .launch_ms = 5000,
                                            .abort_ms = arg ? 400 : 900,
                                            .program_ms = arg ? 500 : 20000}};
    log_set_level(LOG_ERROR);
    if (gpu_rank_open(&me, rank, &o) < 0 || gpu_rank_check(&me) != 0)
        return FAIL("%s", me.err.msg);
    me.hurries = true;
    me.fake->delay(1200000);
    int rc = gpu_rank_allreduce(&me, &sum);
    if (rc != -ETIME || me.run->out == 0)
        return FAIL("%d %s", rc, me.err.msg);
    if (!arg && add_message(&me, rank) != 0)
        return 1;
    nccl_run_abort(me.run);
    rc = drain_for(&me, 2600);
    if (rc != (arg ? -ETIMEDOUT : 1) ||
        (arg && !strstr(me.err.msg, "the program's own work there does not end")))
        return FAIL("%d %s", rc, me.err.msg);
    me.fake->delay(0);
    if (arg) { /* the abort was abandoned, too */
        coll_rank_close(&me.r);
        return nccl_run_destroy(me.run) ? FAIL("no thread stays in NCCL") : 0;
    }
    rc = gpu_rank_drain(&me);
    return rc ? FAIL("%d %s", rc, me.err.msg) : gpu_rank_close(&me);
}

static void test_behind(void **state)
{
    bool short_limit = true;
    assert_int_equal(world_run(2, behind, NULL), 0);
    assert_int_equal(world_run(2, behind, &short_limit), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_behind)};
    return cmocka_run_group_tests_name("multi/nccl_run_behind", tests, NULL, NULL);
}
