/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of member/roster and member/rank_state: the state table, whole lives of jobs, which rank is
 * named as the cause, random events.
 */
#include <errno.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/clock.h"
#include "core/member/roster.h"

static const uint8_t key[MEMBER_KEY_SIZE] = {1, 2, 3};
static uint64_t seq; /* number of the last report of an agent */

static void make(struct roster *r)
{
    const struct roster_host hosts[] = {{"a0", "h0", 2, 0}, {"a1", "h1", 1, 0}};
    seq = 0;
    assert_int_equal(roster_init(r, "job", key, hosts, 2, NULL), 0);
}

static int join(struct roster *r, const char *agent, int pid)
{
    struct join_body body = {.slots = 2, .pid = pid};
    snprintf(body.agent, sizeof(body.agent), "%s", agent);
    return roster_join(r, &body, 1, NULL);
}

static int report(struct roster *r, const char *agent, enum report_type type, int rank, int code)
{
    struct report_item item = {.type = type, .member = rank, .pid = 100 + rank, .code = code};
    struct report_body body = {.seq = ++seq, .n = 1, .items = &item};
    snprintf(body.agent, sizeof(body.agent), "%s", agent);
    return roster_report(r, &body, seq, NULL);
}

static int card(struct roster *r, const char *agent, uint32_t epoch, int rank)
{
    struct card c = {.member = rank};
    struct cards_body body = {.seq = ++seq, .epoch = epoch, .n = 1, .cards = &c};
    snprintf(body.agent, sizeof(body.agent), "%s", agent);
    buf_put_u32(&c.bytes, (uint32_t)rank);
    int rc = roster_cards(r, &body, seq, NULL);
    buf_fini(&c.bytes);
    return rc;
}

static void start_all(struct roster *r)
{
    assert_int_equal(join(r, "a0", 10), 0);
    assert_int_equal(join(r, "a1", 11), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(report(r, i < 2 ? "a0" : "a1", REPORT_STARTED, i, 0), 0);
}

static void form(struct roster *r, uint32_t epoch)
{
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r->epoch, epoch - 1);
        assert_int_equal(card(r, i < 2 ? "a0" : "a1", epoch, i), 0);
    }
    assert_int_equal(r->epoch, epoch);
    for (int i = 0; i < 3; i++)
        assert_int_equal(r->members.list[i].state, RANK_ACTIVE);
}

static void test_table_has_no_doubles(void **state)
{
    size_t n;
    const struct rank_row *rows = rank_rows(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(rank_step(rows[i].state, rows[i].event), &rows[i]);
        assert_non_null(rank_action_name(rows[i].action));
        assert_true(rows[i].next < RANK_STATES);
    }
    /* A rank that runs may lose its agent in any state. An ended rank stays ended. */
    for (int s = 0; s < RANK_STATES; s++) {
        const struct rank_row *row = rank_step((enum rank_state)s, RANK_AGENT_LOST);
        assert_non_null(row);
        assert_true(rank_has_ended(row->next));
        if (rank_has_ended((enum rank_state)s))
            assert_int_equal(row->next, s);
    }
}

static void test_whole_life(void **state)
{
    struct roster r;
    (void)state;
    make(&r);
    start_all(&r);
    form(&r, 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(report(&r, i < 2 ? "a0" : "a1", REPORT_BYE, i, 0), 0);
    form(&r, 2); /* hvd_init again */
    for (int i = 0; i < 3; i++)
        assert_int_equal(report(&r, i < 2 ? "a0" : "a1", REPORT_BYE, i, 0), 0);
    assert_false(roster_done(&r));
    for (int i = 0; i < 3; i++)
        assert_int_equal(report(&r, i < 2 ? "a0" : "a1", REPORT_EXITED, i, 0), 0);
    assert_true(roster_done(&r));
    assert_int_equal(roster_exit_code(&r), 0);
    assert_int_equal(r.notes.n, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(r.notes.list[i].type, NOTE_ENDED);
    roster_fini(&r);
}

static void test_seats(void **state)
{
    struct roster r;
    const struct assignment want[] = {{0, 0, 0, 2}, {1, 1, 0, 1}, {2, 0, 1, 2}};
    (void)state;
    make(&r);
    for (int i = 0; i < 3; i++)
        assert_memory_equal(&r.members.list[i].assignment, &want[i], sizeof(want[i]));
    roster_fini(&r);
}

static void test_first_failure_decides(void **state)
{
    struct roster r;
    char text[512];
    (void)state;
    make(&r);
    start_all(&r);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 1, 7), 0);
    assert_int_equal(report(&r, "a1", REPORT_EXITED, 2, 3), 0);
    assert_int_equal(r.ends.first, 1);
    roster_describe_end(&r, 1, text, sizeof(text));
    assert_string_equal(text, "rank 1 on h0 (pid 101) exited with code 7");
    assert_int_equal(roster_exit_code(&r), 7);
    roster_fini(&r);
}

