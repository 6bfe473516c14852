/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit floats: every bit pattern, NaNs with their payloads among them, arrives unchanged by all
 * operations that only move, in the world, in sets, on several hosts, with ranks in hvd_join().
 * What combines elements is refused.
 *
 * timeout: 120
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

#include "tests/harness/join_rank.h"
#include "tests/harness/world.h"

#define MOST   4
#define ROWS   700 /* of a rank, at least; more than there are bit patterns */
#define ROUNDS 30  /* until a schedule is frozen, and some more */

static const enum hvd_dtype types[] = {HVD_FLOAT8_E4M3FN, HVD_FLOAT8_E5M2};

/* ---- what only moves ------------------------------------------------------------------------ */

/* A set as this rank sees it; `active`: a bit for each of its ranks that is not in hvd_join(). */
struct crew {
    int set, rank, size;
    unsigned active;
    enum hvd_dtype dtype;
};

static uint8_t value(int rank, int64_t i)
{
    return (uint8_t)(i + rank * 37);
}

static struct hvd_request request(const struct crew *c, enum hvd_kind kind, void *in, void *out,
                                  const int64_t *rows)
{
    static const char *const names[] = {[HVD_ALLGATHER] = "gather",
                                        [HVD_BROADCAST] = "tell",
                                        [HVD_ALLTOALL] = "exchange",
                                        [HVD_ALLREDUCE] = "reduce",
                                        [HVD_REDUCESCATTER] = "scatter"};
    struct hvd_request r = join_request(kind, names[kind], in, out, rows);
    r.dtype = c->dtype;
    r.set = c->set;
    return r;
}

static int tell(const struct crew *c, int root)
{
    const int64_t rows = ROWS;
    uint8_t data[ROWS];
    for (int i = 0; i < ROWS; i++)
        data[i] = value(c->rank, i);
    struct hvd_request r = request(c, HVD_BROADCAST, data, data, &rows);
    r.root = root;
    if (join_wait(&r) != 0)
        return 1;
    for (int i = 0; i < ROWS; i++)
        if (data[i] != value(root, i))
            return FAIL("%s from %d: element %d", hvd_dtype_name(c->dtype), root, i);
    return 0;
}

/* The rows that `from` has sent to this rank begin with its row `first`. */
static int check(const struct crew *c, const struct hvd_result *got, int from, int64_t first,
                 const uint8_t *at)
{
    for (int64_t i = 0; i < got->splits[from]; i++)
        if (at[i] != value(from, first + i))
            return FAIL("%s from %d: element %d", hvd_dtype_name(c->dtype), from, (int)i);
    return 0;
}

static int gather(const struct crew *c)
{
    const int64_t rows = ROWS + c->rank;
    uint8_t data[ROWS + MOST];
    struct hvd_result got;
    hvd_handle h;
    int rc = 0;
    for (int i = 0; i < rows; i++)
        data[i] = value(c->rank, i);
    struct hvd_request r = request(c, HVD_ALLGATHER, data, NULL, &rows);
    if (rank_wait(&r, &h) < 0 || hvd_result(h, &got) < 0)
        return FAIL("%s", hvd_error());
    const uint8_t *at = got.data;
    for (int i = 0; i < c->size && rc == 0; at += got.splits[i++])
        rc = got.splits[i] == (c->active >> i & 1 ? ROWS + i : 0) ? check(c, &got, i, 0, at)
                                                                  : FAIL("rows of %d", i);
    hvd_release(h);
    return rc;
}

/* Every rank sends ROWS + i rows to rank i. Returns the index of the first row for rank `to`. */
static int64_t first_for(int to)
{
    return (int64_t)to * ROWS + (int64_t)to * (to - 1) / 2;
}

static int exchange(const struct crew *c)
{
    const int64_t rows = first_for(c->size);
    uint8_t data[MOST * (ROWS + MOST)];
    int64_t splits[MOST];
    struct hvd_result got;
    hvd_handle h;
    int rc = 0;
    for (int i = 0; i < rows; i++)
        data[i] = value(c->rank, i);
    for (int i = 0; i < c->size; i++)
        splits[i] = ROWS + i;
    struct hvd_request r = request(c, HVD_ALLTOALL, data, NULL, &rows);
    r.splits = splits;
    if (rank_wait(&r, &h) < 0 || hvd_result(h, &got) < 0)
        return FAIL("%s", hvd_error());
    const uint8_t *at = got.data;
    for (int i = 0; i < c->size && rc == 0; at += got.splits[i++])
        rc = got.splits[i] == (c->active >> i & 1 ? ROWS + c->rank : 0)
                 ? check(c, &got, i, first_for(c->rank), at)
                 : FAIL("rows of %d", i);
    hvd_release(h);
    return rc;
}

