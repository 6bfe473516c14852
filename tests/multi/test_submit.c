/* SPDX-License-Identifier: Apache-2.0
 *
 * How operations may be submitted: in another order on each rank, from several threads, in groups,
 * without names; what is refused; what every rank hears when the ranks disagree.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/values.h"
#include "tests/harness/world.h"

#define FAIL(...)                                                                                  \
    (printf("rank %s: ", getenv("HVD_RANK")), printf(__VA_ARGS__), puts(""), __LINE__ % 200 + 1)

#define TENSORS 24
#define COUNT   700

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
    return *state >> 33;
}

static void shuffle(int *order, int n, uint64_t *seed)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(next_random(seed) % (uint64_t)(i + 1)), t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static struct hvd_request request(const char *name, float *data, const int64_t *count)
{
    return (struct hvd_request){.kind = HVD_ALLREDUCE,
                                .name = name,
                                .input = data,
                                .output = data,
                                .dtype = HVD_FLOAT32,
                                .ndim = 1,
                                .shape = count,
                                .op = HVD_SUM,
                                .device = -1};
}

static int shuffled(int rank, int size, void *arg)
{
    static float data[TENSORS][COUNT];
    uint64_t seed = (uint64_t)rank * 77 + 5;
    int submit[TENSORS], wait[TENSORS], rounds = *(int *)arg;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < rounds; k++) {
        hvd_handle handles[TENSORS];
        shuffle(submit, TENSORS, &seed);
        shuffle(wait, TENSORS, &seed);
        for (int i = 0; i < TENSORS; i++) {
            int t = submit[i];
            int64_t count = t * 29 + 1;
            char name[16];
            snprintf(name, sizeof(name), "t%d", t);
            values_fill(HVD_FLOAT32, HVD_SUM, rank, size, data[t], (size_t)count, k + t);
            struct hvd_request r = request(name, data[t], &count);
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
            struct hvd_request r = request(names[i], data[i], &count);
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

/* ---- groups ---- */

static int groups(int rank, int size, void *arg)
{
    static char data[5][8 * COUNT];
    static const enum hvd_dtype dtypes[] = {HVD_FLOAT32, HVD_FLOAT32, HVD_INT64, HVD_BFLOAT16,
                                            HVD_FLOAT32};
    char names[5][16];
    int64_t counts[5];
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < 30; k++) {
        struct hvd_request r[5];
        hvd_handle handles[5];
        for (int i = 0; i < 5; i++) {
            snprintf(names[i], sizeof(names[i]), "g%d", i);
            counts[i] = i == 1 ? 0 : i * 100 + 3;
            values_fill(dtypes[i], HVD_SUM, rank, size, data[i], (size_t)counts[i], k + i);
            r[i] = request(names[i], (float *)data[i], &counts[i]);
            r[i].dtype = dtypes[i];
        }
        if (hvd_submit(r, 5, handles) != 0)
            return FAIL("%s", hvd_error());
        for (int i = 4; i >= 0; i--) {
            if (hvd_wait(handles[i]) != 0)
                return FAIL("%s: %s", names[i], hvd_error());
            if (values_check(dtypes[i], HVD_SUM, size, data[i], 0, (size_t)counts[i], k + i) >= 0)
                return FAIL("round %d: %s is wrong", k, names[i]);
        }
    }
    return hvd_shutdown() != 0;
}

static void test_groups(void **state)
{
    for (int size = 1; size <= 4; size++)
        assert_int_equal(world_run(size, groups, NULL), 0);
}

static int large_group(int rank, int size, void *arg)
{
    enum { MANY = 5000 };
    static float data[MANY];
    static struct hvd_request r[MANY];
    static hvd_handle handles[MANY];
    static char names[MANY][16];
    int64_t one = 1;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "m%d", i);
        data[i] = (float)(i + rank);
        r[i] = request(names[i], &data[i], &one);
    }
    if (hvd_submit(r, MANY, handles) != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < MANY; i++) {
        if (hvd_wait(handles[i]) != 0)
            return FAIL("%s: %s", names[i], hvd_error());
        if (data[i] != (float)(size * i) + (float)(size * (size - 1)) / 2)
            return FAIL("%s is %g", names[i], (double)data[i]);
    }
    return hvd_shutdown() != 0;
}

