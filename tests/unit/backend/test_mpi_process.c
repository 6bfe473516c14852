/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_process between operations: its thread calls MPI, so that MPI makes progress for other ranks.
 * It does not while a step of an operation is inside MPI, nor after mpi_process_close().
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>

#include "core/backend/mpi_process.h"
#include "core/base/clock.h"
#include "tests/harness/mpi_plugin.h"
#include "tests/harness/rank.h"

static struct {
    _Atomic int inside, together, progress, ended;
} g;

static void into_mpi(unsigned ms)
{
    if (atomic_fetch_add(&g.inside, 1) > 0)
        atomic_fetch_add(&g.together, 1);
    nap_ms(ms);
    atomic_fetch_sub(&g.inside, 1);
}

static void progress(void)
{
    into_mpi(2);
    atomic_fetch_add(&g.progress, 1);
}

/* Called at exit. */
static int finalize(void)
{
    if (atomic_load(&g.inside) > 0 || atomic_load(&g.ended) != 1)
        puts("FAILED: MPI_Finalize was called while MPI was in use or before the test had ended");
    mpi_plugin_state = MPI_STATE_OVER;
    return 0;
}

static int step(void *left)
{
    into_mpi(2);
    return --*(int *)left > 0;
}

static bool progresses(int more)
{
    int wanted = atomic_load(&g.progress) + more;
    for (int i = 0; i < 10000 && atomic_load(&g.progress) < wanted; i++)
        nap_ms(1);
    return atomic_load(&g.progress) >= wanted;
}

static void test_progress(void **test)
{
    static const struct mpi_plugin plugin = {MPI_PLUGIN_COMMON, .finalize = finalize,
                                             .progress = progress};
    const struct mpi_found found = {.plugin = &plugin};
    struct mpi_here here;
    struct mpi_task task;
    struct err err = {0};
    int left = 50;
    mpi_plugin_most = MPI_LEVEL_SERIALIZED;
    assert_int_equal(
        mpi_process_enter(&found, &mpi_plugin_mesh, deadline_in_ms(10000), &here, &err), 0);
    assert_true(here.direct);
    assert_true(progresses(3));
    mpi_task_start(&here, &task, step, &left);
    while (mpi_task_progress(&here, &task) == 1)
        ;
    assert_true(progresses(3));
    mpi_process_close(&here, NULL, false);
    int before = atomic_load(&g.progress);
    nap_ms(50);
    assert_int_equal(atomic_load(&g.progress), before);
    assert_int_equal(atomic_load(&g.together), 0);
    /* again in another epoch */
    assert_int_equal(
        mpi_process_enter(&found, &mpi_plugin_mesh, deadline_in_ms(10000), &here, &err), 0);
    assert_true(progresses(3));
    mpi_process_close(&here, NULL, false);
    atomic_store(&g.ended, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_progress),
    };
    return cmocka_run_group_tests_name("backend/mpi_process", tests, NULL, NULL);
}
