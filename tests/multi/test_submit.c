/* SPDX-License-Identifier: Apache-2.0
 *
 * How operations may be submitted: in a different order on each rank, from several threads, without
 * names; the steady state. Groups and refusals have files of their own (test_submit_*.c).
 *
 * timeout: 300
 * takes: 4 s
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/rank.h"
#include "tests/harness/values.h"
#include "tests/harness/world.h"

#define TENSORS 24
#define COUNT   700

static int shuffled(int rank, int size, void *arg)
{
    static float data[TENSORS][COUNT];
    uint64_t seed = (uint64_t)rank * 77 + 5;
    int submit[TENSORS], wait[TENSORS], rounds = *(int *)arg;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < rounds; k++) {
        hvd_handle handles[TENSORS];
        rank_shuffle(submit, TENSORS, &seed);
        rank_shuffle(wait, TENSORS, &seed);
        for (int i = 0; i < TENSORS; i++) {
            int t = submit[i];
            int64_t count = t * 29 + 1;
            char name[16];
            snprintf(name, sizeof(name), "t%d", t);
            values_fill(HVD_FLOAT32, HVD_SUM, rank, size, data[t], (size_t)count, k + t);
            struct hvd_request r = rank_request(name, data[t], &count);
            if (hvd_submit(&r, 1, &handles[t]) != 0)
                return FAIL("%s: %s", name, hvd_error());
        }
        for (int i = 0; i < TENSORS; i++) {
            int t = wait[i];
            if (k % 3 == 0) {
                while (hvd_poll(handles[t]) == 0)
                    ;
            }
            if (hvd_wait(handles[t]) != 0)
                return FAIL("t%d: %s", t, hvd_error());
            if (values_check(HVD_FLOAT32, HVD_SUM, size, data[t], 0, (size_t)t * 29 + 1, k + t) >=
                0)
                return FAIL("round %d: t%d is wrong", k, t);
        }
    }
    return hvd_shutdown() != 0;
}

static void test_shuffled(void **state)
{
    int rounds = 60;
    for (int size = 1; size <= 4; size++)
        assert_int_equal(world_run(size, shuffled, &rounds), 0);
}

/* ---- threads ---- */

#define THREADS 4

struct worker {
    int index, rank, size, rounds, rc;
};

static void *thread_main(void *arg)
{
    struct worker *w = arg;
    float data[2][300];
    int64_t count = 300;
    char names[2][16];
    for (int i = 0; i < 2; i++)
        snprintf(names[i], sizeof(names[i]), "w%d.%d", w->index, i);
    for (int k = 0; k < w->rounds; k++) {
        hvd_handle handles[2];
        int salt = k * 10 + w->index;
        for (int i = 0; i < 2; i++) {
            values_fill(HVD_FLOAT32, HVD_SUM, w->rank, w->size, data[i], 300, salt + i);
            struct hvd_request r = rank_request(names[i], data[i], &count);
            if (k % 2 && i == 0)
                w->rc |= hvd_allreduce(names[i], data[i], data[i], 300, HVD_FLOAT32, HVD_SUM);
            else
                w->rc |= hvd_submit(&r, 1, &handles[i]);
        }
        for (int i = k % 2; i < 2 && w->rc == 0; i++)
            w->rc |= hvd_wait(handles[i]);
        if (w->rc) {
            printf("rank %d thread %d: %s\n", w->rank, w->index, hvd_error());
            return NULL;
        }
        for (int i = 0; i < 2; i++) {
            if (values_check(HVD_FLOAT32, HVD_SUM, w->size, data[i], 0, 300, salt + i) >= 0) {
                printf("rank %d thread %d round %d: wrong\n", w->rank, w->index, k);
                w->rc = 1;
                return NULL;
            }
        }
    }
    return NULL;
}

static int threads(int rank, int size, void *arg)
{
    pthread_t threads_[THREADS];
    struct worker workers[THREADS];
    int rc = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){i, rank, size, *(int *)arg, 0};
        pthread_create(&threads_[i], NULL, thread_main, &workers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads_[i], NULL);
        rc |= workers[i].rc;
    }
    return rc ? 1 : hvd_shutdown() != 0;
}

