/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of collectives: after the first rounds the same operations allocate nothing. A creation or
 * a start whose allocation fails returns an error, leaks nothing and breaks nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/world.h"

#define COUNT 300000

/* Every kind, small and large. */
static int every_kind(struct coll_rank *r, float *in, float *out, size_t count)
{
    size_t parts[8], size = (size_t)r->mesh->size;
    for (int kind = 0; kind < COLL_KINDS; kind++) {
        bool each = kind == HVD_ALLTOALL || kind == HVD_REDUCESCATTER;
        for (size_t i = 0; i < size; i++)
            parts[i] = count / size;
        struct coll_tensor t = {in, out, each ? parts[0] * size : parts[0]};
        struct coll_op op = coll_rank_op(r, kind, HVD_FLOAT32, HVD_SUM, &t, 1);
        op.send_counts = op.recv_counts = parts;
        int rc = coll_rank_run(r, &op);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int steady(struct coll_rank *r)
{
    auto_free float *in = calloc(COUNT, sizeof(*in));
    auto_free float *out = calloc(COUNT, sizeof(*out));
    const size_t counts[] = {8, 5000, COUNT};
    long before = 0;
    int rc = in && out ? 0 : -ENOMEM;
    /* The first two rounds fill both work buffers and create all links. */
    for (int round = 0; round < 5 && rc == 0; round++) {
        if (round == 2)
            before = fail_alloc.calls;
        for (size_t i = 0; i < 3 && rc == 0; i++)
            rc = every_kind(r, in, out, counts[i]);
        /* With an odd number of operations each one has the other work buffer in the next round. */
        struct coll_op op = coll_rank_op(r, HVD_BARRIER, HVD_UINT8, HVD_SUM, NULL, 0);
        rc = rc == 0 ? coll_rank_run(r, &op) : rc;
    }
    if (rc == 0 && fail_alloc.calls != before) {
        printf("rank %d: %ld allocations in the steady state\n", r->mesh->rank,
               fail_alloc.calls - before);
        rc = -EBADMSG;
    }
    return rc;
}

/* coll_create() with each of its allocations failing in turn. */
static int no_memory(struct coll_rank *r)
{
    for (long n = 0; n < 200; n++) {
        struct coll *coll = NULL;
        struct err err = {0};
        long before = fail_alloc.live;
        fail_alloc.failed = 0;
        fail_alloc.fail_at = n;
        int rc = coll_create(r->mesh, &coll, &err);
        bool failed = fail_alloc.failed > 0;
        fail_alloc.fail_at = -1;
        if (rc == 0)
            coll_destroy(coll);
        if (rc == 0 && !failed)
            return n > 0 ? 0 : -EBADMSG;
        if (rc != -ENOMEM || !*err.msg || fail_alloc.live != before) {
            printf("rank %d: allocation %ld of coll_create fails: %d, %s, %ld blocks left\n",
                   r->mesh->rank, n, rc, err_text(&err), fail_alloc.live - before);
            return -EBADMSG;
        }
    }
    return -EBADMSG;
}

/* A start without memory for its work buffer; the same start works afterwards. */
static int no_memory_to_start(struct coll_rank *r)
{
    struct coll_op op, barrier = coll_rank_op(r, HVD_BARRIER, HVD_UINT8, HVD_SUM, NULL, 0);
    auto_free float *data = calloc(2 * COUNT, sizeof(*data));
    struct coll_tensor t = {data, data, 2 * COUNT};
    struct err err = {0};
    op = coll_rank_op(r, HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, &t, 1);
    if (r->mesh->hosts > 1) {
        fail_alloc.fail_at = 0;
        int rc = coll_start(r->coll, &op, &err);
        bool owner = r->mesh->local_rank < r->mesh->lanes;
        fail_alloc.fail_at = -1;
        if (rc != (owner ? -ENOMEM : 0))
            return -EBADMSG;
        coll_cancel(r->coll);
        mesh_next_generation(r->mesh);
    }
    int rc = coll_rank_run(r, &barrier);
    return rc < 0 ? rc : coll_rank_run(r, &op);
}

static int rank_main(int rank, int size, void *arg)
{
    struct coll_rank r;
    if (coll_rank_open(&r, rank, arg) < 0)
        return 10;
    int rc = steady(&r);
    if (rc == 0)
        rc = no_memory(&r);
    if (rc == 0)
        rc = no_memory_to_start(&r);
    coll_rank_close(&r);
    return rc < 0 ? 1 : 0;
}

static void test_memory(void **state)
{
    char layouts[][8] = {"a", "aa", "ab", "abc", "aab", "aabb"};
    if (!FAIL_ALLOC) {
        printf("SKIP: multi/coll_alloc/memory: no sanitizer: it has its own malloc\n");
        skip();
    }
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        struct world_options o = {.size = (int)strlen(layouts[i]), .timeout_s = 60};
        printf("ranks on hosts %s\n", layouts[i]);
        assert_int_equal(world_run_options(&o, rank_main, layouts[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory)};
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/coll_alloc", tests, NULL, NULL);
}