static void test_large_group(void **state)
{
    assert_int_equal(world_run(2, large_group, NULL), 0);
}

/* ---- disagreement ---- */

static int expect_mismatch(struct hvd_request *r, const char *word)
{
    hvd_handle h;
    int rc = hvd_submit(r, 1, &h);
    rc = rc ? rc : hvd_wait(h);
    if (rc != -EINVAL || !strstr(hvd_error(), r->name) || !strstr(hvd_error(), word))
        return FAIL("%s: %d: %s", r->name, rc, hvd_error());
    return 0;
}

static int disagree(int rank, int size, void *arg)
{
    float x[8] = {1};
    int64_t count = 4, other = rank == size - 1 ? 5 : 4;
    bool odd = rank == size - 1;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < 3; k++) {
        struct hvd_request r = request("layer.dtype", x, &count);
        r.dtype = odd ? HVD_INT32 : HVD_FLOAT32;
        int rc = expect_mismatch(&r, "int32");
        r = request("layer.shape", x, &other);
        rc = rc ? rc : expect_mismatch(&r, "5");
        r = request("layer.op", x, &count);
        r.op = odd ? HVD_MAX : HVD_SUM;
        rc = rc ? rc : expect_mismatch(&r, "max");
        r = request("layer.root", x, &count);
        r.kind = HVD_BROADCAST;
        r.root = odd ? 1 : 0;
        rc = rc ? rc : expect_mismatch(&r, "root");
        r = request("layer.kind", x, &count);
        r.kind = odd ? HVD_BROADCAST : HVD_ALLREDUCE;
        rc = rc ? rc : expect_mismatch(&r, "broadcast");
        r = request("layer.scale", x, &count);
        r.prescale = odd ? 2 : 1;
        rc = rc ? rc : expect_mismatch(&r, "scale");
        if (rc)
            return rc;
        if (x[0] != 1 || x[4] != 0)
            return FAIL("data was touched");
        for (int i = 0; i < 10; i++) {
            float y = 1;
            if (hvd_allreduce("good", &y, &y, 1, HVD_FLOAT32, HVD_SUM) != 0 || y != (float)size)
                return FAIL("after a mismatch: %s", hvd_error());
        }
    }
    return hvd_shutdown() != 0;
}

static void test_disagree(void **state)
{
    for (int size = 2; size <= 4; size++)
        assert_int_equal(world_run(size, disagree, NULL), 0);
}

/* ---- refused at once ---- */

static int refused(struct hvd_request r, int want, const char *word)
{
    hvd_handle h;
    int rc = hvd_submit(&r, 1, &h);
    if (rc != want || !strstr(hvd_error(), word))
        return FAIL("%s: %d: %s", word, rc, hvd_error());
    return 0;
}

