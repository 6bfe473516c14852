/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_process between operations: its thread calls MPI, so that MPI makes progress for other ranks.
 * It does not while a step of an operation is inside MPI, nor after mpi_process_close(). And a call
 * that does not end: its caller gives up, and the calls after it wait for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

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
static int leave(struct mpi_setup *s)
{
    if (atomic_load(&g.inside) > 0 || atomic_load(&g.ended) != 1)
        puts("FAILED: MPI_Finalize was called while MPI was in use or before the test had ended");
    return 0;
}

/* Creates a communicator in 300 ms. */
static int split(struct mpi_setup *s)
{
    nap_ms(300);
    s->comm = 7;
    return s->key;
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

static const struct mpi_plugin plugin = {MPI_PLUGIN_COMMON, .leave = leave, .split = split,
                                         .progress = progress};

static void enter(void)
{
    struct mpi_setup here;
    struct err err = {0};
    assert_int_equal(
        mpi_process_enter(&plugin, &mpi_plugin_mesh, deadline_in_ms(10000), &here, &err), 0);
    assert_int_equal(here.size, 1);
}

static void test_progress(void **test)
{
    struct mpi_task task;
    int left = 50;
    enter();
    assert_true(progresses(3));
    mpi_task_start(&task, step, &left);
    while (mpi_task_progress(&task) == 1)
        ;
    assert_true(progresses(3));
    mpi_process_close(NULL, 0, false);
    int before = atomic_load(&g.progress);
    nap_ms(50);
    assert_int_equal(atomic_load(&g.progress), before);
    assert_int_equal(atomic_load(&g.together), 0);
    /* again in another epoch */
    enter();
    assert_true(progresses(3));
    mpi_process_close(NULL, 0, false);
}

static void test_late(void **test)
{
    mpi_comm comm = 0;
    struct err err = {0};
    assert_int_equal(mpi_process_split(0, 0, &mpi_plugin_mesh, deadline_in_ms(50), &comm, &err),
                     -ETIMEDOUT);
    assert_non_null(strstr(err.msg, "MPI_Comm_split has not ended in time"));
    assert_int_equal(comm, 0);
    assert_int_equal(
        mpi_process_split(0, -EIO, &mpi_plugin_mesh, deadline_in_ms(9000), &comm, &err), -EIO);
    assert_string_equal(err.msg, "no reason");
    assert_int_equal(mpi_process_split(0, 0, &mpi_plugin_mesh, deadline_in_ms(9000), &comm, &err),
                     0);
    assert_int_equal(comm, 7);
    atomic_store(&g.ended, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_late),
    };
    return cmocka_run_group_tests_name("backend/mpi_process", tests, NULL, NULL);
}
