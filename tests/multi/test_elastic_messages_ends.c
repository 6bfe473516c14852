/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages in an elastic job, one case at a time: a rank shuts down, is killed while others wait
 * and one is in no call, one rank is left, and a receive is in flight at a boundary.
 *
 * timeout: 300
 * takes: 5 s
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/deaths.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { MEMBERS = 4, LIMIT = 60000 /* ms */ };

struct board {
    _Atomic int at[ELASTIC_MAX]; /* what each member has reached */
    _Atomic int hold;            /* 0: members wait; -1: all go on */
    _Atomic bool killed[ELASTIC_MAX];
};

static void end(struct elastic *job, struct board *b, uint32_t left, const char *what)
{
    atomic_store(&b->hold, -1);
    deaths_expect_end(job, left, what);
    elastic_fini(job);
}

static int expect(int rc, int want)
{
    return rc == want ? 0 : FAIL("%d (%s), not %d", rc, hvd_error(), want);
}

/* Member 1 shuts down. What it has sent is received, and no more is awaited from it. */
static int one_shuts_down(int member, void *arg)
{
    struct board *b = arg;
    uint64_t word = 7, other = 0;
    int rc = expect(hvd_init(), 0);
    if (rc == 0 && member == 1) {
        rc = expect(hvd_send(&word, sizeof(word), 0, 1, 0), 0);
        atomic_store(&b->at[1], 1);
        return rc ? rc : expect(hvd_shutdown(), 0);
    }
    while (rc == 0 && !atomic_load(&b->at[1]))
        nap_ms(1);
    if (rc == 0 && member == 0) {
        nap_ms(200);
        rc = expect(hvd_recv(&other, sizeof(other), 1, 1, 0, NULL), 0);
        if (rc == 0 && other != 7)
            rc = FAIL("word %llu", (unsigned long long)other);
        if (rc == 0)
            rc = expect(hvd_recv(&other, sizeof(other), 1, 1, 0, NULL), -ESHUTDOWN);
        if (rc == 0)
            rc = expect(hvd_send(&word, sizeof(word), 2, 1, 0), 0);
    } else if (rc == 0 && member == 2) {
        rc = expect(hvd_recv(&other, sizeof(other), 0, 1, 0, NULL), 0);
    }
    if (rc == 0)
        rc = expect(hvd_allreduce("after", &(float){1}, &(float){0}, 1, HVD_FLOAT32, HVD_SUM), 0);
    if (rc == 0 && member == 0) /* in the next epoch it is not there */
        rc = expect(hvd_send(&word, sizeof(word), 1, 1, 0), -EOWNERDEAD);
    return rc ? rc : expect(hvd_shutdown(), 0);
}

/* Member 2 is killed while 0 waits for a message that 1 sends later, and 1 is in no call. Members 0
 * and 3 wait for it, too. */
static int one_is_killed(int member, void *arg)
{
    struct board *b = arg;
    static uint8_t large[3000000];
    uint64_t word = 9;
    hvd_handle h[3];
    const struct hvd_message m[3] = {
        {.direction = HVD_RECV, .peer = 1, .tag = 1, .device = -1, .data = large, .bytes = 3000000},
        {.direction = HVD_RECV, .peer = 2, .tag = 1, .device = -1, .data = &word, .bytes = 8},
        {.direction = HVD_SEND,
         .peer = 2,
         .tag = 1,
         .device = -1,
         .data = large,
         .bytes = 3000000}};
    int rc = expect(hvd_init(), 0);
    atomic_store(&b->at[member], 1);
    if (rc == 0 && member == 0) {
        rc = expect(hvd_exchange(m, 2, h), 0);
        if (rc == 0)
            rc = expect(hvd_wait(h[1]), -EOWNERDEAD);
        if (rc == 0)
            rc = expect(hvd_wait(h[0]), 0);
        if (rc == 0 && (large[0] != 5 || large[2999999] != 5))
            rc = FAIL("%d", large[0]);
    } else if (rc == 0 && member == 1) {
        while (!atomic_load(&b->killed[2]))
            nap_ms(1);
        nap_ms(300);
        memset(large, 5, sizeof(large));
        rc = expect(hvd_send(large, sizeof(large), 0, 1, 0), 0);
    } else if (rc == 0 && member == 2) {
        nap_ms(LIMIT);
    } else if (rc == 0) {
        rc = expect(hvd_exchange(&m[2], 1, h), 0);
        if (rc == 0)
            rc = expect(hvd_wait(h[0]), -EOWNERDEAD);
    }
    return rc ? rc : expect(hvd_shutdown(), 0);
}

