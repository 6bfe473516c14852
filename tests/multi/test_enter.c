/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that joins while others train: they train on until it is ready, whatever happens to it
 * before; what every function of hvd.h returns meanwhile; every call that admits it.
 *
 * timeout: 300
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/clock.h"
#include "tests/harness/enter_job.h"
#include "tests/harness/rank.h"

#define GOES_ON 50 /* steps of the others while a joiner starts up */

/* ---- the others train on -----------------------------------------------------------------------
 */

static int slow_joiner(int member, void *arg)
{
    if (hvd_init() < 0)
        return enter_job_wrong(member, "init");
    enter_board->hello_at = atomic_load(&enter_board->at);
    for (int ms = 0;
         atomic_load(&enter_board->at) < enter_board->hello_at + GOES_ON && ms < ENTER_LIMIT; ms++)
        nap_ms(1);
    return enter_job_go_on(member);
}

static void test_others_go_on(void **state)
{
    struct elastic job;
    int member;
    enter_job_begin(&job, BY_ENTER);
    member = elastic_add(&job, slow_joiner, NULL, NULL);
    assert_true(elastic_run(&job, enter_job_waits, &member, ENTER_LIMIT));
    enter_job_change(&job);
    assert_int_equal(job.publishes, 2);
    assert_true(enter_board->entered_at - enter_board->hello_at >= GOES_ON);
    printf("%d steps from hello to being in; longest pause of member 0: %.1f ms\n",
           enter_board->entered_at - enter_board->hello_at,
           (double)enter_board->longest / CLOCK_MS);
    enter_job_end(&job, 0);
}

/* Joiners that are ready are admitted. A slow joiner does not delay any rank. */
static int very_slow_joiner(int member, void *arg)
{
    if (hvd_init() < 0)
        return enter_job_wrong(member, "init");
    while (!atomic_load(&enter_board->said[ENTER_OLD]))
        nap_ms(1);
    return enter_job_go_on(member);
}

static void test_one_is_ready_before_the_other(void **state)
{
    struct elastic job;
    int slow, quick;
    enter_job_begin(&job, BY_ENTER);
    slow = elastic_add(&job, very_slow_joiner, NULL, NULL);
    quick = elastic_add(&job, slow_joiner, NULL, NULL);
    assert_true(elastic_run(&job, enter_job_waits, &quick, ENTER_LIMIT));
    enter_job_change(&job);
    assert_true(job.members[quick].active && job.members[slow].arrived);
    atomic_store(&enter_board->said[slow], 1);
    assert_true(elastic_run(&job, enter_job_waits, &slow, ENTER_LIMIT));
    enter_job_change(&job);
    assert_true(job.members[slow].active);
    assert_int_equal(job.publishes, 3);
    enter_job_end(&job, 0);
}

/* ---- what functions return before admission -----------------------------------------------------
 */

static int check_world(void)
{
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    return hvd_world(&w) == 0 && w.waiting && w.is_new && w.elastic && w.epoch == 1 &&
           w.rank == ENTER_OLD && w.size == ENTER_OLD + 1 && w.source == 0 && w.joined == 0 &&
           w.left == 0 && w.repair_ns == 0;
}

static int check_stats(void)
{
    static const struct hvd_stats none = {.size = sizeof(none)};
    struct hvd_stats s = {.size = sizeof(s), .ops = 7};
    return hvd_stats(&s) == 0 && memcmp(&s, &none, sizeof(s)) == 0;
}

static int check_result(void)
{
    struct hvd_result r;
    hvd_release(77);
    return hvd_result(77, &r) == -EINVAL && strstr(hvd_error(), "unknown handle 77");
}

#define ANSWER(call, want)                                                                         \
    {                                                                                              \
#call, (call) == (want)                                                                    \
    }

