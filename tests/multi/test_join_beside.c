/* SPDX-License-Identifier: Apache-2.0
 *
 * hvd_join() beside other things: sets, an operation right before and right after it, calls of
 * other threads, ranks that do nothing, shut down or die.
 *
 * timeout: 300
 * takes: 15 s
 */
#include <errno.h>
#include <pthread.h>
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

#include "tests/harness/effort.h"
#include "tests/harness/join_rank.h"
#include "tests/harness/world.h"

#define MOST  4
#define AGAIN (int)effort(200)

/* ---- sets ----------------------------------------------------------------------------------- */

/* Set 1 is ranks 2, 0; set 2 is 1, 2. Rank 0 runs out first. */
static int sets_rank(int rank, int size, void *arg)
{
    static const int members[2][2] = {{2, 0}, {1, 2}};
    int set[2], rc = 0, more = 0;
    const int64_t n = 2;
    if (hvd_init() < 0 || hvd_set_add(members[0], 2, &set[0]) < 0 ||
        hvd_set_add(members[1], 2, &set[1]) < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 60 && rank > 0 && rc == 0; i++)
        for (int s = 0; s < 2 && rc == 0; s++) {
            float data[2] = {(float)(rank + 1), 1};
            struct hvd_request r = join_request(HVD_ALLREDUCE, "x", data, data, &n);
            r.set = set[s];
            if (hvd_set_rank(set[s]) < 0)
                continue;
            rc = join_wait(&r);
            float least = (float)(rank + 1);
            if (rc == 0 && data[0] < least)
                rc = FAIL("a sum in set %d is %g", set[s], (double)data[0]);
        }
    if (rc == 0 && rank > 0) {
        int answer = hvd_set_add(members[0], 2, &more);
        if (answer != -EBUSY || !strstr(hvd_error(), "rank 0: it is in hvd_join()"))
            rc = FAIL("a set beside a rank that has joined: %d %s", answer, hvd_error());
    }
    if (rc == 0 && hvd_join() < 0)
        rc = FAIL("%s", hvd_error());
    if (rc == 0 && (hvd_set_add(members[0], 2, &more) < 0 || hvd_set_remove(set[0]) < 0))
        rc = FAIL("after it: %s", hvd_error());
    return join_end(rc);
}

static void test_sets(void **state)
{
    assert_int_equal(world_run(3, sets_rank, NULL), 0);
}

/* Right after the end an operation of a set; and in between one of rank 0 alone. */
static int at_once_rank(int rank, int size, void *arg)
{
    int all[MOST], set;
    const int64_t n = 1;
    if (arg)
        setenv("HVD_LOCALITY", rank < size / 2 ? "a" : "b", 1);
    for (int i = 0; i < size; i++)
        all[i] = i;
    if (hvd_init() < 0 || hvd_set_add(all, size, &set) < 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < AGAIN; k++)
        for (int alone = 0; alone < 2; alone++) {
            float data[1] = {1};
            struct hvd_request r = join_request(HVD_ALLREDUCE, "x", data, data, &n);
            r.set = set;
            if (hvd_join() < 0)
                return FAIL("%s", hvd_error());
            if (alone && rank > 0)
                continue;
            if (join_wait(&r) != 0 || data[0] != (float)(alone ? 1 : size))
                return FAIL("round %d: the sum is %g", k, (double)data[0]);
        }
    return hvd_join() < 0 ? FAIL("%s", hvd_error())
                          : join_end(0); /* rank 0 may be in its last one */
}

static void test_at_once(void **state)
{
    assert_int_equal(world_run(3, at_once_rank, NULL), 0);
    assert_int_equal(world_run(4, at_once_rank, &(int){1}), 0);
}

/* Submitted just before hvd_join(): another rank may have had it before. */
static int just_before_rank(int rank, int size, void *arg)
{
    const int64_t n = 1;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < AGAIN; k++) {
        float data[1] = {1};
        hvd_handle h;
        struct hvd_request r = join_request(HVD_ALLREDUCE, "x", data, data, &n);
        if (rank == 0)
            nanosleep(&(struct timespec){.tv_nsec = k * 7 % 400 * 1000}, NULL);
        if (hvd_submit(&r, 1, &h) < 0 || hvd_join() < 0 || hvd_wait(h) < 0)
            return FAIL("round %d: %s", k, hvd_error());
        if (data[0] != (float)size)
            return FAIL("round %d: the sum is %g", k, (double)data[0]);
    }
    return join_end(0);
}

static void test_just_before(void **state)
{
    assert_int_equal(world_run(2, just_before_rank, NULL), 0);
}

/* Rank 0 has joined. Rank 1 adds a set, while rank 2 still needs rank 0 in another one. */
static int beside_set_call_rank(int rank, int size, void *arg)
{
    static const int members[2] = {0, 2};
    int set, more;
    const int64_t n = 1;
    float data[1] = {1};
    if (hvd_init() < 0 || hvd_set_add(members, 2, &set) < 0)
        return FAIL("%s", hvd_error());
    struct hvd_request r = join_request(HVD_ALLREDUCE, "x", data, data, &n);
    r.set = set;
    if (rank == 2) {
        nap_ms(200); /* rank 1 waits by then */
        if (join_wait(&r) != 0)
            return 1;
    }
    if (rank > 0 && hvd_set_add(members, 2, &more) != -EBUSY)
        return FAIL("a set beside a rank that has joined: %s", hvd_error());
    return hvd_join() < 0 ? FAIL("%s", hvd_error()) : join_end(0);
}

