/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of operator/coordinator/job_coordinator without a network: agents join and leave, and are
 * declared lost only for good reasons.
 */
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <sodium.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "operator/coordinator/plane_private.h"
#include "tests/harness/operator/job_agents.h"

static void test_first_world_waits_for_bound_pods(void **state)
{
    struct job_coordinator *c = job_agents_make(2, 1, 4);
    struct plane_pod late = job_agents_pod(1, false, true);
    (void)state;
    assert_int_equal(job_agents_join(c, 0), 200);
    job_agents_started(c, 0);
    job_agents_card(c, 0, CARD_JOIN);
    job_coordinator_tick(c, false, clock_ns());
    assert_int_equal(c->roster.epoch, 0);
    assert_int_equal(job_coordinator_pod(c, &late, NULL), 0); /* its agent never joins */
    job_coordinator_tick(c, false, clock_ns());
    assert_int_equal(c->roster.size, 1);
    assert_int_equal(roster_epoch_number(c->roster.epoch), 1);
    job_coordinator_destroy(c);
}

static void test_who_is_not_lost(void **state)
{
    struct job_coordinator *c = job_agents_train(3, 1, 4);
    (void)state;
    uint64_t now = clock_ns();
    job_coordinator_closed(c, "p1.x", now);
    job_coordinator_tick(c, false, now + 5 * CLOCK_S);
    assert_int_equal(job_coordinator_count_agents(c),
                     3);                  /* a closed connection alone is not a loss yet */
    job_agents_card(c, 0, CARD_REVOKED);  /* another rank has seen a loss */
    now = c->roster.next.answering_since; /* measured without the clock: on a slow machine 25 ms may
                                             have passed */
    assert_int_not_equal(now, 0);
    job_coordinator_tick(c, false, now + 1 * CLOCK_MS);
    assert_int_equal(job_coordinator_count_agents(c), 3);
    job_coordinator_tick(c, false, now + 25 * CLOCK_MS);
    assert_int_equal(job_coordinator_count_agents(c), 2);
    assert_int_equal(c->losses, 1);
    job_agents_card(c, 2, CARD_REVOKED);
    assert_int_equal(c->roster.size, 2);
    job_coordinator_tick(c, true, clock_ns() + 100 * CLOCK_S); /* the plane itself was late */
    assert_int_equal(job_coordinator_count_agents(c), 2);
    job_coordinator_tick(c, false, clock_ns() + 200 * CLOCK_S);
    assert_int_equal(job_coordinator_count_agents(c), 0);
    job_coordinator_destroy(c);
}

/* A scale-down removes the last worker; an eviction keeps the target. */
static void test_who_leaves(void **state)
{
    struct job_coordinator *c = job_agents_train(3, 1, 4);
    struct plane_job two = job_agents_job(2, 1, 4);
    struct plane_pod evicted = job_agents_pod(0, true, false);
    (void)state;
    assert_int_equal(job_coordinator_update(c, &two, NULL), 0);
    for (int i = 0; i < c->roster.members.n; i++)
        assert_int_equal(c->roster.members.list[i].leaving,
                         c->roster.agents.list[c->roster.members.list[i].agent].order == 2);
    for (int i = 0; i < 3; i++)
        job_agents_card(c, i, CARD_BOUNDARY);
    assert_int_equal(c->roster.size, 2);
    assert_int_equal(job_coordinator_pod(c, &evicted, NULL), 0);
    job_coordinator_tick(c, false, clock_ns());
    for (int i = 0; i < 2; i++)
        job_agents_card(c, i, CARD_BOUNDARY);
    /* The replacement starts at once on the idle agent of worker 2. */
    assert_int_equal(c->roster.target, 2);
    assert_int_equal(c->roster.size, 1);
    job_coordinator_destroy(c);
}

/* Two pods are deleted together, and an older state of one of them arrives in between: both leave
 * in one epoch. */
static void test_two_leave_together(void **state)
{
    struct job_coordinator *c = job_agents_train(4, 1, 4);
    (void)state;
    struct plane_pod told[] = {job_agents_pod(0, true, false), job_agents_pod(1, true, false),
                               job_agents_pod(1, false, false)};
    for (int i = 0; i < 3; i++)
        assert_int_equal(job_coordinator_pod(c, &told[i], NULL), 0);
    job_coordinator_tick(c, false, clock_ns());
    for (int i = 0; i < 4; i++)
        job_agents_card(c, i, CARD_BOUNDARY);
    assert_int_equal(c->roster.size, 2);
    job_coordinator_destroy(c);
}

/* A job that stops being elastic with as many workers as before keeps them all from then on. */
static void test_not_elastic_any_more(void **state)
{
    struct job_coordinator *c = job_agents_train(3, 1, 4);
    struct plane_job fixed = job_agents_job(3, 3, 3);
    (void)state;
    assert_int_equal(job_coordinator_update(c, &fixed, NULL), 0);
    assert_int_equal(c->roster.elastic.min, 3);
    assert_int_equal(c->roster.elastic.max, 3);
    job_coordinator_destroy(c);
}

