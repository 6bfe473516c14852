/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_process with an operation that is cancelled: it gets time to finish. If it fails or does not
 * finish, no thread calls MPI any more, neither between operations nor at exit, and MPI is not used
 * again.
 *
 * takes: 5 s, waiting
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/backend/mpi_process.h"
#include "core/base/clock.h"
#include "tests/harness/mpi_plugin.h"
#include "tests/harness/rank.h"

static struct {
    _Atomic int progress, steps;
} g;

static void progress(void)
{
    atomic_fetch_add(&g.progress, 1);
}

static int leave(struct mpi_setup *s)
{
    _exit(99); /* at exit, where it must not be called */
}

static const struct mpi_plugin plugin = {MPI_PLUGIN_COMMON, .leave = leave, .progress = progress};

/* An operation that ends with rc after this many steps; 0 steps: it never ends. */
struct job {
    int steps, rc;
};

static int step(void *ctx)
{
    struct job *job = ctx;
    atomic_fetch_add(&g.steps, 1);
    return job->steps > 0 && --job->steps == 0 ? job->rc : 1;
}

static void stop_one(struct job job, bool ends)
{
    struct mpi_task task = {0};
    assert_true(mpi_task_stop(&task)); /* a task that was never started */
    mpi_task_start(&task, step, &job);
    assert_int_equal(mpi_task_stop(&task), ends);
    int steps = atomic_load(&g.steps), calls = atomic_load(&g.progress);
    assert_int_equal(mpi_task_stop(&task), ends); /* again */
    nap_ms(50);
    assert_int_equal(atomic_load(&g.steps), steps);
    if (!ends)
        assert_int_equal(atomic_load(&g.progress), calls);
}

static void stop_in(struct job bad)
{
    struct mpi_setup here;
    struct err err = {0};
    assert_int_equal(
        mpi_process_enter(&plugin, &mpi_plugin_mesh, deadline_in_ms(10000), &here, &err), 0);
    while (atomic_load(&g.progress) == 0)
        nap_ms(1);
    stop_one((struct job){.steps = 100}, true);
    stop_one(bad, false);
    assert_int_equal(
        mpi_process_enter(&plugin, &mpi_plugin_mesh, deadline_in_ms(10000), &here, &err), -EBUSY);
    assert_non_null(strstr(err.msg, "the middle of an operation, whose memory it may still use"));
    mpi_process_close(NULL, 0, false);
}

static void test_never(void **test)
{
    stop_in((struct job){.steps = 0});
}

static void test_failed(void **test)
{
    stop_in((struct job){.steps = 7, .rc = -EIO});
}

/* A process has one MPI, so each test has a process of its own. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never),
        cmocka_unit_test(test_failed),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
        const struct CMUnitTest one[] = {tests[i]};
        int status = -1;
        pid_t pid = fork();
        if (pid == 0)
            exit(cmocka_run_group_tests_name("backend/mpi_stop", one, NULL, NULL));
        failed += pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
    }
    return failed != 0;
}
