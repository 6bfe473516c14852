/* SPDX-License-Identifier: Apache-2.0
 *
 * An elastic world: a rank that has no file descriptors left when a repair needs them. It fails
 * with that reason, and the others continue without it.
 *
 * timeout: 300
 * takes: 3 s, waiting
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
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define STEPS 100

enum { HEALTHY, SHORT, DIES, RANKS, OUT = 3 /* exit code */ };

struct board {
    _Atomic int at;
    rlim_t limit;
};

static struct board *fresh_board(rlim_t limit)
{
    struct board *b = world_board(sizeof(*b));
    b->limit = limit;
    return b;
}

/* SHORT has this limit of descriptors from step 20 on. DIES is killed before its step 21. */
static int sum(int member, void *arg)
{
    struct board *b = arg;
    float data[1000] = {0};
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    for (int step = 0; step < STEPS; step++) {
        const struct rlimit few = {b->limit, b->limit};
        if (step == 20 && member == SHORT)
            setrlimit(RLIMIT_NOFILE, &few);
        if (step == 21 && member == DIES)
            raise(SIGKILL);
        if (hvd_allreduce("sum", data, data, 1000, HVD_FLOAT32, HVD_SUM) == 0)
            continue;
        if (member != SHORT || !strstr(hvd_error(), "(ulimit -n)"))
            return FAIL("limit %d: %s", (int)b->limit, hvd_error());
        return OUT;
    }
    hvd_shutdown();
    return 0;
}

static void test_few_descriptors(void **state)
{
    static const char *const places[RANKS][2][2] = {
        {{"HVD_X=1", NULL}, {"HVD_LOCALITY=a", NULL}},
        {{"HVD_X=1", NULL}, {"HVD_LOCALITY=b", NULL}},
        {{"HVD_X=1", NULL}, {"HVD_LOCALITY=c", NULL}},
    };
    for (int hosts = 0; hosts < 2; hosts++) {
        int out = 0;
        for (rlim_t limit = 3; limit < 24; limit++) {
            struct board *b = fresh_board(limit);
            struct elastic job;
            elastic_init(&job);
            for (int m = 0; m < RANKS; m++)
                elastic_add(&job, sum, b, places[m][hosts]);
            if (!elastic_run(&job, elastic_all_over, NULL, 60000))
                fail_msg("limit %d: the job has not ended within a minute", (int)limit);
            int status = job.members[SHORT].status;
            if (job.members[HEALTHY].status != 0 || !WIFEXITED(status) ||
                (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != OUT))
                fail_msg("limit %d: status %x, and %x of the healthy rank", (int)limit, status,
                         job.members[HEALTHY].status);
            /* Epochs: the first one, the one that SHORT could not enter, the one without SHORT. */
            if (job.publishes > 3)
                fail_msg("limit %d: %d epochs", (int)limit, job.publishes);
            out += WEXITSTATUS(status) == OUT;
            elastic_fini(&job);
        }
        assert_true(out > 0);
        print_message("%d of 21 limits were too low\n", out);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_descriptors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