/* Member 1 is killed. On the only rank that is left, no receive from any rank waits for another
 * one, until that rank knows that it is alone. */
static int one_is_left(int member, void *arg)
{
    struct board *b = arg;
    uint64_t word = 1, got = 0;
    hvd_handle h;
    const struct hvd_message own = {
        .direction = HVD_RECV, .peer = HVD_ANY, .tag = 2, .device = -1, .data = &got, .bytes = 8};
    int rc = expect(hvd_init(), 0);
    atomic_store(&b->at[member], 1);
    while (member == 1)
        nap_ms(LIMIT);
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = expect(hvd_recv(&got, 8, HVD_ANY, 1, 0, NULL), -EOWNERDEAD);
    if (rc == 0)
        rc = expect(hvd_commit(), 1);
    if (rc == 0)
        rc = expect(hvd_exchange(&own, 1, &h), 0);
    if (rc == 0)
        rc = expect(hvd_send(&word, 8, 0, 2, 0), 0);
    if (rc == 0)
        rc = expect(hvd_wait(h), 0);
    return rc ? rc : expect(hvd_shutdown(), 0);
}

static void test_one_is_left(void **state)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    elastic_init(&job);
    for (int m = 0; m < 2; m++)
        elastic_add(&job, one_is_left, b, NULL);
    for (int m = 0; m < 2; m++)
        assert_true(elastic_run_to(&job, &b->at[m], 1, LIMIT));
    nap_ms(50);
    deaths_kill(&job, b->killed, 1);
    end(&job, b, 0x1, "one is left");
}

/* A receive is in flight over a boundary at which member 1 leaves, so ranks get other numbers. */
static int over_a_boundary(int member, void *arg)
{
    struct board *b = arg;
    uint64_t word = 4, got = 0;
    struct hvd_arrival arrival = {.peer = -2};
    hvd_handle h;
    const struct hvd_message m = {.direction = HVD_RECV,
                                  .peer = 2,
                                  .tag = 1,
                                  .device = -1,
                                  .data = &got,
                                  .bytes = 8,
                                  .ret_arrival = &arrival};
    int rc = expect(hvd_init(), 0);
    if (rc == 0 && member == 0)
        rc = expect(hvd_exchange(&m, 1, &h), 0);
    atomic_store(&b->at[member], 1);
    while (atomic_load(&b->hold) >= 0)
        nap_ms(1);
    if (rc == 0)
        rc = expect(hvd_commit(), member == 1 ? -ESHUTDOWN : 1);
    if (rc == 0 && member == 2)
        rc = expect(hvd_rank(), 1) || expect(hvd_send(&word, 8, 0, 1, 0), 0);
    if (rc == 0 && member == 0)
        rc = expect(hvd_wait(h), 0);
    if (rc == 0 && member == 0 && (got != 4 || arrival.peer != 1))
        rc = FAIL("%llu from %d", (unsigned long long)got, arrival.peer);
    return rc ? rc : expect(hvd_shutdown(), 0);
}

static void test_in_flight_at_a_boundary(void **state)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    elastic_init(&job);
    for (int m = 0; m < 3; m++)
        elastic_add(&job, over_a_boundary, b, NULL);
    for (int m = 0; m < 3; m++)
        assert_true(elastic_run_to(&job, &b->at[m], 1, LIMIT));
    job.members[1].leaving = true;
    elastic_announce(&job);
    end(&job, b, 0x7, "in flight at a boundary");
}

static void test_shutdown(void **state)
{
    for (int i = 0; i < 3; i++) {
        struct board *b = world_board(sizeof(*b));
        struct elastic job;
        elastic_init(&job);
        for (int m = 0; m < 3; m++) {
            const char *const env[] = {deaths_places[i][m], NULL};
            elastic_add(&job, one_shuts_down, b, env);
        }
        end(&job, b, 0x7, "one shuts down");
    }
}

static void test_kill_while_idle(void **state)
{
    for (int i = 0; i < 3; i++) {
        struct board *b = world_board(sizeof(*b));
        struct elastic job;
        elastic_init(&job);
        for (int m = 0; m < 4; m++) {
            const char *const env[] = {deaths_places[i][m], NULL};
            elastic_add(&job, one_is_killed, b, env);
        }
        for (int m = 0; m < 4; m++)
            assert_true(elastic_run_to(&job, &b->at[m], 1, LIMIT));
        nap_ms(50);
        deaths_kill(&job, b->killed, 2);
        end(&job, b, 0xb, "one is killed");
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shutdown),
        cmocka_unit_test(test_kill_while_idle),
        cmocka_unit_test(test_one_is_left),
        cmocka_unit_test(test_in_flight_at_a_boundary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
