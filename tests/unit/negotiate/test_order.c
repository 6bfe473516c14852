/* SPDX-License-Identifier: Apache-2.0
 *
 * order: random programs in a simulator (harness/order_sim.h). Every program ends, whatever the
 * ranks wait for, and long programs need no messages. HVD_ORDER_SEEDS=n: so many of each kind. Then
 * messages that no rank sends.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "core/negotiate/order_impl.h"
#include "tests/harness/order_sim.h"

static uint64_t seeds(uint64_t few)
{
    const char *text = getenv("HVD_ORDER_SEEDS");
    return text ? strtoull(text, NULL, 10) : few;
}

/* ret: sums over all seeds. */
static void run(enum order_sim_kind kind, uint64_t n, struct order_sim_result *ret)
{
    *ret = (struct order_sim_result){.late = 0};
    for (uint64_t seed = 1; seed <= n; seed++) {
        struct order_sim_result one;
        order_sim_run(seed, kind, &one);
        if (one.why[0])
            fail_msg("%s", one.why);
        ret->launched += one.launched;
        ret->logged += one.logged;
        ret->frozen += one.frozen;
        ret->thaws += one.thaws;
        ret->late += one.late > 0;
    }
    print_message("%llu launches: %llu by the log, %llu frozen; %llu thaws\n",
                  (unsigned long long)ret->launched, (unsigned long long)ret->logged,
                  (unsigned long long)ret->frozen, (unsigned long long)ret->thaws);
}

static void test_same(void **state)
{
    struct order_sim_result sum;
    run(ORDER_SIM_SAME, seeds(400), &sum);
    assert_true(sum.frozen > sum.logged / 4);
}

static void test_negotiated(void **state)
{
    struct order_sim_result sum;
    run(ORDER_SIM_NEGOTIATED, seeds(400), &sum);
    assert_true(sum.frozen > 0);
}

static void test_mixed(void **state)
{
    struct order_sim_result sum;
    run(ORDER_SIM_MIXED, seeds(400), &sum);
    assert_true(sum.frozen > 0);
}

static void test_steady(void **state)
{
    struct order_sim_result sum;
    uint64_t n = seeds(100);
    run(ORDER_SIM_STEADY, n, &sum);
    assert_true(sum.frozen > sum.logged);
    assert_true(sum.late * 20 < n);
}

/* ---- messages ------------------------------------------------------------------------------- */

enum { GROUP = 7 };

static int on_send(void *ctx, int to, const struct buf *msg)
{
    return 0;
}

/* Rank 1 of two, or rank 0, after the thaw of the first pattern. Of GROUP it has announced two
 * operations. */
static struct order *make(int rank)
{
    static const struct order_ops ops = {.send = on_send};
    static const int child = 1;
    struct order_config config = {.rank = rank,
                                  .size = 2,
                                  .parent = rank - 1,
                                  .children = &child,
                                  .nchildren = 1 - rank,
                                  .freeze_after = 1};
    struct order *o = NULL;
    assert_int_equal(order_create(&config, &ops, NULL, &o, NULL), 0);
    assert_int_equal(order_ready(o, GROUP, 2, 1), 0);
    assert_int_equal(order_ready(o, GROUP, 2, 1), 0);
    return o;
}

static void begin(struct order *o, struct buf *b, enum order_message type, uint64_t generation)
{
    buf_reset(b);
    buf_put_u8(b, (uint8_t)type);
    buf_put_u64(b, generation);
}

static int deliver(struct order *o, int from, const struct buf *b)
{
    struct err err;
    return order_recv(o, from, b->data, b->len, &err);
}

static void put_run(struct buf *b, uint64_t group, uint64_t k, uint32_t n)
{
    buf_put_u64(b, group);
    buf_put_u64(b, k);
    buf_put_u32(b, n);
}

static struct order *thawed_leaf(struct buf *b)
{
    struct order *o = make(1);
    begin(o, b, ORDER_THAW, 1);
    assert_int_equal(deliver(o, NEGOTIATE_PARENT, b), 0);
    return o;
}

static int follow_run(uint64_t k, uint32_t n)
{
    struct buf b = {.data = NULL};
    struct order *o = thawed_leaf(&b);
    begin(o, &b, ORDER_LOG, 1);
    put_run(&b, GROUP, k, n);
    put_run(&b, GROUP + 1, 5, 1); /* of another rank */
    int rc = deliver(o, NEGOTIATE_PARENT, &b);
    if (rc == 0) {
        for (uint32_t i = 0; i < n; i++) {
            assert_true(order_is_next(o, GROUP));
            order_launched(o, GROUP);
        }
        assert_false(order_is_next(o, GROUP));
        /* A run of which a part was launched. */
        begin(o, &b, ORDER_LOG, 1);
        put_run(&b, GROUP, 0, 2);
        assert_int_equal(deliver(o, NEGOTIATE_PARENT, &b), 0);
        for (uint32_t i = n; i < 2; i++) {
            assert_true(order_is_next(o, GROUP));
            order_launched(o, GROUP);
        }
        assert_false(order_is_next(o, GROUP));
    }
    buf_fini(&b);
    order_destroy(o);
    return rc;
}

static void test_runs(void **state)
{
    assert_int_equal(follow_run(0, 0), 0);
    assert_int_equal(follow_run(0, 1), 0);
    assert_int_equal(follow_run(0, 2), 0);
    assert_int_equal(follow_run(0, 3), -EPROTO);          /* not announced */
    assert_int_equal(follow_run(1, 1), -EPROTO);          /* a gap */
    assert_int_equal(follow_run(UINT64_MAX, 1), -EPROTO); /* a gap that wraps */
}