/* A signal that is reported right after an exit code was more likely the cause. */
static void test_signal_before_code(void **state)
{
    struct roster r;
    (void)state;
    make(&r);
    start_all(&r);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 1, 1), 0);
    assert_int_equal(report(&r, "a1", REPORT_EXITED, 2, -9), 0);
    assert_int_equal(r.ends.first, 2);
    assert_int_equal(roster_exit_code(&r), 137);
    roster_fini(&r);

    make(&r);
    start_all(&r);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 1, 1), 0);
    seq += CLOCK_S; /* a second later: report() uses seq as the time, too */
    assert_int_equal(report(&r, "a1", REPORT_EXITED, 2, -9), 0);
    assert_int_equal(r.ends.first, 1);
    roster_fini(&r);
}

static void test_stop_hides_its_doing(void **state)
{
    struct roster r;
    (void)state;
    make(&r);
    start_all(&r);
    roster_stop(&r, "because", 1000);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 0, -15), 0);
    assert_int_equal(r.ends.first, -1);
    assert_int_equal(r.notes.list[0].type, NOTE_STOP);
    assert_int_equal(r.notes.list[0].code, 1000);
    roster_fini(&r);
}

static void test_left_early(void **state)
{
    struct roster r;
    char text[512];
    (void)state;
    make(&r);
    start_all(&r);
    form(&r, 1);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 1, 0), 0);
    assert_int_equal(r.ends.early, 1);
    assert_int_equal(r.ends.first, -1);
    assert_int_equal(r.notes.list[0].type, NOTE_LOST);
    roster_describe_end(&r, 1, text, sizeof(text));
    assert_string_equal(text,
                        "rank 1 on h0 (pid 101) left early: it exited without hvd_shutdown()");
    roster_fini(&r);
}

/* Rank 1 calls hvd_shutdown(), the operations of rank 2 fail, and it exits with 1. */
static void shut_down_early(struct roster *r)
{
    make(r);
    start_all(r);
    form(r, 1);
    assert_int_equal(report(r, "a1", REPORT_BYE, 2, -ESHUTDOWN),
                     0); /* BYE may be reported before the exit */
    assert_int_equal(report(r, "a0", REPORT_BYE, 1, 0), 0);
    assert_int_equal(report(r, "a1", REPORT_EXITED, 2, 1), 0);
    assert_int_equal(r->ends.first, -1);
    assert_int_equal(roster_culprit(r), 2);
    assert_int_equal(roster_named(r), 1);
}

static void says(const struct roster *r, int member, const char *want)
{
    char text[512];
    roster_describe_end(r, member, text, sizeof(text));
    assert_string_equal(text, want);
}

static void test_who_left_is_named(void **state)
{
    struct roster r;
    (void)state;
    shut_down_early(&r);
    says(&r, 1, "rank 1 on h0 (pid 101) called hvd_shutdown()");
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 1, 0), 0);
    assert_int_equal(roster_named(&r), 1);
    assert_int_equal(roster_exit_code(&r), 1);
    says(&r, 1, "rank 1 on h0 (pid 101) exited with code 0");
    roster_fini(&r);
}

/* A rank whose operations have failed goes on. If it ends without hvd_shutdown(), or is killed, it
 * is the one to be named. */
