/* SPDX-License-Identifier: Apache-2.0
 *
 * Stable completion: tensors are overwritten as soon as a call returns, in place and not, with slow
 * and fast ranks, random sizes, many times. No rank's result may change by that.
 *
 * timeout: 300
 */
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

#include "tests/harness/effort.h"
#include "tests/harness/rank.h"
#include "tests/harness/values.h"
#include "tests/harness/world.h"

#define TENSORS   6
#define MAX_COUNT 300000

struct tensor {
    char name[16];
    char *in, *out;
    int64_t count;
    enum hvd_dtype dtype;
    int salt;
    hvd_handle handle;
};

/* Mostly small, sometimes large, the same on every rank. */
static int64_t random_count(uint64_t *seed)
{
    uint64_t limit = 1ULL << rank_random(seed) % 19;
    return (int64_t)(rank_random(seed) % (limit < MAX_COUNT ? limit : MAX_COUNT));
}

static void sometimes_late(uint64_t *seed)
{
    struct timespec nap = {.tv_nsec = (long)(rank_random(seed) % 300) * 1000};
    if (rank_random(seed) % 8 == 0)
        nanosleep(&nap, NULL);
}

static int check_and_spoil(struct tensor *t, int size, const char *when)
{
    long bad = values_check(t->dtype, HVD_SUM, size, t->out, 0, (size_t)t->count, t->salt);
    if (bad >= 0)
        return FAIL("%s, %s, %d elements: element %ld is wrong", t->name, when, (int)t->count, bad);
    size_t bytes = (size_t)t->count * hvd_dtype_size(t->dtype);
    memset(t->in, 0xee, bytes);
    memset(t->out, 0xdd, bytes);
    return 0;
}

static int one_round(struct tensor *tensors, int rank, int size, uint64_t *shared, uint64_t *own,
                     int round)
{
    static const enum hvd_dtype dtypes[] = {HVD_FLOAT32, HVD_INT64, HVD_BFLOAT16};
    for (int i = 0; i < TENSORS; i++) {
        struct tensor *t = &tensors[i];
        t->count = random_count(shared);
        t->dtype = dtypes[rank_random(shared) % 3];
        t->salt = round * 7 + i;
        values_fill(t->dtype, HVD_SUM, rank, size, t->in, (size_t)t->count, t->salt);
        struct hvd_request r = {.kind = HVD_ALLREDUCE,
                                .name = t->name,
                                .input = t->in,
                                .output = t->out,
                                .dtype = t->dtype,
                                .ndim = 1,
                                .shape = &t->count,
                                .op = HVD_SUM,
                                .device = -1};
        sometimes_late(own);
        if (hvd_submit(&r, 1, &t->handle) != 0)
            return FAIL("%s: %s", t->name, hvd_error());
    }
    for (int i = 0; i < TENSORS; i++) {
        struct tensor *t = &tensors[i];
        int rc = hvd_wait(t->handle);
        rc = rc ? FAIL("%s: %s", t->name, hvd_error()) : check_and_spoil(t, size, "async");
        if (rc)
            return rc;
    }
    return 0;
}

static int overwrite_async(int rank, int size, void *arg)
{
    int rounds = *(int *)arg, rc = 0;
    uint64_t shared = 42, own = (uint64_t)rank + 1;
    struct tensor tensors[TENSORS];
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < TENSORS; i++) {
        struct tensor *t = &tensors[i];
        snprintf(t->name, sizeof(t->name), "t%d", i);
        t->in = malloc(MAX_COUNT * 8);
        t->out = i % 2 ? t->in : malloc(MAX_COUNT * 8);
    }
    for (int k = 0; k < rounds && !rc; k++)
        rc = one_round(tensors, rank, size, &shared, &own, k);
    for (int i = 0; i < TENSORS; i++) {
        if (tensors[i].out != tensors[i].in)
            free(tensors[i].out);
        free(tensors[i].in);
    }
    return rc ? rc : hvd_shutdown() != 0;
}

