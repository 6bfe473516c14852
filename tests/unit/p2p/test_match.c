/* SPDX-License-Identifier: Apache-2.0
 *
 * match: random messages and receives, compared with lists that are searched from the beginning.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/p2p/match.h"
#include "tests/harness/rank.h"

enum { MOST = 3000, SENDERS = 5, TAGS = 4 };

/* The same in a simple way: in the order in which they came; NULL: taken. */
static struct {
    struct match m;
    struct p2p_op ops[MOST], *waiting[MOST];
    struct arrival *kept[MOST];
    size_t nops, nwaiting, nkept;
} w;

static bool fits(const struct p2p_op *op, int from, uint32_t tag)
{
    return op->tag == tag && (op->peer == P2P_ANY || op->peer == from);
}

static void receive(int peer, uint32_t tag)
{
    struct p2p_op *op = &w.ops[w.nops];
    *op = (struct p2p_op){.peer = peer, .tag = tag, .number = ++w.nops};
    struct arrival *got = match_post(&w.m, op);
    for (size_t i = 0; i < w.nkept; i++) {
        struct arrival *a = w.kept[i];
        if (!a || !fits(op, a->from, a->tag))
            continue;
        assert_ptr_equal(got, a);
        w.kept[i] = NULL;
        arrival_free(got);
        return;
    }
    assert_null(got);
    w.waiting[w.nwaiting++] = op;
}

static void arrive(int from, uint32_t tag)
{
    struct p2p_op *op = match_arrive(&w.m, from, tag);
    for (size_t i = 0; i < w.nwaiting; i++) {
        if (!w.waiting[i] || !fits(w.waiting[i], from, tag))
            continue;
        assert_ptr_equal(op, w.waiting[i]);
        assert_false(op->posted);
        w.waiting[i] = NULL;
        return;
    }
    assert_null(op);
    struct arrival *a = calloc(1, sizeof(*a));
    *a = (struct arrival){.from = from, .tag = tag, .id = 1};
    match_keep(&w.m, a);
    w.kept[w.nkept++] = a;
}

static void cancel(uint64_t *random)
{
    size_t i = w.nwaiting ? rank_random(random) % w.nwaiting : 0;
    if (w.nwaiting == 0 || !w.waiting[i])
        return;
    match_cancel(&w.m, w.waiting[i]);
    w.waiting[i] = NULL;
}

static void test_random(void **state)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t random = seed;
        memset(&w, 0, sizeof(w));
        match_init(&w.m);
        for (int i = 0; i < MOST; i++) {
            int peer = (int)(rank_random(&random) % SENDERS);
            uint32_t tag = (uint32_t)(rank_random(&random) % TAGS);
            uint64_t what = rank_random(&random) % 20;
            if (what == 0)
                cancel(&random);
            else if (what < 10)
                receive(what < 3 ? P2P_ANY : peer, tag);
            else
                arrive(peer, tag);
        }
        match_fini(&w.m);
    }
}

/* A sender has gone: what it has not sent whole is dropped. */
static void test_forget(void **state)
{
    struct match m;
    struct p2p_op op = {.peer = P2P_ANY, .tag = 1};
    match_init(&m);
    for (int i = 0; i < 4; i++) {
        struct arrival *a = calloc(1, sizeof(*a));
        *a = (struct arrival){.from = 2, .tag = 1, .bytes = 10, .id = i == 0};
        if (i > 0)
            a->data = malloc(10);
        a->have = i == 3 ? 10 : 0;
        match_keep(&m, a);
    }
    match_forget(&m, 1);
    struct arrival *first = match_post(&m, &op);
    assert_non_null(first);
    assert_int_equal(first->id, 1);
    arrival_free(first);
    match_forget(&m, 2);
    struct arrival *whole = match_post(&m, &op);
    assert_non_null(whole);
    assert_int_equal(whole->have, 10);
    arrival_free(whole);
    assert_null(match_post(&m, &op));
    match_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