static void test_threads(void **state)
{
    int rounds = 100;
    for (int size = 1; size <= 4; size++)
        assert_int_equal(world_run(size, threads, &rounds), 0);
}

/* ---- waiters of one handle ---- */

#define WAITERS 3

struct shared_handle {
    _Atomic hvd_handle handle; /* -1: no more */
    _Atomic int good, refused, other;
    pthread_barrier_t begin, end;
};

static void *wait_for_it(void *arg)
{
    struct shared_handle *s = arg;
    for (;;) {
        pthread_barrier_wait(&s->begin);
        hvd_handle h = atomic_load(&s->handle);
        if (h < 0)
            return NULL;
        int rc = hvd_wait(h);
        atomic_fetch_add(rc == 0 ? &s->good : rc == -EINVAL ? &s->refused : &s->other, 1);
        /* The next operation takes the freed slot at once. */
        float x = 1;
        if (rc == 0 && hvd_allreduce("next", &x, &x, 1, HVD_FLOAT32, HVD_SUM) < 0)
            atomic_fetch_add(&s->other, 1);
        pthread_barrier_wait(&s->end);
    }
}

/* WAITERS threads wait for one handle: one gets the result, the others are refused, even if the
 * slot has another handle by then. */
static int waiters(int rank, int size, void *arg)
{
    struct shared_handle s = {0};
    pthread_t threads_[WAITERS];
    int64_t one = 1;
    int rc = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    pthread_barrier_init(&s.begin, NULL, WAITERS + 1);
    pthread_barrier_init(&s.end, NULL, WAITERS + 1);
    for (int i = 0; i < WAITERS; i++)
        pthread_create(&threads_[i], NULL, wait_for_it, &s);
    for (int k = 1; rc == 0 && k <= *(int *)arg; k++) {
        float x = (float)rank;
        struct hvd_request r = rank_request("shared", &x, &one);
        hvd_handle h;
        if (hvd_submit(&r, 1, &h) != 0)
            return FAIL("%s", hvd_error());
        atomic_store(&s.handle, h);
        pthread_barrier_wait(&s.begin);
        pthread_barrier_wait(&s.end);
        if (s.good != k || s.refused != k * (WAITERS - 1) || x != (float)(size * (size - 1) / 2))
            rc = FAIL("round %d: %d good, %d refused, %d others, sum %g", k, s.good, s.refused,
                      s.other, (double)x);
    }
    atomic_store(&s.handle, -1);
    pthread_barrier_wait(&s.begin);
    for (int i = 0; i < WAITERS; i++)
        pthread_join(threads_[i], NULL);
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_waiters(void **state)
{
    int rounds = 300;
    for (int size = 1; size <= 2; size++)
        assert_int_equal(world_run(size, waiters, &rounds), 0);
}

/* A name that is in flight is refused. Unnamed operations follow each other. */
static int names(int rank, int size, void *arg)
{
    float x = 1, y[3] = {1, 2, 3};
    int64_t one = 1;
    hvd_handle h, again, unnamed[3];
    struct hvd_request r = rank_request("once", &x, &one);
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    if (rank != 0) {
        /* Rank 0 submits only when the others have seen that their second request is refused. */
        if (hvd_submit(&r, 1, &h) != 0)
            return FAIL("%s", hvd_error());
        if (hvd_submit(&r, 1, &again) != -EEXIST || !strstr(hvd_error(), "once"))
            return FAIL("a second operation with this name was not refused: %s", hvd_error());
        if (hvd_allreduce("once", &x, &x, 1, HVD_FLOAT32, HVD_SUM) != -EEXIST)
            return FAIL("a second operation with this name was not refused: %s", hvd_error());
    }
    if (hvd_barrier("seen") != 0)
        return FAIL("%s", hvd_error());
    if (rank == 0 && hvd_submit(&r, 1, &h) != 0)
        return FAIL("%s", hvd_error());
    if (hvd_wait(h) != 0 || x != (float)size || hvd_wait(h) != -EINVAL)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 3; i++) {
        struct hvd_request u = rank_request(NULL, &y[i], &one);
        if (hvd_submit(&u, 1, &unnamed[i]) != 0)
            return FAIL("%s", hvd_error());
    }
    for (int i = 0; i < 3; i++) {
        if (hvd_wait(unnamed[i]) != 0 || y[i] != (float)(size * (i + 1)))
            return FAIL("unnamed %d: %g %s", i, (double)y[i], hvd_error());
    }
    return hvd_shutdown() != 0;
}

