/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of malformed messages about thaws and owed batches: a node refuses them with -EPROTO. The
 * fuzzer fuzz_negotiate looks for more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/negotiate/log_record.h"
#include "core/negotiate/negotiate_impl.h"
#include "tests/harness/negotiate_sim.h"

static const struct sim_options options = {
    .n = 2,
    .fusion_bytes = 1,
    .cycle_ns = CLOCK_MS,
    .cache_capacity = 100,
    .freeze_after = 3,
};

/* A plan of t0, which is bound, and t1, which is not. */
static void freeze(struct sim *s)
{
    for (int k = 0; k < 12; k++)
        for (int i = 0; i < s->n; i++) {
            struct signature host = sim_allreduce(10), gpu = sim_on_gpu(host);
            sim_submit(&s->ranks[i], 0, &gpu, 0);
            sim_submit(&s->ranks[i], 1, &host, 0);
            sim_wait(&s->ranks[i], 0);
            sim_wait(&s->ranks[i], 1);
        }
    if (!sim_run(s))
        fail_msg("%s", s->why);
    assert_true(negotiate_frozen(s->ranks[1].n));
}

/* Sends a message that begins with this node's generation. */
static int feed(struct sim_rank *r, int from, enum message type, const struct buf *rest)
{
    struct buf b = {0};
    struct err err;
    buf_put_u8(&b, (uint8_t)type);
    buf_put_u64(&b, r->n->generation);
    buf_put(&b, rest->data, rest->len);
    int rc = negotiate_recv(r->n, from, b.data, b.len, r->sim->now, &err);
    buf_fini(&b);
    return rc;
}

static int feed_numbers(struct sim_rank *r, int from, enum message type, int count, uint64_t first,
                        uint64_t second)
{
    struct buf rest = {0};
    if (count > 0)
        buf_put_u64(&rest, first);
    if (count > 1)
        buf_put_u64(&rest, second);
    int rc = feed(r, from, type, &rest);
    buf_fini(&rest);
    return rc;
}

static int feed_thawed(struct sim_rank *r, uint64_t keep, uint64_t bind, uint8_t ends)
{
    struct buf rest = {0};
    buf_put_u64(&rest, keep);
    buf_put_u64(&rest, bind);
    buf_put_u8(&rest, ends);
    int rc = feed(r, NEGOTIATE_PARENT, DOWN_THAWED, &rest);
    buf_fini(&rest);
    return rc;
}

/* A world of two ranks that follow a plan of one bound batch and one other. The leaf has been
 * handed the same number of each. */
static struct sim_rank *leaf_in_thaw(struct sim *s)
{
    sim_init(s, 1, &options);
    freeze(s);
    struct sim_rank *leaf = &s->ranks[1];
    assert_int_equal(leaf->n->plan.nbatches, 2);
    assert_true(leaf->n->plan.walked > 2);
    assert_int_equal(feed_numbers(leaf, NEGOTIATE_PARENT, DOWN_THAW_ASK, 0, 0, 0), 0);
    negotiate_tick(leaf->n, s->now);
    return leaf;
}

enum from { WALKED, DONE_TO, BOUND_TO, NEXT_BOUND };

/* The number of a place in the leaf's plan. */
static uint64_t place(const struct sim_rank *r, enum from from)
{
    const struct plan *p = &r->n->plan;
    uint64_t next = p->bound_to;
    do
        next++;
    while (!p->bound[(next - 1) % 2]);
    return (uint64_t[]){p->walked, p->done_to, p->bound_to, next}[from];
}

static void test_bad_thaws(void **state)
{
    static const struct {
        enum from keep;
        int64_t keep_add;
        enum from bind;
        int64_t bind_add;
        int rc;
    } cases[] = {
        {WALKED, 0, BOUND_TO, 0, 0},
        {WALKED, 0, NEXT_BOUND, 0, 0},
        {DONE_TO, 0, BOUND_TO, 0, 0},
        {WALKED, 1, BOUND_TO, 0, -EPROTO},   /* more than this rank has begun */
        {DONE_TO, -1, BOUND_TO, 0, -EPROTO}, /* a finished batch is dropped */
        {WALKED, 0, BOUND_TO, -2, -EPROTO},  /* fewer than this rank has begun */
        {WALKED, 0, BOUND_TO, 1, -EPROTO},   /* not a bound batch */
        {WALKED, 0, NEXT_BOUND, 2, -EPROTO}, /* a tensor that is owed twice */
        {WALKED, 0, NEXT_BOUND, 2000000000, -EPROTO},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct sim s;
        struct sim_rank *leaf = leaf_in_thaw(&s);
        uint64_t keep = place(leaf, cases[i].keep) + (uint64_t)cases[i].keep_add;
        uint64_t bind = place(leaf, cases[i].bind) + (uint64_t)cases[i].bind_add;
        assert_int_equal(feed_thawed(leaf, keep, bind, 0), cases[i].rc);
        sim_fini(&s);
    }
    struct sim s;
    struct sim_rank *leaf = leaf_in_thaw(&s);
    assert_int_equal(feed_numbers(leaf, NEGOTIATE_PARENT, DOWN_THAWED, 2, place(leaf, WALKED),
                                  place(leaf, BOUND_TO)),
                     -EPROTO);
    sim_fini(&s);
    leaf = leaf_in_thaw(&s);
    assert_int_equal(feed_thawed(leaf, place(leaf, WALKED), place(leaf, BOUND_TO), 2), -EPROTO);
    sim_fini(&s);
}

