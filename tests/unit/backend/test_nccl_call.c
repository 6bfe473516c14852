/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_call: a call on another thread returns its result, or is abandoned without harm. A call that
 * waits for that thread can be run on another one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#include "core/backend/nccl_call.h"
#include "core/backend/nccl_thread.h"
#include "core/base/clock.h"
#include "tests/harness/rank.h"

struct work {
    _Atomic int *gate; /* the call waits until it is 1, then sets it to 2 */
    int in, out;
};

static int work(void *arg)
{
    struct work *w = arg;
    sigset_t blocked;
    while (w->gate && atomic_load(w->gate) == 0)
        nap_ms(1);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    w->out = w->in + 1;
    if (w->gate)
        atomic_store(w->gate, 2);
    return sigismember(&blocked, SIGTERM) == 1 ? 5 : 6;
}

static bool wait_for(const struct nccl_call *call)
{
    uint64_t deadline = deadline_in_ms(10000);
    while (!nccl_call_done(call) && !deadline_passed(deadline))
        nap_ms(1);
    return nccl_call_done(call);
}

static struct nccl_thread *new_thread(void)
{
    struct nccl_thread *thread = NULL;
    assert_int_equal(nccl_thread_create(&thread, NULL), 0);
    return thread;
}

static void test_result(void **state)
{
    struct work w = {.in = 41};
    struct nccl_call *call = NULL;
    struct nccl_thread *thread = new_thread();
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    assert_int_equal(nccl_call_start(thread, work, &w, sizeof(w), &call, NULL), 0);
    w.in = 0; /* the call has a copy of w */
    assert_true(wait_for(call));
    assert_int_equal(nccl_call_result(call), 5); /* signals are blocked on that thread */
    assert_int_equal(((struct work *)nccl_call_arg(call))->out, 42);
    assert_int_equal((uintptr_t)nccl_call_arg(call) % 16, 0);
    assert_true(nccl_call_release(call));
    assert_true(nccl_call_release(NULL));
    nccl_thread_end(thread);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    assert_int_equal(sigismember(&after, SIGTERM), sigismember(&before, SIGTERM));
}

static void test_left(void **state)
{
    static _Atomic int gate;
    struct work w = {.gate = &gate};
    struct nccl_call *call = NULL;
    struct nccl_thread *thread = new_thread();
    atomic_store(&gate, 0);
    assert_int_equal(nccl_call_start(thread, work, &w, sizeof(w), &call, NULL), 0);
    nap_ms(20);
    assert_false(nccl_call_done(call));
    assert_false(nccl_call_release(call));
    nccl_thread_abandon(thread);
    atomic_store(&gate, 1); /* the call returns late and frees its memory */
    for (int i = 0; i < 10000 && atomic_load(&gate) != 2; i++)
        nap_ms(1);
    assert_int_equal(atomic_load(&gate), 2);
}

/* The thread is busy: the next call waits, until nccl_call_hasten() runs it elsewhere. It runs
 * only once. */
static void test_hastened(void **state)
{
    static _Atomic int gate;
    struct work first = {.gate = &gate}, second = {.in = 1};
    struct nccl_call *call = NULL, *next = NULL;
    struct nccl_thread *thread = new_thread();
    atomic_store(&gate, 0);
    assert_int_equal(nccl_call_start(thread, work, &first, sizeof(first), &call, NULL), 0);
    assert_int_equal(nccl_call_start(thread, work, &second, sizeof(second), &next, NULL), 0);
    nap_ms(20);
    assert_false(nccl_call_done(next));
    nccl_call_hasten(next);
    assert_true(wait_for(next));
    assert_false(nccl_call_done(call));
    ((struct work *)nccl_call_arg(next))->out = 7; /* a second run would change it */
    atomic_store(&gate, 1);
    assert_true(wait_for(call));
    nccl_call_hasten(call);
    nap_ms(20);
    assert_int_equal(((struct work *)nccl_call_arg(next))->out, 7);
    assert_true(nccl_call_release(next));
    assert_true(nccl_call_release(call));
    nccl_thread_end(thread);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_result),
        cmocka_unit_test(test_left),
        cmocka_unit_test(test_hastened),
    };
    return cmocka_run_group_tests_name("backend/nccl_call", tests, NULL, NULL);
}
