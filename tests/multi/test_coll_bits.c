/* SPDX-License-Identifier: Apache-2.0
 *
 * A result must not depend on what a tensor is fused with, on when the ranks arrive, or on the run:
 * random floats, several layouts of hosts, bits compared. After a cancelled operation inputs are
 * untouched and the next generation works.
 *
 * timeout: 300
 * takes: 8 s
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/cleanup.h"
#include "core/base/clock.h"
#include "tests/harness/coll_rank.h"
#include "tests/harness/pattern.h"
#include "tests/harness/world.h"

#define TENSORS   10
#define MAX_RANKS 8

static const size_t counts[TENSORS] = {1, 2, 7, 100, 1000, 3, 4097, 20000, 70001, 250000};

struct shared {
    uint64_t hash[MAX_RANKS];
    _Atomic int stuck;
};

struct job {
    const char *hosts;
    struct shared *shared;
};

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t hash_bytes(uint64_t h, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 1099511628211ULL;
    return h;
}

struct set {
    enum hvd_dtype dtype;
    size_t elem;
    uint8_t *in[TENSORS], *out[TENSORS], *alone[TENSORS];
};

static void set_free(struct set *s)
{
    for (int i = 0; i < TENSORS; i++) {
        free(s->in[i]);
        free(s->out[i]);
        free(s->alone[i]);
    }
}

/* Finite random values of very different magnitudes. */
static int set_make(struct set *s, enum hvd_dtype dtype, int rank)
{
    uint64_t state = 88172645463325252ULL + (uint64_t)rank * 7919;
    *s = (struct set){.dtype = dtype, .elem = hvd_dtype_size(dtype)};
    for (int i = 0; i < TENSORS; i++) {
        s->in[i] = malloc(counts[i] * s->elem);
        s->out[i] = malloc(counts[i] * s->elem);
        s->alone[i] = malloc(counts[i] * s->elem);
        if (!s->in[i] || !s->out[i] || !s->alone[i])
            return -ENOMEM;
        for (size_t k = 0; k < counts[i]; k++) {
            uint64_t bits = random_next(&state);
            float f = (float)((double)(int64_t)bits / 9e18 * (double)(1 << (bits & 7)));
            uint16_t half = (uint16_t)(0x2000 + (bits & 0x9fff));
            memcpy(s->in[i] + k * s->elem, dtype == HVD_FLOAT32 ? (void *)&f : (void *)&half,
                   s->elem);
        }
    }
    return 0;
}

/* Reduces tensors order[0..n) as one batch into out. */
static int reduce_batch(struct coll_rank *r, struct set *s, const int *order, size_t n)
{
    struct coll_tensor t[TENSORS];
    for (size_t i = 0; i < n; i++)
        t[i] = (struct coll_tensor){s->in[order[i]], s->out[order[i]], counts[order[i]]};
    struct coll_op op = coll_rank_op(r, HVD_ALLREDUCE, s->dtype, HVD_AVERAGE, t, n);
    return coll_rank_run(r, &op);
}

static int compare(struct coll_rank *r, struct set *s)
{
    for (int i = 0; i < TENSORS; i++) {
        if (memcmp(s->out[i], s->alone[i], counts[i] * s->elem) != 0) {
            printf("rank %d of %d: tensor %d has other bits when fused\n", r->mesh->rank,
                   r->mesh->size, i);
            return -EBADMSG;
        }
    }
    return 0;
}