static void test_names(void **state)
{
    for (int size = 2; size <= 3; size++)
        assert_int_equal(world_run(size, names, NULL), 0);
}

/* ---- the steady state ---- */

enum { WINDOW = 20, WINDOWS = 8 };

static int steady_step(int rank, int size, int k, float data[TENSORS][COUNT])
{
    hvd_handle handles[TENSORS];
    int64_t count = COUNT;
    for (int t = 0; t < TENSORS; t++) {
        char name[16];
        snprintf(name, sizeof(name), "s%d", t);
        values_fill(HVD_FLOAT32, HVD_SUM, rank, size, data[t], COUNT, k + t);
        struct hvd_request r = rank_request(name, data[t], &count);
        if (hvd_submit(&r, 1, &handles[t]) != 0)
            return FAIL("%s", hvd_error());
    }
    for (int t = 0; t < TENSORS; t++) {
        if (hvd_wait(handles[t]) != 0)
            return FAIL("step %d: s%d: %s", k, t, hvd_error());
        if (values_check(HVD_FLOAT32, HVD_SUM, size, data[t], 0, COUNT, k + t) >= 0)
            return FAIL("step %d: s%d is wrong", k, t);
    }
    return 0;
}

/* Steps of one program: the schedule freezes, and then nothing is allocated. How many operations
 * are in flight depends on the scheduler, so pools may still grow now and then: of several windows
 * in a row one must pass without an allocation. Then another tensor comes between, and the schedule
 * thaws and freezes again. */
static int steady(int rank, int size, void *arg)
{
    static float data[TENSORS][COUNT];
    struct hvd_stats before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
    uint64_t fewest = UINT64_MAX;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < WINDOW * WINDOWS; k++) {
        if (steady_step(rank, size, k, data) != 0)
            return 1;
        if (k % WINDOW != WINDOW - 1)
            continue;
        hvd_stats(&after);
        uint64_t grown = after.allocations - before.allocations;
        if (after.frozen > before.frozen && grown < fewest)
            fewest = grown;
        before = after;
    }
    if (fewest != 0)
        return fewest == UINT64_MAX
                   ? FAIL("not frozen: %llu batches", (unsigned long long)after.frozen)
                   : FAIL("at least %llu allocations in %d steps of the steady state",
                          (unsigned long long)fewest, WINDOW);
    for (int k = 0; k < 3 * WINDOW; k++) {
        float x = 1;
        if (steady_step(rank, size, k, data) != 0)
            return 1;
        if (k % WINDOW == 0 &&
            (hvd_allreduce("now.and.then", &x, &x, 1, HVD_FLOAT32, HVD_SUM) || x != (float)size))
            return FAIL("step %d: %s", k, hvd_error());
    }
    hvd_stats(&after);
    if (after.thaws == 0)
        return FAIL("the schedule was never thawed");
    return hvd_shutdown() != 0;
}

static void test_steady(void **state)
{
    for (int size = 1; size <= 4; size++)
        assert_int_equal(world_run(size, steady, NULL), 0);
}

static void test_hosts(void **state)
{
    if (!world_can_netns("multi/submit/hosts"))
        return;
    int rounds = 20;
    struct world_options o = {.size = 4, .hosts = 2};
    assert_int_equal(world_run_options(&o, shuffled, &rounds), 0);
    assert_int_equal(world_run_options(&o, threads, &rounds), 0);
    assert_int_equal(world_run_options(&o, steady, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shuffled), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_waiters),  cmocka_unit_test(test_names),
        cmocka_unit_test(test_steady),   cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
