/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of an elastic world: a repair in which an allocation of one rank fails, each in turn; and
 * many epochs, none of which leaks.
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
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/elastic.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { HEALTHY, SHORT, DIES, RANKS, OUT = 3 /* exit code */ };

struct board {
    _Atomic int at[RANKS];
    int nth;        /* the allocation of SHORT that fails, from step 20 on */
    _Atomic int in; /* 1: the rank SHORT ended before its allocation `nth`, so none failed */
    _Atomic int stop;
};

static int sockets_open(void)
{
    int n = 0;
    struct stat st;
    for (int fd = 3; fd < 256; fd++)
        n += fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
    return n;
}

/* ---- no memory in a repair ------------------------------------------------------------------- */

static int sum_with_little(int member, void *arg)
{
    struct board *b = arg;
    float data[1000] = {0};
    int before = sockets_open();
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    for (int step = 0; step < 60; step++) {
        if (step == 20 && member == SHORT)
            atomic_store(&fail_alloc.fail_at, b->nth);
        if (step == 21 && member == DIES)
            raise(SIGKILL);
        int rc = hvd_allreduce("sum", data, data, 1000, HVD_FLOAT32, HVD_SUM);
        if (rc == 0)
            continue;
        if (member != SHORT || rc != -ENOMEM)
            return FAIL("allocation %d: %s", b->nth, hvd_error());
        if (sockets_open() != before)
            return FAIL("allocation %d: %d sockets are open (%s)", b->nth, sockets_open() - before,
                        hvd_error());
        return OUT;
    }
    if (member == SHORT)
        atomic_store(&b->in, atomic_load(&fail_alloc.fail_at) >= 0);
    atomic_store(&fail_alloc.fail_at, -1);
    hvd_shutdown();
    return 0;
}

static void test_no_memory(void **state)
{
    bool all = false;
    int out = 0, n;
    for (n = 0; FAIL_ALLOC && !all; n++) {
        struct board *b = world_board(sizeof(*b));
        struct elastic job;
        elastic_init(&job);
        b->nth = n;
        for (int m = 0; m < RANKS; m++)
            elastic_add(&job, sum_with_little, b, NULL);
        if (!elastic_run(&job, elastic_all_over, NULL, 60000))
            fail_msg("allocation %d: it has not ended within a minute", n);
        int status = job.members[SHORT].status;
        if (job.members[HEALTHY].status != 0 || !WIFEXITED(status) ||
            (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != OUT))
            fail_msg("allocation %d: status %x, of the healthy one %x", n, status,
                     job.members[HEALTHY].status);
        if (job.publishes > 3)
            fail_msg("allocation %d: %d epochs", n, job.publishes);
        out += WEXITSTATUS(status) == OUT;
        all = b->in;
        elastic_fini(&job);
    }
    print_message("%d of %d allocations are missed\n", out, n);
    assert_true(!FAIL_ALLOC || out > 0);
}

/* ---- many epochs ------------------------------------------------------------------------------
 */

static int commit_many(int member, void *arg)
{
    struct board *b = arg;
    float data[1000] = {0};
    struct hvd_world w = {.size_of_struct = sizeof(w)};
    uint32_t epochs = 0, seen = 0;
    long first = 0, most = 0;
    if (hvd_init() < 0)
        return FAIL("init: %s", hvd_error());
    for (int step = 0; data[0] == 0; step++) {
        data[0] = (float)atomic_load(&b->stop);
        atomic_store(&b->at[member], step);
        if (hvd_allreduce("sum", data, data, 1000, HVD_FLOAT32, HVD_SUM) < 0 || hvd_commit() < 0)
            return FAIL("step %d: %s", step, hvd_error());
        hvd_world(&w);
        epochs += w.epoch != seen;
        seen = w.epoch;
        long now = atomic_load(&fail_alloc.live);
        first = epochs == 50 ? now : first;
        most = epochs >= 50 && now > most ? now : most;
    }
    hvd_shutdown();
    if (epochs < 200)
        return FAIL("%u epochs", epochs);
    if (most > first + 20)
        return FAIL("%ld blocks at epoch 50, up to %ld since", first, most);
    return 0;
}

static bool past_change(struct elastic *job, void *arg)
{
    return !job->changing;
}

static bool begun(struct elastic *job, void *arg)
{
    return job->epoch > 0;
}

static void test_many_epochs(void **state)
{
    struct board *b = world_board(sizeof(*b));
    struct elastic job;
    elastic_init(&job);
    for (int m = 0; m < 2; m++)
        elastic_add(&job, commit_many, b, NULL);
    assert_true(elastic_run(&job, begun, NULL, 60000));
    for (int i = 0; i < 210; i++) {
        elastic_announce(&job);
        assert_true(elastic_run(&job, past_change, NULL, 60000));
    }
    atomic_store(&b->stop, 1);
    assert_true(elastic_run(&job, elastic_all_over, NULL, 60000));
    assert_int_equal(job.members[0].status, 0);
    assert_int_equal(job.members[1].status, 0);
    elastic_fini(&job);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_many_epochs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
