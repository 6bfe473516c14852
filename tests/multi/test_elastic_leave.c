/* SPDX-License-Identifier: Apache-2.0
 *
 * An elastic world: ranks that call hvd_shutdown() while others lose a rank. If a rank that has
 * left got a result, the remaining ranks get the same result.
 *
 * timeout: 300
 */
#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <hvd.h>

#include "core/base/inject.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define WARM   60 /* steps until the schedule is frozen */
#define ROUNDS 20

enum { STAYS, LEAVES, DIES, RANKS };

struct board {
    _Atomic int at[RANKS];
    _Atomic int go[RANKS];
    float result[RANKS]; /* of the last operation; 0: none */
};

/* Stops a member and returns when all of its threads have stopped. */
static void stop(struct elastic *job, int member)
{
    int status;
    kill(job->members[member].pid, SIGSTOP);
    assert_int_equal(waitpid(job->members[member].pid, &status, WUNTRACED),
                     job->members[member].pid);
    assert_true(WIFSTOPPED(status));
}

static bool never(struct elastic *job, void *arg)
{
    return false;
}

static bool all_warm(struct elastic *job, void *arg)
{
    struct board *b = arg;
    for (int m = 0; m < RANKS; m++)
        if (atomic_load(&b->at[m]) < WARM)
            return false;
    return true;
}

static bool first_waits(struct elastic *job, void *arg)
{
    return job->members[STAYS].waiting;
}

/* Lets the calling thread run before all other threads of this process: they share its processor
 * with idle priority. So it acts before the engine's own thread sees anything. */
static void be_first(void)
{
    const struct sched_param none = {0};
    cpu_set_t here;
    DIR *dir = opendir("/proc/self/task");
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        pid_t tid = atoi(d->d_name);
        if (tid <= 0)
            continue;
        sched_setaffinity(tid, sizeof(here), &here);
        if (tid != getpid())
            sched_setscheduler(tid, SCHED_IDLE, &none);
    }
    if (dir)
        closedir(dir);
}

/* The last sum begins when the test sets `go`. */
static int sum_and_leave(int member, void *arg)
{
    struct board *b = arg;
    float data[10];
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    if (member != STAYS)
        be_first();
    for (int step = 0; step <= WARM; step++) {
        for (int i = 0; i < 10; i++)
            data[i] = (float)(1 << member);
        atomic_store(&b->at[member], step);
        while (step == WARM && !atomic_load(&b->go[member]))
            if (member == STAYS)
                nap_ms(1); /* the other two spin, to be quick */
        if (hvd_allreduce("sum", data, data, 10, HVD_FLOAT32, HVD_SUM) < 0)
            return FAIL("step %d: %s", step, hvd_error());
    }
    b->result[member] = data[0];
    hvd_shutdown();
    return 0;
}

/* STAYS is told that another rank is lost, and finds no final pieces. That rank is alive, and
 * stages its part. LEAVES, which was stopped meanwhile, finds all parts, has the result, and
 * leaves. STAYS must then compute the same result from the segment. */
static void test_leave_with_result(void **state)
{
    static const char *const env[] = {"HVD_FREEZE_AFTER=10", NULL};
    int left_first = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct board *b = world_board(sizeof(*b));
        struct elastic job;
        elastic_init(&job);
        for (int m = 0; m < RANKS; m++)
            elastic_add(&job, sum_and_leave, b, env);
        assert_true(elastic_run(&job, all_warm, b, 60000));
        atomic_store(&b->go[STAYS], 1);
        elastic_run(&job, never, NULL, 20);
        stop(&job, LEAVES);
        stop(&job, DIES);
        elastic_give_up(&job, DIES);
        assert_true(elastic_run(&job, first_waits, NULL, 60000));
        atomic_store(&b->go[DIES], 1);
        kill(job.members[DIES].pid, SIGCONT);
        elastic_run(&job, never, NULL, 20);
        atomic_store(&b->go[LEAVES], 1);
        kill(job.members[LEAVES].pid, SIGCONT);
        elastic_run(&job, never, NULL, 20);
        kill(job.members[DIES].pid, SIGKILL);
        assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
        assert_int_equal(job.members[STAYS].status, 0);
        assert_int_equal(job.members[LEAVES].status, 0);
        left_first += b->result[LEAVES] == 7;
        if (b->result[STAYS] != b->result[LEAVES])
            fail_msg("round %d: the result is %g, but %g on the rank that left", i,
                     (double)b->result[STAYS], (double)b->result[LEAVES]);
        elastic_fini(&job);
    }
    print_message("the result was first in %d of %d\n", left_first, ROUNDS);
}

