/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_thread runs its calls in order, all on one thread, also after nccl_thread_abandon(); then
 * the thread ends.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "core/backend/nccl_thread.h"
#include "tests/harness/rank.h"

#define GIVEN 100

static struct {
    _Atomic int gate, n, ended;
    int order[GIVEN];
    pthread_t by[GIVEN];
    bool blocked;
    pthread_key_t key;
} g;

static void ended(void *arg)
{
    atomic_fetch_add(&g.ended, 1);
}

static void note(void *arg)
{
    sigset_t mask;
    while (atomic_load(&g.gate) == 0)
        nap_ms(1);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    g.blocked = sigismember(&mask, SIGTERM) == 1;
    pthread_setspecific(g.key, &g);
    int n = atomic_load(&g.n);
    g.order[n] = *(int *)arg;
    g.by[n] = pthread_self();
    atomic_store(&g.n, n + 1);
}

static bool reaches(const _Atomic int *number, int wanted)
{
    for (int i = 0; i < 10000 && atomic_load(number) != wanted; i++)
        nap_ms(1);
    return atomic_load(number) == wanted;
}

static void test_order(void **state)
{
    static int number[GIVEN];
    struct nccl_thread *thread = NULL;
    assert_int_equal(pthread_key_create(&g.key, ended), 0);
    assert_int_equal(nccl_thread_create(&thread, NULL), 0);
    for (int i = 0; i < GIVEN; i++) {
        number[i] = i;
        assert_int_equal(nccl_thread_give(thread, note, &number[i], NULL), 0);
        if (i == GIVEN / 2)
            nap_ms(5);
    }
    nccl_thread_abandon(thread); /* the queued calls still run */
    assert_int_equal(atomic_load(&g.n), 0);
    atomic_store(&g.gate, 1);
    assert_true(reaches(&g.n, GIVEN));
    for (int i = 0; i < GIVEN; i++) {
        assert_int_equal(g.order[i], i);
        assert_true(pthread_equal(g.by[i], g.by[0]));
    }
    assert_true(g.blocked);
    assert_true(reaches(&g.ended, 1));
    nccl_thread_abandon(NULL);
}

static void test_idle(void **state)
{
    static int number;
    struct nccl_thread *thread = NULL;
    atomic_store(&g.n, 0);
    atomic_store(&g.ended, 0);
    assert_int_equal(nccl_thread_create(&thread, NULL), 0);
    assert_int_equal(nccl_thread_give(thread, note, &number, NULL), 0);
    assert_true(reaches(&g.n, 1));
    nap_ms(20);
    assert_int_equal(atomic_load(&g.ended), 0); /* the thread waits for more calls */
    nccl_thread_end(thread);
    assert_int_equal(atomic_load(&g.ended), 1);
    nccl_thread_end(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_idle),
    };
    return cmocka_run_group_tests_name("backend/nccl_thread", tests, NULL, NULL);
}