static int bad_requests(int rank, int size, void *arg)
{
    float x[16] = {0};
    int64_t count = 8, minus = -1, huge[3] = {1LL << 40, 1LL << 40, 4}, splits[2] = {3, 4};
    struct hvd_request r = request("bad", x, &count), g[2] = {r, r};
    hvd_handle h[2];
    int rc = hvd_init() != 0 ? FAIL("%s", hvd_error()) : 0;
#define TRY(what, want, word)                                                                      \
    if (!rc) {                                                                                     \
        struct hvd_request t = r;                                                                  \
        what;                                                                                      \
        rc = refused(t, want, word);                                                               \
    }
    TRY(t.op = HVD_ADASUM, -ENOTSUP, "adasum")
    TRY((t.op = HVD_AVERAGE, t.dtype = HVD_BOOL), -EINVAL, "average of bool")
    TRY(t.op = (enum hvd_op)77, -EINVAL, "op 77")
    TRY(t.dtype = (enum hvd_dtype)99, -EINVAL, "dtype 99")
    TRY(t.kind = (enum hvd_kind)50, -EINVAL, "kind of operation 50")
    TRY(t.ndim = 17, -EINVAL, "17 dimensions")
    TRY(t.shape = &minus, -EINVAL, "dimension 0 is -1")
    TRY((t.shape = huge, t.ndim = 3), -EINVAL, "too large")
    TRY(t.shape = NULL, -EINVAL, "no shape")
    TRY(t.input = NULL, -EINVAL, "no input")
    TRY(t.output = NULL, -EINVAL, "no output")
    TRY(t.output = x + 3, -EINVAL, "overlap")
    TRY((t.kind = HVD_BROADCAST, t.root = size), -EINVAL, "root")
    TRY((t.kind = HVD_ALLGATHER, t.output = NULL, t.ndim = 0), -EINVAL, "at least one dimension")
    TRY(t.kind = HVD_ALLGATHER, -EINVAL, "takes no output")
    TRY((t.kind = HVD_ALLTOALL, t.output = NULL, t.splits = splits), -EINVAL, "splits add up")
    TRY(t.name = "", -EINVAL, "name")
    TRY(t.device = 0, -ENOTSUP, "device 0")
#undef TRY
    if (rc)
        return rc;
    if (hvd_submit(g, 0, h) != -EINVAL || hvd_submit(g, HVD_MAX_GROUP + 1, h) != -EINVAL)
        return FAIL("sizes of groups");
    if (hvd_submit(g, 2, h) != -EEXIST || !strstr(hvd_error(), "bad"))
        return FAIL("twice in a group: %s", hvd_error());
    g[1].name = "other";
    g[1].kind = HVD_BARRIER;
    if (hvd_submit(g, 2, h) != -EINVAL || !strstr(hvd_error(), "group"))
        return FAIL("two kinds in a group: %s", hvd_error());
    char name[300];
    memset(name, 'n', sizeof(name));
    name[256] = 0;
    r.name = name;
    rc = refused(r, -EINVAL, "name");
    name[255] = 0;
    if (!rc && (hvd_submit(&r, 1, h) != 0 || hvd_wait(h[0]) != 0))
        return FAIL("longest name: %s", hvd_error());
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_bad_requests(void **state)
{
    assert_int_equal(world_run(2, bad_requests, NULL), 0);
}

/* A name that is under way is refused; unnamed ones follow each other. */
static int names(int rank, int size, void *arg)
{
    float x = 1, y[3] = {1, 2, 3};
    int64_t one = 1;
    hvd_handle h, again, unnamed[3];
    struct hvd_request r = request("once", &x, &one);
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    if (rank != 0) {
        /* Rank 0 comes only when the others have seen that the second one is refused. */
        if (hvd_submit(&r, 1, &h) != 0)
            return FAIL("%s", hvd_error());
        if (hvd_submit(&r, 1, &again) != -EEXIST || !strstr(hvd_error(), "once"))
            return FAIL("a second one of the name: %s", hvd_error());
        if (hvd_allreduce("once", &x, &x, 1, HVD_FLOAT32, HVD_SUM) != -EEXIST)
            return FAIL("a second one of the name: %s", hvd_error());
    }
    if (hvd_barrier("seen") != 0)
        return FAIL("%s", hvd_error());
    if (rank == 0 && hvd_submit(&r, 1, &h) != 0)
        return FAIL("%s", hvd_error());
    if (hvd_wait(h) != 0 || x != (float)size || hvd_wait(h) != -EINVAL)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 3; i++) {
        struct hvd_request u = request(NULL, &y[i], &one);
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
        struct hvd_request r = request(name, data[t], &count);
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

/* Steps of one program: frozen in the end, and nothing is allocated any more. How many operations
 * are under way at most depends on the scheduler, so pools may still grow now and then: of some
 * windows in a row one must pass without. Then another tensor comes between, and the schedule is
 * left and found again. */
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
        return FAIL("the schedule was never left");
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
    assert_int_equal(world_run_options(&o, groups, NULL), 0);
    assert_int_equal(world_run_options(&o, disagree, NULL), 0);
    assert_int_equal(world_run_options(&o, steady, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shuffled), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_groups),   cmocka_unit_test(test_large_group),
        cmocka_unit_test(test_disagree), cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_names),    cmocka_unit_test(test_steady),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
