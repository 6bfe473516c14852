/* SPDX-License-Identifier: Apache-2.0
 *
 * HVD_REDUCE, HVD_GATHER, HVD_SCATTER: with each rank as root, in the world and in a set, on one
 * host and on several; until their schedule is frozen; ranks that name different roots; a root that
 * has joined.
 *
 * takes: 3 s
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <hvd.h>

#include "tests/harness/rank.h"
#include "tests/harness/world.h"

enum { MOST = 5, ROWS = 700, LENGTH = 3 };

/* A set as a rank sees it. */
struct place {
    int set, rank, size;
};

static int expect(int rc, int want, const char *text)
{
    if (rc != want || !strstr(hvd_error(), text))
        return FAIL("%d (%s), not %d (%s)", rc, hvd_error(), want, text);
    return 0;
}

static int run(struct hvd_request *r, const struct place *at, int root, hvd_handle *ret)
{
    char name[32];
    snprintf(name, sizeof(name), "%s %d", hvd_kind_name(r->kind), root);
    r->name = name;
    r->set = at->set;
    r->root = root;
    r->dtype = HVD_FLOAT32;
    r->device = -1;
    return rank_wait(r, ret) < 0 ? FAIL("%s", hvd_error()) : 0;
}

/* Rank r has r + 1 in each element. */
static int reduce(const struct place *at, int root)
{
    static float in[ROWS], out[ROWS];
    const int64_t count = ROWS;
    hvd_handle h;
    for (int i = 0; i < ROWS; i++)
        in[i] = (float)(at->rank + 1);
    struct hvd_request r = {
        .kind = HVD_REDUCE, .input = in, .output = out, .ndim = 1, .shape = &count, .op = HVD_MAX};
    int rc = run(&r, at, root, &h);
    if (rc == 0 && at->rank == root && (out[0] != (float)at->size || out[ROWS - 1] != out[0]))
        rc = FAIL("reduce: %g", (double)out[0]);
    return rc;
}

/* Rank r has r + 2 rows. */
static int gather(const struct place *at, int root)
{
    float in[(MOST + 2) * LENGTH];
    const int64_t shape[] = {at->rank + 2, LENGTH};
    struct hvd_result result;
    hvd_handle h;
    for (int i = 0; i < (at->rank + 2) * LENGTH; i++)
        in[i] = (float)(100 * at->rank + i);
    struct hvd_request r = {.kind = HVD_GATHER, .input = in, .ndim = 2, .shape = shape};
    int rc = run(&r, at, root, &h), k = 0;
    if (rc != 0 || hvd_result(h, &result) != 0)
        return rc ? rc : FAIL("%s", hvd_error());
    const float *data = result.data;
    for (int from = 0; from < at->size && rc == 0; from++) {
        int rows = at->rank == root ? from + 2 : 0;
        if (result.splits[from] != rows)
            rc = FAIL("gather: %d rows of %d", (int)result.splits[from], from);
        for (int i = 0; i < rows * LENGTH && rc == 0; i++)
            if (data[k++] != (float)(100 * from + i))
                rc = FAIL("gather: element %d of %d", i, from);
    }
    if (rc == 0 && result.shape[0] != (at->rank == root ? at->size * (at->size + 3) / 2 : 0))
        rc = FAIL("gather: %d rows", (int)result.shape[0]);
    hvd_release(h);
    return rc;
}

/* Rank r gets r rows; with `equal` all get two. */
static int scatter(const struct place *at, int root, bool equal)
{
    float in[MOST * MOST * LENGTH];
    int64_t splits[MOST], shape[] = {0, LENGTH};
    struct hvd_result result;
    hvd_handle h;
    int before = 0;
    for (int r = 0; r < at->size; r++) {
        splits[r] = equal ? 2 : r;
        before += r < at->rank ? (int)splits[r] : 0;
        shape[0] += splits[r];
    }
    for (int i = 0; i < shape[0] * LENGTH; i++)
        in[i] = (float)(1000 * root + i);
    struct hvd_request r = {.kind = HVD_SCATTER,
                            .input = at->rank == root ? in : NULL,
                            .ndim = 2,
                            .shape = shape,
                            .splits = equal ? NULL : splits};
    if (at->rank != root)
        shape[0] = 77; /* is ignored */
    int rc = run(&r, at, root, &h);
    if (rc != 0 || hvd_result(h, &result) != 0)
        return rc ? rc : FAIL("%s", hvd_error());
    const float *data = result.data;
    if (result.shape[0] != splits[at->rank] || result.splits[root] != splits[at->rank])
        rc = FAIL("scatter: %d rows", (int)result.shape[0]);
    for (int i = 0; i < splits[at->rank] * LENGTH && rc == 0; i++)
        if (data[i] != (float)(1000 * root + before * LENGTH + i))
            rc = FAIL("scatter: element %d is %g", i, (double)data[i]);
    hvd_release(h);
    return rc;
}

