/* SPDX-License-Identifier: Apache-2.0
 *
 * Allreduce on real meshes, without the engine: worlds of 1 to 8 ranks, on one host, on as many
 * hosts as ranks, and mixed; every type and operation; counts around the internal boundaries; in
 * place and not, unaligned, fused. Results must equal the reference exactly. Buffers are
 * overwritten as soon as an operation is done.
 *
 * timeout: 300
 * takes: 17 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/coll/reduce.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/pattern.h"
#include "tests/harness/world.h"

struct job {
    const char *hosts; /* one character a rank */
    bool large;
};

static unsigned salt_of_next;

/* One allreduce of n tensors with these counts. Buffers begin at an odd offset and are overwritten
 * when it is done. */
static int check_allreduce(struct coll_rank *r, enum hvd_dtype dtype, enum hvd_op op,
                           const size_t *counts, size_t n, bool in_place)
{
    size_t elem = hvd_dtype_size(dtype), bytes = 0, at = 1 + salt_of_next % 3;
    unsigned salt = salt_of_next++;
    int rank = r->mesh->rank, size = r->mesh->size, rc = 0;
    for (size_t i = 0; i < n; i++)
        bytes += counts[i] * elem + 5;
    auto_free uint8_t *in = malloc(bytes + 8), *out = malloc(bytes + 8);
    auto_free struct coll_tensor *t = calloc(n, sizeof(*t));
    if (!in || !out || !t)
        return -ENOMEM;
    memset(out, 0xee, bytes + 8);
    for (size_t i = 0; i < n; i++) {
        t[i] = (struct coll_tensor){in + at, (in_place ? in : out) + at, counts[i]};
        pattern_fill(dtype, op, rank, size, 0, counts[i], salt + (unsigned)i, in + at);
        at += counts[i] * elem + 5;
    }
    struct coll_op o = coll_rank_op(r, HVD_ALLREDUCE, dtype, op, t, n);
    if ((rc = coll_rank_run(r, &o)) < 0)
        return rc;
    for (size_t i = 0; i < n && rc == 0; i++) {
        size_t bad = pattern_check(dtype, op, size, 0, counts[i], salt + (unsigned)i, t[i].out);
        if (bad < counts[i])
            rc = -EBADMSG;
        if (rc < 0)
            printf("rank %d of %d: %s %s %s, tensor %zu of %zu, element %zu of %zu wrong\n", rank,
                   size, coll_algorithm(r->coll), hvd_dtype_name(dtype), hvd_op_name(op), i, n, bad,
                   counts[i]);
    }
    memset(in, 0x5a, bytes + 8);
    memset(out, 0xa5, bytes + 8);
    return rc;
}

static int every_type(struct coll_rank *r)
{
    size_t p = (size_t)r->mesh->size;
    const size_t counts[] = {0, 1, p - 1, p, p + 1, 1000};
    for (int d = 0; d < REDUCE_DTYPES; d++) {
        for (int o = 0; o < HVD_OPS; o++) {
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
                bool in_place = (c + (size_t)o) % 2;
                int rc =
                    reduce_possible(d, o) ? check_allreduce(r, d, o, &counts[c], 1, in_place) : 0;
                if (rc < 0)
                    return rc;
            }
        }
    }
    return 0;
}

