/* SPDX-License-Identifier: Apache-2.0
 *
 * An elastic world without losses: each planned change makes one epoch, however soon it follows the
 * previous one. A rank that leaves the old mesh early is not reported as lost by ranks that are
 * still finishing there.
 *
 * timeout: 300
 * takes: 10 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define RANKS   4
#define LIMIT   60000 /* ms: limit of every wait */
#define CHANGES 60

struct board {
    _Atomic int at, stop;
};

/* Only member 0 reads stop, and all ranks agree on its value: all end in the same step. */
static int train(int member, void *arg)
{
    struct board *b = arg;
    float data[2] = {0};
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    for (int step = 0; data[1] <= 0; step++) {
        data[0] = 1;
        data[1] = member == 0 && atomic_load(&b->stop) ? 1 : 0;
        if (hvd_allreduce("sum", data, data, 2, HVD_FLOAT32, HVD_SUM) < 0)
            return FAIL("step %d: %s", step, hvd_error());
        if (data[0] != RANKS)
            return FAIL("step %d: a sum of %g", step, (double)data[0]);
        if (hvd_commit() < 0)
            return FAIL("commit %d: %s", step, hvd_error());
        if (member == 0)
            atomic_store(&b->at, step);
    }
    hvd_shutdown();
    return 0;
}

static bool published(struct elastic *job, void *arg)
{
    return job->publishes >= *(const int *)arg;
}

/* steps: from the beginning of an epoch to the next change. */
static void change_often(const char *const places[RANKS], int steps)
{
    struct board *b = world_shared(sizeof(*b));
    struct elastic job;
    elastic_init(&job);
    for (int m = 0; m < RANKS; m++) {
        const char *const env[] = {places[m], NULL};
        elastic_add(&job, train, b, env);
    }
    assert_true(elastic_run_to(&job, &b->at, 1, LIMIT));
    for (int i = 0; i < CHANGES; i++) {
        int expected = job.publishes + 1;
        elastic_announce(&job);
        assert_true(elastic_run(&job, published, &expected, LIMIT));
        assert_true(elastic_run_to(&job, &b->at, atomic_load(&b->at) + steps, LIMIT));
        if (job.publishes != expected)
            fail_msg("change %d of %s made %d epochs", i, places[RANKS - 1],
                     job.publishes - expected + 1);
    }
    atomic_store(&b->stop, 1);
    assert_true(elastic_run(&job, elastic_all_over, NULL, LIMIT));
    for (int m = 0; m < RANKS; m++)
        assert_int_equal(job.members[m].status, 0);
    elastic_fini(&job);
}

static void test_a_change_is_one_epoch(void **state)
{
    static const char *const places[][RANKS] = {
        {"HVD_X=1", "HVD_X=1", "HVD_X=1", "HVD_X=1"},
        {"HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0", "HVD_SHM=0"},
        {"HVD_LOCALITY=a", "HVD_LOCALITY=a", "HVD_LOCALITY=b", "HVD_LOCALITY=b"},
    };
    for (int steps = 1; steps <= 4; steps += 3)
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
            change_often(places[i], steps);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_change_is_one_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