/* The same sizes again and again: the frozen schedule, in which no messages travel. */
static int overwrite_frozen(int rank, int size, void *arg)
{
    static const int64_t counts[] = {1, 60, 64, 65, 5000, 70000, 262145, MAX_COUNT};
    int rounds = *(int *)arg, rc = 0;
    uint64_t own = (uint64_t)rank + 1;
    struct hvd_stats stats = {.size = sizeof(stats)};
    char *in = malloc(MAX_COUNT * 4), *out = malloc(MAX_COUNT * 4);
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < rounds * 8 && !rc; k++) {
        struct tensor t = {.in = in, .out = k / 8 % 2 ? in : out, .dtype = HVD_FLOAT32, .salt = k};
        t.count = counts[k % 8];
        snprintf(t.name, sizeof(t.name), "f%d", k % 8);
        values_fill(t.dtype, HVD_SUM, rank, size, t.in, (size_t)t.count, t.salt);
        sometimes_late(&own);
        if (hvd_allreduce(t.name, t.in, t.out, t.count, t.dtype, HVD_SUM) != 0)
            return FAIL("%s: %s", t.name, hvd_error());
        rc = check_and_spoil(&t, size, "frozen");
    }
    free(in);
    free(out);
    if (!rc && (hvd_stats(&stats) != 0 || stats.frozen == 0))
        return FAIL("the schedule was never frozen");
    return rc ? rc : hvd_shutdown() != 0;
}

/* Each kind in turn, overwritten as soon as it is done. */
static int overwrite_kinds(int rank, int size, void *arg)
{
    int rounds = *(int *)arg;
    uint64_t shared = 7, own = (uint64_t)rank + 1;
    int32_t *data = malloc(MAX_COUNT * 4 + 64);
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    for (int k = 0; k < rounds; k++) {
        int64_t n = random_count(&shared) / 8 * size, root = k % size;
        for (int64_t i = 0; i < n; i++)
            data[i] = rank == root ? (int32_t)(i + k) : -1;
        if (hvd_broadcast("b", data, n, HVD_INT32, (int)root) != 0)
            return FAIL("broadcast: %s", hvd_error());
        for (int64_t i = 0; i < n; i++) {
            if (data[i] != (int32_t)(i + k))
                return FAIL("broadcast %d: element %d is %d", k, (int)i, data[i]);
            data[i] = rank;
        }
        sometimes_late(&own);
        struct hvd_request r = {.kind = k % 2 ? HVD_ALLGATHER : HVD_ALLTOALL,
                                .name = "g",
                                .input = data,
                                .dtype = HVD_INT32,
                                .ndim = 1,
                                .shape = &n,
                                .device = -1};
        hvd_handle h;
        struct hvd_result res;
        if (hvd_submit(&r, 1, &h) != 0 || hvd_wait(h) != 0 || hvd_result(h, &res) != 0)
            return FAIL("gather: %s", hvd_error());
        memset(data, 0xee, (size_t)n * 4);
        const int32_t *got = res.data;
        int64_t each = k % 2 ? n : n / size;
        for (int64_t i = 0; i < res.shape[0]; i++) {
            if (got[i] != (int32_t)(i / each))
                return FAIL("gather %d: element %d is %d", k, (int)i, got[i]);
        }
        hvd_release(h);
    }
    free(data);
    return hvd_shutdown() != 0;
}

static void run(int size, int hosts, world_rank_f fn, int rounds)
{
    /* Sanitizers are slow on a busy machine. */
    struct world_options o = {.size = size, .hosts = hosts, .timeout_s = 150};
    assert_int_equal(world_run_options(&o, fn, &rounds), 0);
}

static void test_overwrite_async(void **state)
{
    int rounds = effort(80);
    for (int size = 2; size <= 4; size++)
        run(size, 1, overwrite_async, rounds);
}

static void test_overwrite_frozen(void **state)
{
    int rounds = effort(50);
    for (int size = 2; size <= 4; size++)
        run(size, 1, overwrite_frozen, rounds);
}

static void test_overwrite_kinds(void **state)
{
    int rounds = effort(50);
    for (int size = 2; size <= 4; size++)
        run(size, 1, overwrite_kinds, rounds);
}

static void test_overwrite_hosts(void **state)
{
    if (!world_can_netns("multi/stable/hosts"))
        return;
    int rounds = effort(40);
    run(2, 2, overwrite_async, rounds);
    run(2, 2, overwrite_frozen, rounds);
    run(4, 2, overwrite_async, rounds);
    run(4, 2, overwrite_frozen, rounds);
    run(4, 2, overwrite_kinds, rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overwrite_async),
        cmocka_unit_test(test_overwrite_frozen),
        cmocka_unit_test(test_overwrite_kinds),
        cmocka_unit_test(test_overwrite_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