static void test_beside_set_call(void **state)
{
    assert_int_equal(world_run(3, beside_set_call_rank, NULL), 0);
}

/* ---- what is refused, and ends -------------------------------------------------------------- */

struct joiner {
    _Atomic bool *tried;
    int last;        /* what hvd_join() has returned */
    int late, added; /* after -EBUSY: what hvd_submit() and hvd_set_add() have returned */
    char said[2][200];
};

static void *join_once(void *arg)
{
    struct joiner *j = arg;
    float data[1] = {1};
    const int64_t n = 1;
    int set;
    hvd_handle h;
    struct hvd_request r = join_request(HVD_ALLREDUCE, "late", data, data, &n);
    j->last = hvd_join();
    snprintf(j->said[0], sizeof(j->said[0]), "%s", hvd_error());
    if (j->last != -EBUSY)
        return NULL;
    j->late = hvd_submit(&r, 1, &h);
    snprintf(j->said[1], sizeof(j->said[1]), "%s", hvd_error());
    j->added = hvd_set_add((int[]){0, 1}, 2, &set);
    atomic_store(j->tried, true);
    return NULL;
}

/* On rank 1 two threads call hvd_join(), and one of them then submits. Rank 0 has work until then.
 */
static int busy_rank(int rank, int size, void *arg)
{
    _Atomic bool *tried = arg;
    float data[1] = {1};
    int rc = 0;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    if (rank == 0) {
        while (rc == 0 && !atomic_load(tried))
            rc = hvd_allreduce("ready", data, data, 1, HVD_FLOAT32, HVD_MAX);
        return rc == 0 && hvd_join() >= 0 ? join_end(0) : FAIL("%s", hvd_error());
    }
    struct joiner two[2] = {{.tried = tried}, {.tried = tried}};
    pthread_t thread;
    if (pthread_create(&thread, NULL, join_once, &two[1]) != 0)
        return FAIL("no thread");
    join_once(&two[0]);
    pthread_join(thread, NULL);
    const struct joiner *j = &two[two[0].last >= 0]; /* the one that was refused */
    if (two[0].last + two[1].last < -EBUSY || j->last != -EBUSY || j->late != -EBUSY ||
        j->added != -EBUSY || !strstr(j->said[0], "another thread") ||
        !strstr(j->said[1], "in hvd_join()"))
        return FAIL("%d and %d; %s; %d %s", two[0].last, two[1].last, j->said[0], j->late,
                    j->said[1]);
    return join_end(0);
}

static void test_busy(void **state)
{
    assert_int_equal(world_run(2, busy_rank, world_shared(sizeof(bool))), 0);
}

/* Rank 1 shuts down without joining. */
static int leaves_rank(int rank, int size, void *arg)
{
    if (hvd_init() < 0 || hvd_barrier("begin") < 0)
        return FAIL("%s", hvd_error());
    if (rank == 1)
        return join_end(0);
    int rc = hvd_join();
    if (rc != -ESHUTDOWN || !strstr(hvd_error(), "rank 1 has shut down without hvd_join()"))
        return FAIL("%d %s", rc, hvd_error());
    return join_end(0);
}

static void test_leaves(void **state)
{
    assert_int_equal(world_run(3, leaves_rank, NULL), 0);
}

/* Rank 0 does nothing for a while: the stall report says who is in hvd_join() and who is not. */
static int quiet_rank(int rank, int size, void *arg)
{
    struct hvd_stats s = {.size = sizeof(s)};
    if (hvd_init() < 0 || hvd_barrier("begin") < 0)
        return FAIL("%s", hvd_error());
    while (rank == 0 && s.stalls == 0 && hvd_stats(&s) == 0)
        nap_ms(10);
    return hvd_join() == 0 ? join_end(0) : FAIL("%s", hvd_error());
}

static void test_quiet(void **state)
{
    static const char *const env[] = {"HVD_STALL_CHECK_TIME_SECONDS=1", NULL};
    const struct world_options options = {.size = 3, .env = env, .timeout_s = 60};
    assert_int_equal(world_run_options(&options, quiet_rank, NULL), 0);
}

/* Rank 2 is killed while rank 1 has joined and rank 0 has not. */
static int dies_rank(int rank, int size, void *arg)
{
    float data[1] = {1};
    int rc = 0;
    if (hvd_init() < 0 || hvd_barrier("begin") < 0)
        return FAIL("%s", hvd_error());
    if (rank == 1) {
        rc = hvd_join();
        return rc == -ECONNRESET ? 0 : FAIL("%d %s", rc, hvd_error());
    }
    for (int i = 0; i < 1000000 && rc == 0; i++) {
        if (rank == 2 && i == 20)
            raise(SIGKILL);
        rc = hvd_allreduce("x", data, data, 1, HVD_FLOAT32, HVD_MAX);
    }
    return rc == -ECONNRESET ? 0 : FAIL("%d %s", rc, hvd_error());
}

static void test_dies(void **state)
{
    struct world *w;
    int status[3];
    const struct world_options options = {.size = 3, .timeout_s = 60};
    assert_int_equal(world_start(&options, dies_rank, NULL, &w), 0);
    world_wait(w, status);
    assert_int_equal(status[0], 0);
    assert_int_equal(status[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets),        cmocka_unit_test(test_at_once),
        cmocka_unit_test(test_just_before), cmocka_unit_test(test_beside_set_call),
        cmocka_unit_test(test_busy),        cmocka_unit_test(test_leaves),
        cmocka_unit_test(test_quiet),       cmocka_unit_test(test_dies),
    };
    return cmocka_run_group_tests_name("multi/test_join_beside", tests, NULL, NULL);
}
