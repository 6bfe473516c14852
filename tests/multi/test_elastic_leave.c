/* SPDX-License-Identifier: Apache-2.0
 *
 * An elastic world: ranks that call hvd_shutdown() while others lose a rank. What one who has left
 * was given as a result is the result of those who are left, too.
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

static struct board *fresh_board(void)
{
    static struct board *b;
    if (!b)
        b = world_shared(sizeof(*b));
    memset(b, 0, sizeof(*b));
    return b;
}

/* And returns when all of its threads have stopped. */
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

/* Of this process only the calling thread gets on while it wants to: what it does it does before
 * the engine's own thread sees anything. */
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

/* The last sum begins when the test says so. */
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
                nap_ms(1); /* the others are to be quick */
        if (hvd_allreduce("sum", data, data, 10, HVD_FLOAT32, HVD_SUM) < 0)
            return FAIL("step %d: %s", step, hvd_error());
    }
    b->result[member] = data[0];
    hvd_shutdown();
    return 0;
}

/* One rank hears that another one is lost and looks at what is final: nothing. That one lives all
 * the same, and stages its part; the third one, which was stopped meanwhile, finds all parts, has
 * the result, and leaves. The first one must come to the same result by itself. */
static void test_leave_with_result(void **state)
{
    static const char *const env[] = {"HVD_FREEZE_AFTER=10", NULL};
    int left_first = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct board *b = fresh_board();
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
            fail_msg("%d: %g here, %g for one who has left", i, (double)b->result[STAYS],
                     (double)b->result[LEAVES]);
        elastic_fini(&job);
    }
    print_message("the result was first in %d of %d\n", left_first, ROUNDS);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_leave_with_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