static void test_disturbed_goes_on(void **state)
{
    for (int killed = 0; killed < 2; killed++) {
        struct roster r;
        make(&r);
        start_all(&r);
        form(&r, 1);
        assert_int_equal(report(&r, "a0", REPORT_BYE, 1, 0), 0);
        assert_int_equal(report(&r, "a1", REPORT_BYE, 2, -ESHUTDOWN), 0);
        assert_int_equal(report(&r, "a1", REPORT_EXITED, 2, killed ? -9 : 0), 0);
        assert_int_equal(r.ends.early, -1);
        assert_int_equal(roster_culprit(&r), killed ? 2 : -1);
        assert_int_equal(report(&r, "a0", REPORT_BYE, 0, -ECONNRESET), 0);
        assert_int_equal(report(&r, "a0", REPORT_EXITED, 0, 1), 0);
        assert_int_equal(roster_named(&r), 2);
        roster_fini(&r);
    }
}

static void test_who_left_and_failed_decides(void **state)
{
    struct roster r;
    (void)state;
    shut_down_early(&r);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 1, 3), 0);
    assert_int_equal(roster_named(&r), 1);
    assert_int_equal(roster_culprit(&r), 1);
    assert_int_equal(roster_exit_code(&r), 3);
    roster_fini(&r);
}

static void test_who_left_and_lives_is_named(void **state)
{
    struct roster r;
    (void)state;
    shut_down_early(&r);
    roster_stop(&r, "because", 1000);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 1, -15), 0);
    assert_int_equal(roster_named(&r), 1);
    says(&r, 1, "rank 1 on h0 (pid 101) called hvd_shutdown()");
    assert_int_equal(roster_exit_code(&r), 1);
    roster_fini(&r);
}

/* All ranks have called hvd_shutdown(), and one fails later: the departed ranks are not named as
 * the cause. */
static void test_own_error_is_own(void **state)
{
    struct roster r;
    (void)state;
    make(&r);
    start_all(&r);
    form(&r, 1);
    assert_int_equal(report(&r, "a0", REPORT_BYE, 1, 0), 0);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 1, 0), 0);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 0, 5), 0);
    assert_int_equal(roster_named(&r), 0);
    assert_int_equal(roster_exit_code(&r), 5);
    roster_fini(&r);
}

/* A rank that gives up is only noted: it still runs, and may fail or finish later. */
static void test_give_up(void **state)
{
    struct roster r;
    (void)state;
    make(&r);
    start_all(&r);
    roster_give_up(&r, 1, "rank 1 did not come");
    assert_int_equal(r.notes.n, 1);
    assert_int_equal(r.notes.list[0].type, NOTE_LOST);
    assert_int_equal(r.notes.list[0].member, 1);
    assert_string_equal(r.notes.list[0].text, "rank 1 did not come");
    assert_int_equal(r.members.list[1].state, RANK_RUNNING);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 1, 3), 0);
    assert_int_equal(r.ends.first, 1);
    roster_fini(&r);
}

static void test_agent_lost(void **state)
{
    struct roster r;
    (void)state;
    make(&r);
    start_all(&r);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 0, 0), 0);
    roster_agent_lost(&r, 0, "ssh ended with code 255", 5);
    roster_agent_lost(&r, 0, "twice", 6);
    assert_int_equal(r.members.list[0].state, RANK_FINISHED);
    assert_int_equal(r.members.list[1].state, RANK_FAILED);
    assert_int_equal(r.ends.first, 1);
    assert_int_equal(roster_exit_code(&r), 1);
    assert_int_equal(r.notes.n, 2);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 1, 0), -ESTALE);
    roster_fini(&r);
}

