/* SPDX-License-Identifier: Apache-2.0
 *
 * Allgather, broadcast, all-to-all, reduce-scatter and barrier on real meshes, without the engine:
 * uneven and empty parts, every root, several layouts of hosts. Buffers are overwritten as soon as
 * an operation is done.
 *
 * timeout: 300
 * takes: 4 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/coll/reduce.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/pattern.h"
#include "tests/harness/world.h"

#define MAX_RANKS 8

struct job {
    const char *hosts;
    _Atomic unsigned *entered; /* barriers entered by all ranks, shared */
};

/* A byte that depends on sender, receiver and position. */
static uint8_t mark(int from, int to, size_t i, unsigned salt)
{
    return (uint8_t)((unsigned)from * 37 + (unsigned)to * 11 + salt * 5 + i + i / 251);
}

static int complain(struct coll_rank *r, const char *what, int from, size_t i)
{
    printf("rank %d of %d: %s (%s): byte %zu of rank %d's part is wrong\n", r->mesh->rank,
           r->mesh->size, what, coll_algorithm(r->coll), i, from);
    return -EBADMSG;
}

static int check_part(struct coll_rank *r, const char *what, const uint8_t *got, size_t n, int from,
                      int to, unsigned salt)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != mark(from, to, i, salt))
            return complain(r, what, from, i);
    return 0;
}

static void fill_part(uint8_t *dst, size_t n, int from, int to, unsigned salt)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = mark(from, to, i, salt);
}

/* Elements of this rank's part: uneven, some parts empty. */
static size_t ragged(int rank, size_t scale, unsigned salt)
{
    unsigned k = ((unsigned)rank + salt) % 4;
    return k == 3 ? 0 : scale / (k + 1) + k;
}

static int check_allgather(struct coll_rank *r, size_t scale, unsigned salt, bool in_place)
{
    int rank = r->mesh->rank, size = r->mesh->size;
    size_t counts[MAX_RANKS], all = 0, before = 0;
    for (int i = 0; i < size; i++) {
        before = i == rank ? all : before;
        counts[i] = ragged(i, scale, salt);
        all += counts[i] * 2;
    }
    auto_free uint8_t *in = malloc(counts[rank] * 2 + 1), *out = malloc(all + 1);
    if (!in || !out)
        return -ENOMEM;
    memset(out, 0xee, all + 1);
    uint8_t *given = in_place ? out + before : in;
    fill_part(given, counts[rank] * 2, rank, 0, salt);
    struct coll_tensor t = {given, out, counts[rank]};
    struct coll_op op = coll_rank_op(r, HVD_ALLGATHER, HVD_INT16, HVD_SUM, &t, 1);
    op.recv_counts = counts;
    int rc = coll_rank_run(r, &op);
    for (int i = 0, at = 0; i < size && rc == 0; at += (int)counts[i++] * 2)
        rc = check_part(r, "allgather", out + at, counts[i] * 2, i, 0, salt);
    if (rc == 0 && out[all] != 0xee)
        rc = complain(r, "allgather writes too much", rank, all);
    memset(in, 0x5a, counts[rank] * 2 + 1);
    return rc;
}

static int check_broadcast(struct coll_rank *r, size_t n, int root, unsigned salt, bool in_place)
{
    auto_free uint8_t *in = malloc(n + 1), *out = malloc(n + 1);
    if (!in || !out)
        return -ENOMEM;
    memset(in, 0x11, n + 1);
    memset(out, 0xee, n + 1);
    uint8_t *given = in_place ? out : in;
    if (r->mesh->rank == root)
        fill_part(given, n, root, 0, salt);
    struct coll_tensor t = {given, out, n};
    struct coll_op op = coll_rank_op(r, HVD_BROADCAST, HVD_UINT8, HVD_SUM, &t, 1);
    op.root = root;
    int rc = coll_rank_run(r, &op);
    if (rc == 0)
        rc = check_part(r, "broadcast", out, n, root, 0, salt);
    if (rc == 0 && out[n] != 0xee)
        rc = complain(r, "broadcast writes too much", root, n);
    memset(in, 0x5a, n + 1);
    return rc;
}

static int check_alltoall(struct coll_rank *r, size_t scale, unsigned salt)
{
    int rank = r->mesh->rank, size = r->mesh->size;
    size_t to[MAX_RANKS], from[MAX_RANKS], sent = 0, received = 0;
    for (int i = 0; i < size; i++) {
        sent += to[i] = ragged(rank * 3 + i, scale, salt);
        received += from[i] = ragged(i * 3 + rank, scale, salt);
    }
    auto_free uint8_t *in = malloc(sent * 4 + 1), *out = malloc(received * 4 + 1);
    if (!in || !out)
        return -ENOMEM;
    memset(out, 0xee, received * 4 + 1);
    size_t at = 0;
    for (int i = 0; i < size; at += to[i++] * 4)
        fill_part(in + at, to[i] * 4, rank, i, salt);
    struct coll_tensor t = {in, out, sent};
    struct coll_op op = coll_rank_op(r, HVD_ALLTOALL, HVD_INT32, HVD_SUM, &t, 1);
    op.send_counts = to;
    op.recv_counts = from;
    int rc = coll_rank_run(r, &op);
    at = 0;
    for (int i = 0; i < size && rc == 0; at += from[i++] * 4)
        rc = check_part(r, "alltoall", out + at, from[i] * 4, i, rank, salt);
    if (rc == 0 && out[received * 4] != 0xee)
        rc = complain(r, "alltoall writes too much", rank, received * 4);
    memset(in, 0x5a, sent * 4 + 1);
    return rc;
}