/* All tensors once. All ranks draw the same batches and order, and each rank its own delays. */
static int shuffled_round(struct coll_rank *r, struct set *s, uint64_t *common, uint64_t *own)
{
    int order[TENSORS], rc = 0;
    for (int i = 0; i < TENSORS; i++) {
        int j = (int)(random_next(common) % (uint64_t)(i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    for (size_t at = 0; at < TENSORS && rc == 0;) {
        size_t n = 1 + random_next(common) % (TENSORS - at);
        usleep((unsigned)(random_next(own) % 3000));
        rc = reduce_batch(r, s, order + at, n);
        at += n;
    }
    return rc < 0 ? rc : compare(r, s);
}

static int check_bits(struct coll_rank *r, enum hvd_dtype dtype, uint64_t *hash)
{
    uint64_t common = 42, own = 4711 + (uint64_t)r->mesh->rank;
    struct set s;
    int rc = set_make(&s, dtype, r->mesh->rank);
    for (int i = 0; i < TENSORS && rc == 0; i++) {
        rc = reduce_batch(r, &s, &i, 1);
        memcpy(s.alone[i], s.out[i], counts[i] * s.elem);
        *hash = hash_bytes(*hash, s.out[i], counts[i] * s.elem);
    }
    for (int round = 0; round < 8 && rc == 0; round++)
        rc = shuffled_round(r, &s, &common, &own);
    set_free(&s);
    return rc;
}

static int bits_rank(int rank, int size, void *arg)
{
    const struct job *job = arg;
    struct coll_rank r;
    if (coll_rank_open(&r, rank, job->hosts) < 0)
        return 10;
    uint64_t hash = 14695981039346656037ULL;
    int rc = check_bits(&r, HVD_FLOAT32, &hash);
    if (rc == 0)
        rc = check_bits(&r, HVD_FLOAT16, &hash);
    if (rc == 0)
        rc = check_bits(&r, HVD_BFLOAT16, &hash);
    job->shared->hash[rank] = hash;
    coll_rank_close(&r);
    return rc < 0 ? 1 : 0;
}

static void run_bits(const char *hosts, int size, int namespaces)
{
    struct job job = {hosts, world_shared(sizeof(struct shared))};
    struct world_options o = {.size = size, .hosts = namespaces, .timeout_s = 90};
    uint64_t before = 0;
    assert_non_null(job.shared);
    for (int run = 0; run < 2; run++) {
        assert_int_equal(world_run_options(&o, bits_rank, &job), 0);
        for (int i = 1; i < size; i++)
            assert_int_equal(job.shared->hash[i], job.shared->hash[0]);
        if (run > 0)
            assert_int_equal(job.shared->hash[0], before);
        before = job.shared->hash[0];
    }
}

static void test_bits(void **state)
{
    const char *const layouts[] = {"aa", "aaa", "ab", "abc", "abcd", "aab", "aabb", "aaabb"};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        printf("ranks on hosts %s\n", layouts[i]);
        run_bits(layouts[i], (int)strlen(layouts[i]), 0);
    }
}

static void test_bits_over_two_hosts(void **state)
{
    if (!world_can_netns("multi/coll_bits/two_hosts"))
        skip();
    run_bits(NULL, 4, 2);
}

/* ---- cancel --------------------------------------------------------------------------------- */

static void wait_for(_Atomic int *counter, int value)
{
    uint64_t deadline = deadline_in_ms(20000);
    while (atomic_load(counter) < value && !deadline_passed(deadline))
        usleep(100);
}

/* One rank, another one in each round, does not start. The other ranks must not finish, and are
 * cancelled at different times. */
static int cancel_one(struct coll_rank *r, const struct coll_op *op, struct shared *sh, int round)
{
    int rank = r->mesh->rank, size = r->mesh->size, rc = 0;
    bool starts = rank != (size - 1 + round) % size;
    struct err err = {0};
    if (starts) {
        rc = coll_start(r->coll, op, &err);
        for (int i = 0; i < 5 && rc >= 0; i++) {
            rc = coll_progress(r->coll);
            if (rc == 0)
                rc = -EBADMSG;
            usleep(1000);
            if (mesh_progress(r->mesh, NULL, &err) < 0)
                rc = -EIO;
        }
        if (rc != 1)
            printf("rank %d: %s of an operation that not all started: %d\n", rank,
                   coll_algorithm(r->coll), rc);
    }
    atomic_fetch_add(&sh->stuck, 1);
    wait_for(&sh->stuck, (round + 1) * size);
    usleep((unsigned)((rank * 7 + round * 3) % 5) * 1000);
    if (starts && rc == 1)
        rc = coll_progress(r->coll);
    coll_cancel(r->coll);
    mesh_next_generation(r->mesh);
    return rc < 0 ? rc : 0;
}

static int cancel_allreduce(struct coll_rank *r, struct shared *sh, size_t n, int round)
{
    auto_free float *data = malloc(n * sizeof(*data));
    if (!data)
        return -ENOMEM;
    int rank = r->mesh->rank, size = r->mesh->size;
    pattern_fill(HVD_FLOAT32, HVD_SUM, rank, size, 0, n, 9, data);
    struct coll_tensor t = {data, data, n};
    struct coll_op op = coll_rank_op(r, HVD_ALLREDUCE, HVD_FLOAT32, HVD_SUM, &t, 1);
    int rc = cancel_one(r, &op, sh, round);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (data[i] != (float)pattern_value(HVD_FLOAT32, HVD_SUM, rank, size, i, 9))
            rc = -EBADMSG;
    if (rc == 0)
        rc = coll_rank_run(r, &op);
    if (rc == 0 && pattern_check(HVD_FLOAT32, HVD_SUM, size, 0, n, 9, data) < n)
        rc = -EBADMSG;
    if (rc < 0)
        printf("rank %d: allreduce of %zu, cancelled and repeated: %s\n", rank, n, strerror(-rc));
    return rc;
}

static int cancel_broadcast(struct coll_rank *r, struct shared *sh, size_t n, int round)
{
    auto_free uint8_t *data = malloc(n);
    if (!data)
        return -ENOMEM;
    int root = round % r->mesh->size;
    memset(data, r->mesh->rank == root ? 7 : 1, n);
    struct coll_tensor t = {data, data, n};
    struct coll_op op = coll_rank_op(r, HVD_BROADCAST, HVD_UINT8, HVD_SUM, &t, 1);
    op.root = root;
    int rc = cancel_one(r, &op, sh, round);
    if (rc == 0 && data[n - 1] != (r->mesh->rank == root ? 7 : 1))
        rc = -EBADMSG;
    if (rc == 0)
        rc = coll_rank_run(r, &op);
    if (rc == 0 && (data[0] != 7 || data[n - 1] != 7))
        rc = -EBADMSG;
    if (rc < 0)
        printf("rank %d: broadcast of %zu, cancelled and repeated: %s\n", r->mesh->rank, n,
               strerror(-rc));
    return rc;
}

static int cancel_rank(int rank, int size, void *arg)
{
    const struct job *job = arg;
    const size_t sizes[] = {1, 1000, 60000, 1000000};
    struct coll_rank r;
    if (coll_rank_open(&r, rank, job->hosts) < 0)
        return 10;
    int rc = 0;
    for (int round = 0; round < 12 && rc == 0; round++) {
        size_t n = sizes[round / 3 % 4];
        rc = round % 3 == 2 ? cancel_broadcast(&r, job->shared, n, round)
                            : cancel_allreduce(&r, job->shared, n, round);
    }
    coll_rank_close(&r);
    return rc < 0 ? 1 : 0;
}

static void test_cancel(void **state)
{
    const char *const layouts[] = {"aa", "aaa", "ab", "abc", "aab", "aabb"};
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        struct job job = {layouts[i], world_shared(sizeof(struct shared))};
        struct world_options o = {.size = (int)strlen(layouts[i]), .timeout_s = 90};
        assert_non_null(job.shared);
        printf("ranks on hosts %s\n", layouts[i]);
        assert_int_equal(world_run_options(&o, cancel_rank, &job), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_bits_over_two_hosts),
        cmocka_unit_test(test_cancel),
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    return cmocka_run_group_tests_name("multi/coll_bits", tests, NULL, NULL);
}
