/* SPDX-License-Identifier: Apache-2.0
 *
 * caller: calls run in order, all on one thread, also after caller_end(); then the thread ends. A
 * call returns its result, or is abandoned without harm.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdint.h>

#include "core/backend/caller.h"
#include "core/base/clock.h"
#include "tests/harness/rank.h"

#define GIVEN 100

static struct {
    _Atomic int gate; /* calls wait until it is 1 */
    _Atomic int n, ended;
    int order[GIVEN];
    pthread_t by[GIVEN];
    pthread_key_t key;
} g;

struct work {
    int in, out;
};

static void ended(void *arg)
{
    atomic_fetch_add(&g.ended, 1);
}

static int work(void *arg)
{
    struct work *w = arg;
    sigset_t blocked;
    while (atomic_load(&g.gate) == 0)
        nap_ms(1);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    pthread_setspecific(g.key, &g);
    w->out = w->in + 1;
    int n = atomic_load(&g.n);
    g.order[n] = w->in;
    g.by[n] = pthread_self();
    atomic_store(&g.n, n + 1);
    return sigismember(&blocked, SIGTERM) == 1 ? 5 : 6;
}

static void reset(int gate)
{
    atomic_store(&g.gate, gate);
    atomic_store(&g.n, 0);
    atomic_store(&g.ended, 0);
}

static bool reaches(const _Atomic int *number, int wanted)
{
    for (int i = 0; i < 10000 && atomic_load(number) != wanted; i++)
        nap_ms(1);
    return atomic_load(number) == wanted;
}

static bool wait_for(const struct call *call)
{
    uint64_t deadline = deadline_in_ms(10000);
    while (!call_done(call) && !deadline_passed(deadline))
        nap_ms(1);
    return call_done(call);
}

static struct caller *new_caller(void)
{
    struct caller *caller = NULL;
    assert_int_equal(caller_create(&caller, NULL), 0);
    return caller;
}

static struct call *give(struct caller *caller, int in)
{
    struct call *call = call_create(work, sizeof(struct work), NULL);
    assert_non_null(call);
    assert_int_equal((uintptr_t)call->arg % 16, 0);
    ((struct work *)(void *)call->arg)->in = in;
    caller_give(caller, call);
    return call;
}

static void test_order(void **state)
{
    struct caller *caller = new_caller();
    reset(0);
    for (int i = 0; i < GIVEN; i++) {
        call_release(give(caller, i));
        if (i == GIVEN / 2)
            nap_ms(5);
    }
    caller_end(caller); /* the queued calls still run */
    assert_int_equal(atomic_load(&g.n), 0);
    atomic_store(&g.gate, 1);
    assert_true(reaches(&g.n, GIVEN));
    for (int i = 0; i < GIVEN; i++) {
        assert_int_equal(g.order[i], i);
        assert_true(pthread_equal(g.by[i], g.by[0]));
    }
    assert_true(reaches(&g.ended, 1));
}

static void test_idle(void **state)
{
    struct caller *caller = new_caller();
    reset(1);
    struct call *call = give(caller, 0);
    assert_true(wait_for(call));
    nap_ms(20);
    assert_int_equal(atomic_load(&g.ended), 0); /* the thread waits for more calls */
    call_release(call);
    caller_end(caller);
    assert_int_equal(atomic_load(&g.ended), 1);
    caller_end(NULL);
}

static void test_result(void **state)
{
    struct caller *caller = new_caller();
    sigset_t before, after;
    reset(1);
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    struct call *call = give(caller, 41);
    assert_true(wait_for(call));
    assert_int_equal(call->result, 5); /* signals are blocked on that thread */
    assert_int_equal(((struct work *)(void *)call->arg)->out, 42);
    call_release(call);
    call_release(NULL);
    assert_true(call_done(NULL));
    caller_end(caller);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
}

/* The call returns late and frees its memory. */
static void test_left(void **state)
{
    struct caller *caller = new_caller();
    reset(0);
    struct call *call = give(caller, 1);
    nap_ms(20);
    assert_false(call_done(call));
    call_release(call);
    caller_end(caller);
    atomic_store(&g.gate, 1);
    assert_true(reaches(&g.ended, 1));
    assert_int_equal(atomic_load(&g.n), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_result),
        cmocka_unit_test(test_left),
    };
    if (pthread_key_create(&g.key, ended) != 0)
        return 1;
    return cmocka_run_group_tests_name("backend/caller", tests, NULL, NULL);
}
