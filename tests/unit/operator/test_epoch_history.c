/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/coordinator/epoch_history: what the epochs of a job were, and what they cost.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <sodium.h>

#include "core/base/clock.h"
#include "tests/harness/operator/job_agents.h"

/* The cost of a loss is that of its slowest rank; it is returned once, when it is final. */
static void test_epochs(void **state)
{
    struct job_coordinator *c = job_agents_train(3, 1, 4);
    struct plane_job one = job_agents_job(1, 1, 4);
    bool lost = false;
    double ms = 0;
    (void)state;
    uint64_t now = clock_ns();
    job_coordinator_tick(c, false, now);
    assert_int_equal(c->history.n, 1);
    assert_true(c->history.list[0].first);
    job_coordinator_closed(c, "p1.x", now);
    job_agents_card(c, 0, CARD_REVOKED);
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    job_coordinator_tick(c, false, clock_ns());
    job_agents_card(c, 2, CARD_REVOKED);
    job_coordinator_tick(c, false, clock_ns());
    job_agents_repaired(c, 0, 7000 * CLOCK_MS);
    job_agents_repaired(c, 2, 9000 * CLOCK_MS);
    now = clock_ns();
    job_coordinator_tick(c, false, now);
    assert_int_equal(c->history.n, 2);
    assert_int_equal(c->history.list[1].size, 2);
    assert_non_null(strstr(c->history.list[1].cause, "its agent has closed the connection"));
    assert_false(epoch_history_next_final(&c->history, now, &lost, &ms));
    assert_true(epoch_history_next_final(&c->history, now + 3 * CLOCK_S, &lost, &ms));
    assert_true(lost);
    assert_float_equal(ms, 9000, 0.1);
    assert_false(epoch_history_next_final(&c->history, now + 3 * CLOCK_S, &lost, &ms));
    /* both reach a boundary and one leaves: no loss */
    assert_int_equal(job_coordinator_update(c, &one, NULL), 0);
    job_agents_card(c, 0, CARD_BOUNDARY);
    job_agents_card(c, 2, CARD_BOUNDARY);
    now = clock_ns();
    job_coordinator_tick(c, false, now);
    assert_true(epoch_history_next_final(&c->history, now + 3 * CLOCK_S, &lost, &ms));
    assert_false(lost);
    assert_int_equal(c->history.planned, 1);
    assert_int_equal(c->history.lost, 1);
    job_coordinator_destroy(c);
}

/* An epoch with all members of the last one is no loss, at a boundary or not. */
static void test_epoch_of_all(void **state)
{
    struct job_coordinator *c = job_agents_train(2, 1, 4);
    (void)state;
    job_coordinator_tick(c, false, clock_ns());
    job_agents_card(c, 0, CARD_REVOKED);
    job_agents_card(c, 1, CARD_REVOKED);
    job_coordinator_tick(c, false, clock_ns());
    assert_int_equal(c->history.n, 2);
    assert_int_equal(c->history.planned, 1);
    assert_int_equal(c->history.lost, 0);
    job_coordinator_destroy(c);
}

static void test_last_epochs_are_kept(void **state)
{
    struct roster r = {.size = 2};
    struct epoch_history all = {0};
    bool lost;
    double ms;
    int counted = 0;
    (void)state;
    for (uint32_t i = 1; i <= 3 * EPOCH_HISTORY_MAX; i++) {
        r.epoch = i;
        r.last = (struct roster_last){.epoch = i, .at = i, .took = CLOCK_MS};
        snprintf(r.last.cause, sizeof(r.last.cause), "cause %u", i);
        epoch_history_update(&all, &r);
        counted += epoch_history_next_final(&all, i, &lost, &ms);
    }
    assert_int_equal(all.n, EPOCH_HISTORY_MAX);
    assert_int_equal(all.list[all.n - 1].epoch, 3 * EPOCH_HISTORY_MAX);
    assert_string_equal(all.list[0].cause, "cause 65");
    counted += epoch_history_next_final(&all, 10 * CLOCK_S, &lost, &ms);
    assert_int_equal(counted, 3 * EPOCH_HISTORY_MAX - 1); /* all but the first */
    epoch_history_fini(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs),
        cmocka_unit_test(test_epoch_of_all),
        cmocka_unit_test(test_last_epochs_are_kept),
    };
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