static void test_refusals(void **state)
{
    struct roster r;
    struct join_body body = {.agent = "nobody"};
    (void)state;
    make(&r);
    assert_int_equal(roster_join(&r, &body, 1, NULL), -ENOENT);
    assert_int_equal(report(&r, "a0", REPORT_STARTED, 0, 0),
                     -ENOENT); /* the agent has not joined */
    assert_int_equal(join(&r, "a0", 10), 0);
    assert_int_equal(join(&r, "a0", 10),
                     0); /* the agent repeats its join, because the response was lost */
    assert_int_equal(join(&r, "a0", 12), -EEXIST);
    assert_int_equal(report(&r, "a0", REPORT_STARTED, 2, 0),
                     -EPROTO); /* this rank belongs to another agent */
    assert_int_equal(report(&r, "a0", REPORT_STARTED, -1, 0), -EPROTO);
    assert_int_equal(card(&r, "a0", 1, 0), -EPROTO); /* this rank has not started */
    assert_int_equal(report(&r, "a0", REPORT_STARTED, 0, 0), 0);
    assert_int_equal(card(&r, "a0", 2, 0), -ESTALE);
    assert_int_equal(card(&r, "a0", 1, 0), 0);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 0, 1), 0);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 0, 1), -EPROTO);
    roster_fini(&r);
}

static void test_repeated_body_is_nothing(void **state)
{
    struct roster r;
    (void)state;
    make(&r);
    start_all(&r);
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 0, 4), 0);
    seq--;
    assert_int_equal(report(&r, "a0", REPORT_EXITED, 0, 4), 0);
    assert_int_equal(r.ends.ended, 1);
    assert_int_equal(r.notes.n, 1);
    roster_fini(&r);
}

static void test_list(void **state)
{
    struct roster r;
    char text[128], small[8];
    (void)state;
    make(&r);
    start_all(&r);
    roster_list(&r, RANK_RUNNING, text, sizeof(text));
    assert_string_equal(text, "0-1 (h0), 2 (h1)");
    roster_list(&r, RANK_READY, text, sizeof(text));
    assert_string_equal(text, "none");
    roster_list(&r, RANK_RUNNING, small, sizeof(small));
    assert_string_equal(small, "0-1 (h0");
    roster_fini(&r);
}

/* Any events in any order: counts agree with states, epochs only rise, notes only grow. */
static void test_random_events(void **state)
{
    (void)state;
    srand(7);
    for (int life = 0; life < 300; life++) {
        struct roster r;
        make(&r);
        for (int i = 0; i < 120; i++) {
            uint32_t epoch = r.epoch;
            int notes = r.notes.n, rank = rand() % 4 - (rand() % 50 == 0);
            const char *agent = rand() % 20 ? (rank < 2 ? "a0" : "a1") : "a0";
            switch (rand() % 8) {
            case 0:
                join(&r, agent, 10 + (rand() % 20 == 0));
                break;
            case 1:
            case 2:
                card(&r, agent, r.epoch + 1, rank < 0 ? 0 : rank);
                break;
            case 3:
                if (rand() % 40 == 0)
                    roster_agent_lost(&r, rand() % 2, "x", (uint64_t)i);
                break;
            default:
                report(&r, agent,
                       (enum report_type)(rand() % 10 ? rand() % 2 : rand() % REPORT_TYPES), rank,
                       rand() % 3 - 1);
            }
            int ended = 0, ready = 0;
            for (int k = 0; k < r.members.n; k++) {
                ended += rank_has_ended(r.members.list[k].state);
                ready += r.members.list[k].state == RANK_READY;
            }
            assert_int_equal(r.ends.ended, ended);
            assert_int_equal(r.members.ready, ready);
            assert_true(ready < r.size);
            assert_true(r.epoch == epoch || r.epoch == epoch + 1);
            assert_true(r.notes.n >= notes);
            assert_true((r.ends.first >= 0) <= (ended > 0));
        }
        assert_int_equal(r.notes.n, r.ends.ended);
        roster_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table_has_no_doubles),
        cmocka_unit_test(test_whole_life),
        cmocka_unit_test(test_seats),
        cmocka_unit_test(test_first_failure_decides),
        cmocka_unit_test(test_signal_before_code),
        cmocka_unit_test(test_stop_hides_its_doing),
        cmocka_unit_test(test_left_early),
        cmocka_unit_test(test_who_left_is_named),
        cmocka_unit_test(test_disturbed_goes_on),
        cmocka_unit_test(test_who_left_and_failed_decides),
        cmocka_unit_test(test_who_left_and_lives_is_named),
        cmocka_unit_test(test_own_error_is_own),
        cmocka_unit_test(test_give_up),
        cmocka_unit_test(test_agent_lost),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_repeated_body_is_nothing),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_random_events),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