static int asks(int member, void *arg)
{
    const char *path = arg;
    if (hvd_init() < 0)
        return enter_job_wrong(member, "init");
    const struct {
        const char *call;
        bool right;
    } answers[] = {
        ANSWER(hvd_initialized(), true),
        ANSWER(hvd_init(), 0),
        ANSWER(hvd_rank(), ENTER_OLD),
        ANSWER(hvd_size(), ENTER_OLD + 1),
        ANSWER(hvd_local_rank(), member),
        ANSWER(hvd_local_size(), ENTER_OLD + 1),
        ANSWER(hvd_cross_rank(), 0),
        ANSWER(hvd_cross_size(), 1),
        ANSWER(hvd_homogeneous(), false),
        ANSWER(check_world(), 1),
        ANSWER(check_stats(), 1),
        ANSWER(hvd_poll(77), -EINVAL),
        ANSWER(hvd_wait(77), -EINVAL),
        ANSWER(check_result(), 1),
        ANSWER(hvd_stop_timeline(), 0),
        ANSWER(hvd_start_timeline(NULL, false), -EINVAL),
        ANSWER(hvd_start_timeline("/nowhere/%r", false), 0),
        ANSWER(hvd_start_timeline(path, false), 0),
        ANSWER(access(path, F_OK), -1),
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (!answers[i].right)
            return enter_job_wrong(member, answers[i].call);
    atomic_store(&enter_board->said[member], 1);
    return enter_job_go_on(member);
}

static bool said(struct elastic *job, void *arg)
{
    int member = *(const int *)arg;
    return atomic_load(&enter_board->said[member]) || job->members[member].over;
}

static void test_answers(void **state)
{
    char path[] = "/tmp/hvd-enter-XXXXXX", mine[64];
    struct elastic job;
    int member;
    assert_non_null(mkdtemp(path));
    snprintf(mine, sizeof(mine), "%s/2", path);
    enter_job_begin(&job, BY_ENTER);
    char pattern[64];
    snprintf(pattern, sizeof(pattern), "%s/%%r", path);
    member = elastic_add(&job, asks, pattern, NULL);
    assert_true(elastic_run(&job, said, &member, ENTER_LIMIT));
    assert_true(atomic_load(&enter_board->said[member]));
    assert_true(elastic_run(&job, enter_job_waits, &member, ENTER_LIMIT));
    enter_job_change(&job);
    assert_int_equal(access(mine, F_OK), 0); /* the timeline began at admission */
    enter_job_end(&job, 0);
    unlink(mine);
    rmdir(path);
}

/* ---- calls that admit ---------------------------------------------------------------------------
 */

static int plain_joiner(int member, void *arg)
{
    return hvd_init() < 0 ? enter_job_wrong(member, "init") : enter_job_go_on(member);
}

static void test_every_way_in(void **state)
{
    for (enum enter_how how = 0; how < HOWS; how++) {
        struct elastic job;
        int member;
        enter_job_begin(&job, how);
        member = elastic_add(&job, plain_joiner, NULL, NULL);
        assert_true(elastic_run(&job, enter_job_waits, &member, ENTER_LIMIT));
        assert_int_equal(job.members[member].why, CTL_ENTER);
        enter_job_change(&job);
        assert_true(job.members[member].active);
        enter_job_end(&job, 0);
    }
}

static int crowd(int member, void *arg)
{
    pthread_t threads[4];
    int rc[4];
    if (hvd_init() < 0)
        return enter_job_wrong(member, "init");
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, enter_job_enter, &rc[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++)
        if (rc[i] != 0)
            return printf("thread %d: %d\n", i, rc[i]), 7;
    return enter_job_go_on(member);
}

static void test_many_threads_enter(void **state)
{
    struct elastic job;
    int member;
    enter_job_begin(&job, BY_ENTER);
    member = elastic_add(&job, crowd, NULL, NULL);
    assert_true(elastic_run(&job, enter_job_waits, &member, ENTER_LIMIT));
    enter_job_change(&job);
    enter_job_end(&job, 0);
}

/* Two joiners have the same provisional place. The one that got another place refuses messages made
 * for the old place, and no rank reads them. */
static int asks_for_parts(int member, void *arg)
{
    int64_t splits[ENTER_OLD + 1] = {0}, rows = 8, step = -1;
    float x[8] = {0};
    hvd_handle h;
    struct hvd_request r = rank_request("parts", x, &rows);
    bool last = member == ENTER_OLD + 1;
    r.kind = last ? HVD_ALLTOALL : HVD_REDUCESCATTER;
    r.splits = last ? splits : NULL;
    r.output = last ? NULL : x;
    if (hvd_init() < 0 || hvd_rank() != ENTER_OLD || hvd_size() != ENTER_OLD + 1)
        return enter_job_wrong(member, "place");
    if (hvd_submit(&r, 1, &h) != -ESTALE)
        return enter_job_wrong(member, "it should have moved");
    if (hvd_rank() != member || hvd_size() != ENTER_OLD + 2)
        return enter_job_wrong(member, "the place that it has now");
    return enter_job_share(&step) < 0 ? enter_job_wrong(member, "state")
                                      : enter_job_train(member, step + 1);
}

static void test_another_place(void **state)
{
    struct elastic job;
    enter_job_begin(&job, BY_ENTER);
    const int a = elastic_add(&job, asks_for_parts, NULL, NULL),
              b = elastic_add(&job, asks_for_parts, NULL, NULL);
    int members[] = {a, b};
    for (int i = 0; i < 2; i++)
        assert_true(elastic_run(&job, enter_job_waits, &members[i], ENTER_LIMIT));
    enter_job_change(&job);
    assert_int_equal(job.publishes, 2);
    enter_job_end(&job, 0);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_others_go_on),
        cmocka_unit_test(test_one_is_ready_before_the_other),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_every_way_in),
        cmocka_unit_test(test_many_threads_enter),
        cmocka_unit_test(test_another_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