/* Behind the end of the log, which comes with a thaw or alone, a batch and a plan are refused. */
static void test_after_the_end(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct sim s;
        struct sim_rank *leaf = leaf_in_thaw(&s);
        struct signature gpu = sim_on_gpu(sim_allreduce(10));
        struct buf rest = {0}, end = {0};
        struct err err;
        uint64_t id, cached = leaf->n->plan.tensors[0]->id;
        bool with_thaw = i % 2;
        assert_int_equal(feed_thawed(leaf, place(leaf, WALKED), place(leaf, BOUND_TO), with_thaw),
                         0);
        assert_int_equal(negotiate_submit(leaf->n, "t0", &gpu, s.now, &id, &err), 0);
        negotiate_tick(leaf->n, s.now);
        buf_put_u8(&end, LOG_END);
        if (!with_thaw)
            assert_int_equal(feed(leaf, NEGOTIATE_PARENT, DOWN_LOG, &end), 0);
        assert_true(negotiate_end(leaf->n));
        if (i < 2) {
            buf_put_u8(&rest, LOG_BATCH);
            buf_put_u8(&rest, true);
            buf_put_u32(&rest, 1);
            buf_put_u8(&rest, 0);
            buf_put_u64(&rest, cached);
        }
        assert_int_equal(feed(leaf, NEGOTIATE_PARENT, i < 2 ? DOWN_LOG : DOWN_PLAN, &rest),
                         -EPROTO);
        buf_fini(&rest);
        buf_fini(&end);
        sim_fini(&s);
    }
}

/* The leaf owes t0. */
static void test_bad_while_owed(void **state)
{
    for (int i = 0; i < 4; i++) {
        struct sim s;
        struct sim_rank *leaf = leaf_in_thaw(&s);
        struct buf rest = {0};
        uint64_t id = leaf->n->plan.tensors[0]->id;
        assert_int_equal(feed_thawed(leaf, place(leaf, WALKED), place(leaf, NEXT_BOUND), 0), 0);
        if (i == 0) { /* a plan before the leaf has settled */
            buf_put_u32(&rest, 1);
            buf_put_u32(&rest, 1);
            buf_put_u8(&rest, 0);
            buf_put_u32(&rest, 1);
            buf_put_u64(&rest, id);
            assert_int_equal(feed(leaf, NEGOTIATE_PARENT, DOWN_PLAN, &rest), -EPROTO);
        }
        if (i == 1 || i == 2) { /* a loss that is no error, or whose text is cut */
            buf_put_u32(&rest, 2);
            buf_put_u32(&rest, i == 1 ? 0 : (uint32_t)-EINVAL);
            buf_put_u16(&rest, 1);
            if (i == 1)
                buf_put_u8(&rest, 'x');
            assert_int_equal(feed(leaf, NEGOTIATE_PARENT, DOWN_LOST, &rest), -EPROTO);
        }
        if (i == 3) { /* a batch that is neither bound nor not */
            buf_put_u8(&rest, 1);
            buf_put_u8(&rest, 2);
            buf_put_u32(&rest, 1);
            assert_int_equal(feed(leaf, NEGOTIATE_PARENT, DOWN_LOG, &rest), -EPROTO);
        }
        buf_fini(&rest);
        sim_fini(&s);
    }
}

static void test_bad_from_a_child(void **state)
{
    struct sim s;
    sim_init(&s, 1, &options);
    freeze(&s);
    struct sim_rank *root = &s.ranks[0];
    assert_int_equal(feed_numbers(root, 1, UP_SETTLED, 0, 0, 0), -EPROTO); /* no rank owes */
    assert_int_equal(feed_numbers(root, 1, UP_CONFLICT, 1, 0, 0), -EPROTO);
    assert_int_equal(feed_numbers(root, 1, UP_THAW_AT, 1, 0, 0), -EPROTO);
    sim_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_thaws),
        cmocka_unit_test(test_after_the_end),
        cmocka_unit_test(test_bad_while_owed),
        cmocka_unit_test(test_bad_from_a_child),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
