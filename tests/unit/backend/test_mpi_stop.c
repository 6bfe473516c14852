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

static int finalize(void)
{
    _exit(99); /* at exit, where it must not be called */
}

static const struct mpi_plugin plugin = {MPI_PLUGIN_COMMON, .finalize = finalize,
                                         .progress = progress};
static const struct mpi_found found = {.plugin = &plugin};

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

static void stop_one(const struct mpi_here *here, struct job job, bool ends)
{
    struct mpi_task task = {0};
    assert_true(mpi_task_stop(here, &task)); /* a task that was never started */
    mpi_task_start(here, &task, step, &job);
    assert_int_equal(mpi_task_stop(here, &task), ends);
    int steps = atomic_load(&g.steps), calls = atomic_load(&g.progress);
    assert_int_equal(mpi_task_stop(here, &task), ends); /* again */
    nap_ms(50);
    assert_int_equal(atomic_load(&g.steps), steps);
    if (!ends)
        assert_int_equal(atomic_load(&g.progress), calls);
}

static void stop_in(const char *threads, struct job bad)
{
    struct mpi_here here;
    struct err err = {0};
    setenv("HVD_MPI_THREADS", threads, 1);
    assert_int_equal(
        mpi_process_enter(&found, &mpi_plugin_mesh, deadline_in_ms(10000), &here, &err), 0);
    if (!here.direct) /* the end of each task would wake the mesh's driver */
        mpi_process_close(&here, NULL, false);
    while (here.direct && atomic_load(&g.progress) == 0)
        nap_ms(1);
    stop_one(&here, (struct job){.steps = 100}, true);
    assert_false(mpi_process_abandoned());
    stop_one(&here, bad, false);
    assert_true(mpi_process_abandoned());
    assert_int_equal(
        mpi_process_enter(&found, &mpi_plugin_mesh, deadline_in_ms(10000), &here, &err), -EBUSY);
}

static void direct_never(void **test)
{
    stop_in("multiple", (struct job){.steps = 0});
}

static void direct_failed(void **test)
{
    stop_in("multiple", (struct job){.steps = 7, .rc = -EIO});
}

static void funneled_never(void **test)
{
    stop_in("funneled", (struct job){.steps = 0});
}

static void funneled_failed(void **test)
{
    stop_in("funneled", (struct job){.steps = 7, .rc = -EIO});
}

/* A process has one MPI, so each test has a process of its own. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(direct_never),
        cmocka_unit_test(direct_failed),
        cmocka_unit_test(funneled_never),
        cmocka_unit_test(funneled_failed),
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