/* ---- a loss that is read while hvd_shutdown() runs ---- */

static struct {
    struct board *board;
    _Atomic bool armed; /* set in the member that leaves */
    _Atomic int lost, closing;
} moment;

/* Replaces inject_point() of base/inject: the engine's thread waits where it has read the loss
 * until the main thread is inside hvd_shutdown(). */
void inject_point(const char *place)
{
    if (!moment.armed)
        return;
    if (strcmp(place, "closing") == 0)
        atomic_store(&moment.closing, 1);
    if (strcmp(place, "lost") != 0)
        return;
    atomic_store(&moment.lost, 1);
    while (!atomic_load(&moment.closing))
        nap_ms(1);
}

static int leave_in_that_moment(int member, void *arg)
{
    struct board *b = arg;
    float x = 1;
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    if (hvd_allreduce("sum", &x, &x, 1, HVD_FLOAT32, HVD_SUM) < 0)
        return FAIL("sum: %s", hvd_error());
    moment.armed = member == LEAVES;
    atomic_store(&b->at[member], WARM);
    while (member == DIES)
        pause();
    if (member == LEAVES) {
        while (!atomic_load(&moment.lost))
            nap_ms(1);
        hvd_shutdown();
        /* The process lives on: only its BYE tells the others not to wait. */
        while (!atomic_load(&b->go[LEAVES]))
            nap_ms(1);
        return 0;
    }
    x = 1;
    if (hvd_allreduce("alone", &x, &x, 1, HVD_FLOAT32, HVD_SUM) < 0)
        return FAIL("alone: %s", hvd_error());
    atomic_store(&b->go[LEAVES], 1);
    hvd_shutdown();
    return x == 1 ? 0 : FAIL("a sum of %g", (double)x);
}

static void test_leave_at_a_loss(void **state)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    elastic_init(&job);
    for (int m = 0; m < RANKS; m++)
        elastic_add(&job, leave_in_that_moment, b, NULL);
    assert_true(elastic_run(&job, all_warm, b, 60000));
    kill(job.members[DIES].pid, SIGKILL);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 10000));
    assert_true(job.members[LEAVES].left);
    assert_int_equal(job.members[LEAVES].bye, 0);
    assert_int_equal(job.members[STAYS].status, 0);
    assert_int_equal(job.members[LEAVES].status, 0);
    elastic_fini(&job);
}

/* ---- hvd_shutdown() in the middle of an operation ---- */

static int leave_in_the_middle(int member, void *arg)
{
    struct board *b = arg;
    float x = 1;
    int64_t one = 1;
    hvd_handle h;
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    for (int step = 0; step <= WARM; step++) {
        x = 1;
        atomic_store(&b->at[member], step);
        struct hvd_request r = rank_request("sum", &x, &one);
        if (step == WARM && member == LEAVES) {
            if (hvd_submit(&r, 1, &h) < 0)
                return FAIL("submit: %s", hvd_error());
            hvd_shutdown();
            while (!atomic_load(&b->go[LEAVES]))
                nap_ms(1);
            return 0;
        }
        if (step == WARM && member == DIES)
            nap_ms(20); /* until the operation has begun without this rank */
        if (hvd_allreduce("sum", &x, &x, 1, HVD_FLOAT32, HVD_SUM) < 0)
            return FAIL("step %d: %s", step, hvd_error());
    }
    atomic_store(&b->go[LEAVES], 1);
    hvd_shutdown();
    return x == 2 ? 0 : FAIL("a sum of %g", (double)x);
}

static void test_leave_in_the_middle(void **state)
{
    static const char *const env[] = {"HVD_FREEZE_AFTER=10", NULL};
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    elastic_init(&job);
    for (int m = 0; m < RANKS; m++)
        elastic_add(&job, leave_in_the_middle, b, env);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 10000));
    assert_true(job.members[LEAVES].left);
    for (int m = 0; m < RANKS; m++)
        assert_int_equal(job.members[m].status, 0);
    elastic_fini(&job);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leave_with_result),
        cmocka_unit_test(test_leave_at_a_loss),
        cmocka_unit_test(test_leave_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