static int moves(struct crew c)
{
    int rc = 0;
    for (size_t t = 0; t < 2 && rc == 0; t++) {
        c.dtype = types[t];
        for (int root = 0; root < c.size && rc == 0; root++)
            rc = c.active >> root & 1 ? tell(&c, root) : 0;
        if (rc == 0)
            rc = gather(&c);
        if (rc == 0)
            rc = exchange(&c);
    }
    return rc;
}

/* In the world, and in a set of the same ranks in reverse order. */
static int move_rank(int rank, int size, void *arg)
{
    struct crew world = {0, rank, size, (1U << size) - 1, 0}, set = world;
    int order[MOST], rc = 0;
    if (arg)
        setenv("HVD_LOCALITY", rank % 2 ? "a" : "b", 1);
    for (int i = 0; i < size; i++)
        order[i] = size - 1 - i;
    if (hvd_init() < 0 || hvd_set_add(order, size, &set.set) < 0)
        return FAIL("%s", hvd_error());
    set.rank = size - 1 - rank;
    for (int i = 0; i < ROUNDS && rc == 0; i++) {
        rc = moves(world);
        if (rc == 0)
            rc = moves(set);
    }
    return join_end(rc);
}

static void test_moves(void **state)
{
    for (int size = 1; size <= MOST; size++)
        assert_int_equal(world_run(size, move_rank, NULL), 0);
}

static void test_hosts(void **state)
{
    for (int size = 2; size <= MOST; size++)
        assert_int_equal(world_run(size, move_rank, &(int){1}), 0);
}

/* Rank 0 has joined, and gives no rows. */
static int join_a_rank(int rank, int size, void *arg)
{
    const struct crew crew = {0, rank, size, (1U << size) - 2, 0};
    int rc = 0;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 3 && rank > 0 && rc == 0; i++)
        rc = moves(crew);
    if (rc == 0 && hvd_join() < 1)
        rc = FAIL("hvd_join: %s", hvd_error());
    return join_end(rc);
}

static void test_join(void **state)
{
    for (int size = 2; size <= MOST; size++)
        assert_int_equal(world_run(size, join_a_rank, NULL), 0);
}

/* ---- refused -------------------------------------------------------------------------------- */

static int refuse(const struct crew *c, enum hvd_kind kind, enum hvd_op op)
{
    uint8_t data[MOST] = {0}, out[MOST];
    const int64_t rows = MOST;
    char want[200];
    hvd_handle h;
    struct hvd_request r = request(c, kind, data, out, &rows);
    r.op = op;
    snprintf(want, sizeof(want),
             "%s: %s cannot combine elements of %s, which are only moved (broadcast, allgather, "
             "alltoall, gather, scatter): convert the tensor to bfloat16 first",
             r.name, hvd_kind_name(kind), hvd_dtype_name(c->dtype));
    int rc = hvd_submit(&r, 1, &h);
    return rc == -EINVAL && strcmp(hvd_error(), want) == 0 ? 0 : FAIL("%d %s", rc, hvd_error());
}

/* Rank 0 has another type than the others. */
static int mismatch(const struct crew *c)
{
    uint8_t data[MOST] = {0};
    const int64_t rows = MOST;
    hvd_handle h;
    struct hvd_request r = request(c, HVD_BROADCAST, data, data, &rows);
    r.dtype = types[c->rank > 0];
    int rc = rank_wait(&r, &h);
    if (rc != -EINVAL || !strstr(hvd_error(), "rank 0: float8_e4m3fn [4] root 0") ||
        !strstr(hvd_error(), "rank 1: float8_e5m2 [4] root 0"))
        return FAIL("%d %s", rc, hvd_error());
    return 0;
}

static int refused_rank(int rank, int size, void *arg)
{
    struct crew c = {0, rank, size, (1U << size) - 1, 0};
    int rc = 0;
    if (hvd_init() < 0)
        return FAIL("%s", hvd_error());
    for (int i = 0; i < 2 && rc == 0; i++) {
        c.dtype = types[i];
        for (int op = 0; op < HVD_OPS && rc == 0; op++) {
            rc = refuse(&c, HVD_ALLREDUCE, (enum hvd_op)op);
            if (rc == 0)
                rc = refuse(&c, HVD_REDUCESCATTER, (enum hvd_op)op);
        }
    }
    if (rc == 0)
        rc = mismatch(&c);
    return join_end(rc == 0 ? moves(c) : rc);
}

static void test_refused(void **state)
{
    assert_int_equal(world_run(2, refused_rank, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_join),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("multi/float8", tests, NULL, NULL);
}