static int each_root(int rank, int size, void *arg)
{
    int ranks[MOST], set = 0, rc = 0;
    for (int i = 0; i < size; i++)
        ranks[i] = (i + 1) % size;
    if (hvd_init() != 0 || hvd_set_add(ranks, size, &set) != 0)
        return FAIL("%s", hvd_error());
    const struct place places[] = {{0, rank, size}, {set, hvd_set_rank(set), size}};
    for (int i = 0; i < 60 * size && rc == 0; i++) {
        const struct place *at = &places[i % 2];
        int root = i / 2 % size;
        rc = reduce(at, root);
        rc = rc ? rc : gather(at, root);
        rc = rc ? rc : scatter(at, root, i % 4 < 2);
    }
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_each_root(void **state)
{
    assert_int_equal(world_run(1, each_root, NULL), 0);
    assert_int_equal(world_run(4, each_root, NULL), 0);
}

static void test_hosts(void **state)
{
    if (!world_can_netns("multi/rooted/hosts"))
        return;
    const struct world_options o = {.size = 5, .hosts = 2};
    assert_int_equal(world_run_options(&o, each_root, NULL), 0);
}

/* ---- refused -------------------------------------------------------------------------------- */

static int differ(int rank, enum hvd_kind kind, const char *text)
{
    float x[4] = {0}, y[4];
    const int64_t count = 4;
    hvd_handle h;
    struct hvd_request r = {.kind = kind,
                            .name = "differ",
                            .input = x,
                            .output = kind == HVD_REDUCE ? y : NULL,
                            .dtype = HVD_FLOAT32,
                            .ndim = 1,
                            .shape = &count,
                            .op = HVD_SUM,
                            .root = rank,
                            .device = -1};
    int rc = expect(rank_wait(&r, &h), -EINVAL, text);
    r.root = 2;
    rc = rc ? rc : expect(hvd_submit(&r, 1, &h), -EINVAL, "root 2 is no rank of 2");
    r.root = 0;
    r.kind = rank ? kind : kind == HVD_REDUCE ? HVD_ALLREDUCE : HVD_ALLTOALL;
    return rc ? rc : expect(rank_wait(&r, &h), -EINVAL, hvd_kind_name(kind));
}

static int refused(int rank, int size, void *arg)
{
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    int rc = differ(rank, HVD_REDUCE, "reduce 'differ': rank 0: float32 [4] sum root 0; rank 1: ");
    rc =
        rc ? rc : differ(rank, HVD_GATHER, "gather 'differ': rank 0: float32 [*] root 0; rank 1: ");
    rc = rc ? rc : differ(rank, HVD_SCATTER, "scatter 'differ': rank 0: float32 [*] root 0; rank ");
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_refused(void **state)
{
    assert_int_equal(world_run(2, refused, NULL), 0);
}

/* Rank 1 has joined: it takes part in what the others reduce and gather, and has nothing to
 * scatter. */
static int joined(int rank, int size, void *arg)
{
    float x[2] = {1, 1};
    const int64_t count = 2;
    hvd_handle h;
    int rc = 0;
    if (hvd_init() != 0)
        return FAIL("%s", hvd_error());
    struct hvd_request r = {.kind = HVD_REDUCE,
                            .name = "x",
                            .input = x,
                            .output = x,
                            .dtype = HVD_FLOAT32,
                            .ndim = 1,
                            .shape = &count,
                            .op = HVD_SUM,
                            .device = -1};
    if (rank == 0 && (rank_wait(&r, &h) != 0 || x[0] != 1))
        rc = FAIL("%g %s", (double)x[0], hvd_error());
    r.kind = HVD_GATHER;
    r.output = NULL;
    if (rank == 0 && rc == 0 && rank_wait(&r, &h) != 0)
        rc = FAIL("%s", hvd_error());
    if (rank == 0)
        hvd_release(h);
    r.kind = HVD_SCATTER;
    r.root = 1;
    if (rank == 0 && rc == 0)
        rc = expect(rank_wait(&r, &h), -EINVAL, "scatter 'x': its root, rank 1, has joined");
    if (hvd_join() < 0)
        return FAIL("%s", hvd_error());
    return rc ? rc : hvd_shutdown() != 0;
}

static void test_joined(void **state)
{
    assert_int_equal(world_run(2, joined, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_root),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_joined),
        cmocka_unit_test(test_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