/* With in_place the result goes to the beginning of the input. */
static int check_reducescatter(struct coll_rank *r, enum hvd_dtype dtype, enum hvd_op o,
                               size_t scale, unsigned salt, bool in_place)
{
    int rank = r->mesh->rank, size = r->mesh->size;
    size_t counts[MAX_RANKS], all = 0, first = 0, elem = hvd_dtype_size(dtype);
    for (int i = 0; i < size; i++) {
        first = i == rank ? all : first;
        all += counts[i] = ragged(i, scale, salt);
    }
    auto_free uint8_t *in = malloc(all * elem + 1), *out = malloc(counts[rank] * elem + 1);
    if (!in || !out)
        return -ENOMEM;
    pattern_fill(dtype, o, rank, size, 0, all, salt, in);
    struct coll_tensor t = {in, in_place ? in : out, all};
    struct coll_op op = coll_rank_op(r, HVD_REDUCESCATTER, dtype, o, &t, 1);
    op.recv_counts = counts;
    int rc = coll_rank_run(r, &op);
    size_t bad = rc < 0 ? 0 : pattern_check(dtype, o, size, first, counts[rank], salt, t.out);
    if (rc == 0 && bad < counts[rank])
        rc = complain(r, "reducescatter", rank, bad);
    memset(in, 0x5a, all * elem + 1);
    return rc;
}

/* No rank leaves a barrier before all ranks have entered it. */
static int check_barrier(struct coll_rank *r, _Atomic unsigned *entered, unsigned round)
{
    if ((unsigned)r->mesh->rank == round % (unsigned)r->mesh->size)
        usleep(3000);
    atomic_fetch_add(entered, 1);
    struct coll_op op = coll_rank_op(r, HVD_BARRIER, HVD_UINT8, HVD_SUM, NULL, 0);
    int rc = coll_rank_run(r, &op);
    if (rc == 0 && atomic_load(entered) < (round + 1) * (unsigned)r->mesh->size) {
        printf("rank %d: left barrier %u too early\n", r->mesh->rank, round);
        rc = -EBADMSG;
    }
    return rc;
}

static int check_all(struct coll_rank *r, const struct job *job)
{
    const size_t scales[] = {0, 1, 5, 1000, 40000, 300007};
    unsigned salt = 0;
    int rc = 0;
    for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]) && rc == 0; s++) {
        for (int root = 0; root < r->mesh->size && rc == 0; root++, salt++)
            rc = check_broadcast(r, scales[s], root, salt, root % 2);
        if (rc == 0)
            rc = check_allgather(r, scales[s], salt, s % 2);
        if (rc == 0)
            rc = check_alltoall(r, scales[s], salt);
        if (rc == 0)
            rc = check_barrier(r, job->entered, (unsigned)s);
        for (int d = 0; d < REDUCE_DTYPES && rc == 0; d++, salt++) {
            enum hvd_op o = d % 3 == 0 || d == HVD_BOOL ? HVD_MAX
                            : d % 3 == 1                ? HVD_SUM
                                                        : HVD_AVERAGE;
            rc = check_reducescatter(r, d, o, scales[s] / (d < 8 ? 8 : 1), salt, d % 2);
        }
    }
    return rc;
}

static int rank_main(int rank, int size, void *arg)
{
    struct coll_rank r;
    const struct job *job = arg;
    if (coll_rank_open(&r, rank, job->hosts) < 0)
        return 10;
    int rc = check_all(&r, job);
    coll_rank_close(&r);
    return rc < 0 ? 1 : 0;
}

static void run_layouts(const char *const *layouts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct job job = {layouts[i], world_shared(sizeof(unsigned))};
        struct world_options o = {.size = (int)strlen(layouts[i]), .timeout_s = 90};
        assert_non_null(job.entered);
        printf("ranks on hosts %s\n", layouts[i]);
        assert_int_equal(world_run_options(&o, rank_main, &job), 0);
    }
}

static void test_one_host(void **state)
{
    const char *const layouts[] = {"a", "aa", "aaa", "aaaaaaaa"};
    run_layouts(layouts, 4);
}

static void test_tcp_only(void **state)
{
    const char *const layouts[] = {"ab", "abc", "abcde", "abcdefgh"};
    run_layouts(layouts, 4);
}

static void test_mixed_hosts(void **state)
{
    const char *const layouts[] = {"aab", "abba", "aaabcc", "aabbccdd"};
    run_layouts(layouts, 4);
}

static void test_namespaces(void **state)
{
    if (!world_can_netns("multi/coll_kinds/namespaces"))
        skip();
    struct job job = {NULL, world_shared(sizeof(unsigned))};
    struct world_options o = {.size = 4, .hosts = 3, .timeout_s = 90};
    assert_non_null(job.entered);
    assert_int_equal(world_run_options(&o, rank_main, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_tcp_only),
        cmocka_unit_test(test_mixed_hosts),
        cmocka_unit_test(test_namespaces),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/coll_kinds", tests, NULL, NULL);
}