/* Counts around the boundaries of algorithms, blocks and chunks, and fused batches. */
static int every_size(struct coll_rank *r)
{
    size_t hosts = (size_t)r->mesh->hosts, local = (size_t)r->mesh->local_size_of[0];
    /* Numbers of floats at which the algorithm changes: beside the flag, symmetric, direct, one
     * block a segment, several blocks.
     */
    const size_t edges[] = {64,
                            local > 1 ? (1u << 18) / (local - 1) : 1000,
                            hosts == 2 ? 65536 : 4096,
                            4096 * hosts,
                            16384 * hosts + 5,
                            100000};
    const size_t batch[] = {1, 0, 1000, 3, 70001, 17, 0, 2, 40000, 1};
    for (size_t c = 0; c < 3 * sizeof(edges) / sizeof(edges[0]); c++) {
        size_t count = edges[c / 3] + c % 3 - 1;
        int rc = check_allreduce(r, HVD_FLOAT32, HVD_SUM, &count, 1, c % 2);
        if (rc == 0 && c % 3 == 0)
            rc = check_allreduce(r, HVD_BFLOAT16, HVD_SUM, &count, 1, c % 2);
        if (rc < 0)
            return rc;
    }
    for (int d = 0; d < REDUCE_DTYPES; d++) {
        size_t n = 2 + (size_t)d * 8 / REDUCE_DTYPES;
        int rc = check_allreduce(r, d, HVD_MAX, batch, n, d % 2);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* The algorithm that a large allreduce must use on this layout of hosts. */
static const char *expected(const struct mesh *mesh)
{
    if (mesh->size == 1)
        return "alone";
    if (mesh->hosts == 1)
        return "shm_slice";
    return mesh->local_size > 1 ? "hierarchical" : "ring";
}

static int large_ones(struct coll_rank *r)
{
    const size_t counts[] = {1000000, 1000001, 3000017};
    int rc = check_allreduce(r, HVD_FLOAT32, HVD_AVERAGE, &counts[0], 1, false);
    if (rc == 0)
        rc = check_allreduce(r, HVD_FLOAT16, HVD_SUM, &counts[1], 1, true);
    if (rc == 0)
        rc = check_allreduce(r, HVD_INT64, HVD_SUM, &counts[0], 1, true);
    if (rc == 0)
        rc = check_allreduce(r, HVD_FLOAT32, HVD_SUM, counts, 3, false);
    if (rc == 0 && strcmp(coll_algorithm(r->coll), expected(r->mesh)) != 0) {
        printf("rank %d: %s ran instead of %s\n", r->mesh->rank, coll_algorithm(r->coll),
               expected(r->mesh));
        rc = -EBADMSG;
    }
    return rc;
}

/* The prescale factor applies once to each input, the postscale factor once to the result. */
static int scales(struct coll_rank *r)
{
    const size_t counts[] = {3, 5000, 100003};
    for (size_t c = 0; c < 3; c++) {
        size_t n = counts[c];
        auto_free float *data = malloc(n * sizeof(*data));
        if (!data)
            return -ENOMEM;
        for (size_t i = 0; i < n; i++)
            data[i] = (float)(i % 100 + (size_t)r->mesh->rank);
        struct coll_tensor t = {data, data, n};
        struct coll_op o = coll_rank_op(r, HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, &t, 1);
        o.prescale = 0.5;
        o.postscale = 4.0;
        int rc = coll_rank_run(r, &o), p = r->mesh->size;
        for (size_t i = 0; i < n && rc == 0; i++) {
            float want = 2.0f * (float)((size_t)p * (i % 100)) + (float)(p * (p - 1));
            if (data[i] != want) {
                printf("rank %d: scaled element %zu is %g, not %g\n", r->mesh->rank, i,
                       (double)data[i], (double)want);
                rc = -EBADMSG;
            }
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int rank_main(int rank, int size, void *arg)
{
    const struct job *job = arg;
    struct coll_rank r;
    if (coll_rank_open(&r, rank, job->hosts) < 0)
        return 10;
    int rc = every_type(&r);
    if (rc == 0)
        rc = every_size(&r);
    if (rc == 0)
        rc = scales(&r);
    if (rc == 0 && job->large)
        rc = large_ones(&r);
    coll_rank_close(&r);
    return rc < 0 ? 1 : 0;
}

static void run_jobs(const struct job *jobs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct job job = jobs[i];
        struct world_options o = {.size = (int)strlen(job.hosts), .timeout_s = 90};
        printf("ranks on hosts %s\n", job.hosts);
        assert_int_equal(world_run_options(&o, rank_main, &job), 0);
    }
}

static void test_alone(void **state)
{
    const struct job jobs[] = {{"a", true}};
    run_jobs(jobs, 1);
}

static void test_one_host(void **state)
{
    const struct job jobs[] = {{"aa", true}, {"aaa", false}, {"aaaa", true}, {"aaaaaaaa", false}};
    run_jobs(jobs, 4);
}

static void test_tcp_only(void **state)
{
    const struct job jobs[] = {{"ab", true},     {"abc", false},     {"abcd", true},
                               {"abcde", false}, {"abcdefg", false}, {"abcdefgh", false}};
    run_jobs(jobs, 6);
}

static void test_mixed_hosts(void **state)
{
    const struct job jobs[] = {{"aab", true},    {"aabb", true},    {"abab", false},
                               {"aaabcc", true}, {"aabbcc", false}, {"aaaabbbb", false}};
    run_jobs(jobs, 6);
}

/* Ranks in network namespaces: other addresses, network stacks of their own, no shared loopback. */
static void test_namespaces(void **state)
{
    if (!world_can_netns("multi/coll/namespaces"))
        skip();
    struct job job = {NULL, false};
    const struct world_options options[] = {{.size = 2, .hosts = 2, .timeout_s = 90},
                                            {.size = 4, .hosts = 4, .timeout_s = 90},
                                            {.size = 3, .hosts = 2, .timeout_s = 90}};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        assert_int_equal(world_run_options(&options[i], rank_main, &job), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),      cmocka_unit_test(test_one_host),
        cmocka_unit_test(test_tcp_only),   cmocka_unit_test(test_mixed_hosts),
        cmocka_unit_test(test_namespaces),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/coll", tests, NULL, NULL);
}
