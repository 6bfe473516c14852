/* SPDX-License-Identifier: Apache-2.0
 *
 * An elastic world: a rank dies while operations of a group are partly done.
 *
 * timeout: 300
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
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/effort.h"
#include "tests/harness/elastic.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

#define GROUP 6
#define COUNT 30000

enum { ROOT = 2, RANKS = 3 };

struct board {
    _Atomic int at;
    /* Of the group in which the root died, a bit for each operation: it has the root's data; it
     * failed because of the root. */
    uint64_t whole[RANKS], dead[RANKS];
};

static int broadcast_group(struct board *b, int member, int step, float **data)
{
    static const char *const names[GROUP] = {"b0", "b1", "b2", "b3", "b4", "b5"};
    const int64_t count = COUNT;
    struct hvd_request r[GROUP];
    hvd_handle h[GROUP];
    for (int i = 0; i < GROUP; i++) {
        for (int k = 0; k < COUNT; k++)
            data[i][k] = member == ROOT ? (float)(step + i) : -1;
        r[i] = (struct hvd_request){.kind = HVD_BROADCAST,
                                    .name = names[i],
                                    .input = data[i],
                                    .output = data[i],
                                    .dtype = HVD_FLOAT32,
                                    .ndim = 1,
                                    .shape = &count,
                                    .root = ROOT,
                                    .device = -1};
    }
    if (hvd_submit(r, GROUP, h) < 0)
        return FAIL("submit: %s", hvd_error());
    for (int i = 0; i < GROUP; i++) {
        int rc = hvd_wait(h[i]);
        if (rc == -EOWNERDEAD)
            b->dead[member] |= 1u << i;
        else if (rc < 0)
            return FAIL("step %d: %s", step, hvd_error());
        for (int k = 0; rc == 0 && k < COUNT; k++)
            if (data[i][k] != (float)(step + i))
                return FAIL("step %d: element %d of %d is %g", step, k, i, (double)data[i][k]);
        b->whole[member] |= rc == 0 ? 1u << i : 0;
    }
    return 0;
}

/* Repeats the group until the root is lost. */
static int broadcast_until(int member, void *arg)
{
    struct board *b = arg;
    float *data[GROUP];
    for (int i = 0; i < GROUP; i++)
        data[i] = malloc(COUNT * sizeof(float));
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    for (int step = 0; step < 100000 && !b->dead[member]; step++) {
        b->whole[member] = 0;
        if (member == 0)
            atomic_store(&b->at, step);
        int rc = broadcast_group(b, member, step, data);
        if (rc)
            return rc;
    }
    if (hvd_barrier("end") < 0)
        return FAIL("barrier: %s", hvd_error());
    hvd_shutdown();
    return 0;
}

static bool warm(struct elastic *job, void *arg)
{
    struct board *b = arg;
    return atomic_load(&b->at) >= 10;
}

/* An operation of the group has the root's data on all ranks, or fails on all ranks. */
static void test_root_dies_in_group(void **state)
{
    static const char *const one[] = {"HVD_X=1", NULL}, *const many[] = {"HVD_SHM=0", NULL};
    int parts = 0;
    const int seeds = effort(60);
    for (unsigned seed = 1; seed <= (unsigned)seeds; seed++) {
        struct board *b = world_board(sizeof(*b));
        struct elastic job;
        struct timespec nap = {.tv_nsec = (seed * 2654435761u >> 8) % 2000000};
        elastic_init(&job);
        for (int m = 0; m < RANKS; m++)
            elastic_add(&job, broadcast_until, b, seed % 2 ? one : many);
        assert_true(elastic_run(&job, warm, b, 60000));
        nanosleep(&nap, NULL);
        kill(job.members[ROOT].pid, SIGKILL);
        if (!elastic_run(&job, elastic_all_over, NULL, 60000))
            fail_msg("seed %u: it has not ended within a minute", seed);
        for (int m = 0; m < 2; m++) {
            assert_int_equal(job.members[m].status, 0);
            assert_int_equal(b->whole[m] & b->dead[m], 0);
        }
        if (b->dead[0] != b->dead[1])
            fail_msg("seed %u: operations %x failed on member 0, %x on member 1", seed,
                     (unsigned)b->dead[0], (unsigned)b->dead[1]);
        parts += b->whole[0] != 0;
        elastic_fini(&job);
    }
    print_message("%d of %d groups were done in part\n", parts, seeds);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_root_dies_in_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