static void test_refused(void **state)
{
    struct job_coordinator *c = job_agents_make(2, 1, 4);
    struct join_body body = {.slots = 1, .pid = 1, .agent = "p1.x", .host = "h"};
    struct plane_job odd = job_agents_job(2, 3, 4);
    struct plane_pod over = job_agents_pod(0, false, true);
    struct err err = {0};
    (void)state;
    assert_int_equal(job_agents_post(c, 0, "/v1/join", join_write(&body), NULL), 403);
    assert_int_equal(job_coordinator_update(c, &odd, &err), -EINVAL);
    assert_int_equal(job_coordinator_pod(c, &over, NULL), 0);
    assert_int_equal(job_agents_join(c, 0), 409);
    assert_int_equal(job_agents_join(c, 1), 200);
    job_coordinator_end(c, clock_ns());
    snprintf(body.agent, sizeof(body.agent), "p1.y");
    assert_int_equal(job_agents_post(c, 1, "/v1/join", join_write(&body), NULL), 409);
    job_coordinator_destroy(c);
}

static void keep_worker(void *arg, const struct plane_worker *worker)
{
    struct plane_worker *seen = arg;
    if (strcmp(worker->pod_uid, seen->pod_uid) == 0)
        *seen = *worker;
}

/* The worker in this pod, as the page shows it. */
static struct plane_worker view(struct job_coordinator *c, const char *pod_uid)
{
    struct plane_worker seen = {0};
    struct plane p = {0};
    snprintf(seen.pod_uid, sizeof(seen.pod_uid), "%s", pod_uid);
    list_init(&p.jobs);
    list_append(&p.jobs, &c->node);
    plane_workers(&p, c->uid, keep_worker, &seen);
    list_remove(&c->node);
    return seen;
}

static struct plane_worker report(struct job_coordinator *c, const struct report_item *item)
{
    struct report_item one = *item;
    struct report_body body = {.agent = "p0.x", .seq = 100 + item->batches, .n = 1, .items = &one};
    auto_free char *text = NULL;
    assert_int_equal(job_agents_post(c, 0, "/v1/report", report_write(&body), &text), 204);
    return view(c, "p0");
}

/* Worker 0 is lost: its place is free for the next worker, and the page shows the others' places.
 */
static void test_places(void **state)
{
    struct job_coordinator *c = NULL;
    struct gather gather = {0};
    struct plane_job job = job_agents_job(3, 1, 4);
    struct plane_pod over = job_agents_pod(0, false, true);
    (void)state;
    job.keep_places = true;
    assert_int_equal(job_coordinator_create(&c, &job, 1, &gather, NULL, NULL, NULL), 0);
    assert_true(c->roster.elastic.keep_places);
    job_coordinator_destroy(c);
    c = job_agents_train(3, 1, 4);
    assert_false(c->roster.elastic.keep_places);
    c->roster.elastic.keep_places = true;
    assert_string_equal(view(c, "p1").ranks, "1");
    assert_int_equal(job_coordinator_pod(c, &over, NULL), 0);
    job_coordinator_tick(c, false, clock_ns());
    job_agents_card(c, 1, CARD_REVOKED);
    job_agents_card(c, 2, CARD_REVOKED);
    assert_string_equal(view(c, "p1").ranks, "0 (place 1)");
    assert_string_equal(view(c, "p2").ranks, "1 (place 2)");
    job_coordinator_destroy(c);
}

/* A view has the sets and descriptors of a rank, until it says that it is in none. */
static void test_sets_in_a_view(void **state)
{
    struct job_coordinator *c = job_agents_train(2, 1, 4);
    struct report_item item = {.type = REPORT_PROGRESS,
                               .batches = 9,
                               .sets = {.n = 2,
                                        .descriptors = 40,
                                        .descriptors_max = 1024,
                                        .segments = 4096,
                                        .memory_left = 5,
                                        .memory_limit = 6,
                                        .communicators = 3,
                                        .gpu_memory_left = 7,
                                        .gpu_memory = 8,
                                        .broken = 1,
                                        .listed = 1,
                                        .list = {{3, 1234, "set 3 has lost 1 of its 2 ranks"}}}};
    (void)state;
    struct plane_worker seen = report(c, &item);
    assert_int_equal(seen.batches, 9);
    assert_int_equal(seen.sets, 2);
    assert_int_equal(seen.descriptors, 40);
    assert_int_equal(seen.descriptors_max, 1024);
    assert_int_equal(seen.segments, 4096);
    assert_true(seen.memory_left == 5 && seen.memory_limit == 6);
    assert_true(seen.communicators == 3 && seen.gpu_memory_left == 7 && seen.gpu_memory == 8);
    assert_true(seen.broken == 1 && seen.broken_since == 1234);
    assert_string_equal(seen.broken_set, "set 3 has lost 1 of its 2 ranks");
    item = (struct report_item){.type = REPORT_PROGRESS, .batches = 10};
    seen = report(c, &item);
    assert_int_equal(seen.batches, 10);
    assert_int_equal(seen.sets, 0);
    assert_int_equal(seen.descriptors_max, 0);
    assert_true(seen.memory_limit == 0 && seen.broken == 0 && seen.communicators == 0);
    job_coordinator_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_world_waits_for_bound_pods),
        cmocka_unit_test(test_who_is_not_lost),
        cmocka_unit_test(test_two_leave_together),
        cmocka_unit_test(test_who_leaves),
        cmocka_unit_test(test_not_elastic_any_more),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_sets_in_a_view),
        cmocka_unit_test(test_places),
    };
    if (sodium_init() < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