static int follow_pattern(uint64_t k, uint32_t index, uint32_t length)
{
    struct buf b = {.data = NULL};
    struct order *o = thawed_leaf(&b);
    begin(o, &b, ORDER_PATTERN, 2);
    buf_put_u32(&b, 1);
    buf_put_u64(&b, GROUP);
    buf_put_u64(&b, k);
    buf_put_u32(&b, length);
    buf_put_u32(&b, index);
    int rc = deliver(o, NEGOTIATE_PARENT, &b);
    assert_int_equal(order_is_next(o, GROUP), rc == 0);
    buf_fini(&b);
    order_destroy(o);
    return rc;
}

static void test_patterns(void **state)
{
    assert_int_equal(follow_pattern(0, 0, 1), 0);
    assert_int_equal(follow_pattern(1, 0, 1), -EPROTO); /* it leaves an operation out */
    assert_int_equal(follow_pattern(0, 1, 1), -EPROTO); /* there is one group */
    assert_int_equal(follow_pattern(0, 0, 2), -EPROTO); /* it is cut */
    assert_int_equal(follow_pattern(0, 0, 0), -EPROTO);
}

static void test_generations(void **state)
{
    struct buf b = {.data = NULL};
    struct order *o = make(0);
    begin(o, &b, ORDER_ASK, 1); /* of the future */
    assert_int_equal(deliver(o, 1, &b), -EPROTO);
    begin(o, &b, ORDER_UP, 0); /* in a pattern */
    assert_int_equal(deliver(o, 1, &b), -EPROTO);
    begin(o, &b, ORDER_ASK, 0);
    assert_int_equal(deliver(o, 2, &b), -EPROTO); /* from a stranger */
    assert_int_equal(deliver(o, 1, &b), 0);
    assert_false(order_is_used(o));
    order_tick(o);
    assert_true(order_is_used(o));
    assert_int_equal(deliver(o, 1, &b), 0); /* stale */
    begin(o, &b, ORDER_ASK, 1);             /* in the log */
    assert_int_equal(deliver(o, 1, &b), -EPROTO);
    order_destroy(o);
    o = make(1);
    begin(o, &b, ORDER_THAW, 2); /* one was left out */
    assert_int_equal(deliver(o, NEGOTIATE_PARENT, &b), -EPROTO);
    begin(o, &b, ORDER_LOG, 0); /* in a pattern */
    assert_int_equal(deliver(o, NEGOTIATE_PARENT, &b), -EPROTO);
    buf_fini(&b);
    order_destroy(o);
}

/* What the root does with the records of rank 1: INIT, BEGUN, and one operation. */
static int take(uint32_t size, uint64_t committed, uint32_t begun, uint64_t k, uint64_t key,
                uint32_t count)
{
    struct buf b = {.data = NULL};
    struct order *o = make(0);
    order_tick(o); /* thaws */
    begin(o, &b, ORDER_UP, 1);
    buf_put_u8(&b, ORDER_INIT);
    buf_put_u32(&b, 1);
    buf_put_u64(&b, GROUP);
    buf_put_u32(&b, size);
    buf_put_u64(&b, committed);
    buf_put_u8(&b, ORDER_BEGUN);
    buf_put_u32(&b, begun);
    buf_put_u8(&b, ORDER_OP);
    buf_put_u64(&b, GROUP);
    buf_put_u64(&b, k);
    buf_put_u64(&b, key);
    buf_put_u32(&b, count);
    buf_put_u8(&b, 0);
    buf_put_u32(&b, 0);
    int rc = deliver(o, 1, &b);
    if (rc == 0) {
        order_tick(o);
        rc = order_failed(o);
    }
    if (rc == 0)
        rc = order_is_next(o, GROUP);
    buf_fini(&b);
    order_destroy(o);
    return rc;
}

static void test_announcements(void **state)
{
    assert_int_equal(take(2, 0, 1, 0, 1, 1), 1);
    assert_int_equal(take(2, 0, 0, 0, 1, 1), 0); /* rank 1 may have more to say */
    assert_int_equal(take(2, 0, 1, 1, 1, 1), 0); /* its operation 0 is not announced */
    assert_int_equal(take(3, 0, 1, 0, 1, 1), -EPROTO);
    assert_int_equal(take(1, 0, 1, 0, 1, 1), -EPROTO);
    assert_int_equal(take(2, 0, 3, 0, 1, 1), -EPROTO);
    assert_int_equal(take(2, 0, 1, 0, 2, 1), -EPROTO); /* another key */
    assert_int_equal(take(2, 0, 1, 0, 1, 2), -EPROTO);
    assert_int_equal(take(2, 0, 1, 0, 1, 0), -EPROTO);
    /* Rank 1 has launched operation 0, and announces it once more. */
    assert_int_equal(take(2, 1, 1, 0, 1, 1), -EPROTO);
    assert_int_equal(take(2, (uint64_t)1 << 60, 1, 0, 1, 1), -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same),        cmocka_unit_test(test_negotiated),
        cmocka_unit_test(test_mixed),       cmocka_unit_test(test_steady),
        cmocka_unit_test(test_runs),        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_generations), cmocka_unit_test(test_announcements),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
